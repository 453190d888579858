"""Prediction in batches: the Predictor on every form of batch, and many files in bounded memory, resumed by file."""

from __future__ import annotations

import json
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_table import ROLES, SMALL, command, frame

import oneof
import oneof.runs.predictor
from oneof.data.files.batches import find_files
from oneof.learners.config import FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import Run
from oneof.runs.predict_files import PredictionSummary, plan_jobs, predict_file, predict_to_folder
from oneof.runs.predictor import Predictor
from oneof.storage.files import atomic_write

pytestmark = pytest.mark.usefixtures("small_forests")
N_FILES = 3
N_ROWS = 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("predictor")
    frame().to_csv(folder / "animals.csv", index=False)
    return fit_table(folder / "animals.csv", folder / "run", FitSpec(ROLES, config=FitConfig(SMALL)))


def new_rows(seed: int = 1) -> pd.DataFrame:
    rows = frame(N_ROWS, seed=seed).drop(columns=["candidates", "truth"])
    return rows.assign(id=[f"{seed}-{i:03d}" for i in range(N_ROWS)])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "new"
    folder.mkdir()
    paths = []
    for i in range(N_FILES):
        paths.append(folder / f"{i}.parquet")
        new_rows(seed=i).to_parquet(paths[-1])
    return paths


def test_a_predictor_answers_in_the_form_of_the_batch(run: Run) -> None:
    predictor = oneof.Predictor(run.folder, columns=["id"], distribution=True, accuracy=0.7, sets=0.9)
    rows = new_rows()
    rows.index = rows.index + 100
    as_frame = predictor(rows)
    assert as_frame.index.equals(rows.index)
    assert list(as_frame.columns) == ["label", "probability", "abstained", "set", "p(ant)", "p(bee)", "p(cow)", "id"]
    assert as_frame["id"].tolist() == rows["id"].tolist()
    table = predictor(pa.Table.from_pandas(rows, preserve_index=False))
    assert isinstance(table, pa.Table)
    assert table["label"].to_pylist() == [label if isinstance(label, str) else None for label in as_frame["label"]]
    batch = pa.Table.from_pandas(rows, preserve_index=False).to_batches()[0]
    assert predictor(batch).equals(table)
    arrays = predictor({name: rows[name].to_numpy() for name in rows})
    np.testing.assert_array_equal(arrays["probability"], as_frame["probability"])
    assert table.schema.names[:-1] == predictor.schema.names


def test_an_array_needs_a_run_on_numbers_alone(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"hue.*Give a frame"):
        oneof.Predictor(run.folder)(np.zeros((2, 4)))
    frame().drop(columns="hue").to_csv(tmp_path / "numbers.csv", index=False)
    roles = oneof.data.table.ColumnRoles(features=("x*",), ignore=("truth",))
    numbers = fit_table(tmp_path / "numbers.csv", tmp_path / "run", FitSpec(roles, config=FitConfig(SMALL)))
    predictor = oneof.Predictor(numbers.folder)
    rows = new_rows().drop(columns=["hue", "id"])
    predicted = predictor(rows.to_numpy())
    np.testing.assert_allclose(predicted["probability"], predictor(rows)["probability"], atol=1e-6)
    with pytest.raises(ValueError, match=r"\[n, 3\]"):
        predictor(np.zeros((2, 4)))


def test_a_predictor_is_pickled_by_path(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder.parent)
    predictor = Predictor(run.folder.name, columns=["id"])
    expected = predictor(new_rows())
    pickled = pickle.dumps(predictor)
    assert len(pickled) < 2000
    monkeypatch.chdir("/")
    pd.testing.assert_frame_equal(pickle.loads(pickled)(new_rows()), expected)


def test_categories_not_seen_in_training_are_logged_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    predictor = Predictor(run.folder)
    rows = new_rows().assign(hue="purple")
    predictor(rows)
    predictor(rows)
    assert [record.getMessage() for record in caplog.records].count(
        "column 'hue' has categories not seen in training; ignored: 'purple'"
    ) == 1


def test_partitions_of_spark(run: Run) -> None:
    """Spark calls the function with an iterator of frames, and takes an iterator of frames that fit the schema."""
    predictor = pickle.loads(pickle.dumps(Predictor(run.folder, accuracy=0.7)))
    rows = new_rows()
    parts = list(predictor.map_batches(iter([rows[:25], rows[25:]])))
    assert [len(part) for part in parts] == [25, 15]
    for part in parts:
        assert pa.Table.from_pandas(part, predictor.schema, preserve_index=False).schema.equals(
            predictor.schema, check_metadata=False
        )
    joined = pd.concat(parts)
    np.testing.assert_allclose(joined["probability"], predictor(rows)["probability"], atol=1e-6)


