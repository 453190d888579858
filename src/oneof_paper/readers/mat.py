"""Read MATLAB .mat files (version 5 to 7) as the partial-label community ships them.

Keys: `data` [n, d], `partial_target` and `target` [c, n], sparse or dense. Some files are transposed: the axis that
has as many entries as `data` has rows is n. Where n equals c, the orientation in which `target` marks one label per
row is taken, and [c, n] where that does not decide.

SciPy reads these files too, but a damaged one can crash the whole process inside its compiled reader (found by
fuzzing: SIGBUS with SciPy 1.17, and in the constructor of its sparse arrays). Here every length is checked against
the bytes that the file has before it is used.
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from oneof.data.files.arrays import ArrayFile
from oneof.data.files.unpacked import GIGABYTES, bytes_of, too_large
from oneof.storage.printable import one_line

_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX = 14
_COMPRESSED = 15
_SPARSE = 5  # classes of arrays
_NUMERIC = range(6, 16)  # double, single, int8 ... uint64


def read_mat(path: Path, unpacked: float = GIGABYTES) -> dict[str, NDArray[Any]]:
    """Read `x` [n, d] as stored, `candidates` [n, c] and, where the file has them, `labels` [n], -1 where a truth is unknown.

    A file that unpacks to more than so many gigabytes is refused. Shapes and values are checked, finiteness is not.
    """
    try:
        return _read_tables(path, bytes_of(unpacked))
    except TooLarge as error:
        raise too_large(path, unpacked) from error


def read_array_file(path: Path, unpacked: float) -> ArrayFile:
    """Read a .mat file for `oneof fit` and its like; the entry point `mat` of the group `oneof.readers`."""
    stored = read_mat(path, unpacked)
    return ArrayFile(
        features=stored["x"],
        candidates=stored["candidates"],
        labels=stored.get("labels"),
        classes=None,
        keys=("data", "partial_target", "target"),
    )


def _read_tables(path: Path, limit: int) -> dict[str, NDArray[Any]]:
    """Read the matrices of a file, and bring them to [n, ...]; `limit` is in bytes."""
    stored = _load(path, limit)
    for key in ("data", "partial_target"):
        if key not in stored:
            got = f"it has {one_line(', '.join(sorted(stored))) or 'none that is known'}."
            raise ValueError(f"{path} must hold the key {key!r}; {got}")
    _check_size(stored, limit)
    x = _dense(stored["data"], f"{path}, key 'data'", None)
    sets = _dense(stored["partial_target"], f"{path}, key 'partial_target'", len(x))
    target = _dense(stored["target"], f"{path}, key 'target'", len(x)) if "target" in stored else None
    if target is not None and target.shape != sets.shape:
        got = f"got {list(target.shape)}."
        raise ValueError(f"{path}, key 'target' must have the shape of 'partial_target', {list(sets.shape)}; {got}")
    is_transposed = sets.shape[1] == len(x)  # [c, n], as most files have it
    if sets.shape[0] == sets.shape[1] and target is not None:
        one_label_per_column = (target.sum(0) == 1).all()
        one_label_per_row = (target.sum(1) == 1).all()
        is_transposed = bool(one_label_per_column or not one_label_per_row)
    if is_transposed:
        sets = sets.T
    if target is None:
        return {"x": x, "candidates": sets}
    if is_transposed:
        target = target.T
    has_several = target.sum(1) > 1
    if has_several.any():
        row = int(has_several.argmax())
        raise ValueError(f"{path}, key 'target' must mark at most one label per row; row {row} has several.")
    labels = np.where(target.any(1), target.argmax(1), -1)
    return {"x": x, "candidates": sets, "labels": labels}


def _load(path: Path, limit: int) -> dict[str, Any]:
    """Read all variables of a file, with messages that name it."""
    content = path.read_bytes()
    if content.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in content[:520]:
        remedy = "Save it in MATLAB with '-v7'."
        raise ValueError(f"{path} must be a .mat of version 7 or below; it is version 7.3 (HDF5). {remedy}")
    if not content.startswith(b"MATLAB 5.0 MAT-file"):
        raise ValueError(f"{path} must begin with 'MATLAB 5.0 MAT-file'; got {content[:19]!r}.")
    try:
        return variables(content, limit)
    except Damaged as error:
        raise ValueError(f"{path} must be a whole .mat file; {error}. Download it again.") from error


def _check_size(stored: dict[str, Any], limit: int) -> None:
    """Refuse matrices that take more than so many bytes once they are dense: sparse ones may be of any shape."""
    size = 0
    for key in ("data", "partial_target", "target"):
        value = stored.get(key)
        if value is not None and value.ndim == 2:
            bytes_per_value = value.dtype.itemsize if key == "data" else 1  # marks become bool
            size += math.prod(value.shape) * bytes_per_value
    if size > limit:
        raise TooLarge


def _dense(value: Any, name: str, n: int | None) -> NDArray[Any]:
    """Return a matrix that is not empty as a dense array; with n as marks, in bool, that have an axis of n rows."""
    if value is None or value.ndim != 2 or 0 in value.shape or n not in (None, *value.shape):
        wanted = "of numbers [n, d]" if n is None else f"with an axis of the {n} rows of 'data'"
        got = "no plain numbers" if value is None else f"shape {list(value.shape)}"
        raise ValueError(f"{name} must be a matrix {wanted}; got {got}.")
    is_dense = isinstance(value, np.ndarray)
    # A few entries do not make a matrix of millions: such a shape is damage, and would fill the memory.
    if not is_dense and max(value.shape) > max(value.nnz, 1) * 64:
        got = f"got a sparse matrix {list(value.shape)} with {value.nnz} entries."
        raise ValueError(f"{name} must hold marks; {got}")
    if n is not None:
        values = value if is_dense else value.data
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            remedy = "Weights are not candidates: threshold them first."
            raise ValueError(f"{name} must hold only 0 and 1; got {values[wrong][0]}. {remedy}")
        value = value.astype(bool)  # while it is sparse: dense floats would take eight times the memory
    if not is_dense:
        value = value.toarray()
    return np.asarray(value)


class Damaged(Exception):
    """The bytes are not those of a MAT-file; the message says why."""


class TooLarge(Exception):
    """A file unpacks to more than is allowed."""


def variables(content: bytes, limit: int = bytes_of(GIGABYTES)) -> dict[str, Any]:
    """Read all variables of a file's bytes: an array, a sparse matrix, or None for one that holds no plain numbers.

    Compressed parts may unpack to `limit` bytes in all.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise Damaged("its header does not say its endianness")
    values = {}
    for element in _matrices(content[128:], order, limit):
        name, value = _matrix(element, order)
        values[name] = value
    return values


