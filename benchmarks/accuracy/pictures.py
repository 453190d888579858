"""Pictures by the front door: a named set written as PNG files, then `oneof fit`, `predict`, `clean`, `report` and `export` on them.

    python benchmarks/accuracy/pictures.py --dataset mnist --images 2000 --export
    python benchmarks/accuracy/pictures.py --dataset cifar10 --sets saturated --seed 100 --views natural --kill-after 120 --data-dir /tmp/data
    python benchmarks/accuracy/pictures.py --dataset cifar10 --images 300 --tests 100 --epochs 2 --kill-after 5 --rows /tmp/rows.jsonl

Every stage appends a row as soon as it is over: its seconds, and what it showed. With --kill-after the fit is killed once and
repeated. Sets are those of `oneof_paper.image_sets`, or wrong labels that flip in with rate 0.3. True labels are in no table that is
learned from: they only count what came out. `fit` leaves out a tenth (many pictures), so of 50,000 it trains on 45,000, as `images.py` does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from PIL import Image

from oneof.candidates.generate import Flip, generate
from oneof.storage.rows import Row, append
from oneof.training.device import best_device
from oneof_paper.data.catalogue import NAMED, LabelledData, load
from oneof_paper.image_sets import path_of, read, training_part
from oneof_paper.results import origin


def candidates(data: LabelledData, sets: str, seed: int, folder: Path) -> np.ndarray:
    """Sets [m, c] of the training part."""
    m = training_part(data)
    if sets == "flips":
        return generate(data.labels[:m], len(data.classes), Flip(0.3), seed=seed)
    return read(path_of(folder, data.name, sets)).masks[seed]


def write_pictures(data: LabelledData, rows: np.ndarray, folder: Path, mask: np.ndarray | None) -> Path:
    """A PNG for every row, and a table of them; with sets where there are."""
    (folder / "png").mkdir(parents=True, exist_ok=True)
    names = [f"png/{row:05d}.png" for row in rows]

    def save(one: tuple[int, str]) -> None:
        Image.fromarray(data.x[one[0]]).save(folder / one[1])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(save, zip(rows, names, strict=True)))
    columns = {"file": names}
    if mask is not None:
        labels = np.array([str(name) for name in data.classes])
        columns["candidates"] = ["|".join(labels[one]) for one in mask[rows]]
    pyarrow.csv.write_csv(pyarrow.table(columns), folder / "table.csv")
    return folder / "table.csv"


def oneof(*words: Any, kill_after: float | None = None) -> float:
    """Seconds that a command took; one that is killed is not waited for."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "oneof", *map(str, words)])
    try:
        code = process.wait(kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = 0
    if code:
        raise SystemExit(f"oneof {words[0]} failed with {code}")
    return time.perf_counter() - start


def share_right(labels: Sequence[Any], truth: np.ndarray, classes: Sequence[Any]) -> float:
    """Share of labels that are true; a row without a label is wrong."""
    names = [str(classes[j]) for j in truth]
    return round(float(np.mean([str(one) == name for one, name in zip(labels, names, strict=True)])), 6)


def perform(given: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Row]]:
    """The stages, each with what it showed."""
    data = load(given.dataset)
    m = training_part(data)
    train, test = np.arange(m)[: given.images], np.arange(m, len(data.x))[: given.tests]
    start = time.perf_counter()
    train_table = write_pictures(
        data, train, folder / "train", candidates(data, given.sets, given.seed, given.sets_folder)
    )
    new = write_pictures(data, test, folder / "test", None)
    yield "write", {"seconds": time.perf_counter() - start, "images": len(train), "tests": len(test)}
    run = folder / "run"
    asked = ["fit", train_table, "--image", "file", "--out", run, "--seed", given.seed, "--augmentation", given.views]
    options = {
        "--architecture": given.network,
        "--epochs": given.epochs,
        "--networks": given.networks,
        "--threads": given.threads,
    }
    for option, value in options.items():
        if value:
            asked += [option, value]
    if given.kill_after:
        yield "fit, killed", {"seconds": oneof(*asked, kill_after=given.kill_after)}
    yield "fit", {"seconds": oneof(*asked)}
    seconds = oneof("predict", run, new, "--out", folder / "test.csv")
    said = pyarrow.csv.read_csv(folder / "test.csv")["label"].to_pylist()
    yield "predict", {"seconds": seconds, "accuracy": share_right(said, data.labels[test], data.classes)}
    seconds = oneof("clean", run, "--out", folder / "labels.parquet")
    found = pyarrow.parquet.read_table(folder / "labels.parquet").sort_by("row")
    resolved = share_right(found["label"].to_pylist(), data.labels[train], data.classes)
    yield "clean", {"seconds": seconds, "resolved": resolved}
    yield "report", {"seconds": oneof("report", run, "--out", folder / "page.html")}
    if given.export:
        yield "export", {"seconds": oneof("export", run, "--onnx", folder / "model.onnx")}


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each pass of the stages."""
    passes: list[dict[str, Row]] = []
    for row in rows:
        if row["stage"] == "write":
            passes.append({})
        passes[-1][row["stage"]] = row
    head = [
        "pictures",
        "sets",
        "device",
        "killed after s",
        "fit s",
        "predict s",
        "labels right %",
        "new pictures right %",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for stages in passes:
        written = stages["write"]
        killed = stages.get("fit, killed")
        resolved = stages.get("clean")
        cells = [
            f"{written['images']:,} of {NAMED[written['dataset']].title}",
            written["sets"],
            written["device"],
            f"{killed['seconds']:.0f}" if killed else "",
            f"{stages['fit']['seconds']:.0f}",
            f"{stages['predict']['seconds']:.0f}",
            f"{100 * resolved['resolved']:.1f}" if resolved else "",
            f"{100 * stages['predict']['accuracy']:.1f} of {written['tests']:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextmanager
def workplace(folder: Path | None) -> Iterator[Path]:
    """A folder to work in: the one that is given, or one that is gone afterwards."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="mnist", help="mnist, kmnist, fashion-mnist, cifar10")
    parser.add_argument("--sets", default="flips", choices=["flips", "saturated", "20"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, help="of the training part; default: all")
    parser.add_argument("--tests", type=int, help="of the test part; default: all")
    parser.add_argument("--views", default="upright")
    parser.add_argument("--network")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--networks", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kill-after", type=float, help="seconds after which the fit is killed once")
    parser.add_argument("--export", action="store_true", help="write ONNX too (needs onnx, onnxruntime)")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--rows", type=Path, default=Path("results/pictures.jsonl"))
    parser.add_argument("--sets-folder", type=Path, default=Path("results/sets"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--data-dir", help="where the data sets lie; default: ONEOF_DATA")
    given = parser.parse_args(arguments)
    if given.data_dir:
        os.environ["ONEOF_DATA"] = given.data_dir
    asked = ("dataset", "sets", "seed", "views", "network", "epochs", "networks", "kill_after")
    named = {name: getattr(given, name) for name in asked} | origin(str(best_device()))
    named |= {"commit": given.commit} if given.commit else {}
    with workplace(given.folder) as folder:
        for stage, found in perform(given, folder):
            row = {**named, "stage": stage, **found, "seconds": round(found["seconds"], 1)}
            append(given.rows, [row])
            print(stage, {name: value for name, value in row.items() if name in found}, flush=True)


if __name__ == "__main__":
    main()
