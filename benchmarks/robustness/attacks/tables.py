"""Attack by tables, votes and pictures: bytes changed at random, bombs, ordinary data of unusual types, nesting, many classes."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attacks.calls import QUICK, Attempt, call, problem_of, problem_of_call, write_table
from PIL import Image

from oneof.data.files import unpacked
from oneof.data.images import ImageSpec, read_pictures

ROWS = 60


def fuzzed_tables(folder: Path, count: int) -> Iterator[Attempt]:
    """Change, cut out, put in and double bytes of a table, and inspect it."""
    content = write_table(folder / "table.csv").read_bytes()
    draw = random.Random(0)
    for i in range(count):
        changed = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            start = draw.randrange(len(changed))
            doubled = bytes(changed[start : start + 200])
            planted = draw.choice((b"", b"\x00", b"\xff", b'"', b",", b"\n", b"=1", doubled))
            changed[start : start + draw.choice((0, 1, 40))] = planted
        file = folder / f"fuzzed{i}.csv"
        file.write_bytes(bytes(changed))
        yield Attempt(file.name, problem_of(call("inspect", file)))


def ordinary_data(folder: Path, _: int) -> Iterator[Attempt]:
    """Read ordinary columns of unusual types: each is read, or refused in a line that names file and column."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=ROWS)
    numbers = (truth + rng.normal(scale=0.3, size=ROWS)).tolist()
    sets = ["cat|dog" if i % 2 else ("dog", "cat")[label] for i, label in enumerate(truth)]
    for name, column in _columns(rng).items():
        table = pa.table({"x": numbers, "column": column, "candidates": sets})
        file = folder / f"{name}.parquet"
        pq.write_table(table, file)
        done = call("inspect", file)
        yield Attempt(f"{name}, Parquet", problem_of(done, names=(file.name, "column")))
    for name, cells in _texts().items():
        file = folder / f"{name}.csv"
        lines = ["x,column,candidates"]
        for i in range(ROWS):
            lines.append(f"{numbers[i]},{cells[i % len(cells)]},{sets[i]}")
        file.write_text("\n".join(lines) + "\n")
        yield Attempt(f"inspect {name}, CSV", problem_of(call("inspect", file), names=(file.name,)))
        if "MB" in name:  # such texts are learned from alike, and take seconds
            continue
        out = folder / f"run-{name}"
        yield Attempt(f"fit {name}, CSV", problem_of(call("fit", file, "--out", out, *QUICK), names=(file.name,)))
        if out.exists():
            yield Attempt(f"predict {name}", problem_of(call("predict", out, file, "--out", folder / "new.csv")))


