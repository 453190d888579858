"""Learning again from what people decided: their labels teach, settings and weights are taken along, and a review goes on with the new run."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from small_table import LABELS, ROLES, SMALL, command, frame

from oneof.ensemble.accuracy import sample_order
from oneof.learners.config import FitConfig
from oneof.review import session
from oneof.review.session import Review
from oneof.runs.decisions import Decision, Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_again, fit_table
from oneof.runs.folder import Run
from oneof.runs.refit import EPOCHS_DIVISOR, Refit
from oneof.storage.settings import from_serializable
from oneof.votes.read import VotesFile

pytestmark = pytest.mark.usefixtures("small_forests")
*DRAWN, FIRST, SECOND = sample_order(150)[:42].tolist()
ONE_LAYER = replace(SMALL, hidden=(256,), weight_decay=1e-3)  # few rows: deeper networks turn one in doubt
ONE_LAYER = replace(ONE_LAYER, learners=("networks", "trees", "kernel"))  # linear models would take the networks' place
UNSURE, LATE = [FIRST, SECOND], int(sample_order(150)[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("again")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    frame().to_csv(folder / "animals.csv", index=False)
    made = fit_table(folder / "animals.csv", folder / "run", FitSpec(ROLES, config=FitConfig(ONE_LAYER, seed=3)))
    log, truth = Log(made.folder), frame()["truth"]
    for row in DRAWN:
        log.write(Decision(row, "label", (truth[row],), "ann", drawn="random"))
    wrong = [next(label for label in LABELS.tolist() if label != truth[row]) for row in UNSURE]
    log.write(Decision(UNSURE[0], "set", (truth[UNSURE[0]], wrong[0]), "bob"))
    log.write(Decision(UNSURE[1], "set", (truth[UNSURE[1]], wrong[1]), "bob"))
    return made


@pytest.fixture(scope="module")
def again(run: Run, folder: Path) -> Run:
    return fit_again(run.folder, folder / "run-2")


def test_decisions_teach_and_go_along(run: Run, again: Run) -> None:
    truth = frame()["truth"].to_numpy()
    label = np.array(again.purified["label"].to_pylist())
    assert (label[DRAWN] == truth[DRAWN]).all()
    assert again.purified["kept"].to_pylist()[DRAWN[0]] == [truth[DRAWN[0]]]
    assert again.purified["original"].equals(run.purified["original"])
    assert again.metadata["taught"] == sorted([*DRAWN, *UNSURE])
    assert Log(again.folder).active_decisions == Log(run.folder).active_decisions
    assert (label == truth).mean() >= (np.array(run.purified["label"].to_pylist()) == truth).mean()


def test_settings_are_taken_and_training_is_shorter(run: Run, again: Run) -> None:
    assert again.metadata["chosen"] == run.metadata["chosen"]
    assert again.metadata["seed"] == 3
    assert again.training["epochs"] == max(3, SMALL.epochs // EPOCHS_DIVISOR)
    assert [row for row in again.rows if row["stage"] == "networks"] == []
    assert again.training["columns"]["loss"][0] < run.training["columns"]["loss"][0]  # the weights, too


def test_sets_that_the_run_did_not_believe_teach_nothing_unless_people_decided(run: Run, folder: Path) -> None:
    at = run.purified.column_names.index("outside")
    doubtful = run.purified.set_column(at, "outside", pa.array(["ant"] * 150))
    again = Refit(SimpleNamespace(purified=doubtful, metadata=run.metadata), tuple(Log(run.folder).active_decisions))  # type: ignore[arg-type]
    noisy = again._noisy_sets()
    assert np.flatnonzero(~noisy).tolist() == sorted([*DRAWN, *UNSURE])


def test_random_answers_make_the_estimate(run: Run, again: Run) -> None:
    assert run.metadata["estimate"]["by"] == "candidate sets"
    assert again.metadata["estimate"]["by"] == "gold labels"
    assert "gold" not in again.purified.column_names


def test_answers_of_the_queue_make_no_estimate(run: Run, folder: Path) -> None:
    hard = fit_table(folder / "animals.csv", folder / "hard", FitSpec(ROLES, config=FitConfig(SMALL)))
    log, truth = Log(hard.folder), frame()["truth"]
    for row in sample_order(150)[1:41].tolist():  # the first of those that are drawn has no answer
        log.write(Decision(row, "label", (truth[row],), "ann", drawn="queue"))
    assert fit_again(hard.folder, folder / "hard-2").metadata["estimate"]["by"] == "candidate sets"


def test_a_label_that_was_typed_becomes_a_class(run: Run, folder: Path) -> None:
    typed = fit_table(folder / "animals.csv", folder / "typed", FitSpec(ROLES, config=FitConfig(SMALL)))
    candidates = typed.purified["original"][7].as_py()
    Log(typed.folder).write(Decision(7, "none", ("emu",), "ann", before=tuple(candidates)))
    found = fit_again(typed.folder, folder / "typed-2")
    assert found.model.classes == [*LABELS, "emu"]
    assert found.decided["label"][7].as_py() == "emu"
    assert found.training["epochs"] == SMALL.epochs  # the old networks have no output for it


def test_votes_give_way_to_decisions(folder: Path) -> None:
    given = frame(60)
    sets = given["candidates"].str.split("|")
    rows = [(i, f"p{k % 3}", label) for i, names in enumerate(sets) for k, label in enumerate(names)]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "votes.csv", index=False)
    given.drop(columns=["candidates", "truth", "hue"]).assign(item=range(60)).to_csv(folder / "voted.csv", index=False)
    task = FitSpec(votes=VotesFile(str(folder / "votes.csv")), config=FitConfig(SMALL))
    run = fit_table(folder / "voted.csv", folder / "voted", task)
    row = next(i for i, names in enumerate(sets) if len(names) == 1)
    other = next(label for label in LABELS if label != sets[row][0])
    candidates = tuple(run.purified["original"][row].as_py())
    assert other in candidates
    Log(run.folder).write(Decision(row, "label", (other,), "ann", before=candidates))
    found = fit_again(run.folder, folder / "voted-2")
    assert found.purified["original"].equals(run.purified["original"])  # by which decisions are recognised
    assert found.purified["label"][row].as_py() == other
    assert found.metadata["people"]


def test_the_command_takes_a_run_or_a_table(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = [
        (
            ["--from", run.folder, folder / "animals.csv"],
            f"--from must be without FILE and settings, which it takes from {run.folder}",
        ),
        (
            ["--from", run.folder, "--epochs", "3"],
            f"--from must be without FILE and settings, which it takes from {run.folder}",
        ),
        ([], "fit needs FILE, or --from RUN."),
    ]
    for more, message in refused:
        code, _, said = command("fit", *more, "--out", folder / "no", capsys=capsys)
        assert code == 2
        assert message in said
        assert not (folder / "no").exists()
    code, said, _ = command("fit", "--from", run.folder, "--out", folder / "run-9", capsys=capsys)
    assert code == 0
    assert "accuracy on new rows" in said
    code, said, _ = command("fit", "--from", run.folder, "--out", folder / "run-9", capsys=capsys)
    assert "is finished already" in said


def test_a_table_that_changed_is_refused(folder: Path) -> None:
    frame(60).to_csv(folder / "short.csv", index=False)
    made = fit_table(folder / "short.csv", folder / "short", FitSpec(ROLES, config=FitConfig(SMALL)))
    frame(61).to_csv(folder / "short.csv", index=False)
    with pytest.raises(
        ValueError, match=r"--from needs the table that .* was learned from, unchanged; .* is missing, or has changed"
    ):
        fit_again(made.folder, folder / "short-2")


def test_a_setting_of_an_unknown_kind_is_told() -> None:
    with pytest.raises(ValueError, match="a setting must be of a kind that this version knows; got 'Mine'"):
        from_serializable({"kind": "Mine"}, {})


def test_a_review_goes_on_with_what_was_learned(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    review = Review(Path(shutil.copytree(run.folder, folder / "other")))  # others look at the run's own log
    (folder / "other-2").mkdir()

    def fit(asked: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        command = asked[asked.index("oneof") :]
        assert command[:3] == ["oneof", "fit", "--from"]
        fit_again(Path(command[3]), Path(command[command.index("--out") + 1]))
        review.log.write(Decision(LATE, "label", ("bee",), "eve"))  # somebody decides meanwhile
        return subprocess.CompletedProcess(asked, 0, "", "")

    monkeypatch.setattr(session.subprocess, "run", fit)
    before = review.id
    review.learn()
    for _ in range(600):
        if review.state("ann")["learning"]["state"] != "running":
            break
        time.sleep(0.05)
    assert review.state("ann")["learning"]["state"] == "done"
    assert review.run.folder.name == "other-3"  # other-2 is there
    assert review.id != before
    assert LATE in [one.row for one in Log(review.run.folder).active_decisions]
    assert not set(review.audit_order) & set(review.run.metadata["taught"])
    monkeypatch.setattr(
        session.subprocess, "run", lambda asked, **_: subprocess.CompletedProcess(asked, 2, "", "oneof: no")
    )
    review._learn(review.run.folder)
    assert review.state("ann")["learning"] == {"state": "failed", "text": "oneof: no"}
