"""Every example runs, is short, and does what it says; those of a trainer run where the trainer is installed."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from notebooks import code_cells, execute, printed_text
from snippets import same

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINERS = {
    "with_accelerate.py": ["accelerate"],
    "with_lightning.py": ["lightning", "torchmetrics"],
    "with_skorch.py": ["skorch"],
    "with_transformers.py": ["transformers", "datasets", "accelerate"],
}


NOTEBOOKS = sorted((EXAMPLES / "gallery").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_has_stored(path, tmp_path):
    notebook = json.loads(path.read_text("utf-8"))
    for cell, outputs in zip(code_cells(notebook), execute(notebook, tmp_path), strict=True):
        stored = printed_text(cell["outputs"])
        assert same(stored, printed_text(outputs)), f"{''.join(cell['source'])}\n{stored}\n{printed_text(outputs)}"
        assert [output["output_type"] for output in outputs] == [output["output_type"] for output in cell["outputs"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_has_run_and_is_in_the_gallery(path):
    notebook = json.loads(path.read_text("utf-8"))
    assert path.stat().st_size < 100_000
    assert [cell["execution_count"] for cell in code_cells(notebook)] == [*range(1, len(code_cells(notebook)) + 1)]
    assert any(output["output_type"] == "display_data" for cell in code_cells(notebook) for output in cell["outputs"])
    assert f"({path.stem}.md)" in (EXAMPLES.parent / "docs/gallery/index.md").read_text("utf-8")


def run(folder, *arguments, **environment):
    """Run Python in a folder and return what it printed."""
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = os.environ | {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""} | environment
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def printed_numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text.strip().splitlines()[-1])]


def test_every_example_is_tested():
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {"own_loop.py", *TRAINERS}


def test_own_loop_learns(capsys):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")
    accuracy, size, kept = printed_numbers(capsys.readouterr().out)
    assert accuracy > 0.85
    assert size < 2
    assert kept > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("script", TRAINERS)
def test_a_trainer_learns(script, tmp_path):
    for package in TRAINERS[script]:
        pytest.importorskip(package)
    accuracy, size, *_ = printed_numbers(run(tmp_path, str(EXAMPLES / script)))
    assert accuracy > 0.85
    assert size < 1.5


@pytest.mark.slow
def test_two_processes_of_accelerate_learn(tmp_path):
    pytest.importorskip("accelerate")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    accuracy, size = printed_numbers(
        run(tmp_path, *launch, str(EXAMPLES / "with_accelerate.py"), ACCELERATE_USE_CPU="1")
    )
    assert accuracy > 0.85
    assert size < 1.7


RESUME = {
    "with_transformers.py": """
import runpy, shutil, sys, torch
main = runpy.run_path(sys.argv[1])["main"]
trainer = main("run", epochs=8)
steps = trainer.state.global_step // 8
whole = torch.load(f"run/checkpoint-{8 * steps}/candidates.pt")
for epoch in (7, 8):
    shutil.rmtree(f"run/checkpoint-{epoch * steps}")
main("run", epochs=8, resume=True)
resumed = torch.load(f"run/checkpoint-{8 * steps}/candidates.pt")
torch.testing.assert_close(resumed, whole, rtol=0, atol=0)
print("removed", len(whole["purifier"]["removals"]["row"]), "epoch", int(whole["criterion"]["epoch"]))
""",
    "with_lightning.py": """
import runpy, sys, torch
main = runpy.run_path(sys.argv[1])["main"]
first = main(epochs=16)
first.save_checkpoint("run.ckpt")
before = first.lightning_module
after = main(epochs=17, resume_from="run.ckpt").lightning_module
removed = len(before.purifier.removals.row)
assert torch.equal(after.purifier.removals.row[:removed], before.purifier.removals.row)
assert not (after.criterion.candidates & ~before.criterion.candidates).any()
print("removed", removed, "epoch", after.criterion.epoch)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", RESUME)
def test_a_trainer_saves_and_resumes_the_criterion(script, tmp_path):
    for package in TRAINERS[script]:
        pytest.importorskip(package)
    output = run(tmp_path, "-c", RESUME[script], str(EXAMPLES / script))
    removed, epoch = re.search(r"removed (\d+) epoch (\d+)", output).groups()
    assert int(removed) > 100
    assert int(epoch) == {"with_transformers.py": 8, "with_lightning.py": 17}[script]
