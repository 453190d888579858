"""Attack by a run folder from a stranger: every file edited, with its checksums made anew, and read by every command."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attacks.calls import SMALL, Attempt, call, problem_of, problem_of_call, write_table
from safetensors import safe_open
from safetensors.numpy import load, save

import oneof
from oneof.review.label_studio import Backend
from oneof.review.presence import Presence
from oneof.review.session import Review
from oneof.runs.stored_model import checksum
from oneof.training.checkpoint import Checkpointer

JSON_FILES = ("run.json", "model.json", "training.json")
ALL_FILES = (*JSON_FILES, "model.safetensors", "purified.parquet", "rows.jsonl", "decisions.jsonl", "review.lock")
_DEEP = "deep"  # is replaced by lists within lists
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**30, -(10**30), 0.5, float("nan"), float("inf"), "", "x", "\ud800", "\x1b[2J", "../../etc/passwd",
    [], [None], [[1]], {}, {"a": 1}, _DEEP,
)  # fmt: skip
Harm = Callable[[Path], object]


def fit_small_run(folder: Path) -> Path:
    """Fit a run with networks, trees and a kernel, a category and a text, and record a decision about it."""
    table = folder / "table.csv"
    rng = np.random.default_rng(0)
    lines = ["x,y,hue,note,candidates"]
    for i, (x, y) in enumerate(rng.normal(size=(80, 2))):
        truth = "cat" if x > 0 else "dog"
        cell = "cat|dog|fox" if i % 3 else truth
        hue = "red" if y > 0 else "blue"
        lines.append(f"{x:.3f},{'' if i == 7 else round(y, 3)},{hue},a note on {truth} number {i},{cell}")
    table.write_text("\n".join(lines) + "\n")
    run = folder / "run"
    done = call("fit", table, "--out", run, "--category", "hue", "--text", "note", *SMALL)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return run


def every_door(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
    """Open a run by every command and call that takes one; yield the name of each and what was wrong with its end."""
    yield "report", problem_of(call("report", run, "--out", out / "page.html"))
    yield "clean", problem_of(call("clean", run, "--out", out / "labels.csv"))
    yield "clean --all", problem_of(call("clean", run, "--out", out / "tasks.json", "--all"))
    yield "predict", problem_of(call("predict", run, table, "--out", out / "new.csv"))
    yield "predict --sets", problem_of(call("predict", run, table, "--out", out / "sets.csv", "--sets", "0.9"))
    yield "review", problem_of_call(lambda: review_briefly(run))
    yield "label-studio", problem_of_call(lambda: serve_briefly(run))
    yield "from_run", problem_of_call(lambda: predict_by_estimator(run))


def slow_doors(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
    """Open a run by the commands that take seconds."""
    yield "export", problem_of(call("export", run, "--onnx", out / "model.onnx"))
    shutil.rmtree(out / "again", ignore_errors=True)
    yield "fit --from", problem_of(call("fit", "--from", run, "--out", out / "again"))
    yield "fit --out", problem_of(call("fit", table, "--out", run, *SMALL))


def review_briefly(run: Path) -> None:
    """Open a review, and show what a page shows."""
    review = Review(run)
    review.next("tab", "ann", 5)
    review.state("ann")
    review.known_labels()


def decide_briefly(run: Path) -> None:
    """Open a review, announce it, and write down a decision."""
    review = Review(run)
    presence = Presence("http://127.0.0.1:1/")
    try:
        presence.announce(run)
        answer = {
            "id": "1", "row": 0, "kind": "skip", "labels": [], "run": review.id, "drawn": "queue", "seconds": 1.0,
        }  # fmt: skip
        review.decide(answer, "ann")
    finally:
        presence.close()


def serve_briefly(run: Path) -> None:
    """Open the backend of Label Studio, and predict a task."""
    backend = Backend(Review(run), 0)
    backend.server_close()
    backend.predict({"tasks": [{"id": 1, "data": {"row": 0}}, {"id": 2, "data": {"x": 1, "y": 2, "hue": "red"}}]})


def predict_by_estimator(run: Path) -> None:
    """Read a run as an estimator, and predict."""
    classifier = oneof.PartialLabelClassifier.from_run(run)
    classifier.predict(classifier_rows())


def classifier_rows() -> Any:
    import pandas as pd

    return pd.DataFrame({"x": [0.5, -0.5], "y": [1.0, None], "hue": ["red", "green"], "note": ["a note on cat", ""]})


def attack_runs(
    folder: Path,
    harms: dict[str, Harm],
    doors: Callable[[Path, Path, Path], Iterator[tuple[str, str | None]]] = every_door,
) -> Iterator[Attempt]:
    """Do each harm to a copy of a run, and open the copy by all doors."""
    run = fit_small_run(folder)
    for i, (name, harm) in enumerate(harms.items()):
        copy = folder / f"copy{i}"
        shutil.copytree(run, copy)
        harm(copy)
        for door, problem in doors(copy, folder / "table.csv", folder):
            yield Attempt(f"{name}: {door}", problem)
        shutil.rmtree(copy)


# ------------------------------------------------------------------------------------------------------------ JSON files


def tampered_json(folder: Path, count: int) -> Iterator[Attempt]:
    """Replace values in the JSON files of a run, at random places, by values of other types and sizes."""
    run = fit_small_run(folder)
    draw = random.Random(0)
    places = []
    for name in JSON_FILES:
        places += [(name, path) for path in _places(json.loads((run / name).read_text()))]
    harms = {}
    for number in range(count):
        name, path = draw.choice(places)
        value = draw.choice(_VALUES)
        harms[f"{number} {name} {path} = {value!r:.20}"] = replace_value(name, path, value)
    shutil.rmtree(run)
    yield from attack_runs(folder, harms)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all values of a JSON document; of long lists, to the first three elements."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, element in value.items():
            yield from _places(element, (*path, name))
    if isinstance(value, list):
        for i, element in enumerate(value[:3]):
            yield from _places(element, (*path, i))


def replace_value(name: str, path: tuple[Any, ...], value: Any) -> Harm:
    """Return a harm that replaces one value of a JSON file, and makes its checksum anew."""

    def harm(run: Path) -> None:
        content = json.loads((run / name).read_text())
        holder = content
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value
        _write_json(run / name, content)

    return harm


def _write_json(path: Path, content: dict[str, Any]) -> None:
    if isinstance(content.get("checksum"), str) and _DEEP not in json.dumps(content):
        content["checksum"] = checksum(content)
    nested = "[" * 5000 + "]" * 5000
    path.write_text(json.dumps(content).replace(f'"{_DEEP}"', nested))


def edit_json(name: str, change: Callable[[dict[str, Any]], object]) -> Harm:
    """Return a harm that changes a JSON file, and makes its checksum anew."""

    def harm(run: Path) -> None:
        content = json.loads((run / name).read_text())
        change(content)
        _write_json(run / name, content)

    return harm


def claims(folder: Path, _: int) -> Iterator[Attempt]:
    """Let a run claim more than any machine has; every command refuses it before anything is made of it."""
    embedding = {"column": "x", "kind": "text", "model": "m", "width": 10**12}
    pixels = {"column": "x", "channels": 10**9, "side": 10**6}
    picture = {"networks": 1, "network": "lenet", "pixels": [10**9, 10**6, 10**6]}
    harms: dict[str, Harm] = {
        "n": edit_json("run.json", lambda facts: facts.update(n=10**12)),
        "d": edit_json("run.json", lambda facts: facts.update(d=10**12)),
        "classes": edit_json("run.json", lambda facts: facts.update(classes=["a"] * 10**6)),
        "file": edit_json("run.json", lambda facts: facts.update(file="/etc/shadow", classes=["\x1b[2J", "b"])),
        "device": edit_json("run.json", lambda facts: facts.update(file="/dev/zero")),
        "embedding": edit_json("model.json", lambda facts: facts["encoding"]["embedded"].append(embedding)),
        "pixels": edit_json(
            "model.json", lambda facts: (facts["encoding"]["pixels"].append(pixels), facts.update(members=[picture]))
        ),
        "layers": edit_json("model.json", lambda facts: facts["members"][0].update(hidden=[1] * 100_000)),
        "width": edit_json("model.json", lambda facts: facts["members"][0].update(hidden=[10**9])),
        "networks": edit_json("model.json", lambda facts: facts["members"][0].update(networks=10**9)),
        "inputs": edit_json("model.json", lambda facts: facts["members"][0].update(inputs=10**12)),
        "members": edit_json("model.json", lambda facts: facts.update(members=facts["members"] * 20_000)),
        "others": edit_json("model.json", lambda facts: facts.update(others=["trees"] * 10**5)),
        "epochs": edit_json("training.json", lambda facts: facts.update(epochs=10**12, trials=10**12)),
        "rows": _repeated_rows,
        "components": edit_json("model.json", lambda facts: facts["encoding"].update(components=10**12)),
        "taught": edit_json("run.json", lambda facts: facts.update(taught="all")),
        "folder": edit_json("run.json", lambda facts: facts.update(file="/proc")),
    }
    for name in (*JSON_FILES, "rows.jsonl", "decisions.jsonl", "model.safetensors", "purified.parquet"):
        harms[f"{name} of a terabyte"] = _blow_up(name)
    yield from attack_runs(folder, harms)


def _blow_up(name: str) -> Harm:
    """Return a harm that appends zeros to a file, which take no room on a disk or in an archive."""

    def harm(run: Path) -> None:
        with (run / name).open("ab") as file:
            file.truncate(1 << 40)

    return harm


def saved_fits(folder: Path, _: int) -> Iterator[Attempt]:
    """Let a file of `Fit.save` claim more than it holds, and take its tensors away; `oneof.load` refuses it."""
    rng = np.random.default_rng(0)
    sets = np.eye(3, dtype=bool)[rng.integers(3, size=40)]
    whole = folder / "fit"
    oneof.fit(rng.normal(size=(40, 3)), sets, training=oneof.Training(1, 20)).save(whole)
    with safe_open(whole, "np") as file:
        metadata = json.loads(file.metadata()["fit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    claims: dict[str, dict[str, Any]] = {
        "width": {"network": {"kind": "MLP", "hidden": [10**12]}},
        "layers": {"network": {"kind": "MLP", "hidden": [1] * 100_000}},
        "depth": {"network": {"kind": "WideResNet", "depth": 6 * 10**7 + 4, "widen": 1}},
        "foreign network": {"network": {"kind": "Timm", "name": "hf-hub:evil/model"}},
        "shape": {"shape": [10**12]},
        "method": {"method": {"kind": "PiCO", "embedding": 10**12}},
        "method of a list": {"method": [1]},
        "network of a text": {"network": "os.system"},
        "nothing": {"network": None, "method": None, "shape": None},
    }
    for name, claim in claims.items():
        path = folder / "claims"
        path.write_bytes(save(tensors, {"fit": json.dumps({**metadata, **claim})}))
        yield Attempt(f"claim of {name}", problem_of_call(lambda path=path: oneof.load(path)))  # type: ignore[misc]
    for name in tensors:
        path = folder / "part"
        rest = {other: array for other, array in tensors.items() if other != name}
        path.write_bytes(save(rest, {"fit": json.dumps(metadata)}))
        yield Attempt(f"without {name}", problem_of_call(lambda path=path: oneof.load(path)))  # type: ignore[misc]
    path = folder / "pipe"
    os.mkfifo(path)
    yield Attempt("a pipe", problem_of_call(lambda: oneof.load(path)))


def _repeated_rows(run: Path) -> None:
    """Write a purified table of a hundred million equal rows, which takes few bytes."""
    table = pq.read_table(run / "purified.parquet")
    one = table.slice(0, 1)
    columns = {}
    for name in one.column_names:
        columns[name] = one[name].combine_chunks().take(pa.array(np.zeros(1 << 16, dtype=np.int64)))
    block = pa.table(columns)
    with pq.ParquetWriter(run / "purified.parquet", block.schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_table(block)


# ---------------------------------------------------------------------------------------------------- tables and tensors


def tampered_tables(folder: Path, _: int) -> Iterator[Attempt]:
    """Give the columns of the purified table other types, gaps, and values out of range."""
    run = fit_small_run(folder)
    table = pq.read_table(run / "purified.parquet")
    shutil.rmtree(run)
    harms: dict[str, Harm] = {}
    for name in table.column_names:
        for kind, column in _wrong_columns(table, name).items():
            harms[f"{name} {kind}"] = _replace_column(name, column)
    harms["neighbours out of range"] = _replace_column("neighbours", pa.array([[10**9, -5]] * table.num_rows))
    harms["original empty"] = _replace_column("original", pa.array([[]] * table.num_rows, table["original"].type))
    harms["distribution short"] = _replace_column(
        "distribution", pa.array([[0.5]] * table.num_rows, table["distribution"].type)
    )
    zeros = [[0.0] * len(cell) for cell in table["distribution"].to_pylist()]
    harms["distribution zero"] = _replace_column("distribution", pa.array(zeros, table["distribution"].type))
    for name, value in {"label": "no such label", "round": None, "margin": float("nan"), "trials": None}.items():
        removal = {"label": "cat", "round": 1, "margin": 0.5, "trials": 1, name: value}
        column = pa.array([[removal]] * table.num_rows, table["removed"].type)
        harms[f"removed, {name} = {value}"] = _replace_column("removed", column)
    for name in ("decided", "by", "why", "queue", "item"):
        harms[f"a further column {name}"] = _add_column(name, pa.array([1] * table.num_rows))
    harms["row shuffled"] = _replace_column("row", pa.array(list(range(table.num_rows))[::-1], table["row"].type))
    yield from attack_runs(folder, harms, _doors_of_the_table)


def _doors_of_the_table(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
    yield "report", problem_of(call("report", run, "--out", out / "page.html"))
    yield "clean", problem_of(call("clean", run, "--out", out / "labels.csv"))
    yield "review", problem_of_call(lambda: review_briefly(run))
    yield "from_run", problem_of_call(lambda: predict_by_estimator(run))


def _wrong_columns(table: pa.Table, name: str) -> dict[str, pa.Array]:
    """Return columns that may stand in the place of one of the purified table."""
    n = table.num_rows
    column = table[name]
    wrong = {
        "as numbers": pa.array(np.arange(n, dtype=np.float64)),
        "as texts": pa.array(["x"] * n),
        "as lists of texts": pa.array([["x"]] * n),
        "as null": pa.nulls(n),
        "with gaps": pa.array([None] * n, column.type),
    }
    if pa.types.is_floating(column.type):
        wrong["NaN"] = pa.array([float("nan")] * n, column.type)
        wrong["infinite"] = pa.array([float("inf")] * n, column.type)
        wrong["1e300"] = pa.array(np.full(n, 3e38), column.type)
    if pa.types.is_string(column.type):
        wrong["of a foreign label"] = pa.array(["no such label"] * n)
    return wrong


def _replace_column(name: str, column: pa.Array) -> Harm:
    def harm(run: Path) -> None:
        path = run / "purified.parquet"
        table = pq.read_table(path)
        position = table.column_names.index(name)
        pq.write_table(table.set_column(position, name, column), path)

    return harm


def _add_column(name: str, column: pa.Array) -> Harm:
    def harm(run: Path) -> None:
        path = run / "purified.parquet"
        pq.write_table(pq.read_table(path).append_column(name, column), path)

    return harm


def tampered_tensors(folder: Path, _: int) -> Iterator[Attempt]:
    """Put NaN, infinite and huge values, other shapes and types into the weights; the checksums are right."""
    run = fit_small_run(folder)
    tensors = load((run / "model.safetensors").read_bytes())
    shutil.rmtree(run)
    harms: dict[str, Harm] = {}
    seen = set()
    for name, array in tensors.items():
        short = ".".join(part for part in name.split(".") if not part.isdigit())
        if short in seen:
            continue
        seen.add(short)
        for kind, changed in _wrong_arrays(array).items():
            harms[f"{name} {kind}"] = _replace_tensor(name, changed)
    yield from attack_runs(folder, harms, _doors_of_the_model)


def _doors_of_the_model(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
    yield "predict", problem_of(call("predict", run, table, "--out", out / "new.csv"))
    yield "from_run", problem_of_call(lambda: predict_by_estimator(run))
    yield "label-studio", problem_of_call(lambda: serve_briefly(run))


def _wrong_arrays(array: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    changed = {
        "cut": np.ascontiguousarray(array[..., :-1]),
        "as int64": array.astype(np.int64) if np.isfinite(array).all() else np.zeros(array.shape, np.int64),
        "empty": np.zeros((0,), array.dtype),
        "scalar": np.zeros((), array.dtype),
    }
    if array.dtype.kind == "f":
        changed["NaN"] = np.full_like(array, np.nan)
        changed["infinite"] = np.full_like(array, np.inf)
        changed["largest"] = np.full_like(array, np.finfo(array.dtype).max)
        changed["zero"] = np.zeros_like(array)
    else:
        changed["out of range"] = np.full_like(array, np.iinfo(array.dtype).max)
        changed["negative"] = np.full_like(array, np.iinfo(array.dtype).min)
    return changed


def _replace_tensor(name: str, array: np.ndarray[Any, Any]) -> Harm:
    def harm(run: Path) -> None:
        tensors = load((run / "model.safetensors").read_bytes())
        tensors[name] = array
        content = save(tensors)
        (run / "model.safetensors").write_bytes(content)
        edit_json("model.json", lambda facts: facts.update(sha256=sha256(content).hexdigest()))(run)

    return harm


# ------------------------------------------------------------------------------------------- links, pipes, logs, checkpoints


def links_and_pipes(folder: Path, _: int) -> Iterator[Attempt]:
    """Put links, pipes, sockets and devices in the place of every file; nothing is written through them, nothing waits."""
    precious = folder / "precious.sh"
    precious.write_text("export PATH=/usr/bin\n")
    harms: dict[str, Harm] = {}
    for name in ALL_FILES:
        harms[f"{name} is a pipe"] = _plant(name, os.mkfifo)
        harms[f"{name} is a device"] = _plant(name, lambda path: path.symlink_to("/dev/zero"))
        harms[f"{name} is a link"] = _plant(name, lambda path: path.symlink_to(precious))
        harms[f"{name} is a loop"] = _plant(name, lambda path: path.symlink_to(path))
        harms[f"{name} is a folder"] = _plant(name, lambda path: path.mkdir())
    harms["run.json is a socket"] = _plant("run.json", _bind_socket)

    def doors(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
        yield "report", problem_of(call("report", run, "--out", out / "page.html"))
        yield "clean", problem_of(call("clean", run, "--out", out / "labels.csv"))
        yield "predict", problem_of(call("predict", run, table, "--out", out / "new.csv"))
        yield "review", problem_of_call(lambda: decide_briefly(run))

    attempts = chain(attack_runs(folder, harms, doors), _links_of_a_checkpoint(folder, precious))
    for attempt in attempts:
        if precious.read_text() != "export PATH=/usr/bin\n":
            yield Attempt(attempt.name, "a file outside of the folder was changed")
            precious.write_text("export PATH=/usr/bin\n")
        else:
            yield attempt


def _links_of_a_checkpoint(folder: Path, precious: Path) -> Iterator[Attempt]:
    """Fit into a folder whose checkpoint leads elsewhere, in whole or in part."""
    for name in ("checkpoint", "checkpoint/lock", "checkpoint/asked.json", "checkpoint/pixels.part"):
        out = folder / f"planted-{name.replace('/', '-')}"
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(folder if name == "checkpoint" else precious)
        done = call("fit", folder / "table.csv", "--out", out, *SMALL)
        yield Attempt(f"fit, {name} is a link", problem_of(done, codes=(2,), names=(name,)))


def _plant(name: str, make: Callable[[Path], object]) -> Harm:
    def harm(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return harm


def _bind_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(before)


def hostile_logs(folder: Path, _: int) -> Iterator[Attempt]:
    """Put lines of other runs, damaged and absurd lines into the log of decisions."""
    good = {
        "id": "1", "who": "ann", "when": "2026", "row": 1, "kind": "label", "labels": ["cat"], "run": "", "before": [],
        "suggested": "cat", "drawn": "queue", "seconds": 1.0,
    }  # fmt: skip
    lines: dict[str, bytes] = {
        "deep": b"[" * 100_000,
        "not UTF-8": b"\xff" * 1000,
        "torn": b'{"id": "1", "wh',
        "torn and deep": b"\n" + b"[" * 100_000,
        "nul": b"\x00" * 500,
    }
    for name in good:
        for value in (None, -1, 10**30, "x", "\ud800", [], {}, ["no such label"], True):
            lines[f"{name} = {value!r}"] = json.dumps({**good, name: value}).encode()
    lines["NaN"] = json.dumps({**good, "seconds": float("nan")}).encode()
    lines["undo of nothing"] = json.dumps({"undoes": "?", "id": "2", "who": "ann", "when": "x"}).encode()
    lines["10,000 labels"] = json.dumps({**good, "kind": "set", "labels": ["cat"] * 10_000}).encode()
    lines["terminal"] = json.dumps({**good, "who": "\x1b[2J", "labels": ["\x1b[2J"], "kind": "none"}).encode()

    def doors(run: Path, table: Path, out: Path) -> Iterator[tuple[str, str | None]]:
        yield "clean", problem_of(call("clean", run, "--out", out / "labels.csv"), codes=(0,))
        yield "review", problem_of_call(lambda: decide_briefly(run))

    harms: dict[str, Harm] = {}
    for name, line in lines.items():
        end = b"" if "torn" in name else b"\n"
        harms[f"log: {name}"] = lambda run, content=line + end: (run / "decisions.jsonl").write_bytes(content)  # type: ignore[misc]
    yield from attack_runs(folder, harms, doors)


def tampered_checkpoints(folder: Path, count: int) -> Iterator[Attempt]:
    """Edit, cut and replace the files of a fit that was stopped, and go on with it."""
    table = write_table(folder / "table.csv")
    whole = folder / "whole"
    call("fit", table, "--out", whole, *SMALL)
    stopped = _stopped_run(folder, table)
    draw = random.Random(0)
    files = sorted(path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file())
    for i in range(count):
        run = folder / f"stopped{i}"
        shutil.copytree(stopped, run)
        path = run / draw.choice(files)
        kind = draw.choice(("cut", "empty", "flipped", "deep", "link", "pipe", "null"))
        _damage(path, kind, draw)
        done = call("fit", table, "--out", run, *SMALL)
        problem = problem_of(done)
        if problem is None and done.returncode == 0:
            same = (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
            problem = None if same else "another result than without the damage"
        yield Attempt(f"{path.name} {kind}", problem)
        shutil.rmtree(run)


def _stopped_run(folder: Path, table: Path) -> Path:
    """Return a run that was killed in the middle of its training, when checkpoints were there."""
    out = folder / "stopped"
    child = os.fork()
    if child == 0:
        save_as_usual = Checkpointer.save
        saved = []

        def save_and_die(self: Checkpointer, *args: Any, **options: Any) -> bool:
            save_as_usual(self, *args, **{**options, "now": True})
            saved.append(self.folder)
            if len(saved) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        Checkpointer.save = save_and_die  # type: ignore[method-assign]
        call("fit", table, "--out", out, *SMALL)
        os._exit(1)
    os.waitpid(child, 0)
    return out


def _damage(path: Path, kind: str, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if kind == "cut":
        path.write_bytes(content[: draw.randrange(len(content) + 1)])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "null":
        path.write_bytes(b"null")
    elif kind == "deep":
        path.write_bytes(b"[" * 100_000)
    elif kind == "flipped":
        for _ in range(5):
            if content:
                content[draw.randrange(len(content))] ^= 0xFF
        path.write_bytes(content)
    else:
        path.unlink()
        if kind == "link":
            path.symlink_to("/etc/passwd")
        else:
            os.mkfifo(path)


def slow_commands(folder: Path, _: int) -> Iterator[Attempt]:
    """Open edited runs by the commands that take seconds: export, learning again, fitting into the folder."""
    harms: dict[str, Harm] = {
        "shares NaN": edit_json("model.json", lambda facts: facts.update(shares=[float("nan")] * len(facts["shares"]))),
        "classes renamed": edit_json("model.json", lambda facts: facts.update(classes=facts["classes"][::-1])),
        "asked empty": edit_json("run.json", lambda facts: facts.update(asked={})),
        "asked of lists": edit_json(
            "run.json", lambda facts: facts.update(asked={name: [] for name in facts["asked"]})
        ),
        "file missing": edit_json("run.json", lambda facts: facts.update(file="/no/such/table.csv")),
        "embedding": edit_json(
            "model.json",
            lambda facts: facts["encoding"]["embedded"].append(
                {"column": "x", "kind": "text", "model": "m", "width": 10**12}
            ),
        ),
        "log of others": lambda run: (run / "decisions.jsonl").write_bytes(b'{"id": 1}\n' * 50),
    }
    yield from attack_runs(folder, harms, slow_doors)
