"""Show Tables 6 and 7: the data sets as the paper describes them and as their files are; rows keep what was read from the files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oneof.storage.files import atomic_write
from oneof.storage.rows import read
from oneof_paper.data.catalogue import NAMED, LabelledData, data_folder, load, missing
from oneof_paper.experiments import CHARACTERISTICS
from oneof_paper.image_sets import path_of
from oneof_paper.image_sets import read as read_sets
from oneof_paper.printed import errata
from oneof_paper.typeset import listed, typeset

HEAD = ["data set", "whose", "train", "test", "features", "classes", "labels per set"]
REBUILT = {"malagasy": "malagasy-rebuilt"}  # sets whose file cannot be had, and what was made from the same source
Figures = Mapping[str, list[str]]  # data set -> the cells from "train" on


def read_figures(path: Path) -> dict[str, list[str]]:
    """Return the figures of the data sets whose files were read before; none if there is no such file of rows."""
    if not path.exists():
        return {}
    return {row["dataset"]: row["figures"] for row in read(path)}


def measure(number: int, data_dir: Path | None, sets_folder: Path, path: Path) -> None:
    """Read the files of a table's data sets that are present, and keep their figures in `path`.

    On images, labels per set are those of the sets drawn by a saturated classifier, in `sets_folder`.
    """
    folder = data_folder(data_dir)
    if folder is None:
        return
    figures = read_figures(path)
    before = dict(figures)
    for name in CHARACTERISTICS[number]:
        for file_name in (name, REBUILT.get(name, name)):
            if not missing(file_name, folder):
                sets_path = path_of(sets_folder, file_name, "saturated")
                figures[file_name] = _figures(load(file_name, folder), sets_path)
    if figures != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, Any]] = [{"dataset": name, "figures": cells} for name, cells in figures.items()]
        with atomic_write(path) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def data_sets(number: int, figures: Figures, form: str) -> str:
    """Return Table 6 or 7: each data set as printed, and with the figures of its files."""
    names = CHARACTERISTICS[number]
    rows = []
    absent = []
    for name in names:
        title = NAMED[name].title
        rows.append([title, "paper", *map(str, NAMED[name].paper or ())])
        if name in figures:
            rows.append([title, "ours", *figures[name]])
        else:
            absent.append(title)
        rebuilt = REBUILT.get(name, "")
        if rebuilt in figures:
            rows.append([title, "rebuilt", *figures[rebuilt]])
    notes = [f"Filled: {len(names) - len(absent)} of {len(names)} sets."]
    if absent:
        remedy = f"'oneof paper data' says where to take them, 'oneof paper table {number} --data-dir DIR' reads them."
        notes.append(f"Empty: {', '.join(absent)}: the files were not at hand; {remedy}")
    for note in errata(number):
        notes.append(f"Paper: {note}")
    notes.append("'oneof paper data --verify' compares the files with these figures.")
    return f"{typeset(HEAD, rows, form)}\n\n{listed(notes, form)}"


def _figures(data: LabelledData, sets_path: Path) -> list[str]:
    """Return rows to train on and to test (80/20 without a publisher's split), features, classes, labels per set."""
    n = len(data.x)
    test_count = n - int(0.8 * n) if data.test is None else len(data.test)
    n_features = int(np.prod(data.x.shape[1:]))
    average = "no sets drawn yet"
    if data.candidates is not None:
        average = f"{data.candidates.sum(1).mean():.2f}"
    elif sets_path.exists():
        averages = list(read_sets(sets_path).card["average"].values())
        average = f"{np.mean(averages):.2f}"
    return [str(n - test_count), str(test_count), str(n_features), str(len(data.classes)), average]
