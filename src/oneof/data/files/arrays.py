"""Files of arrays, npz and .mat: features, candidate sets and perhaps true labels."""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, sets_of_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.kinds import check_finite
from oneof.data.files.mat import read_mat

_KEYS = {".npz": ("x", "candidates", "labels"), ".mat": ("data", "partial_target", "target")}
_Stored = tuple[NDArray[Any], Any, list[Any] | None, list[Any] | None]  # x, sets, labels (None: unknown), classes


@dataclass(frozen=True)
class Arrays:
    """What a file of arrays holds."""

    x: NDArray[np.float32]  # [n, d]
    features: list[str]  # [d]: x0, x1, ...
    candidates: Candidates
    labels: NDArray[np.intp] | None  # [n], columns of the sets; -1 where unknown
    labels_key: str  # what the file calls its labels


def read_arrays(path: Path, separator: str, empty: str) -> Arrays:
    """Read an npz, which holds `x` [n, d], `candidates` (a mask [n, c], or [n] texts) and perhaps `labels` [n] (names, or
    columns of the mask; -1 unknown) and `classes` [c]; or a .mat, which holds `data`, `partial_target` and perhaps `target`.
    """
    suffix = path.suffix.lower()
    stored, sets, labels, classes = _from_mat(path) if suffix == ".mat" else _from_npz(path)
    of_x, of_sets, of_labels = (f"{path}, key {key!r}" for key in _KEYS[suffix])
    with np.errstate(over="ignore"):
        x: NDArray[np.float32] = stored.astype(np.float32)
    check_finite(x, lambda i, j: f"{of_x}, column x{j}, row {i} is {stored[i, j]:g}")
    rows = sets_of_cells(sets, separator, of_sets) if isinstance(sets, list) else sets
    try:
        candidates = read(rows, classes=classes, empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{of_sets}: {error}") from error
    known = None if labels is None else _true_labels(labels, candidates, isinstance(sets, np.ndarray), of_labels)
    return Arrays(x, [f"x{j}" for j in range(x.shape[1])], candidates, known, _KEYS[suffix][2])


def _from_mat(path: Path) -> _Stored:
    """The keys `data`, `partial_target` and `target` as the partial-label community uses them."""
    mat = read_mat(path)
    labels = None
    if mat.target is not None:
        known, column = np.atleast_1d(mat.target.any(1)), mat.target.argmax(1)
        labels = [int(j) if one else None for j, one in zip(column, known, strict=True)]
    return mat.x, mat.candidates, labels, None


def _from_npz(path: Path) -> _Stored:
    arrays = _load_npz(path)
    for key in ("x", "candidates"):
        if key not in arrays:
            raise ValueError(f"{path} must hold the key {key!r}; it has {', '.join(arrays) or 'none'}.")
    x, sets = arrays["x"], arrays["candidates"]
    if x.ndim != 2 or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(f"{path}, key 'x' must hold numbers [n, d]; got {x.dtype} {list(x.shape)}.")
    if sets.ndim not in (1, 2) or len(sets) != len(x):
        raise ValueError(f"{path}, key 'candidates' must be [n, c] or [n] for {len(x)} rows; got {list(sets.shape)}.")
    classes = arrays["classes"].ravel().tolist() if "classes" in arrays else None
    labels = arrays.get("labels")
    if labels is not None and labels.shape != (len(x),):
        got = list(labels.shape)
        raise ValueError(f"{path}, key 'labels' must hold one label for each of {len(x)} rows; got {got}.")
    named = None if labels is None else [None if label == -1 else label for label in labels.tolist()]
    return x, sets if sets.ndim == 2 else sets.tolist(), named, classes


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    damage = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (*damage, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error


def _true_labels(stored: list[Any], sets: Candidates, beside_mask: bool, where: str) -> NDArray[np.intp]:
    """Labels as columns of the mask, -1 where missing; one outside its row's set is an error."""
    column = _columns_of_labels(stored, sets, beside_mask)
    labels = np.full(len(stored), -1, dtype=np.intp)
    for row, label in enumerate(stored):
        if is_missing(label):
            continue
        j = -1 if isinstance(label, (list, dict)) else column.get(label, -1)
        if j < 0 or not sets.mask[row, j]:
            got = f"{where}, row {row} is {label!r}, the set is {sets.classes[sets.mask[row]].tolist()[:8]}."
            raise ValueError(f"a true label must be in its row's candidate set; {got}")
        labels[row] = j
    return labels


def _columns_of_labels(stored: list[Any], sets: Candidates, beside_mask: bool) -> dict[Any, int]:
    """Where a label as stored lies in the mask: by name, by its text, or by number beside a mask."""
    column = {name: j for j, name in enumerate(sets.classes.tolist())}
    labels = {label for label in stored if isinstance(label, (str, int, float))}
    if beside_mask and all(isinstance(label, int) for label in labels):
        return {j: j for j in range(len(column))}
    return {label: column.get(label, column.get(str(label).strip(), -1)) for label in labels}
