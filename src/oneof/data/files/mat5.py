"""The level 5 MAT-file: matrices of numbers, dense or sparse, by name.

SciPy reads these files too, but a damaged one can bring the whole process down inside its compiled reader (found by fuzzing:
SIGBUS with SciPy 1.17). Here every length is checked against the bytes that there are before anything is made of it.
"""

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE, _NUMERIC = 5, range(6, 16)  # classes of arrays: double, single, int8 ... uint64


class Damaged(Exception):
    """The bytes are not those of a MAT-file; says how."""


def variables(content: bytes) -> dict[str, Any]:
    """Every variable of a file's bytes: an array, a sparse matrix, or None for what holds no plain numbers."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise Damaged("its header does not say which end of a number comes first")
    return dict(_matrix(element, order) for element in _matrices(content[128:], order))


def _matrices(content: bytes, order: str) -> Iterator[bytes]:
    for kind, element in _elements(content, order):
        if kind == _COMPRESSED:
            try:
                inner = zlib.decompress(element)
            except zlib.error as error:
                raise Damaged(f"a compressed part cannot be unpacked ({error})") from error
            yield from _matrices(inner, order)
        elif kind == _MATRIX:
            yield element


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(type, bytes) of each element in turn; up to four bytes are packed into the tag itself."""
    at = 0
    while at < len(content):
        if at + 8 > len(content):
            raise Damaged("it ends inside a tag")
        kind, size = np.frombuffer(content[at : at + 8], f"{order}u4").tolist()
        start, end, padding = at + 8, len(content), 0 if kind == _COMPRESSED else -size % 8
        if kind >> 16:
            kind, size, start, end, padding = kind & 0xFFFF, kind >> 16, at + 4, at + 8, 4 - (kind >> 16)
        if start + size > end:
            raise Damaged("it ends inside an element")
        yield kind, content[start : start + size]
        at = start + size + padding


def _matrix(element: bytes, order: str) -> tuple[str, Any]:
    parts = list(_elements(element, order)) if element else []
    if len(parts) < 3:
        raise Damaged("a variable has no header")
    flags, shape = _numbers(*parts[0], order), tuple(_numbers(*parts[1], order).tolist())
    name = parts[2][1].decode("latin1")
    if len(flags) < 1 or len(shape) < 2 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise Damaged("a variable has a broken header")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & 0x800)
    if is_complex or (kind != _SPARSE and kind not in _NUMERIC):
        return name, None  # text, cells, structs: not what a table is made of
    stored = [_numbers(*part, order) for part in parts[3:]]
    return name, _sparse(shape, stored) if kind == _SPARSE else _dense(shape, stored)


def _numbers(kind: int, content: bytes, order: str) -> NDArray[Any]:
    if kind not in _TYPES or len(content) % int(_TYPES[kind][1]):
        raise Damaged(f"an element has type {kind} and {len(content)} bytes")
    return np.frombuffer(content, order + _TYPES[kind]).astype(_TYPES[kind])


def _dense(shape: tuple[int, ...], stored: list[NDArray[Any]]) -> NDArray[Any]:
    if len(stored) != 1 or len(stored[0]) != math.prod(shape):
        raise Damaged(f"a matrix {list(shape)} has other than {math.prod(shape)} values")
    return stored[0].reshape(shape, order="F")


def _sparse(shape: tuple[int, ...], stored: list[NDArray[Any]]) -> Any:
    """Compressed columns: row numbers, where each column starts among them, values."""
    if len(stored) != 3 or len(shape) != 2 or any(part.dtype.kind == "f" for part in stored[:2]):
        raise Damaged("a sparse matrix has not the three parts that it needs")
    rows, starts, values = stored
    starts, count = starts.astype(np.intp), int(starts[-1]) if len(starts) else -1
    falling = (np.diff(starts) < 0).any()
    if len(starts) != shape[1] + 1 or starts[0] != 0 or falling or count > min(len(rows), len(values)):
        raise Damaged("the columns of a sparse matrix do not fit its entries")
    rows = rows[:count].astype(np.intp)
    if count and (rows.min() < 0 or rows.max() >= shape[0]):
        raise Damaged("a sparse matrix has an entry outside its shape")
    return csc_array((values[:count], rows, starts), shape=shape)
