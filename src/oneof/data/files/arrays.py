"""Read npz and .mat files: features, candidate sets and perhaps true labels."""

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

# Keys of features, candidate sets and true labels, by suffix.
KEYS = {".npz": ("x", "candidates", "labels"), ".mat": ("data", "partial_target", "target")}
# Exceptions that NumPy raises for a damaged file.
_DAMAGE = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)


def read_arrays(
    path: Path, separator: str, empty: str, unpacked: float
) -> tuple[NDArray[np.float32], Candidates, NDArray[np.intp] | None]:
    """Read an npz or a .mat file.

    An npz file holds `x`, `candidates` (a mask [n, c], or texts [n]) and perhaps `labels` [n] (names, or columns of the mask; -1
    where unknown) and `classes` [c]. A .mat file holds `data`, `partial_target` and perhaps `target`.

    Parameters
    ----------
    path
        The file.
    separator
        What separates the labels of a set that is written as text.
    empty
        "error" or "unlabelled": how to treat empty sets.
    unpacked
        Gigabytes that a .mat file may unpack to. For npz files the caller has checked that.

    Returns
    -------
    x : NDArray
        Features [n, d].
    candidates : Candidates
        Sets of the n rows.
    labels : NDArray or None
        True labels [n] as columns of the mask, -1 where unknown; None if the file has none.
    """
    suffix = path.suffix.lower()
    stored = read_mat(path, unpacked) if suffix == ".mat" else _read_npz(path)
    x_key, sets_key, labels_key = KEYS[suffix]
    names = [f"x{j}" for j in range(stored["x"].shape[1])]
    x = as_floats(stored["x"], f"{path}, key {x_key!r}", names=names)
    sets = stored["candidates"]
    sets_where = f"{path}, key {sets_key!r}"
    is_mask = sets.ndim == 2
    rows = sets if is_mask else sets_of_cells(sets.tolist(), separator, sets_where)
    classes = None
    if stored.get("classes") is not None:
        classes = stored["classes"].ravel().tolist()
    try:
        candidates = read(rows, classes=classes, empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{sets_where}: {error}") from error
    labels = stored.get("labels")
    if labels is None:
        return x, candidates, None
    return x, candidates, _label_columns(labels.tolist(), candidates, is_mask, f"{path}, key {labels_key!r}")


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file and check their shapes."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (*_DAMAGE, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error
    for key in ("x", "candidates"):
        if key not in arrays:
            shown = bounded(", ".join(arrays)) or "none"
            raise ValueError(f"{path} must hold the key {key!r}; it has {shown}.")
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


def _label_columns(labels: list[Any], sets: Candidates, is_mask: bool, where: str) -> NDArray[np.intp]:
    """Return true labels as columns of the mask, -1 where missing; raise for one outside its row's set.

    A label is looked up by name, then by its text. If the sets were stored as a mask and all labels are integers, they are columns.
    """
    column_of_class = {name: j for j, name in enumerate(sets.classes.tolist())}
    distinct = set(labels)
    column_of_label: dict[Any, int] = {}
    if is_mask and all(isinstance(label, int) for label in distinct):
        column_of_label = {j: j for j in range(len(column_of_class))}
    else:
        for label in distinct:
            by_text = column_of_class.get(str(label).strip(), -1)
            column_of_label[label] = column_of_class.get(label, by_text)
    columns = np.full(len(labels), -1, dtype=np.intp)
    for row, label in enumerate(labels):
        if label == -1 or is_missing(label):
            continue
        column = column_of_label.get(label, -1)
        if column < 0 or not sets.mask[row, column]:
            row_set = sets.classes[sets.mask[row]].tolist()
            raise ValueError(
                f"a true label must be in its row's candidate set; {where}, row {row} is {label!r}, "
                f"the set is {row_set[:8]}."
            )
        columns[row] = column
    return columns
