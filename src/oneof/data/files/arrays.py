"""Read files of arrays, npz and .mat: features, candidate sets and, where present, true labels."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, sets_of_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.mat import read_mat
from oneof.data.files.source import as_floats
from oneof.storage.printable import bounded

KEYS = {".npz": ("x", "candidates", "labels"), ".mat": ("data", "partial_target", "target")}
_DAMAGE = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)


def read_arrays(
    path: Path, separator: str, empty: str, unpacked: float
) -> tuple[NDArray[np.float32], Candidates, NDArray[np.intp] | None]:
    """Return features [n, d], sets and, if the file has them, true labels [n]: columns of the sets, -1 where unknown.

    An npz holds `x`, `candidates` (a mask [n, c], or [n] texts) and perhaps `labels` [n] (names, or columns of the mask; -1
    unknown) and `classes` [c]; a .mat holds `data`, `partial_target` and perhaps `target`.
    A .mat that unpacks to more than so many gigabytes is refused; of other files that was looked at before.
    """
    suffix = path.suffix.lower()
    stored = read_mat(path, unpacked) if suffix == ".mat" else _npz(path)
    x_key, sets_key, labels_key = KEYS[suffix]
    names = [f"x{j}" for j in range(stored["x"].shape[1])]
    x = as_floats(stored["x"], f"{path}, key {x_key!r}", names=names)
    sets = stored["candidates"]
    where_sets = f"{path}, key {sets_key!r}"
    is_mask = sets.ndim == 2
    rows = sets if is_mask else sets_of_cells(sets.tolist(), separator, where_sets)
    classes = stored["classes"].ravel().tolist() if "classes" in stored else None
    try:
        candidates = read(rows, classes=classes, empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where_sets}: {error}") from error
    if "labels" not in stored:
        return x, candidates, None
    labels = _true_labels(stored["labels"].tolist(), candidates, is_mask, f"{path}, key {labels_key!r}")
    return x, candidates, labels


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file, after a check of their types and shapes."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (*_DAMAGE, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error
    for key in ("x", "candidates"):
        if key not in arrays:
            raise ValueError(f"{path} must hold the key {key!r}; it has {bounded(', '.join(arrays)) or 'none'}.")
    x = arrays["x"]
    sets = arrays["candidates"]
    labels = arrays.get("labels")
    if x.ndim != 2 or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(f"{path}, key 'x' must hold numbers [n, d]; got {x.dtype} {list(x.shape)}.")
    if sets.ndim not in (1, 2) or len(sets) != len(x):
        raise ValueError(f"{path}, key 'candidates' must be [n, c] or [n] for {len(x)} rows; got {list(sets.shape)}.")
    if labels is not None and labels.shape != (len(x),):
        raise ValueError(
            f"{path}, key 'labels' must hold one label for each of {len(x)} rows; got {list(labels.shape)}."
        )
    return arrays


def _true_labels(stored: list[Any], sets: Candidates, is_mask: bool, where: str) -> NDArray[np.intp]:
    """Return labels as columns of the mask, -1 where missing; one outside its row's set is an error.

    Labels are names of classes, as they are or as text; where sets are given as a mask, they may be its column numbers.
    """
    column_of_name = {name: j for j, name in enumerate(sets.classes.tolist())}
    column: dict[Any, int] = {}
    for label in set(stored):
        by_text = column_of_name.get(str(label).strip(), -1)
        column[label] = column_of_name.get(label, by_text)
    if is_mask and all(isinstance(label, int) for label in column):
        column = {j: j for j in range(len(column_of_name))}
    labels = np.full(len(stored), -1, dtype=np.intp)
    for row, label in enumerate(stored):
        if label == -1 or is_missing(label):
            continue
        j = column.get(label, -1)
        if j < 0 or not sets.mask[row, j]:
            candidates = sets.classes[sets.mask[row]].tolist()[:8]
            raise ValueError(
                f"a true label must be in its row's candidate set; {where}, row {row} is {label!r}, the set is {candidates}."
            )
        labels[row] = j
    return labels
