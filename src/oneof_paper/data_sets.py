"""Show Tables 6 and 7: the data sets as the paper describes them and as their files are here."""

from pathlib import Path

import numpy as np

from oneof_paper.data.catalogue import NAMED, Dataset, data_folder, load, missing
from oneof_paper.experiments import CHARACTERISTICS
from oneof_paper.image_sets import path_of, read
from oneof_paper.printed import errata
from oneof_paper.typeset import listed, typeset

HEAD = ["data set", "whose", "train", "test", "features", "classes", "labels per set"]


def data_sets(number: int, data_dir: Path | None, sets_folder: Path, form: str) -> str:
    """Return Table 6 or 7: each data set as printed, and as its files are here.

    On images, labels per set are those of the sets drawn by a saturated classifier, in `sets_folder`.
    """
    folder = data_folder(data_dir)
    names = CHARACTERISTICS[number]
    rows = []
    absent = []
    for name in names:
        title = NAMED[name].title
        figures = NAMED[name].paper or ()
        rows.append([title, "paper", *map(str, figures)])
        if folder is not None and not missing(name, folder):
            sets_path = path_of(sets_folder, name, "saturated")
            rows.append([title, "ours", *_figures(load(name, folder), sets_path)])
        else:
            absent.append(title)
    notes = [f"Filled: {len(names) - len(absent)} of {len(names)} sets."]
    if absent:
        where = folder or "a folder that --data-dir or ONEOF_DATA names"
        remedy = "'oneof paper data' says where to take them."
        notes.append(f"Empty: {', '.join(absent)}: the files are not in {where}; {remedy}")
    for note in errata(number):
        notes.append(f"Paper: {note}")
    notes.append("'oneof paper data --verify' compares the files with these figures.")
    return f"{typeset(HEAD, rows, form)}\n\n{listed(notes, form)}"


def _figures(data: Dataset, sets_path: Path) -> list[str]:
    """Return rows to train on and to test (80/20 without a publisher's split), features, classes, labels per set."""
    n = len(data.x)
    test_count = n - int(0.8 * n) if data.test is None else len(data.test)
    n_features = int(np.prod(data.x.shape[1:]))
    average = "no sets drawn yet"
    if data.candidates is not None:
        average = f"{data.candidates.sum(1).mean():.2f}"
    elif sets_path.exists():
        averages = list(read(sets_path).card["average"].values())
        average = f"{np.mean(averages):.2f}"
    return [str(n - test_count), str(test_count), str(n_features), str(len(data.classes)), average]
