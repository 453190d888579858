"""Files of arrays, npz and .mat: features, candidate sets and perhaps true labels."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, sets_of_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.source import as_floats
from oneof.storage.printable import bounded
from oneof_paper.readers.mat import read_mat

KEYS = {".npz": ("x", "candidates", "labels"), ".mat": ("data", "partial_target", "target")}
_DAMAGE = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)


def read_arrays(
    path: Path, separator: str, empty: str, unpacked: float
) -> tuple[NDArray[np.float32], Candidates, NDArray[np.intp] | None]:
    """Features [n, d], sets, and true labels [n], columns of the sets or -1 where unknown, if the file has them.

    An npz holds `x`, `candidates` (a mask [n, c], or [n] texts) and perhaps `labels` [n] (names, or columns of the mask; -1
    unknown) and `classes` [c]; a .mat holds `data`, `partial_target` and perhaps `target`.
    A .mat that unpacks to more than so many gigabytes is refused; of other files that was looked at before.
    """
    suffix = path.suffix.lower()
    stored = read_mat(path, unpacked) if suffix == ".mat" else _npz(path)
    of_x, of_sets, of_labels = (f"{path}, key {key!r}" for key in KEYS[suffix])
    x = as_floats(stored["x"], of_x, names=[f"x{j}" for j in range(stored["x"].shape[1])])
    sets, labels, classes = stored["candidates"], stored.get("labels"), stored.get("classes")
    rows = sets if sets.ndim == 2 else sets_of_cells(sets.tolist(), separator, of_sets)
    try:
        candidates = read(rows, classes=None if classes is None else classes.ravel().tolist(), empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{of_sets}: {error}") from error
    known = None if labels is None else _true_labels(labels.tolist(), candidates, sets.ndim == 2, of_labels)
    return x, candidates, known


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (*_DAMAGE, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error
    for key in ("x", "candidates"):
        if key not in arrays:
            raise ValueError(f"{path} must hold the key {key!r}; it has {bounded(', '.join(arrays)) or 'none'}.")
    x, sets, labels = arrays["x"], arrays["candidates"], arrays.get("labels")
    if x.ndim != 2 or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(f"{path}, key 'x' must hold numbers [n, d]; got {x.dtype} {list(x.shape)}.")
    if sets.ndim not in (1, 2) or len(sets) != len(x):
        raise ValueError(f"{path}, key 'candidates' must be [n, c] or [n] for {len(x)} rows; got {list(sets.shape)}.")
    if labels is not None and labels.shape != (len(x),):
        got = list(labels.shape)
        raise ValueError(f"{path}, key 'labels' must hold one label for each of {len(x)} rows; got {got}.")
    return arrays


def _true_labels(stored: list[Any], sets: Candidates, beside_mask: bool, where: str) -> NDArray[np.intp]:
    """Labels as columns of the mask, by name, by their text, or by number beside a mask; -1 where missing."""
    # One outside its row's set is an error.
    numbers = {name: j for j, name in enumerate(sets.classes.tolist())}
    column = {label: numbers.get(label, numbers.get(str(label).strip(), -1)) for label in set(stored)}
    if beside_mask and all(isinstance(label, int) for label in column):
        column = {j: j for j in range(len(numbers))}
    labels = np.full(len(stored), -1, dtype=np.intp)
    for row, label in enumerate(stored):
        if label == -1 or is_missing(label):
            continue
        j = column.get(label, -1)
        if j < 0 or not sets.mask[row, j]:
            got = f"{where}, row {row} is {label!r}, the set is {sets.classes[sets.mask[row]].tolist()[:8]}."
            raise ValueError(f"a true label must be in its row's candidate set; {got}")
        labels[row] = j
    return labels
