"""Files of arrays, npz and those that plug-ins read: features, candidate sets and perhaps true labels."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, parse_candidate_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.source import as_floats
from oneof.storage.plugins import READERS, find_plugins
from oneof.storage.printable import one_line

DAMAGE = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)


class ArrayFile(NamedTuple):
    """The arrays of a file, and what the file calls them."""

    features: NDArray[Any]  # [n, d] numbers
    candidates: NDArray[Any]  # [n, c] a mask, or [n] texts
    labels: NDArray[Any] | None  # [n] true labels: names, or columns of the mask; -1 where unknown
    classes: NDArray[Any] | None  # [c] names of the labels
    keys: tuple[str, str, str]  # of features, candidates and labels in the file


# A reader takes the path and how many gigabytes the file may hold, and raises ValueError if it cannot be read.
Reader = Callable[[Path, float], ArrayFile]


class LabelledArrays(NamedTuple):
    """Features, candidate sets and true labels of a file of arrays."""

    features: NDArray[np.float32]  # [n, d]
    candidates: Candidates
    labels: NDArray[np.intp] | None  # [n] columns of the sets, -1 where unknown
    labels_key: str  # what the file calls the true labels


def array_suffixes() -> tuple[str, ...]:
    """Return the endings of files of arrays: npz, and those that plug-ins read."""
    plugin_suffixes = [f".{ending}" for ending in find_plugins(READERS)]
    return (".npz", *plugin_suffixes)


def read_arrays(path: Path, separator: str, empty: str, unpacked: float) -> LabelledArrays:
    """Read a file of arrays.

    An npz holds `x`, `candidates` (a mask [n, c], or [n] texts) and perhaps `labels` [n] (names, or columns of the mask; -1
    unknown) and `classes` [c]. Plug-ins in the entry-point group `oneof.readers` read other formats; they refuse a file that
    unpacks to more than `unpacked` gigabytes.
    """
    reader = _reader_of(path.suffix.lower())
    stored = reader(path, unpacked)
    features_key, candidates_key, labels_key = stored.keys
    names = [f"x{j}" for j in range(stored.features.shape[1])]
    features = as_floats(stored.features, f"{path}, key {features_key!r}", names=names)
    is_mask = stored.candidates.ndim == 2
    where = f"{path}, key {candidates_key!r}"
    rows: Any = stored.candidates
    if not is_mask:
        rows = parse_candidate_cells(stored.candidates.tolist(), separator, where)
    classes = None
    if stored.classes is not None:
        classes = stored.classes.ravel().tolist()
    try:
        candidates = read(rows, classes=classes, empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where}: {error}") from error
    labels = None
    if stored.labels is not None:
        labels = _true_labels(stored.labels.tolist(), candidates, is_mask, f"{path}, key {labels_key!r}")
    return LabelledArrays(features, candidates, labels, labels_key)


def _reader_of(suffix: str) -> Reader:
    """Return the function that reads files with this ending."""
    if suffix == ".npz":
        return _read_npz
    reader: Reader = find_plugins(READERS)[suffix.removeprefix(".")].load()
    return reader


def _read_npz(path: Path, unpacked: float) -> ArrayFile:
    """Read an npz; what it unpacks to was checked when it was recognised."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (*DAMAGE, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error
    for key in ("x", "candidates"):
        if key not in arrays:
            raise ValueError(f"{path} must hold the key {key!r}; it has {one_line(', '.join(arrays)) or 'none'}.")
    x = arrays["x"]
    sets = arrays["candidates"]
    labels = arrays.get("labels")
    if x.ndim != 2 or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(f"{path}, key 'x' must hold numbers [n, d]; got {x.dtype} {list(x.shape)}.")
    if sets.ndim not in (1, 2) or len(sets) != len(x):
        raise ValueError(f"{path}, key 'candidates' must be [n, c] or [n] for {len(x)} rows; got {list(sets.shape)}.")
    if labels is not None and labels.shape != (len(x),):
        got = list(labels.shape)
        raise ValueError(f"{path}, key 'labels' must hold one label for each of {len(x)} rows; got {got}.")
    return ArrayFile(x, sets, labels, arrays.get("classes"), ("x", "candidates", "labels"))


def _true_labels(stored: list[Any], sets: Candidates, beside_mask: bool, where: str) -> NDArray[np.intp]:
    """Return labels as columns of the mask, by name, by their text, or by number beside a mask; -1 where missing."""
    # One outside its row's set is an error.
    column_of_class = {name: j for j, name in enumerate(sets.classes.tolist())}
    column = {}
    if beside_mask and all(isinstance(label, int) for label in stored):
        column = {j: j for j in range(len(column_of_class))}
    else:
        for label in set(stored):
            by_text = column_of_class.get(str(label).strip(), -1)
            column[label] = column_of_class.get(label, by_text)
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
