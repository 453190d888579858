"""Many Parquet files, larger than memory: a sample is learned from, as large as a learning curve says, and every row is labelled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small_table import ROLES, SMALL, command, frame

import oneof.runs.fit_files
import oneof.runs.stream_networks
from oneof.data.files.columns import open_table
from oneof.data.table import read_columns
from oneof.ensemble.model import Model
from oneof.learners.config import FitConfig
from oneof.runs.clean_files import write_file_labels
from oneof.runs.decisions import Decision
from oneof.runs.fit_files import fit_files, table_files
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import RunOptions
from oneof.runs.folder import Run
from oneof.runs.predictor import Predictor
from oneof.runs.stream_networks import NetworkStream, RowChunk

pytestmark = pytest.mark.usefixtures("small_forests")
N_FILES = 3
N_ROWS = 150
SPEC = FitSpec(replace(ROLES, ignore=("truth", "id")), config=FitConfig(SMALL.without_networks()))


def write_files(folder: Path) -> list[Path]:
    folder.mkdir()
    for i in range(N_FILES):
        rows = frame(N_ROWS, seed=i).assign(id=[f"{i}-{j}" for j in range(N_ROWS)])
        rows.to_parquet(folder / f"{i}.parquet", row_group_size=70)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Path], list[str]]:
    folder = tmp_path_factory.mktemp("files")
    files = write_files(folder / "rows")
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oneof.runs.fit_files, "N_EVAL", 100)
        patch.setattr(oneof.runs.fit_files, "FIRST_SIZE", 20)
        patch.setattr(oneof.runs.fit_files, "MAX_SAMPLED_ROWS", 300)
        run = fit_files(files, folder / "RUN", SPEC, RunOptions(echo=lines.append))
    return run, files, lines


def test_a_learning_curve_chooses_the_rows_to_learn_from(fitted: tuple[Run, list[Path], list[str]]) -> None:
    run, files, lines = fitted
    described = run.metadata["files"]
    curve = described["curve"]
    assert described["paths"] == [str(path) for path in files]
    assert described["rows"] == N_FILES * N_ROWS
    assert [point["rows"] for point in curve[:2]] == [20, 40]
    assert all(later["rows"] <= 2 * earlier["rows"] for earlier, later in pairwise(curve))
    assert described["sampled"] == run.metadata["n"] == 60 + curve[-1]["rows"]  # 60: a fifth of 300, to score the fits
    assert "450 rows" in lines[0]  # said before anything is read
    assert sum("points" in line for line in lines) == len(curve) - 1


def test_the_sample_holds_rows_as_the_files_do(fitted: tuple[Run, list[Path], list[str]]) -> None:
    run, files, _ = fitted
    sample = pq.read_table(run.folder / "table.parquet").to_pandas()
    tables = [pq.read_table(path).to_pandas() for path in files]
    for file, position, name in zip(sample["oneof.file"], sample["oneof.row"], sample["id"], strict=True):
        assert tables[file]["id"][position] == name
    assert sample["id"].is_unique
    assert set(run.metadata["columns"]) == set(tables[0].columns)  # not where the rows are from


def test_every_row_is_labelled_within_its_set(fitted: tuple[Run, list[Path], list[str]], tmp_path: Path) -> None:
    run, files, _ = fitted
    summary = write_file_labels(run, tmp_path / "labels", ["id"])
    assert summary.n_rows == N_FILES * N_ROWS
    sample = pq.read_table(run.folder / "table.parquet").to_pandas().set_index("id")
    sample["label"] = run.purified["label"].to_pylist()
    sample["probability"] = run.purified["probability"].to_pylist()
    predictor = Predictor(run.folder, distribution=True)
    classes = predictor.classes
    n_right = 0
    for path in files:
        table = pq.read_table(path)
        labels = pq.read_table(tmp_path / "labels" / path.name).to_pandas()
        assert labels["id"].tolist() == table["id"].to_pylist()
        predicted = predictor(table).select([f"p({name})" for name in classes]).to_pandas().to_numpy()
        sets = np.array([[name in cell.split("|") for name in classes] for cell in table["candidates"].to_pylist()])
        inside = np.where(sets, predicted, 0)
        for i, row in enumerate(labels.itertuples()):
            expected = (classes[inside[i].argmax()], inside[i].max() / inside[i].sum())
            if row.id in sample.index:  # learned from: by models that were not trained on the row
                expected = (sample["label"][row.id], sample["probability"][row.id])
            assert row.label == expected[0]
            assert row.probability == pytest.approx(expected[1], abs=1e-6)
        n_right += (labels["label"] == table["truth"].to_pandas()).sum()
    assert n_right > 0.85 * N_FILES * N_ROWS


def test_files_that_are_labelled_are_left_until_something_changes(
    fitted: tuple[Run, list[Path], list[str]], tmp_path: Path
) -> None:
    run, files, _ = fitted
    write_file_labels(run, tmp_path / "labels")
    outputs = sorted((tmp_path / "labels").iterdir())
    outputs[1].unlink()
    before = [path.stat().st_mtime_ns for path in (outputs[0], outputs[2])]
    write_file_labels(run, tmp_path / "labels")
    assert [path.stat().st_mtime_ns for path in (outputs[0], outputs[2])] == before
    assert outputs[1].exists()
    place = pq.read_table(run.folder / "table.parquet", columns=["oneof.file", "oneof.row"]).to_pylist()[0]
    candidates = run.purified["original"][0].as_py()
    run.log.write(Decision(0, "label", (candidates[-1],), "ann", before=tuple(candidates)))
    try:
        write_file_labels(Run.open(run.folder), tmp_path / "labels")
        decided = pq.read_table(tmp_path / "labels" / files[place["oneof.file"]].name)
        assert decided["label"][place["oneof.row"]].as_py() == candidates[-1]
    finally:
        (run.folder / "decisions.jsonl").unlink()


def test_a_row_without_a_label_that_was_learned_has_none(
    fitted: tuple[Run, list[Path], list[str]], tmp_path: Path
) -> None:
    run, files, _ = fitted
    sampled = set(pq.read_table(run.folder / "table.parquet")["id"].to_pylist())
    table = pq.read_table(files[0]).to_pandas()
    other = next(i for i, name in enumerate(table["id"]) if name not in sampled)
    original = files[0].read_bytes()
    table.loc[other, "candidates"] = "yak"
    table.to_parquet(files[0])
    try:
        summary = write_file_labels(run, tmp_path / "labels")
    finally:
        files[0].write_bytes(original)
    labels = pq.read_table(tmp_path / "labels" / files[0].name)
    assert labels["label"][other].as_py() is None
    assert labels["ask"][other].as_py()
    assert summary.warning is not None
    assert "1 rows have no label" in summary.warning


def test_a_fit_that_was_stopped_goes_on_with_the_same_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_files(tmp_path / "rows")

    def stop(*arguments: object) -> Run:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(oneof.runs.fit_files, "fit_table", stop)
        with pytest.raises(KeyboardInterrupt):
            fit_files(files, tmp_path / "RUN", SPEC, n_sample=120)
    written = (tmp_path / "RUN" / "table.parquet").stat().st_mtime_ns
    run = fit_files(files, tmp_path / "RUN", SPEC, n_sample=120)
    assert run.metadata["n"] == 120
    assert (tmp_path / "RUN" / "table.parquet").stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="other files or settings"):
        fit_files(files[:2], tmp_path / "RUN", SPEC, n_sample=120)


def test_files_must_have_the_same_columns(tmp_path: Path) -> None:
    files = write_files(tmp_path / "rows")
    pq.write_table(pq.read_table(files[2]).drop_columns("x1"), files[2])
    with pytest.raises(ValueError, match=r"2\.parquet has no column 'x1'"):
        fit_files(files, tmp_path / "RUN", SPEC)
    pq.write_table(pa.table({"candidates": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="at least one row"):
        fit_files([tmp_path / "empty.parquet"], tmp_path / "RUN", SPEC)
    assert not (tmp_path / "RUN").exists()


def test_what_stands_for_many_files(tmp_path: Path) -> None:
    files = write_files(tmp_path / "rows")
    assert table_files(tmp_path / "rows" / "*.parquet") == files
    assert table_files(tmp_path / "rows") == files
    assert table_files(files[0]) == []
    (tmp_path / "rows" / "cat").mkdir()
    assert table_files(tmp_path / "rows") == []  # as a folder of pictures is
    (tmp_path / "rows" / "more.csv").write_text("x,candidates\n")
    with pytest.raises(ValueError, match=r"must be Parquet; .* matches .*more\.csv"):
        table_files(tmp_path / "rows" / "*.*")


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path / "rows")
    rows = tmp_path / "rows" / "*.parquet"
    ignored = ["--ignore", "truth", "--ignore", "id"]
    code, out, err = command(
        "fit", rows, "--out", tmp_path / "RUN", *ignored, "--quick", "--sample", "100", capsys=capsys
    )
    assert code == 0, err
    assert "100 rows are drawn" in out
    assert "To label all 450 rows: oneof clean" in out
    code, out, err = command("clean", tmp_path / "RUN", "--out", tmp_path / "labels", "--column", "id", capsys=capsys)
    assert (code, "450 rows" in out) == (0, True), err
    code, out, err = command(
        "fit", rows, "--out", tmp_path / "RUN2", "--votes", tmp_path / "rows" / "0.parquet", capsys=capsys
    )
    assert code == 2
    assert "--votes needs one table" in err
    code, out, err = command(
        "fit", tmp_path / "rows" / "0.parquet", "--out", tmp_path / "RUN2", "--sample", "100", capsys=capsys
    )
    assert (code, "--sample is for many files" in err) == (2, True)
    assert not (tmp_path / "RUN2").exists()


@pytest.mark.slow
def test_a_folder_is_larger_than_the_memory_that_fit_and_clean_take(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "speed" / "fit_files.py"
    sizes = ["--files", "15", "--rows", "50000", "--columns", "200", "--quick"]  # 1.1 GB
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, *sizes, "--folder", tmp_path], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def network_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, list[Path]]:
    """Networks that learned from few rows, and files with many more."""
    folder = tmp_path_factory.mktemp("networks")
    files = write_files(folder / "rows")
    config = replace(SMALL, learners=("networks",), epochs=1, kernel=None)
    spec = replace(SPEC, config=FitConfig(config))
    return fit_files(files, folder / "RUN", spec, n_sample=30).model, files


def test_networks_go_on_learning_from_all_rows(
    network_run: tuple[Model, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = network_run
    monkeypatch.setattr(oneof.runs.stream_networks, "HELD_OUT_EVERY", 4)
    monkeypatch.setattr(oneof.runs.stream_networks, "BATCH", 8)
    before = [{name: weight.clone() for name, weight in member.stack.weights.items()} for member in model.members]
    stream = NetworkStream(files, SPEC.roles, tmp_path / "state.safetensors")
    better, line = stream(model)
    assert "networks went on learning from all rows: +" in line
    for member, weights in zip(model.members, before, strict=True):
        for name, weight in weights.items():
            assert torch.equal(member.stack.weights[name], weight)  # the model that was given is unchanged
    truth = pd.concat([pd.read_parquet(path) for path in files], ignore_index=True)
    columns = read_columns(open_table(truth), model.encoding.roles)
    features = model.encoding.transform(columns)
    accuracy = []
    for fitted in (model, better):
        label = np.array(fitted.classes)[fitted.probabilities(features).argmax(1)]
        accuracy.append((label == truth["truth"].to_numpy()).mean())
    assert accuracy[1] > accuracy[0]


def test_networks_that_do_not_gain_are_left_out(
    network_run: tuple[Model, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = network_run
    monkeypatch.setattr(oneof.runs.stream_networks, "RATE", 0.0)
    kept, line = NetworkStream(files, SPEC.roles, tmp_path / "state.safetensors")(model)
    assert kept is model
    assert "are left out: +0.00 points" in line


def test_networks_that_were_stopped_go_on_to_the_same_end(
    network_run: tuple[Model, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = network_run
    expected, _ = NetworkStream(files, SPEC.roles, tmp_path / "whole.safetensors")(model)
    stream = NetworkStream(files, SPEC.roles, tmp_path / "state.safetensors")
    read = NetworkStream.rows

    def stop_at_the_last_file(self: NetworkStream, fitted: Model, file: Path) -> Iterator[RowChunk]:
        if file == files[-1]:
            raise KeyboardInterrupt
        return read(self, fitted, file)

    with monkeypatch.context() as patch:
        patch.setattr(NetworkStream, "rows", stop_at_the_last_file)
        with pytest.raises(KeyboardInterrupt):
            stream(model)
    found, _ = stream(model)
    for member, other in zip(expected.members, found.members, strict=True):
        for name, weight in member.stack.weights.items():
            assert torch.equal(weight, other.stack.weights[name])
