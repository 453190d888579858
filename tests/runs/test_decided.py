"""What a person said is final: in the table that clean writes, in the queue, in the sets that are learned from."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call
from run_folder import write_run

from oneof.report.page import render_page
from oneof.review.cards import shown_table
from oneof.runs.decisions import DECISIONS, Decision, Log, ResolvedDecision, decided_sets
from oneof.runs.explain import with_explanations
from oneof.runs.folder import Run, fingerprint

pytestmark = pytest.mark.usefixtures("small_forests")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "RUN", n=120, gold=0, groups=0))


def _asked(run: Run) -> list[dict]:
    rows = [row for row in run.purified.to_pylist() if row["ask"] and len(row["original"]) > 1]
    return sorted(rows, key=lambda row: -row["gain"])


def test_nothing_changes_without_decisions(run: Run) -> None:
    assert run.decided.drop_columns(["decided", "by"]).equals(run.purified)
    assert set(run.decided["decided"].to_pylist()) == {False}


def test_a_decided_row_carries_the_label_everywhere(run: Run) -> None:
    row, other = _asked(run)[:2]
    wanted = next(label for label in row["original"] if label != row["label"])
    log = Log(run.folder)
    log.write(Decision(row["row"], "label", (wanted,), "ann"))
    log.write(Decision(other["row"], "none", ("a new one",), "bob", before=tuple(other["original"])))
    table = with_explanations(run.decided, 5)
    found = table.to_pylist()[row["row"]]
    assert (found["label"], found["kept"], found["probability"], found["margin"]) == (wanted, [wanted], 1.0, 1.0)
    assert (found["ask"], found["queue"], found["decided"], found["by"]) == (False, None, True, "ann")
    assert found["distribution"] == [float(label == wanted) for label in row["original"]]
    assert found["why"] == f"ann decided '{wanted}'."
    assert table.to_pylist()[other["row"]]["label"] == "a new one"
    untouched = [one for one in table.to_pylist() if one["row"] not in (row["row"], other["row"])]
    before = [one for one in run.purified.to_pylist() if one["row"] not in (row["row"], other["row"])]
    assert [one["label"] for one in untouched] == [one["label"] for one in before]


def test_an_unsure_person_shrinks_the_set_and_is_not_asked_again(run: Run) -> None:
    row = next(one for one in _asked(run) if len(one["original"]) > 2)
    left = [label for label in row["original"] if label != row["label"]]
    Log(run.folder).write(Decision(row["row"], "set", tuple(left), "ann"))
    found = run.decided.to_pylist()[row["row"]]
    assert found["kept"] == left
    assert found["label"] in left
    assert sum(found["distribution"]) == pytest.approx(1, abs=1e-5)
    assert (found["ask"], found["decided"], found["by"]) == (False, False, "ann")
    assert (
        with_explanations(run.decided, 5).to_pylist()[row["row"]]["why"].startswith("ann looked at it and was unsure.")
    )


def test_gold_labels_are_final_too_and_a_person_comes_before_them(tmp_path: Path) -> None:
    run = Run.open(write_run(tmp_path / "RUN", n=120, gold=0.3))
    gold = run.purified["gold"].to_pylist()
    first = next(row for row, label in enumerate(gold) if label is not None)
    Log(run.folder).write(Decision(first, "label", ("plain",), "ann"))
    found = run.decided.to_pylist()
    assert found[first]["label"] == "plain"
    rest = [row for row in range(120) if gold[row] is not None and row != first]
    assert [(found[row]["label"], found[row]["ask"], found[row]["by"]) for row in rest] == [
        (gold[row], False, "gold") for row in rest
    ]
    assert any(run.purified["label"][row].as_py() != gold[row] for row in rest)  # what the networks say is still there


def test_sets_to_learn_from() -> None:
    mask = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]], dtype=bool)
    said = {
        0: ResolvedDecision("b", ("b",), (), ("ann",), False),
        1: ResolvedDecision(None, ("a", "b"), (), ("ann",), False),
        2: ResolvedDecision(None, (), ("a", "b"), ("ann",), False),
        3: ResolvedDecision("emu", ("emu",), ("a", "b"), ("ann",), False),
    }
    sets, names = decided_sets(mask, ["a", "b", "c"], said)
    assert names == ["a", "b", "c", "emu"]
    assert sets.astype(int).tolist() == [[0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]]


def test_clean_says_who_decided(tmp_path: Path) -> None:
    from oneof.estimator.classifier import PartialLabelClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    classifier = PartialLabelClassifier(epochs=2, n_estimators=2, scaling="feature", lr=0.1, weight_decay=1e-3)
    classifier.fit(x, [{"a", "b"} if abs(one) < 0.5 else {"ab"[int(one > 0)]} for one in x[:, 0]])
    classifier.save(tmp_path / "RUN")
    Log(tmp_path / "RUN").write(Decision(5, "label", ("b",), "ann"))
    said = call("clean", str(tmp_path / "RUN"), "--out", str(tmp_path / "out.csv"))
    assert said.returncode == 0, said.stderr
    assert "1 decided by people" in said.stdout
    with (tmp_path / "out.csv").open() as file:
        row = list(csv.DictReader(file))[5]
    assert (row["label"], row["by"], row["decided"], row["why"]) == ("b", "ann", "true", "ann decided 'b'.")


def test_decisions_that_belong_to_another_run_are_told_and_ignored(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    row, other = _asked(run)[:2]
    theirs = Decision(other["row"], "label", (other["label"],), "ann", before=("other", "candidates"))
    ours = Decision(row["row"], "label", (row["label"],), "ann", before=tuple(reversed(row["original"])))
    Log(run.folder).write(Decision(5000, "label", ("b",), "ann"), theirs, ours)
    before = (run.folder / DECISIONS).read_bytes()
    decided = run.decided
    assert np.flatnonzero(decided["decided"].to_numpy()).tolist() == [row["row"]]
    assert run.log.active_decisions == [ours]
    (message,) = caplog.messages
    for words in (DECISIONS, "line 1", "row 5000", "line 2", f"row {other['row']}"):
        assert words in message
    assert (run.folder / DECISIONS).read_bytes() == before


def test_the_report_shows_the_item_and_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "n_models", 5)  # the run has no model
    folder = write_run(tmp_path / "RUN", n=60, gold=0, groups=0)
    table = tmp_path / "t.csv"
    pd.DataFrame({"text": [f"<b>thing {k}</b>" for k in range(60)], "x": range(60)}).to_csv(table, index=False)
    facts = json.loads((folder / "run.json").read_text())
    facts |= {"file": str(table), "fingerprint": fingerprint(table), "asked": {"roles": {"text": ["text"]}}}
    (folder / "run.json").write_text(json.dumps(facts))
    run = Run.open(folder)
    first, second = _asked(run)[:2]
    Log(folder).write(Decision(first["row"], "label", (first["label"],), "ann"))
    shown = shown_table(run)
    assert shown["item"].to_pylist() == [f"<b>thing {k}</b>" for k in range(60)]
    assert shown["decision"][first["row"]].as_py() == f"ann: {first['label']}"
    html = render_page(run.metadata, shown, run.training, run.rows)
    queue = html.split('id="ask"')[1].split("</section>")[0]
    assert f"&lt;b&gt;thing {second['row']}&lt;/b&gt;" in queue
    assert f"thing {first['row']}&lt;" not in queue
    assert "decided by people" in html
    assert shown_table(run, ["x"])["item"][7].as_py() == "7"
