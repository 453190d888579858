"""Tables 6 and 7: the data sets as the paper describes them and as they lie here."""

from pathlib import Path

import numpy as np

from oneof_paper.data.catalogue import NAMED, Dataset, data_folder, load, missing
from oneof_paper.experiments import CHARACTERISTICS
from oneof_paper.image_sets import path_of, read
from oneof_paper.printed import errata
from oneof_paper.typeset import listed, typeset

CHARACTERS = ["data set", "whose", "train", "test", "features", "classes", "labels per set"]


def data_sets(number: int, data_dir: Path | None, sets: Path, form: str) -> str:
    """Table 6 or 7: each set as printed and as its files are here, with sets of a saturated classifier on images."""
    folder, names, rows, empty = data_folder(data_dir), CHARACTERISTICS[number], [], []
    for name in names:
        title, figures = NAMED[name].title, NAMED[name].paper or ()
        rows.append([title, "paper", *map(str, figures)])
        if folder and not missing(name, folder):
            rows.append([title, "ours", *_figures(load(name, folder), path_of(sets, name, "saturated"))])
        else:
            empty.append(title)
    notes = [f"Filled: {len(names) - len(empty)} of {len(names)} sets."]
    if empty:
        where = folder or "a folder that --data-dir or ONEOF_DATA names"
        notes += [
            f"Empty: {', '.join(empty)}: the files are not in {where}; 'oneof paper data' says where to take them."
        ]
    notes += [f"Paper: {note}" for note in errata(number)]
    notes += ["'oneof paper data --verify' compares the files with these figures."]
    return f"{typeset(CHARACTERS, rows, form)}\n\n{listed(notes, form)}"


def _figures(data: Dataset, sets: Path) -> list[str]:
    """Rows to train on and to test (80/20 where the publisher has no split), features, classes, labels per set."""
    n = len(data.x)
    test = n - int(0.8 * n) if data.test is None else len(data.test)
    average = "no sets drawn yet"
    if data.candidates is not None:
        average = f"{data.candidates.sum(1).mean():.2f}"
    elif sets.exists():
        average = f"{np.mean(list(read(sets).card['average'].values())):.2f}"
    return [*map(str, (n - test, test, int(np.prod(data.x.shape[1:])), len(data.classes))), average]
