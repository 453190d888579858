"""README is short, runs as it stands, and its results, as those of docs, are those of the rows."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import check_cv
from snippets import command
from torch.utils.data import DataLoader, TensorDataset

from oneof.candidates.generate import Flip, generate
from oneof.storage.rows import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_it_promises_no_package_on_an_index():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if re.search(r"pip install[^`\n]* ['\"]?oneof", page.read_text())] == []


def test_what_it_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)", README)
    assert [link for link in links if not link.startswith("https:") and not (ROOT / link).exists()] == []


def test_its_links_lead_to_the_repository_on_pypi():
    script = runpy.run_path(str(ROOT / ".ci/readme_for_pypi.py"))
    page = script["with_absolute_links"](README, "https://github.com/owner/oneof", "v1.2.3")
    assert "](https://github.com/owner/oneof/raw/v1.2.3/docs/figures/votes.png)" in page
    assert "[Contributing](https://github.com/owner/oneof/blob/v1.2.3/CONTRIBUTING.md)" in page
    assert re.findall(r"\]\((?!https:)[^)]*\)", page) == []


def test_the_results_are_those_of_the_rows():
    import readme

    for name in readme.MARKED:
        page = (ROOT / name).read_text()
        assert "made by benchmarks/readme.py -->\n\n|" in page
        assert readme.renewed(page) == page
    for name, page in readme.PAGES.items():
        assert page() == (ROOT / name).read_text()


def test_where_the_gain_comes_from_is_what_the_rows_say():
    import pop_gain

    page = (ROOT / "docs/decisions/0010-pop-in-the-tables.md").read_text()
    assert pop_gain.table(read(ROOT / "results/tables.jsonl")) in page


def test_how_often_what_is_said_of_the_accuracy_is_true_is_what_the_rows_say():
    import accuracy_claims

    page = (ROOT / "docs/decisions/0009-accuracy-without-truth.md").read_text()
    assert accuracy_claims.show(read(ROOT / "results/accuracy_claims.jsonl")) in page


def test_the_two_commands_are_there():
    assert "make demo" in README
    assert "make test" in README


@pytest.fixture
def annotated(tmp_path) -> Path:
    """Iris with a second candidate for every other flower, as the files that README reads."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    names, also = np.array(["setosa", "versicolor", "virginica"]), np.random.default_rng(0).integers(3, size=len(X))
    sets = [sorted({a, b} if i % 2 else {a}) for i, (a, b) in enumerate(zip(names[y], names[also], strict=True))]
    X.assign(candidates=sets).to_parquet(tmp_path / "annotated.parquet")
    X.assign(candidates=["|".join(one) for one in sets]).to_csv(tmp_path / "annotated.csv", index=False)
    X[:20].to_csv(tmp_path / "new.csv", index=False)
    X.assign(item=range(len(X))).to_csv(tmp_path / "features.csv", index=False)
    votes = [(i, who, label) for i, one in enumerate(sets) for who, label in enumerate(one)]
    pd.DataFrame(votes, columns=["item", "annotator", "label"]).to_csv(tmp_path / "votes.csv", index=False)
    return tmp_path


def test_its_cross_validation_is_of_a_form_that_scikit_learn_splits():
    """With `cv=3` scikit-learn looks at y before the estimator does, and refuses lists."""
    (form,) = re.findall(r"cross_val_score\(clf, X, (.*), cv=(\d)\)", README)
    table = pd.DataFrame({"candidates": [["cat", "fox"], ["fox"], ["cat"]] * 4})
    y = eval(form[0], {"table": table})
    assert check_cv(int(form[1]), y, classifier=True).get_n_splits() == 3


CODE = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_its_loop_learns():
    """The lines as they stand, around a network and a loader of the reader's."""
    torch.manual_seed(0)
    X, y = load_iris(return_X_y=True)
    x = torch.tensor(X - X.mean(0), dtype=torch.float32)
    net = torch.nn.Linear(4, 3)
    names = {
        "candidates": generate(y, 3, Flip(rate=0.4), seed=0),
        "net": net,
        "loader": DataLoader(TensorDataset(torch.arange(len(x)), x), batch_size=10, shuffle=True),
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
    }
    exec(CODE[1], names)
    assert float((net(x).argmax(1).numpy() == y).mean()) > 0.85
    assert len(names["purifier"].removals.row) > 50


@pytest.mark.slow
def test_its_python_runs(annotated):
    code = CODE[0]
    code += "assert clf.predict(X.head()).tolist() == ['setosa'] * 5\nprint(table['probability'].between(0.3, 1).all())"
    done = subprocess.run([sys.executable, "-c", code], cwd=annotated, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.slow
def test_its_commands_run(annotated):
    lines = re.findall(r"^    (oneof .*?)(?:  +#.*)?$", README, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["fit", "clean", "report", "predict"]
    voted = re.findall(r"`(oneof fit [^`]*--votes [^`]*) --out RUN`", README)
    lines.append(f"{voted[0]} --quick --out VOTED")
    for line in lines:
        assert not command(line, annotated).startswith("oneof: "), line  # what went wrong
    for name in ("labels.csv", "report.html", "predicted.csv"):
        assert (annotated / name).stat().st_size > 0
