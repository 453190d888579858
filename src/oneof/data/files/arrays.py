"""Files of arrays, npz and .mat, as what a table needs: features, sets, labels, and what messages call them."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.files.mat import read_mat


@dataclass(frozen=True)
class Stored:
    """What a file holds, before its sets are read."""

    name: str
    x: NDArray[np.float32]  # [n, d]
    features: list[str]  # [d]
    sets: Any  # a mask [n, c], or a list of cells [n]
    sets_name: str  # with the file, as messages say it
    labels: list[Any] | None  # [n], None where unknown; beside a mask, whole numbers are its columns
    labels_name: str
    classes: list[Any] | None = None  # [c]


def from_mat(path: Path) -> Stored:
    """The keys `data`, `partial_target` and `target` as the partial-label community uses them."""
    mat = read_mat(path)
    labels = None
    if mat.target is not None:
        known, column = np.atleast_1d(mat.target.any(1)), mat.target.argmax(1)
        labels = [int(j) if one else None for j, one in zip(column, known, strict=True)]
    x = _finite(mat.x, f"{path}, key 'data'")
    sets_name, labels_name = f"{path}, key 'partial_target'", f"{path}, key 'target'"
    return Stored(str(path), x, _numbered(x), mat.candidates, sets_name, labels, labels_name)


def from_npz(path: Path) -> Stored:
    """The keys `x`, `candidates`, and perhaps `labels` and `classes`."""
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
    labels = _labels(arrays["labels"], len(x), path) if "labels" in arrays else None
    x = _finite(x, f"{path}, key 'x'")
    sets_name, labels_name = f"{path}, key 'candidates'", f"{path}, key 'labels'"
    cells = sets if sets.ndim == 2 else sets.tolist()
    return Stored(str(path), x, _numbered(x), cells, sets_name, labels, labels_name, classes)


def _labels(labels: NDArray[Any], n: int, path: Path) -> list[Any]:
    if labels.shape != (n,):
        raise ValueError(f"{path}, key 'labels' must hold one label for each of {n} rows; got {list(labels.shape)}.")
    return [None if label == -1 else label for label in labels.tolist()]


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    damage = (EOFError, KeyError, zipfile.BadZipFile, zlib.error, SyntaxError, AttributeError, TypeError, ValueError)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (*damage, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole npz file of plain arrays; {reason}") from error


def _numbered(x: NDArray[Any]) -> list[str]:
    return [f"x{j}" for j in range(x.shape[1])]


def _finite(x: NDArray[Any], name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        floats: NDArray[np.float32] = x.astype(np.float32)
    bad = ~np.isfinite(floats)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"features must be finite numbers within float32; {name}, column x{column}, row {row} is {x[row, column]:g}. "
            "Fill or drop such rows."
        )
    return floats
