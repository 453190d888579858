# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test check slow pages docs wheel clean

demo: $(VENV)/.installed
	$(BIN)/oneof demo

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(BIN)/python -m pytest -q --shuffle 1 tests/storage tests/ensemble/test_accuracy.py tests/runs/test_damaged_runs.py

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow

pages: $(VENV)/.installed # figures, tables and pages anew from results/
	$(BIN)/python benchmarks/accuracy/figures.py --draw
	$(BIN)/python benchmarks/accuracy/image_figures.py
	$(BIN)/python benchmarks/accuracy/votes_tables.py --picture docs/figures/votes.png
	$(BIN)/python benchmarks/readme.py --write

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(VENV)/.installed
	$(BIN)/python -m build --wheel

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
