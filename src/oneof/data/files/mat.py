"""MATLAB .mat files (version 5 to 7) as the partial-label community ships them.

Keys: `data` [n, d], `partial_target` and `target` [c, n], sparse or dense. Some files are transposed: the axis that has as many
entries as `data` has rows is n. Where n equals c, the orientation in which `target` marks one label per row is taken, and [c, n]
where that does not decide.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.files.mat5 import Damaged, variables


@dataclass(frozen=True)
class Mat:
    """What a file holds, rows first."""

    x: NDArray[Any]  # [n, d], as stored
    candidates: NDArray[np.bool_]  # [n, c]
    target: NDArray[np.bool_] | None  # [n, c], one mark per row; none where the truth is unknown


def read_mat(path: str | Path) -> Mat:
    """Read data, candidate sets and, where present, true labels; shapes and values are checked, finiteness is not.

    >>> import tempfile, scipy.io
    >>> file = Path(tempfile.mkdtemp()) / "small.mat"
    >>> scipy.io.savemat(file, {"data": np.eye(3, 2), "partial_target": [[1, 0, 1], [1, 1, 0]], "target": [[1, 0, 1], [0, 1, 0]]})
    >>> read_mat(file).candidates.astype(int)
    array([[1, 1],
           [0, 1],
           [1, 0]])
    """
    path = Path(path)
    stored = _load(path)
    for key in ("data", "partial_target"):
        if key not in stored:
            got = f"it has {', '.join(sorted(stored)) or 'none that is known'}."
            raise ValueError(f"{path} must hold the key {key!r}; {got}")
    x = _numbers(stored["data"], f"{path}, key 'data'")
    sets = _marks(stored["partial_target"], len(x), f"{path}, key 'partial_target'")
    target = _marks(stored["target"], len(x), f"{path}, key 'target'") if "target" in stored else None
    if target is not None and target.shape != sets.shape:
        got = f"got {list(target.shape)}."
        raise ValueError(f"{path}, key 'target' must have the shape of 'partial_target', {list(sets.shape)}; {got}")
    if _is_transposed(len(x), sets, target):
        sets, target = sets.T, None if target is None else target.T
    if target is not None and (many := target.sum(1) > 1).any():
        row = int(many.argmax())
        raise ValueError(f"{path}, key 'target' must mark at most one label per row; row {row} has several.")
    return Mat(x, sets, target)


def _load(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    if content.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in content[:520]:
        remedy = "Save it in MATLAB with '-v7'."
        raise ValueError(f"{path} must be a .mat of version 7 or below; it is version 7.3 (HDF5). {remedy}")
    if not content.startswith(b"MATLAB 5.0 MAT-file"):
        raise ValueError(f"{path} must begin with 'MATLAB 5.0 MAT-file'; got {content[:19]!r}.")
    try:
        return variables(content)
    except Damaged as error:
        raise ValueError(f"{path} must be a whole .mat file; {error}. Download it again.") from error


def _numbers(value: Any, name: str) -> NDArray[Any]:
    """A matrix of numbers, dense."""
    if value is None or len(value.shape) != 2 or 0 in value.shape:
        raise ValueError(f"{name} must be a matrix of numbers [n, d]; got {_describe(value)}.")
    return np.asarray(value if isinstance(value, np.ndarray) else _plausible(value, name).toarray())


def _marks(value: Any, n: int, name: str) -> NDArray[np.bool_]:
    """A 0/1 matrix as bool, without a dense matrix of floats in between."""
    if value is None or n not in value.shape or len(value.shape) != 2:
        raise ValueError(f"{name} must be a matrix with an axis of the {n} rows of 'data'; got {_describe(value)}.")
    dense = isinstance(value, np.ndarray)
    values = value if dense else _plausible(value, name).data
    wrong = ~((values == 0) | (values == 1))
    if wrong.any():
        remedy = "Weights are not candidates: threshold them first."
        raise ValueError(f"{name} must hold only 0 and 1; got {values[wrong][0]}. {remedy}")
    marks = value.astype(bool)
    return np.asarray(marks if dense else marks.toarray())


def _plausible(value: Any, name: str) -> Any:
    """A few entries do not make a matrix of millions: such a shape is damage, and would fill the memory."""
    if max(value.shape) > max(value.nnz, 1) * 64:
        raise ValueError(f"{name} must hold marks; got a sparse matrix {list(value.shape)} with {value.nnz} entries.")
    return value


def _is_transposed(n: int, sets: NDArray[np.bool_], target: NDArray[np.bool_] | None) -> bool:
    """Are the sets [c, n], as is the custom, rather than [n, c]?"""
    if sets.shape[0] != sets.shape[1] or target is None:
        return bool(sets.shape[1] == n)
    return bool((target.sum(0) == 1).all()) or not bool((target.sum(1) == 1).all())


def _describe(value: Any) -> str:
    return "no plain numbers" if value is None else f"shape {list(value.shape)}"
