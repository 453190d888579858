"""Frozen outputs of whole fits: labels, probabilities, verdicts and predictions of every kind of input, at small settings.

They hold the behaviour while the code is rearranged. To renew them after a change of the algorithm, run this file, and say in the
commit why they moved:

    python tests/golden/test_frozen.py [case ...]

On the kind of processor that wrote them, probabilities are compared to 1e-6. Elsewhere sums are rounded differently, so that they are
compared to 0.02, and labels where the frozen margin is larger than that.
"""

from __future__ import annotations

import csv
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from commands import call
from golden.cases import CASES

FROZEN = Path(__file__).parent / "frozen"
COLUMNS = ("label", "probability", "margin", "ask", "kept")


def processor() -> str:
    """Return the processor's model and torch's version: what rounding depends on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, torch {torch.__version__}"


def _run(*arguments: str) -> None:
    done = call(*arguments)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"


def _read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def observe(run: Path, table: Path, folder: Path) -> dict[str, Any]:
    """Return what a person gets from a run: the label of every row, the claim of accuracy, predictions of the table's rows."""
    _run("clean", str(run), "--details", "--out", str(folder / "labels.csv"))
    rows = _read_csv(folder / "labels.csv")
    observed: dict[str, Any] = {name: [row[name] for row in rows] for name in COLUMNS}
    for name in ("probability", "margin"):
        observed[name] = [round(float(value), 7) for value in observed[name]]
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    observed["verdict"] = facts["estimate"]["verdict"]
    observed["bound"] = round(facts["estimate"]["bound"], 7)
    observed["learners"] = facts["learners"]
    if facts["d"]:  # votes alone predict nothing
        _run("predict", str(run), str(table), "--out", str(folder / "predicted.csv"))
        predicted = _read_csv(folder / "predicted.csv")
        observed["predicted"] = [row["label"] for row in predicted]
        observed["predicted probability"] = [round(float(row["probability"]), 7) for row in predicted]
    return observed


def make(case: str, folder: Path) -> dict[str, Any]:
    """Fit a case and return what a person gets."""
    arguments = CASES[case](folder)
    _run("fit", *arguments, "--out", str(folder / "run"))
    return observe(folder / "run", Path(arguments[0]), folder)


def make_refit(folder: Path) -> dict[str, Any]:
    """Fit, decide some rows as a reviewer would, fit again from the decisions, and return what a person gets."""
    from oneof.runs.decisions import Decision, Log

    arguments = CASES["numbers"](folder)
    _run("fit", *arguments, "--out", str(folder / "run"))
    rows = _read_csv(Path(arguments[0]))
    log = Log(folder / "run")
    for row in range(0, 40, 2):
        label = rows[row]["candidates"].split("|")[0]
        log.write(Decision(row, "label", (label,), "ann"))
    _run("fit", "--from", str(folder / "run"), "--out", str(folder / "again"))
    return observe(folder / "again", Path(arguments[0]), folder)


def measure(case: str, folder: Path) -> dict[str, Any]:
    return make_refit(folder) if case == "refit" else make(case, folder)


ALL_CASES = [*CASES, "refit"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_CASES)
def test_frozen(case: str, tmp_path: Path) -> None:
    frozen = json.loads((FROZEN / f"{case}.json").read_text(encoding="utf-8"))
    observed = measure(case, tmp_path)
    same_machine = frozen.pop("processor") == processor()
    tolerance = 1e-6 if same_machine else 0.02
    assert observed.keys() == frozen.keys()
    assert observed["verdict"] == frozen["verdict"]
    for name in ("probability", "margin", "predicted probability"):
        if name in frozen:
            assert observed[name] == pytest.approx(frozen[name], abs=tolerance), name
    decided = np.array(frozen["margin"]) > 2 * tolerance
    assert (np.array(observed["label"]) == np.array(frozen["label"]))[decided].all()
    if same_machine:
        for name in ("ask", "kept", "predicted"):
            assert observed.get(name) == frozen.get(name), name


if __name__ == "__main__":
    import tempfile

    torch.set_num_threads(1)
    FROZEN.mkdir(exist_ok=True)
    for name in sys.argv[1:] or ALL_CASES:
        with tempfile.TemporaryDirectory() as temporary:
            found = {"processor": processor(), **measure(name, Path(temporary))}
        (FROZEN / f"{name}.json").write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"froze {name}")
