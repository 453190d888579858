"""Files of a run that were cut, emptied or edited: one line that names the file and what it lacks, and exit code 2."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load, save

from oneof.cli import main
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.report.training_section import draw_training
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_again, fit_table
from oneof.runs.folder import Run
from oneof.runs.stored_model import checksum

SMALL = EnsembleConfig(scalings=("both",), lr=0.1, weight_decay=1e-3, n_networks=2, epochs=3, n_folds=None)
FILES = ["model.json", "model.safetensors", "purified.parquet", "rows.jsonl", "run.json", "training.json"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    table = pd.DataFrame(np.eye(3)[truth] + rng.normal(size=(60, 3)), columns=["x", "y", "z"])
    table["candidates"] = ["|".join({"abc"[k], "abc"[j]}) for k, j in zip(truth, rng.integers(3, size=60), strict=True)]
    table.loc[3, "x"] = np.nan
    table.to_csv(folder / "table.csv", index=False)
    return fit_table(folder / "table.csv", folder / "run", FitSpec(config=FitConfig(SMALL))).folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def command(name: str, run: Path) -> list[str]:
    out = run.parent
    table = run.parent / "table.csv"
    return {
        "report": ["report", str(run), "--out", str(out / "page.html")],
        "predict": ["predict", str(run), str(table), "--out", str(out / "found.csv"), "--sets", "0.9"],
        "clean": ["clean", str(run), "--out", str(out / "labels.csv")],
        "fit": ["fit", str(table), "--out", str(run)],
    }[name]


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """What a command that must fail says."""
    monkeypatch.setattr(sys, "argv", ["oneof", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2, said
    assert said.startswith("oneof: ")
    assert said.count("\n") == 1
    return said


def read_all(folder: Path) -> None:
    run = Run.open(folder)
    _ = run.purified, run.training, run.rows, run.model, run.log


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    if isinstance(facts.get("checksum"), str):
        facts["checksum"] = checksum(facts)
    path.write_text(json.dumps(facts))


def claim_embedding(width: int) -> Callable[[dict[str, Any]], object]:
    part = {"column": "text", "kind": "text", "model": "m", "width": width}
    return lambda facts: facts["encoding"]["embedded"].append(part)


def claim_pixels(channels: int) -> Callable[[dict[str, Any]], object]:
    def change(facts: dict[str, Any]) -> None:
        facts["encoding"]["pixels"] = [{"column": "file", "channels": channels, "side": 8}]
        facts["members"] = [{"networks": 1, "network": "lenet", "pixels": [channels, 8, 8]}]

    return change


def claim_member(**claims: object) -> Callable[[dict[str, Any]], object]:
    return lambda facts: facts["members"][0].update(claims)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (claim_embedding(3_000_000), "it claims 3,000,0"),
        (claim_embedding(10**12), "it claims 1,000,000,000,0"),
        (claim_embedding(-3), "encoding.embedded.width must be positive"),
        (claim_pixels(50_000), "encoding.pixels must have 1 or 3 channels"),
        (claim_pixels(10**9), "encoding.pixels must have 1 or 3 channels"),
        (claim_member(hidden=[1] * 100_000), "members.hidden must have at most 1,000 layers"),
        (claim_member(networks=10**9), "members must have at most 10,000 networks"),
        (claim_member(hidden=[2**64]), "members must have sizes of at most 2,147,483,648"),
    ],
)
def test_what_a_model_claims_is_summed_before_anything_is_made_of_it(
    run: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(run / "model.json", change)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"model\.json must .*{re.escape(words)}"):
            _ = Run.open(run).model
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_a_purified_table_of_another_size_is_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    table = pq.read_table(run / "purified.parquet")
    pq.write_table(table.slice(0, 59), run / "purified.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", refuse)
    with pytest.raises(ValueError, match=r"purified\.parquet must .*it has 59 rows, but run\.json says 60"):
        _ = Run.open(run).purified
    pq.write_table(table, run / "purified.parquet")
    monkeypatch.setattr("oneof.runs.folder.GIGABYTES", 1e-6)
    with pytest.raises(ValueError, match=r"purified\.parquet must .*it holds more than 1e-06 GB"):
        _ = Run.open(run).purified


def test_lists_that_are_longer_than_any_row_can_have_are_not_read(run: Path) -> None:
    """A long run of one value takes next to no bytes, and a table that is read in batches has no largest size."""
    table = pq.read_table(run / "purified.parquet")
    offsets = pa.array([0] + [1_000_000] * table.num_rows, pa.int32())
    long_lists = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(1_000_000, dtype=np.int64)))
    position = table.column_names.index("neighbours")
    pq.write_table(table.set_column(position, "neighbours", long_lists), run / "purified.parquet")
    assert (run / "purified.parquet").stat().st_size < 100_000
    opened = Run.open(run)
    for read in (lambda: opened.purified, lambda: opened.original, lambda: list(opened.purified_batches(10))):
        with pytest.raises(ValueError, match=r"purified\.parquet must .*its lists are longer than"):
            read()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trees", "count"), 10**12),
        (("kernel", "rounds"), 10**12),
        (("n_networks",), 10**12),
        (("n_folds",), 10**12),
        (("hidden",), [10**12]),
        (("epochs",), -1),
    ],
)
def test_settings_of_a_run_that_would_never_end_are_refused(
    whole: Path, run: Path, path: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    shutil.copy(whole.parent / "table.csv", run.parent)

    def claim(facts: dict[str, Any]) -> None:
        holder = facts["asked"]["config"]["ensemble"]
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = value

    edit(run / "run.json", claim)
    with pytest.raises(ValueError, match=rf"asked\.config\.ensemble\.{path[0]}.* must lie between 0 and 100,000"):
        fit_again(run, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["report", "predict", "clean", "fit"])
def test_a_run_that_says_nothing_is_named(
    whole: Path, run: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(whole.parent / "table.csv", run.parent)
    (run / "run.json").write_text("{}")
    said = called(monkeypatch, capsys, command(name, run))
    wanted = (
        f"{run}/run.json must be the file that oneof fit wrote; format is missing. Fit it again, in another folder."
    )
    assert said == f"oneof: {wanted}\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda facts: facts.pop("sha256"), "sha256 is missing"),
        (lambda facts: facts.update(classes=["a", 2]), "classes[1] must be text, not 2"),
        (lambda facts: facts["calibration"].update(rows="x"), "calibration.rows must be a whole number, not 'x'"),
        (lambda facts: facts["calibration"].update(accuracy=[[1]]), "calibration.accuracy must be pairs"),
        (lambda facts: facts["calibration"].update(rows=5, scores=[]), "calibration.scores must not be empty"),
        (lambda facts: facts["encoding"]["fills"].pop(), "encoding.fills must be 3 numbers, not 2"),
        (lambda facts: facts["encoding"]["gaps"].append("w"), "encoding.gaps must be among encoding.numbers"),
        (lambda facts: facts["encoding"].update(categories={"hue": []}), "encoding.categories must have a value"),
    ],
)
def test_an_edited_model_is_named(
    whole: Path,
    run: Path,
    change: Callable[[dict[str, Any]], object],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit(run / "model.json", change)
    shutil.copy(whole.parent / "table.csv", run.parent)
    said = called(monkeypatch, capsys, command("predict", run))
    assert said.startswith(f"oneof: {run}/model.json must be the file that was written; {words}")
    assert said.endswith(". Fit it again.\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["members"].clear(),
        lambda facts: facts["members"].append(facts["members"][0]),
        lambda facts: facts["members"][0].update(networks=1),
        lambda facts: facts["members"][0].update(networks=0),
        lambda facts: facts["members"][0].update(inputs=7),
        lambda facts: facts["members"][0].update(hidden=[10**9, 10**9]),
        lambda facts: facts["classes"].append("d"),
        lambda facts: facts["encoding"].update(gaps=[]),
    ],
)
def test_a_model_that_is_not_the_one_described_is_refused(
    run: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(run / "model.json", change)
    with pytest.raises(
        ValueError, match=r"model\.json must describe model\.safetensors; the networks there are others"
    ):
        _ = Run.open(run).model


def test_classes_that_were_renamed_are_noticed(run: Path) -> None:
    facts = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps(facts | {"classes": ["b", "a", "c"]}))
    with pytest.raises(
        ValueError, match=r"model\.json must be the file that was written; it was changed\. Fit it again"
    ):
        _ = Run.open(run).model


def test_a_run_of_another_format_is_refused(run: Path) -> None:
    edit(run / "run.json", lambda facts: facts.update(format=2))
    with pytest.raises(ValueError, match=r"run of format 1; it has format 2, of oneof .*Read it with that version"):
        Run.open(run)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("0.shift", torch.zeros(3)),
        ("0.scale", torch.zeros(2, 1, 8, dtype=torch.float64)),
        ("0.ranks", torch.zeros(2)),
        ("0.stranger", torch.zeros(1)),
        ("texts.9.foo", torch.zeros(1, dtype=torch.bfloat16)),
        ("texts.9.foo", torch.zeros(1, dtype=torch.float8_e5m2)),
    ],
)
def test_tensors_of_other_shapes_are_refused_though_their_checksum_is_right(
    run: Path, name: str, tensor: torch.Tensor
) -> None:
    content = save(load((run / "model.safetensors").read_bytes()) | {name: tensor})
    (run / "model.safetensors").write_bytes(content)
    edit(run / "model.json", lambda facts: facts.update(sha256=hashlib.sha256(content).hexdigest()))
    with pytest.raises(
        ValueError, match=r"model\.json must describe model\.safetensors; the networks there are others"
    ):
        _ = Run.open(run).model


def test_a_table_of_another_run_is_refused(run: Path) -> None:
    table = pq.read_table(run / "purified.parquet")
    pq.write_table(table.slice(1), run / "purified.parquet")
    with pytest.raises(ValueError, match=r"purified\.parquet must be .*; it has 59 rows, but run\.json says 60\. Fit"):
        _ = Run.open(run).purified
    pq.write_table(table.drop_columns(["ask"]), run / "purified.parquet")
    with pytest.raises(ValueError, match=r"purified\.parquet must be .*; column 'ask' is missing\. Fit it again"):
        _ = Run.open(run).purified


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.pop("columns"), r"columns is missing"),
        (lambda record: record["columns"]["loss"].pop(), r"columns\.loss must have 3 rows of 2 numbers"),
        (lambda record: record["columns"].update(loss=[["x"]]), r"columns\.loss\[0\]\[0\] must be a whole number or a"),
        (lambda record: record.update(chosen=[4]), r"chosen must be epochs from 1 to 3"),
        (lambda record: record.update(chosen=[]), r"chosen must be epochs from 1 to 3"),
    ],
)
def test_an_edited_record_of_training_is_named(
    run: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(run / "training.json", change)
    with pytest.raises(ValueError, match=rf"training\.json must be the file that oneof fit wrote; {words}"):
        _ = Run.open(run).training


def test_lines_that_are_no_rows_are_named(run: Path) -> None:
    (run / "rows.jsonl").write_text("{}\n3\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl must be .*; line\[1\] must be an object, not 3\."):
        _ = Run.open(run).rows


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'"x"', b"[" * 100_000, b"\xff\xfe", None])
@pytest.mark.parametrize("file", FILES)
def test_any_damage_is_a_value_error_that_names_the_file(run: Path, file: str, content: bytes | None) -> None:
    if content is None:
        (run / file).unlink()
    else:
        (run / file).write_bytes(content)
    if file == "rows.jsonl" and content in (b"", b"{}"):  # a run may have tried nothing
        return
    with pytest.raises(ValueError, match=r"model\.json|model of format" if file == "model.json" else file) as raised:
        read_all(run)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("wrong", [None, {}, [], "x", 3, True, [[]], [{}]])
def test_values_of_other_kinds_are_refused_or_work(run: Path, wrong: object) -> None:
    for file in ("run.json", "training.json", "model.json"):
        before = (run / file).read_text()
        for name in json.loads(before):
            edit(run / file, lambda facts, name=name: facts.update({name: wrong}))  # type: ignore[misc]
            with suppress(ValueError):
                read_all(run)
            (run / file).write_text(before)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.flatten()[0],
        lambda tensor: tensor[:0],
        lambda tensor: tensor[1:],
        lambda tensor: torch.cat([tensor, tensor]),
        lambda tensor: tensor[None],
        lambda tensor: tensor.bfloat16(),
    ],
)
def test_tensors_that_were_cut_repeated_or_rounded_are_refused(
    run: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    tensors = load((run / "model.safetensors").read_bytes())
    assert {name.split(".")[0] for name in tensors} >= {"0", "trees", "kernel"}
    for name, tensor in tensors.items():
        content = save({**tensors, name: change(tensor).clone()})
        (run / "model.safetensors").write_bytes(content)
        edit(run / "model.json", lambda facts: facts.update(sha256=hashlib.sha256(content).hexdigest()))  # noqa: B023
        with pytest.raises(ValueError, match=r"model\.json must describe model\.safetensors"):
            _ = Run.open(run).model


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_weights_that_are_not_finite_in_float32_are_refused(run: Path, value: float) -> None:
    tensors = load((run / "model.safetensors").read_bytes())
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or (np.isfinite(value) and tensor.dtype != torch.float64):
            continue
        content = save({**tensors, name: torch.full_like(tensor, value)})
        (run / "model.safetensors").write_bytes(content)
        edit(run / "model.json", lambda facts: facts.update(sha256=hashlib.sha256(content).hexdigest()))  # noqa: B023
        with pytest.raises(ValueError, match=r"model\.safetensors must hold finite numbers within float32; "):
            _ = Run.open(run).model


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.json", lambda facts: facts.update(shares=[float("nan")] * len(facts["shares"]))),
        ("model.json", lambda facts: facts.update(sharpness=float("inf"))),
        ("model.json", lambda facts: facts["encoding"].update(fills=[float("nan")] * 3)),
        ("model.json", lambda facts: facts.update(classes=["a", "b", "\ud800"])),
        ("run.json", lambda facts: facts.update(seconds=float("nan"))),
        ("run.json", lambda facts: facts.update(seed=10**30)),
        ("run.json", lambda facts: facts.update(classes=["a", "b", "\ud800"])),
        ("training.json", lambda facts: facts["columns"]["loss"][0].__setitem__(0, float("inf"))),
        ("training.json", lambda facts: facts["columns"]["loss"][0].__setitem__(0, 1e308)),
        ("model.json", lambda facts: facts.update(shares=[1e308] * len(facts["shares"]))),
        ("model.json", lambda facts: facts.update(shares=[0] * len(facts["shares"]))),
        ("model.json", lambda facts: facts.update(shares=[-1.0] * len(facts["shares"]))),
        ("run.json", lambda facts: facts.update(taught=3)),
        ("run.json", lambda facts: facts.update(taught=[[0]])),
        ("run.json", lambda facts: facts.update(columns={"x": {"a": 1}})),
        ("run.json", lambda facts: facts.update(columns={"x": {"use": "number", "reason": 3}})),
    ],
)
def test_numbers_and_texts_that_no_file_holds_are_refused_at_opening(
    run: Path, name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(run / name, change)
    with pytest.raises(ValueError, match=r"Fit it again") as raised:
        read_all(run)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("file", [*FILES, "decisions.jsonl"])
def test_a_file_that_is_blown_up_with_zeros_is_not_read(run: Path, file: str) -> None:
    """Such a file takes next to no room on a disk and in an archive."""
    with (run / file).open("ab") as opened:
        opened.truncate(1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=file.replace(".", r"\.")):
            read_all(run)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_weights_that_are_larger_than_the_memory_are_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneof.runs.stored_model.available_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"model\.safetensors must fit into memory; it has [\d,]+ bytes"):
        _ = Run.open(run).model


def test_a_column_of_training_without_numbers_is_drawn_without_warnings(run: Path) -> None:
    """Warnings are errors in tests."""
    edit(run / "training.json", lambda facts: facts["columns"].update(loss=[[None] * 2] * 3, set_size=[[None] * 2] * 3))
    draw_training(Run.open(run).training)


@pytest.mark.parametrize("content", ["null", "[" * 100_000, "3", "[]", '"x"', "\ufffd{"])
def test_the_spec_of_a_run_that_was_stopped_is_checked(
    whole: Path, tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "stopped" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "asked.json").write_text(content)
    words = ["fit", str(whole.parent / "table.csv"), "--out", str(tmp_path / "stopped")]
    assert "asked.json must be the spec of the run; it is damaged" in called(monkeypatch, capsys, words)
