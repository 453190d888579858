"""`fit`, `predict`, `clean` on a person's own table, from the command line: what is written, resumed, refused."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import call
from sklearn.ensemble import ExtraTreesClassifier
from small_table import LABELS, ROLES, SMALL, command, frame

import oneof.training.loop
from oneof.cli import app
from oneof.data.table import ColumnRoles, read_columns, read_table
from oneof.ensemble.accuracy import sample_order
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.learners.config import FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import RunOptions, fit_table
from oneof.runs.folder import Run, write_json
from oneof.runs.read_dataset import collect_warnings, dataset_from_table
from oneof.runs.summary import summary_rows

pytestmark = pytest.mark.usefixtures("small_forests")
TASK = FitSpec(ROLES, config=FitConfig(SMALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("practice")


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    path = folder / "animals.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(folder: Path, table: Path) -> Run:
    return fit_table(table, folder / "run", TASK)


def test_the_summary_says_which_learners_saw_a_sample(run: Run, table: Path, tmp_path: Path) -> None:
    assert run.metadata["sampled_rows"] == {}
    assert "rows)" not in dict(summary_rows(run))["learners"]
    config = replace(SMALL, learners=("kernel",), max_kernel_rows=60)
    sampled = fit_table(table, tmp_path / "run", replace(TASK, config=FitConfig(config)))
    assert sampled.metadata["sampled_rows"] == {"kernel": 60}
    assert dict(summary_rows(sampled))["learners"] == "kernel 100% (from 60 rows)"


def test_a_run_holds_what_was_agreed(run: Run, table: Path) -> None:
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "model.json", "model.safetensors", "purified.parquet", "rows.jsonl", "run.json", "sample.csv", "training.json",
    ]  # fmt: skip
    facts = run.metadata
    assert facts["n"] == 150
    assert facts["classes"] == LABELS.tolist()
    assert facts["features"][:3] == ["x0", "x1", "x2"]
    assert facts["d"] == len(facts["features"])
    assert facts["file"] == str(table)
    assert facts["estimate"]["verdict"] in ("interval", "bound")
    assert facts["estimate"]["high"] <= facts["estimate"]["bound"] <= 1
    training = run.training
    assert training["trials"] == run.model.t == len(training["chosen"])
    assert len(training["columns"]["loss"]) == training["epochs"]
    assert all(len(row) == run.model.t for row in training["columns"]["set_size"])
    assert len(run.rows) > 0
    assert run.purified.num_rows == 150


def test_labels_and_predictions_are_mostly_right(run: Run) -> None:
    truth = frame()["truth"].to_numpy()
    assert (np.array(run.purified["label"].to_pylist()) == truth).mean() > 0.85
    new = frame(seed=1)
    x = run.model.encoding.transform(read_columns(new, run.model.encoding.roles))
    found = LABELS[run.model.probabilities(x).argmax(1)]
    assert (found == new["truth"]).mean() > 0.8


def test_predict_writes_what_is_asked_for(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame(40, seed=1).drop(columns=["candidates", "truth"]).to_csv(folder / "new.csv", index=False)
    out = folder / "new.parquet"
    wishes = ["--distribution", "--accuracy", "0.7", "--sets", "0.9"]
    code, said, _ = command("predict", run.folder, folder / "new.csv", "--out", out, *wishes, capsys=capsys)
    assert code == 0
    assert "40 rows" in said
    assert "by candidate sets, if wrong labels come into sets by chance, which tests do not refute" in said
    found = pq.read_table(out)
    assert found.column_names == ["label", "probability", "abstained", "set", "p(ant)", "p(bee)", "p(cow)"]
    for row in found.to_pylist():
        assert (row["label"] is None) == row["abstained"]
        assert row["abstained"] or row["label"] == row["set"][0]
        assert row["probability"] == max(row[f"p({name})"] for name in LABELS)


def test_predict_reads_standard_input_and_writes_standard_output(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = frame(5, seed=1).drop(columns=["candidates", "truth"]).assign(number=range(5))
    rows.to_csv(folder / "five.csv", index=False)
    command("predict", run.folder, folder / "five.csv", "--out", folder / "five-labels.csv", capsys=capsys)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((folder / "five.csv").read_bytes())))
    code, out, said = command("predict", run.folder, "-", "--out", "-", "--column", "number", capsys=capsys)
    assert code == 0
    assert "wrote -: 5 rows" in said
    found = pd.read_csv(io.StringIO(out))
    assert found["label"].tolist() == pd.read_csv(folder / "five-labels.csv")["label"].tolist()
    assert found["number"].tolist() == list(range(5))


@pytest.mark.parametrize(
    ("content", "message"), [("", "standard input must have at least one row"), ("z\n1\n", "must be in standard input")]
)
def test_messages_name_standard_input(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    code, _, said = command("predict", run.folder, "-", "--out", "-", capsys=capsys)
    assert code == 2
    assert message in said


def test_predict_names_categories_that_it_does_not_know(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame(5).assign(hue="purple").to_csv(folder / "purple.csv", index=False)
    code, _, said = command("predict", run.folder, folder / "purple.csv", "--out", folder / "p.csv", capsys=capsys)
    assert code == 0
    assert "column 'hue' has categories not seen in training; ignored: 'purple'" in said
    assert len(pd.read_csv(folder / "p.csv")) == 5


def test_predict_refuses_other_columns(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame(5).rename(columns={"x1": "y1"}).to_csv(folder / "other.csv", index=False)
    code, _, said = command("predict", run.folder, folder / "other.csv", "--out", folder / "p2.csv", capsys=capsys)
    assert code == 2
    assert said.startswith("oneof: column 'x1' must be in")
    assert not (folder / "p2.csv").exists()


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_clean_writes_labels_with_reasons(
    run: Run, folder: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / f"labels.{ending}"
    more = ["--all"] if ending == "json" else []
    code, said, _ = command("clean", run.folder, "--out", out, "--column", "hue", *more, capsys=capsys)
    assert code == 0
    assert "150 rows" in said
    if ending == "json":
        for task in json.loads(out.read_text()):
            assert task["data"]["hue"] == frame()["hue"][task["data"]["row"]]
        return
    found = pq.read_table(out).to_pandas() if ending == "parquet" else pd.read_csv(out)
    expected = [
        "row",
        "label",
        "probability",
        "ask",
        "queue",
        "original",
        "probabilities",
        "kept",
        "outside",
        "decided",
        "by",
        "why",
    ]
    assert [name for name in found.columns if name != "hue"] == expected
    assert found["hue"].tolist() == frame()["hue"].tolist()
    if ending == "csv":
        given = [set(cell.split("|")) for cell in frame()["candidates"]]
        assert [set(cell.split("|")) for cell in found["original"]] == given
    in_queue = found.loc[found["ask"], "queue"]
    assert sorted(in_queue) == list(range(1, len(in_queue) + 1))
    assert found["why"].str.len().min() > 10


def test_clean_carries_columns_only_of_the_same_file(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = folder / "moved"
    shutil.copytree(run.folder, moved, dirs_exist_ok=True)
    write_json(run.metadata | {"fingerprint": "other"}, moved / "run.json")
    code, _, said = command("clean", moved, "--out", folder / "l.csv", "--column", "hue", capsys=capsys)
    assert code == 2
    assert "--column requires the training file" in said
    code, _, said = command("clean", run.folder, "--out", folder / "l.csv", "--column", "label", capsys=capsys)
    assert code == 2
    assert "--column must not have the name of a column of the result; got 'label'" in said


def test_the_estimator_opens_a_run(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    classifier = PartialLabelClassifier.from_run(run.folder)
    new = frame(40, seed=1)
    found = classifier.predict_proba(new)
    columns = read_columns(new, run.model.encoding.roles)
    x = run.model.encoding.transform(columns)
    np.testing.assert_allclose(found, run.model.probabilities(x), atol=1e-6)
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_array_equal(classifier.predict(x), classifier.predict(new))
    classifier.predict(new.assign(hue="purple"))
    (said,) = caplog.messages
    assert "column 'hue' has categories not seen in training; ignored: 'purple'" in said
    assert classifier.score(new, new["truth"].to_numpy()) > 0.8
    assert classifier.transduction_.tolist() == run.purified["label"].to_pylist()
    assert classifier.candidates_.sum() == sum(map(len, run.purified["kept"].to_pylist()))
    with pytest.raises(ValueError, match="is expecting 9 features"):
        classifier.predict(x[:, :3])
    classifier.set_params(n_estimators=1, epochs=2, lr=0.1).fit(x[:, :3], new["truth"].to_numpy())
    assert classifier.predict(x[:, :3]).shape == (40,)


# ---------------------------------------------------------------------------------------------- supervision of other kinds


def test_gold_labels_that_no_set_holds_and_row_numbers_are_told() -> None:
    rows = {"item": range(30), "size": np.linspace(0, 1, 30), "candidates": ["cat|fox", "dog|fox", "cat|dog"] * 10}
    table = pa.table({**rows, "gold": ["cat", "Fox", None] * 10})
    mixed = read_table(table, ColumnRoles(gold="gold"))
    said = collect_warnings(dataset_from_table(mixed, Path())[0], mixed, seed=0)
    about_item, about_gold = said[-2:]
    assert re.search(r"left out: item\..* --features '\*' --features 'item'", about_item)
    assert re.search(r"10 gold labels are in no set.* row 1: 'Fox'.* Did you mean 'fox'", about_gold)


def test_gold_labels_calibrate_and_do_not_train(folder: Path) -> None:
    given = frame()
    given["gold"] = given["truth"].where(np.arange(150) % 3 == 0)
    wrong = given.assign(gold="ant")
    given.to_csv(folder / "gold.csv", index=False)
    wrong.to_csv(folder / "wrong.csv", index=False)
    roles = ColumnRoles(features=("x*",), gold="gold", ignore=("truth", "hue"))
    only = replace(
        SMALL, scalings=("feature",), learners=("networks",)
    )  # nothing to choose: so gold labels could only change what is trained
    found = fit_table(folder / "gold.csv", folder / "gold", FitSpec(roles, config=FitConfig(only)))
    other = fit_table(folder / "wrong.csv", folder / "wrong", FitSpec(roles, config=FitConfig(only)))
    assert found.metadata["rule"] == "gold"
    assert found.metadata["estimate"]["by"] == "candidate sets"  # the labels of every third row are no random sample
    assert found.purified["label"] == other.purified["label"]
    assert found.purified["probability"] == other.purified["probability"]
    assert found.purified["gold"].to_pylist()[:4] == [given["truth"][0], None, None, given["truth"][3]]
    taught = fit_table(
        folder / "wrong.csv", folder / "taught", FitSpec(roles, config=FitConfig(only, train_on_gold=True))
    )
    assert taught.purified["probability"] != other.purified["probability"]


def test_a_sample_that_was_filled_in_measures(
    table: Path, run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample, truth = pd.read_csv(run.folder / "sample.csv"), frame()["truth"]
    assert list(sample) == ["row", "candidates", "gold"]
    assert sample["row"].tolist() == sample_order(150)[:50].tolist()
    assert sample["gold"].isna().all()
    file = folder / "answers.csv"
    sample.assign(gold=truth[sample["row"]].to_numpy()).to_csv(file, index=False)
    measured = fit_table(table, folder / "measured", replace(TASK, answers=str(file)))
    assert measured.metadata["estimate"]["by"] == measured.model.calibration["by"] == "gold labels"
    assert measured.metadata["estimate"]["reason"] == "50 rows of a random sample have gold labels"
    for cell, words in (("dragon", "must hold labels that the sets have; line 2 has 'dragon'"), ("", "")):
        sample.assign(gold=cell, row=sample["row"] if words else 150).to_csv(file, index=False)
        code, _, said = command(
            "fit", table, "--out", folder / "no", "--ignore", "truth", "--gold-file", file, capsys=capsys
        )
        assert code == 2
        assert (words or "must name rows from 0 to 149; line 2 has '150'") in said
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must have the columns row and gold; it has a, b"):
        fit_table(table, folder / "no", replace(TASK, answers=str(file)))


def test_exact_sets_exclusions_and_unlabelled_rows_mix(folder: Path) -> None:
    given = frame()
    rows = np.arange(150)
    given["candidates"] = np.where(rows % 4 == 0, given["truth"], given["candidates"])
    given["candidates"] = given["candidates"].where(rows % 4 != 1)
    given["not"] = np.where(rows % 8 == 1, np.where(given["truth"] == "ant", "bee", "ant"), "")
    given["who"] = rows // 3
    given.to_parquet(folder / "mix.parquet")
    roles = ColumnRoles(features=("x*",), exclude="not", group="who", ignore=("truth",), empty="unlabelled")
    found = fit_table(folder / "mix.parquet", folder / "mix", FitSpec(roles, config=FitConfig(SMALL)))
    sizes = [len(one) for one in found.purified["original"].to_pylist()]
    assert sizes[0] == 1
    assert sizes[1] == 2
    assert sizes[5] == 3
    assert found.purified["group"].to_pylist()[:4] == ["0", "0", "0", "1"]
    assert (np.array(found.purified["label"].to_pylist()) == given["truth"]).mean() > 0.8


# ----------------------------------------------------------------------------------------------------- what is refused


def test_a_finished_run_is_not_done_again(run: Run, table: Path) -> None:
    said: list[str] = []
    fit_table(table, run.folder, TASK, RunOptions(echo=said.append))
    assert said == [f"{run.folder} is finished already; nothing to do."]
    with pytest.raises(
        ValueError, match=r"holds a run of other data or options: config.seed was 0, now 1\. Give another folder"
    ):
        fit_table(table, run.folder, replace(TASK, config=replace(TASK.config, seed=1)))


def test_a_changed_file_is_refused(run: Run, folder: Path) -> None:
    frame(seed=3).to_csv(folder / "changed.csv", index=False)
    with pytest.raises(ValueError, match="other data or options: the table was another file, or has changed since"):
        fit_table(folder / "changed.csv", run.folder, TASK)


def test_a_file_that_changes_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "moving.csv"
    frame().to_csv(path, index=False)
    import oneof.runs.fit_table

    read = oneof.runs.fit_table.read_table

    def slowly(file: Path, roles: ColumnRoles) -> object:
        found = read(file, roles)
        path.write_text(path.read_text() + "1,1,1,red,ant,ant\n")
        return found

    monkeypatch.setattr(oneof.runs.fit_table, "read_table", slowly)
    with pytest.raises(ValueError, match=r"moving\.csv must not change while it is read; it did. Repeat the command"):
        fit_table(path, folder / "moving", TASK)


def test_what_cannot_be_learned_stops(folder: Path) -> None:
    pd.DataFrame({"x": [1.0, 2.0, 3.0], "candidates": ["a|b"] * 3}).to_csv(folder / "full.csv", index=False)
    with pytest.raises(ValueError, match=r"full\.csv cannot be learned from: every set is full"):
        fit_table(folder / "full.csv", folder / "full", FitSpec())


def test_a_folder_with_something_else_is_left_alone(table: Path, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"out must be a new or empty folder; .*mine holds something else"):
        fit_table(table, folder / "mine", TASK)


@pytest.mark.parametrize("name", ["run.json", "purified.parquet", "training.json", "rows.jsonl"])
def test_damaged_parts_are_named(run: Run, folder: Path, name: str) -> None:
    copy = folder / f"without-{name}"
    shutil.copytree(run.folder, copy)
    (copy / name).write_bytes(b"\xff{")
    part = {"purified.parquet": "purified", "training.json": "training", "rows.jsonl": "rows"}.get(name, "folder")
    with pytest.raises(ValueError, match=f"a run must hold {name}; in .* it is missing or damaged. Fit it again"):
        getattr(Run.open(copy), part)


def test_damaged_models_are_refused(run: Run, folder: Path) -> None:
    copy = folder / "broken"
    shutil.copytree(run.folder, copy)
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-1] + b"?")
    with pytest.raises(ValueError, match=r"model\.safetensors must be the file that was written; it was changed"):
        _ = Run.open(copy).model
    write_json({"format": 99}, copy / "model.json")
    with pytest.raises(ValueError, match="must hold a model of format 1; it has another"):
        _ = Run.open(copy).model
    shutil.copy(run.folder / "model.json", copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="must hold a whole model"):
        _ = Run.open(copy).model


def test_what_is_no_run_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="a run must be a folder that oneof fit wrote; there is no"):
        Run.open(folder / "nowhere")
    (folder / "stopped" / "checkpoint").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"the run in .* must be finished; it was stopped. Repeat its command"):
        Run.open(folder / "stopped")


def test_fit_does_not_run_the_test_of_dependence_that_it_says_nothing_of(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the test of dependence was run")

    monkeypatch.setattr("oneof.inspect.find_dependence", refuse)
    done = call("fit", str(table), "--out", str(tmp_path / "run"), "--ignore", "truth", "--quick")
    assert done.returncode == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "was run" in call("inspect", str(table)).stderr


def test_clean_reads_no_weights(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    assert call("clean", str(run.folder), "--out", str(first)).returncode == 0
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    (copy / "model.safetensors").unlink()
    done = call("clean", str(copy), "--out", str(second))
    assert done.returncode == 0, done.stderr
    assert second.read_bytes() == first.read_bytes()
    assert Run.open(copy).n_models == run.model.n_models


# ------------------------------------------------------------------------------------------------- killed, full, unwritable

FIT = """
import sys, torch
from pathlib import Path
from oneof.data.table import ColumnRoles
from oneof.data.encode import learn_encoding
from oneof.ensemble.accuracy import sample_order
from oneof.learners.config import FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.learners.config import EnsembleConfig, FitConfig
torch.set_num_threads(1)
roles = ColumnRoles(features=("x*", "hue"), ignore=("truth",))
space = EnsembleConfig(scalings=("feature", "ranks"), lr=0.1, weight_decay=1e-3, n_networks=3, epochs=25, n_folds=None)
fit_table(Path(sys.argv[1]), Path(sys.argv[2]), FitSpec(roles, config=FitConfig(space)))
"""


def test_killed_and_repeated_it_ends_with_the_same_model(run: Run, table: Path, folder: Path) -> None:
    out = folder / "killed"
    process = subprocess.Popen([sys.executable, "-c", FIT, str(table), str(out)])
    while not (out / "checkpoint" / "search").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "run.json").exists()
    with pytest.raises(ValueError, match=r"holds a run of other data or options: config\.seed was 0, now 5"):
        fit_table(table, out, replace(TASK, config=replace(TASK.config, seed=5)))
    again = fit_table(table, out, TASK)
    assert (out / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()
    assert again.purified == run.purified
    assert not (out / "checkpoint").exists()


QUICK = ("--ignore", "truth", "--networks", "2", "--epochs", "4")


def interrupt_in(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, at: int | None = None) -> list[int]:
    """Count the calls of a function; Ctrl-C comes in the one whose number is given."""
    function, calls = getattr(owner, name), []

    def counted(*arguments: object, **options: object) -> object:
        calls.append(len(calls) + 1)
        if calls[-1] == at:
            signal.raise_signal(signal.SIGINT)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


STAGES = {"networks": (oneof.training.loop, "step", 7), "trees": (ExtraTreesClassifier, "fit", 4)}


@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_in_a_short_fit_the_same_command_goes_on(
    stage: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: dict[str, list[int]] = {}

    def fit(name: str, interrupted: str = "") -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patched:
            for counted, (owner, function, at) in STAGES.items():
                done[counted] = interrupt_in(patched, owner, function, at if counted == interrupted else None)
            return call("fit", str(table), "--out", str(tmp_path / name), *QUICK)

    assert fit("whole").returncode == 0
    steps, parts = len(done["networks"]), len(done["trees"])
    stopped = fit("stopped", interrupted=stage)
    assert stopped.returncode == 130
    assert "Run the same command again to continue" in stopped.stderr
    assert fit("stopped").returncode == 0
    if stage == "networks":
        assert (len(done["networks"]), len(done["trees"])) == (steps - 7, parts)
    else:
        assert (len(done["networks"]), len(done["trees"])) == (0, parts - 3)
    first, second = (tmp_path / name / "model.safetensors" for name in ("whole", "stopped"))
    assert first.read_bytes() == second.read_bytes()


def test_a_fit_against_the_clock_does_not_promise_to_go_on(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_in(monkeypatch, oneof.training.loop, "step", 2)
    stopped = call("fit", str(table), "--out", str(tmp_path / "run"), *QUICK, "--time-limit", "60")
    assert stopped.returncode == 130
    assert stopped.stderr == "oneof: stopped.\n"


def test_a_full_disk_ends_with_one_line(
    table: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, said = command("fit", table, "--out", folder / "disk", "--ignore", "truth", capsys=capsys)
    assert code == 2
    assert said.count("\n") == 1
    assert "no space left on device" in said
    assert str(folder / "disk") in said
    assert list((folder / "disk").rglob("*.part")) == []


def test_an_unwritable_folder_ends_with_one_line(table: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    code, _, said = command("fit", table, "--out", folder / "file" / "run", "--ignore", "truth", capsys=capsys)
    assert code == 2
    assert "file/run" in said
    assert "not a directory" in said
    assert said.count("\n") == 1


def test_two_hundred_classes_with_one_row_each(folder: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"kind {i}" for i in range(200)]
    sets = ["|".join({names[i], names[rng.integers(200)]}) for i in range(200)]
    given = pd.DataFrame(rng.normal(size=(200, 4)), columns=list("abcd")).assign(candidates=sets)
    given.to_csv(folder / "kinds.csv", index=False)
    found = fit_table(folder / "kinds.csv", folder / "kinds", FitSpec(config=FitConfig(SMALL)))
    assert found.purified.num_rows == 200
    assert len(found.model.classes) == 200


def test_all_commands_are_there() -> None:
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {"fit", "predict", "clean", "export"} <= names


def test_a_time_limit_leaves_out_what_does_not_fit_and_says_so(folder: Path) -> None:
    frame().to_csv(folder / "limited.csv", index=False)
    roles = ColumnRoles(features=("x*",), ignore=("truth", "hue"))
    said: list[str] = []
    run = fit_table(
        folder / "limited.csv",
        folder / "limited",
        FitSpec(roles, config=FitConfig(SMALL)),
        RunOptions(time_limit=0.0, echo=said.append),
    )
    assert said[-2:] == [
        "--time-limit: there was no time for networks.",
        "--time-limit: there was no time for trees.",
    ]
    assert run.metadata["learners"] == {"kernel": 1.0}
    assert run.metadata["warnings"][-2:] == said[-2:]
    whole = fit_table(
        folder / "limited.csv", folder / "whole", FitSpec(roles, config=FitConfig(SMALL)), RunOptions(time_limit=600.0)
    )
    assert whole.training["epochs"] == SMALL.epochs