def _columns(rng: np.random.Generator) -> dict[str, pa.Array]:
    """Return columns of types that pandas, databases and people write."""
    nanoseconds = pa.array(rng.integers(10**18, 2 * 10**18, ROWS), pa.timestamp("ns"))
    days = pa.array([datetime.date(1600 + i, 1, 1 + i % 28) for i in range(ROWS)])
    return {
        "timestamp-ns": nanoseconds,
        "timestamp-ns-UTC": nanoseconds.cast(pa.timestamp("ns", "UTC")),
        "timestamp-s": pa.array(rng.integers(-(10**10), 10**9, ROWS), pa.timestamp("s")),
        "date32 of 1600": days,
        "date64 of 1600": days.cast(pa.date64()),
        "time64": pa.array(rng.integers(0, 86_400 * 10**9, ROWS), pa.time64("ns")),
        "duration-ns": pa.array(rng.integers(0, 10**15, ROWS), pa.duration("ns")),
        "int64 above 2^53": pa.array(rng.integers(2**53, 2**62, ROWS)),
        "uint64 above 2^63": pa.array(rng.integers(2**63, 2**64 - 1, ROWS, dtype=np.uint64)),
        "decimal128": pa.array([10**30 + i for i in range(ROWS)], pa.decimal128(38, 2)),
        "float64 near 3e38": pa.array(rng.choice([3e38, -3e38, 1.0], ROWS)),
        "float16": pa.array(rng.normal(size=ROWS).astype(np.float16)),
        "nanosecond text": pa.array([f"2024-05-01T10:00:00.{i:09d}" for i in range(ROWS)]),
        "text of 1600": pa.array([f"{1600 + i}-01-01" for i in range(ROWS)]),
        "a cell of 10 MB": pa.array(["y" * 10_000_000] + ["short"] * (ROWS - 1)),
        "bytes": pa.array([b"\xff\xfe"] * ROWS),
        "lists": pa.array([[1, 2]] * ROWS),
        "structs": pa.array([{"a": 1}] * ROWS),
        "dictionary": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "nulls": pa.nulls(ROWS),
        "booleans": pa.array([True, False] * (ROWS // 2)),
    }


def _texts() -> dict[str, list[str]]:
    """Return the cells of a column, which is filled by repeating them."""
    return {
        "nanosecond text": [f"2024-05-01T10:00:00.{i:09d}" for i in range(ROWS)],
        "dates of 1600": [f"{1600 + i}-03-01" for i in range(ROWS)],
        "dates of year 9999": ["9999-12-31", "2024-01-01"],
        "dates of two kinds": ["2024-01-01", "2024-01-01T10:00:00.000000001"],
        "whole numbers above 2^53": [str(2**53 + i) for i in range(ROWS)],
        "whole numbers above 2^64": [str(2**64 + i) for i in range(ROWS)],
        "numbers near 3e38": ["3e38", "-3e38", "1"],
        "numbers beyond float32": ["3e39", "1"],
        "numbers beyond float64": ["1e999", "1"],
        "tiny numbers": ["1e-45", "2e-320", "0"],
        "a cell of 10 MB": ["y" * 10_000_000, *["short"] * (ROWS - 1)],
        "a quoted cell of 10 MB with lines": ['"' + "y\n" * 5_000_000 + '"', *["short"] * (ROWS - 1)],
        "text beyond ASCII": ["žluťoučký", "日本", "🦊"],
    }


def hostile_votes(folder: Path, _: int) -> Iterator[Attempt]:
    """Votes that are nested too deeply, have 60,000 classes, or are of wrong kinds."""
    for name, text in _votes().items():
        file = folder / f"{name}"
        file.write_bytes(
            gzip.compress(text.encode()) if name.endswith(".gz") else text.encode("utf-8", "surrogatepass")
        )
        yield Attempt(f"votes {name}", problem_of(call("votes", file, "--out", folder / "sets.csv")))
    many = folder / "classes.csv"
    lines = ["x,candidates"]
    for i in range(2000):
        labels = "|".join(f"label {30 * i + j}" for j in range(30))
        lines.append(f"{i % 7},{labels}")
    many.write_text("\n".join(lines))
    yield Attempt("inspect 60,000 classes", problem_of(call("inspect", many)))
    yield Attempt("fit 60,000 classes", problem_of(call("fit", many, "--out", folder / "many", *QUICK)))


def bombs(folder: Path, _: int) -> Iterator[Attempt]:
    """Unpack small files to much more than is allowed: tables, arrays, .mat files, votes, and texts that take long to search."""
    cells = b"1,a\n2,b\n" * 500_000
    (folder / "bomb.csv.gz").write_bytes(gzip.compress(b"x,candidates\n" + cells))
    np.savez_compressed(folder / "bomb.npz", x=np.zeros((4000, 100)), candidates=np.ones((4000, 2)))
    pq.write_table(pa.table({"x": np.zeros(10**6), "candidates": ["a"] * 10**6}), folder / "bomb.parquet")
    (folder / "bomb.mat").write_bytes(_mat(zlib.compress(bytes(2**26))))
    inner = zlib.compress(bytes(2**20))
    (folder / "nested.mat").write_bytes(_mat(zlib.compress(struct.pack("<II", 15, len(inner)) + inner)))
    for name in ("bomb.csv.gz", "bomb.npz", "bomb.parquet", "bomb.mat", "nested.mat"):
        for words in (["inspect"], ["fit", "--out", folder / "run"]):
            done = call(words[0], folder / name, *words[1:], "--unpacked", "0.001")
            yield Attempt(f"{words[0]} {name}", problem_of(done, codes=(2,), names=(name,)))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10**6)})
    with zipfile.ZipFile(folder / "claim.npz", "w") as file:
        file.writestr("x.npy", header.getvalue())
        file.writestr("candidates.npy", header.getvalue())
    yield Attempt("an npz that claims 10^18 numbers", problem_of(call("inspect", folder / "claim.npz"), codes=(2,)))
    with unpacked_limit(0.001):
        for name in ("votes.csv.gz", "votes.jsonl.gz", "votes.json.gz"):
            (folder / name).write_bytes(gzip.compress(b"item,annotator,label\n" + b"1,ann,cat\n" * 400_000))
            yield Attempt(name, problem_of(call("votes", folder / name), codes=(2,), names=(name,)))
    for name, text in _long_answers().items():
        rows = [{"item": i, "annotator": f"ann {i % 2}", "label": text if i % 2 else "cat"} for i in range(6)]
        (folder / "answers.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        done = call("votes", folder / "answers.jsonl", "--classes", "cat,dog", "--out", folder / "sets.csv")
        yield Attempt(f"a long answer of {name}", problem_of(done))


def _mat(packed: bytes) -> bytes:
    """Return a .mat file with one compressed part."""
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H2s", 0x0100, b"IM")
    return head + struct.pack("<II", 15, len(packed)) + packed


@contextmanager
def unpacked_limit(gigabytes: float) -> Iterator[None]:
    """Allow that compressed files without an option for it hold so much."""
    before = unpacked.GIGABYTES
    unpacked.GIGABYTES = gigabytes
    try:
        yield
    finally:
        unpacked.GIGABYTES = before


def _long_answers() -> dict[str, str]:
    """Return texts that patterns with nested or overlapping repetitions take long to search."""
    parts = ("cat ", "not cat ", "*", "```", "{", "[[", '"', "the answer is ", "label:", "caT-", "\n", "cat or ", "a, ")
    return {repr(part): part * (300_000 // len(part)) for part in parts}


def hostile_pictures(folder: Path, count: int) -> Iterator[Attempt]:
    """Change bytes of pictures of all kinds; put pipes, devices, PostScript and broken files into a folder of pictures."""
    Image.init()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8))
    contents = {}
    for kind in sorted(Image.SAVE):
        with suppress(OSError, KeyError, ValueError):
            file = io.BytesIO()
            picture.save(file, kind)
            contents[kind] = file.getvalue()
    draw = random.Random(0)
    for i in range(count):
        kind = draw.choice(sorted(contents))
        changed = bytearray(contents[kind])
        for _ in range(draw.randint(1, 10)):
            start = draw.randrange(min(len(changed), draw.choice((64, 512, 1 << 20))))
            changed[start : start + draw.choice((0, 1, 4))] = draw.choice((b"\x00", b"\xff\xff\xff\x7f", b"\xff"))
        decode = partial(read_pictures, [bytes(changed)], ImageSpec("file", 3, 16), folder)
        yield Attempt(f"{kind} {i}", problem_of_call(decode))
    source = folder / "pictures"
    for number in range(12):
        part = source / ("a|b" if number % 2 else "b|c")
        part.mkdir(parents=True, exist_ok=True)
        picture.save(part / f"{number}.png")
    os.mkfifo(source / "a|b" / "pipe.png")
    (source / "b|c" / "zero.png").symlink_to("/dev/zero")
    (source / "b|c" / "postscript.png").write_bytes(contents["EPS"])
    (source / "b|c" / "empty.png").touch()
    words = ["fit", source, "--out", folder / "run", "--epochs", "1", "--networks", "1", "--threads", "1"]
    yield Attempt("a folder with pipes and devices", problem_of(call(*words), codes=(0,)))
    done = call("predict", folder / "run", source, "--out", folder / "new.csv")
    yield Attempt("prediction for it", problem_of(done, codes=(0,)))


def _votes() -> dict[str, str]:
    deep_list = "[" * 100_000 + "]" * 100_000
    deep_object = '{"a":' * 100_000 + "1" + "}" * 100_000
    votes = {"item": 1, "votes": {"ann": "cat", "bob": ["dog", ["cat"]], "eve": None}}
    return {
        "deep.json": deep_list,
        "deep.jsonl": deep_object,
        "deep-cell.csv": f'item,annotator,label\n1,ann,"{deep_list}"\n2,bob,cat\n',
        "nested.json": json.dumps([{"item": 1, "votes": {"ann": {"label": {"label": {"label": "cat"}}}}}]),
        "mixed.jsonl": "\n".join(json.dumps({**votes, "item": i}) for i in range(20)),
        "surrogate.jsonl": '{"item": 1, "annotator": "ann", "label": "\\ud800"}\n' * 20,
        "nan.jsonl": '{"item": 1, "annotator": "ann", "label": "cat", "confidence": NaN}\n' * 20,
        "huge.jsonl": f'{{"item": {10**400}, "annotator": "ann", "label": "cat"}}\n' * 20,
        "wide.csv": "item,annotator,label\n" + "".join(f"{i % 2000},ann {i % 31},label {i}\n" for i in range(60_000)),
        "many-annotators.csv": "item,annotator,label\n" + "".join(f"{i % 9},ann {i},cat\n" for i in range(20_000)),
        "tasks.json": json.dumps([{"id": 1, "annotations": [{"result": "x", "completed_by": {"id": [1]}}]}]),
        "null.json": "null",
        "empty.csv.gz": "",
    }
