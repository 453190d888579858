"""The rows to label: drawn at random, so that fifty labels show how often the model is right on all."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.runs.accuracy import SAMPLE, drawn_rows
from oneof.storage.sheets import write_sheet

FILE = "sample.csv"


def write_sample(purified: pa.Table, folder: Path) -> None:
    """Write the rows that are drawn, with their sets and an empty column for the right label; no guess, which would lead a person."""
    rows = drawn_rows(purified.num_rows)[:SAMPLE]
    sets = purified["original"].take(pa.array(rows))
    write_sheet(pa.table({"row": rows, "candidates": sets, "gold": pa.nulls(len(rows), pa.string())}), folder / FILE)


def read_sample(path: Path, classes: NDArray[np.str_], n: int) -> NDArray[np.intp]:
    """Gold labels [n] from the columns `row` and `gold` of a CSV file, -1 where there is none."""
    place = {str(name): j for j, name in enumerate(classes.tolist())}
    found = np.full(n, -1)
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        if not {"row", "gold"} <= set(lines.fieldnames or ()):
            raise ValueError(f"{path} must have the columns row and gold; it has {', '.join(lines.fieldnames or ())}.")
        for number, line in enumerate(lines, 2):
            row, label = line["row"] or "", (line["gold"] or "").strip()
            if not row.isdecimal() or int(row) >= n:
                raise ValueError(f"{path} must name rows from 0 to {n - 1}; line {number} has {row!r}.")
            if label and label not in place:
                raise ValueError(f"{path} must hold labels that the sets have; line {number} has {label!r}.")
            found[int(row)] = place.get(label, -1)
    return found
