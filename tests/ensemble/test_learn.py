"""One way to learn, many doors: the command, the estimator and a saved run say the same of the same rows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from oneof.candidates.generate import Flip, generate
from oneof.candidates.read import read
from oneof.cli import main
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.data.table import ColumnRoles
from oneof.ensemble.pipeline import fit
from oneof.ensemble.set_likelihood import choose_raw_set_temperature
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.learners.base import Resources
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import Run
from oneof_paper.data.catalogue import load
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")
DATA = mixture(n=240, d=3, c=4, separation=4.0, seed=0)
MASK = generate(DATA.labels, 4, Flip(0.4), seed=1)
NAMES = np.array(["ant", "bee", "cow", "dog"])
SETS = [NAMES[row].tolist() for row in MASK]
SMALL = {"n_estimators": 3, "epochs": 12, "lr": 0.1, "weight_decay": 1e-3}


def frame() -> pd.DataFrame:
    """Decimals that single precision does not hold, as people's tables have them."""
    return pd.DataFrame(DATA.x.round(3), columns=["x0", "x1", "x2"])


def write(folder: Path, **columns: object) -> Path:
    table = frame().assign(candidates=["|".join(labels) for labels in SETS], **columns)
    table.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def command(monkeypatch, capsys, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert not end.value.code, printed.err
    return printed.out


def check_same(clf: PartialLabelClassifier, run: Run) -> None:
    assert clf.transduction_.tolist() == run.purified["label"].to_pylist()
    np.testing.assert_array_equal(clf.label_probability_, run.purified["probability"].to_numpy())
    shares = [row[given] for row, given in zip(clf.label_distributions_, MASK, strict=True)]
    for own, stored in zip(shares, run.purified["distribution"].to_pylist(), strict=True):
        np.testing.assert_allclose(own, np.asarray(stored) / np.sum(stored), atol=1e-6)
    again = PartialLabelClassifier.from_run(run.folder)
    np.testing.assert_array_equal(again.label_distributions_, clf.label_distributions_)
    np.testing.assert_array_equal(again.candidates_, clf.candidates_)
    new = frame() if hasattr(clf, "feature_names_in_") else frame().to_numpy()
    np.testing.assert_array_equal(again.predict_proba(frame()), clf.predict_proba(new))


@pytest.mark.slow
def test_the_estimator_and_the_command_say_the_same_by_default(tmp_path, monkeypatch, capsys):
    command(monkeypatch, capsys, "fit", write(tmp_path), "--out", tmp_path / "run", "--seed", 7)
    clf = PartialLabelClassifier(random_state=7).fit(frame().to_numpy(), SETS)
    check_same(clf, Run.open(tmp_path / "run"))


def test_the_estimator_and_the_command_say_the_same(tmp_path, monkeypatch, capsys):
    setting = tmp_path / "setting.json"
    setting.write_text(json.dumps({"lr": 0.1, "weight_decay": 1e-3}))
    asked = ("--networks", 3, "--epochs", 12, "--settings", setting, "--seed", 7)
    command(monkeypatch, capsys, "fit", write(tmp_path), "--out", tmp_path / "run", *asked)
    clf = PartialLabelClassifier(random_state=7, **SMALL).fit(frame().to_numpy(), SETS)
    check_same(clf, Run.open(tmp_path / "run"))
    other = PartialLabelClassifier(random_state=8, **SMALL).fit(frame().to_numpy(), SETS)
    assert (other.label_distributions_ != clf.label_distributions_).any()


def test_gold_labels_and_groups_mean_the_same_at_both_doors(tmp_path):
    groups = np.arange(240) // 3
    gold = [NAMES[label] if i % 4 == 0 else None for i, label in enumerate(DATA.labels)]
    config = EnsembleConfig(n_networks=3, epochs=6, lr=0.1, weight_decay=1e-3, scalings=("feature", "ranks"))
    file = write(tmp_path, who=groups, gold=gold)
    spec = FitSpec(ColumnRoles(gold="gold", group="who"), config=FitConfig(config, seed=3))
    run = fit_table(file, tmp_path / "run", spec)
    features = frame().to_numpy().astype(np.float32)
    encoding = Encoding(("x0", "x1", "x2"), (0.0, 0.0, 0.0), (), {}, ())
    known = np.where(np.arange(240) % 4 == 0, DATA.labels, -1)
    names = [str(group) for group in groups]
    data = Dataset.build(features, read(SETS), encoding, gold=known, groups=names)
    result = fit(data, FitConfig(config, seed=3), Resources())
    assert result.metadata["rule"] == run.metadata["rule"] == "gold"
    assert result.purified.equals(run.purified)
    clf = PartialLabelClassifier(random_state=3, n_estimators=3, epochs=6, weight_decay=1e-3)
    clf.fit(frame(), SETS, groups=groups, gold=gold)
    assert clf.accuracy_ == clf.result_.accuracy
    assert clf.accuracy_.by == "candidate sets"  # every fourth row is no random sample
    assert clf.result_.purified["group"].to_pylist() == names


def test_networks_hold_out_whole_groups():
    groups = np.arange(240) // 3
    clf = PartialLabelClassifier(random_state=3, n_estimators=3, epochs=2, learners=("networks",))
    sets = [labels if len(labels) < 4 else labels[:1] for labels in SETS]  # full sets are not trained on
    clf.fit(frame(), sets, groups=groups)
    trained = clf.result_.purified["trained"].to_numpy().reshape(80, 3)  # networks that were trained on each row
    assert (trained == trained[:, :1]).all()
    assert set(trained[:, 0]) == {2, 3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gold": ["ant"] * 10}, r"gold must have one entry per row of X; got 10 for 240 rows"),
        ({"gold": [None] * 239 + ["eel"]}, r"gold must hold labels that are in y, .*; row 239 is 'eel'\. Name it in classes="),
        ({"groups": [1, 2]}, r"groups must have one entry per row of X; got 2 for 240 rows"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_rows_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(**SMALL).fit(DATA.x, SETS, **given)


@pytest.fixture(scope="module")
def fitted() -> PartialLabelClassifier:
    return PartialLabelClassifier(random_state=0, **SMALL).fit(frame(), SETS)


def test_every_command_works_on_what_the_estimator_saved(fitted, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    fitted.save(folder)
    said = command(monkeypatch, capsys, "clean", folder, "--out", tmp_path / "labels.csv")
    assert "240 rows" in said
    cleaned = pd.read_csv(tmp_path / "labels.csv")
    assert cleaned["label"].tolist() == fitted.transduction_.tolist()
    np.testing.assert_allclose(cleaned["probability"], fitted.label_probability_, atol=1e-6)
    command(monkeypatch, capsys, "report", folder, "--out", tmp_path / "page.html")
    assert "PartialLabelClassifier" in (tmp_path / "page.html").read_text()
    frame().to_csv(tmp_path / "new.csv", index=False)
    command(monkeypatch, capsys, "predict", folder, tmp_path / "new.csv", "--out", tmp_path / "new.parquet")
    assert pd.read_parquet(tmp_path / "new.parquet")["label"].tolist() == fitted.predict(frame()).tolist()
    again = PartialLabelClassifier.from_run(folder)
    check_same(fitted, again.run_)
    again.save(tmp_path / "copy")
    check_same(fitted, Run.open(tmp_path / "copy"))


def test_a_saved_estimator_can_be_exported(fitted, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx", reason="the extra export is not installed")
    fitted.save(tmp_path / "run")
    where = ("--onnx", tmp_path / "model.onnx", "--torch", tmp_path / "model.pt2")
    said = command(monkeypatch, capsys, "export", tmp_path / "run", *where)
    assert said.count("wrote ") == 2


def test_nothing_is_written_over(fitted, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"folder must be new or empty; .* holds something\. Give another one\."):
        fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_numbers_are_labels_too(tmp_path):
    clf = PartialLabelClassifier(random_state=0, **SMALL).fit(DATA.x, MASK)
    assert clf.transduction_.dtype.kind == "i"
    clf.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    assert again.transduction_.tolist() == clf.transduction_.tolist()


def test_time_stamps_keep_their_digits():
    """Single precision would round 1.7e9 to steps of 128."""
    late = PartialLabelClassifier(random_state=0, **SMALL).fit(DATA.x + 1.7e9, SETS)
    assert late.score(DATA.x + 1.7e9, NAMES[DATA.labels]) > 0.9


def test_the_estimator_takes_one_thread_and_gives_the_others_back(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "oneof.ensemble.pipeline.fit_networks", lambda *_: seen.append(torch.get_num_threads()) or 1 / 0
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(ZeroDivisionError):
            PartialLabelClassifier(**SMALL).fit(DATA.x, SETS)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def mixed() -> pd.DataFrame:
    """Numbers with gaps, a category, a date, free text and an id: what people's frames hold."""
    rng = np.random.default_rng(0)
    table = frame()
    table.loc[rng.permutation(len(table))[:20], "x1"] = np.nan
    hue = pd.Categorical(
        np.where(rng.random(len(table)) < 0.8, np.array(["red", "blue", "red", "grey"])[DATA.labels], "red")
    )
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, len(table)), unit="D")
    return table.assign(
        hue=hue, day=day, note="free text " + pd.Series(range(len(table))).astype(str), id=range(len(table))
    )


def test_a_frame_of_mixed_columns_trains_as_the_same_file_does(tmp_path, caplog):
    table = mixed()
    table.assign(candidates=SETS).to_parquet(tmp_path / "table.parquet")
    task = FitSpec(config=FitConfig(EnsembleConfig(n_networks=3, epochs=12, lr=0.1, weight_decay=1e-3), seed=3))
    run = fit_table(tmp_path / "table.parquet", tmp_path / "run", task)
    clf = PartialLabelClassifier(random_state=3, **SMALL).fit(table, SETS)
    assert "are left out" in caplog.text
    assert ["note" in caplog.messages[0], "id" in caplog.messages[1]] == [True, True]
    assert run.metadata["features"] == clf.model_.encoding.names
    assert any(name.startswith("hue=") for name in run.metadata["features"])
    assert not any(name == "id" or "note" in name for name in run.metadata["features"])
    assert clf.transduction_.tolist() == run.purified["label"].to_pylist()
    np.testing.assert_array_equal(clf.label_probability_, run.purified["probability"].to_numpy())
    again = PartialLabelClassifier.from_run(run.folder)
    np.testing.assert_allclose(clf.predict_proba(table), again.predict_proba(table), atol=1e-6)
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        pytest.raises(ValueError, match="X must be a frame with"),
    ):
        clf.predict(np.zeros((2, table.shape[1])))


@pytest.mark.skipif("ONEOF_DATA" not in os.environ, reason="needs Lost: set ONEOF_DATA")
def test_sets_that_miss_the_truth_do_not_decide_what_the_kernel_learns(monkeypatch):
    """By all sets of Lost, with the truth gone from one in ten, the sets as given are likelier; by those that are believed they are not."""
    data = load("lost")
    rng = np.random.default_rng(0)
    sets = np.asarray(data.candidates).copy()
    gone = rng.permutation(len(sets))[: len(sets) // 10]
    sets[gone, data.labels[gone]] = False
    empty = gone[~sets[gone].any(1)]
    sets[empty, (data.labels[empty] + 1) % sets.shape[1]] = True
    asked = []

    def noted(strangers, mask):
        asked.append((len(mask), choose_raw_set_temperature(strangers, mask)))
        return asked[-1][1]

    monkeypatch.setattr("oneof.ensemble.learner_stages.choose_raw_set_temperature", noted)
    PartialLabelClassifier(n_estimators=1, epochs=1, random_state=0, learners=("networks", "kernel")).fit(data.x, sets)
    ((rows, sharpness),) = asked
    assert 0.85 * len(sets) < rows < len(sets)
    assert sharpness is None