def _matrices(content: bytes, order: str, limit: int) -> Iterator[bytes]:
    """Yield the bytes of every matrix, compressed or not."""
    remaining = limit
    for kind, element in _elements(content, order):
        if kind == _MATRIX:
            yield element
        elif kind == _COMPRESSED:
            inner = _decompress(element, remaining)
            remaining -= len(inner)
            for inner_kind, inner_element in _elements(inner, order):
                if inner_kind == _COMPRESSED:  # MATLAB writes none, and such parts may hold themselves
                    raise Damaged("a compressed part holds another one")
                if inner_kind == _MATRIX:
                    yield inner_element


def _decompress(element: bytes, limit: int) -> bytes:
    """Unpack a part to at most `limit` bytes."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(element, limit + 1)
    except zlib.error as error:
        raise Damaged(f"a compressed part cannot be unpacked ({error})") from error
    if len(content) > limit:
        raise TooLarge
    if not unpacker.eof:
        raise Damaged("a compressed part cannot be unpacked (it ends too soon)")
    return content


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield (type, bytes) of each element; an element of up to four bytes is stored inside its tag."""
    position = 0
    while position < len(content):
        if position + 8 > len(content):
            raise Damaged("it ends inside a tag")
        kind, size = np.frombuffer(content[position : position + 8], f"{order}u4").tolist()
        is_inside_tag = kind >> 16 != 0
        if is_inside_tag:
            size = kind >> 16
            kind = kind & 0xFFFF
            start = position + 4
            end = position + 8
            padding = 4 - size
        else:
            start = position + 8
            end = len(content)
            padding = 0 if kind == _COMPRESSED else -size % 8
        if start + size > end:
            raise Damaged("it ends inside an element")
        yield kind, content[start : start + size]
        position = start + size + padding


def _matrix(element: bytes, order: str) -> tuple[str, Any]:
    """Return the name and the value of a variable; None for text, cells, structs and complex numbers."""
    parts = list(_elements(element, order)) if element else []
    if len(parts) < 3:
        raise Damaged("a variable has no header")
    flags = _values(*parts[0], order)
    shape = tuple(_values(*parts[1], order).tolist())
    name = parts[2][1].decode("latin1")
    if len(flags) < 1 or len(shape) < 2 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise Damaged("a variable has a broken header")
    kind = int(flags[0]) & 0xFF
    is_complex = bool(int(flags[0]) & 0x800)
    if is_complex or (kind != _SPARSE and kind not in _NUMERIC):
        return name, None
    stored = [_values(*part, order) for part in parts[3:]]
    if kind == _SPARSE:
        return name, _sparse(shape, stored)
    if len(stored) != 1 or len(stored[0]) != math.prod(shape):
        raise Damaged(f"a matrix {list(shape)} has other than {math.prod(shape)} values")
    return name, stored[0].reshape(shape, order="F")


def _values(kind: int, content: bytes, order: str) -> NDArray[Any]:
    """Return the numbers of an element."""
    if kind not in _TYPES or len(content) % int(_TYPES[kind][1]):
        raise Damaged(f"an element has type {kind} and {len(content)} bytes")
    return np.frombuffer(content, order + _TYPES[kind]).astype(_TYPES[kind])


def _sparse(shape: tuple[int, ...], stored: list[NDArray[Any]]) -> Any:
    """Return a sparse matrix from its compressed columns: row numbers, where each column starts among them, and values."""
    if len(stored) != 3 or len(shape) != 2 or any(part.dtype.kind == "f" for part in stored[:2]):
        raise Damaged("a sparse matrix has not the three parts that it needs")
    rows, starts, values = stored
    starts = starts.astype(np.intp)
    if len(starts) != shape[1] + 1:
        raise Damaged("the columns of a sparse matrix do not fit its entries")
    count = int(starts[-1])
    is_decreasing = (np.diff(starts) < 0).any()
    if starts[0] != 0 or is_decreasing or count > min(len(rows), len(values)):
        raise Damaged("the columns of a sparse matrix do not fit its entries")
    rows = rows[:count].astype(np.intp)
    if count and (rows.min() < 0 or rows.max() >= shape[0]):
        raise Damaged("a sparse matrix has an entry outside its shape")
    return csc_array((values[:count], rows, starts), shape=shape)