def test_batches_of_rows_predict_what_the_whole_file_does(
    run: Run, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor(run.folder, columns=("id", "x0"), accuracy=0.7)
    whole = predict_file(predictor, files[0], tmp_path / "whole.parquet")
    monkeypatch.setattr(oneof.runs.predictor, "_MAX_ROWS", 7)
    monkeypatch.setattr(oneof.runs.predictor, "_MIN_ROWS", 1)
    steps = []
    parts = predict_file(
        predictor, files[0], tmp_path / "parts.parquet", step=lambda steps_=0, **counts: steps.append(counts["steps"])
    )
    assert steps == [7] * 5 + [5]
    assert (parts.n_rows, parts.n_abstained) == (whole.n_rows, whole.n_abstained) == (N_ROWS, whole.n_abstained)
    in_parts = pq.read_table(tmp_path / "parts.parquet")
    at_once = pq.read_table(tmp_path / "whole.parquet")
    assert in_parts.drop_columns("probability").equals(at_once.drop_columns("probability"))
    np.testing.assert_allclose(in_parts["probability"], at_once["probability"], atol=1e-6)


def test_cells_of_a_csv_are_copied_as_they_are_written(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = new_rows().assign(id=[f"{i:03d}" for i in range(N_ROWS)])
    rows["x0"] = rows["x0"].map("{:.3f}".format).replace("nan", "")
    rows.to_csv(tmp_path / "new.csv", index=False)
    arguments = [
        "predict",
        run.folder,
        tmp_path / "new.csv",
        "--out",
        tmp_path / "out.csv",
        "--column",
        "x0",
        "--column",
        "id",
    ]
    assert command(*arguments, capsys=capsys)[0] == 0
    found = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert found["id"].tolist() == rows["id"].tolist()
    assert found["x0"].tolist() == rows["x0"].tolist()


def test_a_bad_cell_is_named_by_its_row_in_the_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oneof.runs.predictor, "_MAX_ROWS", 7)
    monkeypatch.setattr(oneof.runs.predictor, "_MIN_ROWS", 1)
    rows = new_rows()
    rows.loc[30, "x1"] = np.inf
    rows.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad\.parquet, column 'x1', row 30 is inf"):
        predict_file(Predictor(run.folder), tmp_path / "bad.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_without_rows_has_no_predictions(run: Run, tmp_path: Path, ending: str) -> None:
    empty = new_rows()[:0]
    if ending == "csv":
        empty.to_csv(tmp_path / "empty.csv", index=False)
    else:
        empty.to_parquet(tmp_path / "empty.parquet")
    summary = predict_file(
        Predictor(run.folder, columns=["id"]), tmp_path / f"empty.{ending}", tmp_path / "out.parquet"
    )
    assert summary.n_rows == 0
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["label", "probability", "id"]


def test_many_files_are_predicted_into_a_folder_and_resumed(
    run: Run, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["predict", run.folder, tmp_path / "new" / "*.parquet", "--out", out, "--column", "id"]
    code, said, _ = command(*arguments, capsys=capsys)
    assert code == 0
    assert f"{N_FILES * N_ROWS} rows" in said
    assert sorted(path.name for path in out.iterdir()) == [f"{i}.parquet" for i in range(N_FILES)]
    ids = []
    for i in range(N_FILES):
        ids += pq.read_table(out / f"{i}.parquet")["id"].to_pylist()
    assert ids == [f"{i}-{j:03d}" for i in range(N_FILES) for j in range(N_ROWS)]

    stamps = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    (out / "1.parquet").unlink()
    new_rows(seed=9).to_parquet(files[2])
    code, said, progress = command(*arguments, capsys=capsys)
    assert code == 0
    assert f"wrote {out}: {2 * N_ROWS} rows" in said
    assert "1 of 3 files were predicted before" in progress
    assert {path.name for path in out.iterdir() if path.stat().st_mtime_ns == stamps[path.name]} == {"0.parquet"}
    assert pq.read_table(out / "2.parquet")["id"][0].as_py() == "9-000"


def test_other_options_predict_again(run: Run, files: list[Path], tmp_path: Path) -> None:
    jobs = plan_jobs(Predictor(run.folder), files, tmp_path / "out")
    predict_to_folder(Predictor(run.folder), jobs, show=False)
    assert all(job.is_done for job in jobs)
    other = plan_jobs(Predictor(run.folder, distribution=True), files, tmp_path / "out")
    assert not any(job.is_done for job in other)


def test_a_file_that_is_stopped_half_way_leaves_nothing(
    run: Run, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor(run.folder)
    jobs = plan_jobs(predictor, files, tmp_path / "out")

    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    predict_to_folder(predictor, jobs[:1], show=False)
    with monkeypatch.context() as patched:
        patched.setattr(PredictionSummary, "add_batch", stop)
        with pytest.raises(KeyboardInterrupt):
            predict_to_folder(predictor, jobs, show=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.parquet"]
    assert predict_to_folder(predictor, jobs, show=False).n_files == 2


def test_outputs_keep_the_folders_of_their_inputs(run: Run, tmp_path: Path) -> None:
    for name in ("a/x.parquet", "b/x.parquet", "b/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        new_rows().to_csv(tmp_path / name, index=False)
    files = find_files([str(tmp_path / "*" / "x.*"), str(tmp_path / "a" / "x.parquet")])
    jobs = plan_jobs(Predictor(run.folder), files, tmp_path / "out")
    names = [str(job.out.relative_to(tmp_path / "out")) for job in jobs]
    assert names == ["a/x.parquet", "b/x.csv.parquet", "b/x.parquet"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new/*.parquet", "--out", "all.parquet"], "folder for 3 files"),
        (["new/*.csv", "--out", "out"], "nothing matches"),
        (["new/0.parquet", "--out", "one.parquet", "--engine", "ray"], "--engine ray requires a folder"),
        (["new/0.parquet", "--out", "new"], "another folder"),
        (["new/0.parquet", "--out", "out", "--column", "label"], "must be in"),
        (["gone.parquet", "--out", "out"], "no such file"),
    ],
)
def test_wishes_that_cannot_be_met(
    run: Run, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code, _, said = command("predict", run.folder, *arguments, capsys=capsys)
    assert code == 2
    assert words in said
    assert said.count("\n") == 1


def test_an_output_says_what_it_was_made_from(run: Run, files: list[Path], tmp_path: Path) -> None:
    predictor = Predictor(run.folder, columns=["id"])
    jobs = plan_jobs(predictor, files[:1], tmp_path / "out")
    predict_to_folder(predictor, jobs, show=False)
    origin = json.loads(pq.read_metadata(jobs[0].out).metadata[b"oneof.predict"])
    assert origin["file"] == "0.parquet"
    assert origin["columns"] == ["id"]
    with atomic_write(jobs[0].out) as file:
        file.write(b"PAR1 damaged")
    assert not jobs[0].is_done


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_predicts_what_one_process_does(run: Run, files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    from oneof.runs.ray_predict import predict_on_ray

    predictor = Predictor(run.folder, columns=["id"], accuracy=0.7)
    here = plan_jobs(predictor, files, tmp_path / "here")
    there = plan_jobs(predictor, files, tmp_path / "there")
    expected = predict_to_folder(predictor, here, show=False)
    found = predict_on_ray(predictor, there, show=False)
    assert (found.n_files, found.n_rows, found.n_abstained) == (expected.n_files, expected.n_rows, expected.n_abstained)
    for job, other in zip(here, there, strict=True):
        assert pq.read_table(job.out).equals(pq.read_table(other.out))
    assert predict_on_ray(predictor, there, show=False).n_files == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_node_of_ray_that_dies_costs_no_row(run: Run, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    from ray.cluster_utils import Cluster

    from oneof.runs.ray_predict import predict_on_ray

    rows = pd.concat([new_rows(seed=i) for i in range(100)], ignore_index=True)
    files = []
    (tmp_path / "new").mkdir()
    for i in range(40):
        files.append(tmp_path / "new" / f"{i:02d}.parquet")
        rows.assign(id=[f"{i}-{j}" for j in range(len(rows))]).to_parquet(files[-1])
    predictor = Predictor(run.folder, columns=["id"])
    here = plan_jobs(predictor, files, tmp_path / "here")
    there = plan_jobs(predictor, files, tmp_path / "there")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    done_at_removal: list[int] = []

    def remove_node() -> None:
        while sum(job.out.exists() for job in there) < len(there) // 2:
            time.sleep(0.05)
        done_at_removal.append(sum(job.out.exists() for job in there))
        cluster.remove_node(node, allow_graceful=False)

    remover = threading.Thread(target=remove_node, daemon=True)
    remover.start()
    try:
        predict_on_ray(predictor, there, show=False)
        remover.join(timeout=60)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert done_at_removal
    assert done_at_removal[0] < len(there)
    predict_to_folder(predictor, here, show=False)
    ids: list[str] = []
    for job, other in zip(here, there, strict=True):
        assert pq.read_table(job.out).equals(pq.read_table(other.out))
        ids += pq.read_table(other.out)["id"].to_pylist()
    assert len(ids) == len(set(ids)) == len(files) * len(rows)
