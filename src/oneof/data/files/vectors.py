"""Expand columns of lists of numbers, such as embeddings in a Parquet file, into a column for each number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from oneof.data.files.source import Chunk, TableSource, Unreadable
from oneof.data.roles import Kind

MAX_WIDTH = 2**16  # numbers in a list; longer lists are not expanded


def expand_lists(source: TableSource, exclude: Collection[str | None] = ()) -> TableSource:
    """Return a source in which a column of equally long lists of numbers becomes the columns `NAME[0]`, `NAME[1]` and so on.

    Columns that are named in `exclude` stay as they are. A source without such lists is returned as it is.
    """
    widths = {}
    for name in source.names:
        if source.kinds[name] == "other" and name not in exclude and source.names.count(name) == 1:
            width = _width(source, name)
            if width:
                widths[name] = width
    if not widths:
        return source
    names: list[str] = []
    kinds: dict[str, Kind] = {}
    owner: dict[str, tuple[str, int]] = {}  # column of numbers -> column of lists, and position in it
    for name in source.names:
        kind = source.kinds[name]
        parts = [name]
        if name in widths:
            parts = [f"{name}[{j}]" for j in range(widths[name])]
            for j, part in enumerate(parts):
                owner[part] = (name, j)
            kind = "number"
        names += parts
        kinds.update(dict.fromkeys(parts, kind))

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        plain_numbers = [name for name in numbers if name not in owner]
        plain_others = [name for name in others if name not in owner]
        if plain_numbers or plain_others:
            yield from source.chunks(plain_numbers, plain_others)
        wanted: dict[str, list[str]] = {}
        for part in dict.fromkeys([*numbers, *others]):
            if part in owner:
                wanted.setdefault(owner[part][0], []).append(part)
        for name, parts in wanted.items():
            for _, first_row, values in source.chunks([], [name]):
                matrix = _matrix(values, widths[name], f"{source.name}, column {name!r}", source.first_row + first_row)
                for part in parts:
                    yield part, first_row, pa.array(matrix[:, owner[part][1]], from_pandas=True)

    return replace(source, names=names, kinds=kinds, chunks=chunks)


def list_columns(source: TableSource, numbers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split columns of numbers into those of the source, and the columns of lists that hold the others, `NAME` of `NAME[0]`."""
    plain = []
    lists = []
    for name in numbers:
        base = name.rpartition("[")[0]
        if name not in source.kinds and base in source.kinds:
            lists.append(base)
        else:
            plain.append(name)
    return plain, list(dict.fromkeys(lists))


def _width(source: TableSource, name: str) -> int:
    """Return how many numbers the first list of a column has; 0 if it has no list of numbers."""
    try:
        for _, _, values in source.chunks([], [name]):
            kind = values.type
            if not _is_list(kind) or not _is_real(kind.value_type):
                return 0
            lengths = pa.compute.list_value_length(values).drop_null()
            if len(lengths):
                width = int(lengths[0].as_py())
                if width > MAX_WIDTH:
                    return 0
                return width
    except Unreadable:  # objects of a frame that Arrow does not know
        return 0
    return 0


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_real(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))  # lists of whole numbers may be sets of labels


def _matrix(values: pa.Array, width: int, where: str, first_row: int) -> NDArray[Any]:
    """Return lists as rows [n, width], NaN where there is none; raise for a list of another length."""
    lengths = pa.compute.list_value_length(values).to_numpy(zero_copy_only=False)
    is_list = np.asarray(pa.compute.is_valid(values))
    wrong = np.flatnonzero(is_list & (lengths != width))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"{where} must hold {width} numbers in every row; row {first_row + row} has {int(lengths[row])}. "
            "Embed all rows by the same model, or leave the column out."
        )
    matrix = np.full((len(values), width), np.nan)
    flat = pa.compute.list_flatten(values).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    matrix[is_list] = flat.reshape(-1, width)
    return matrix
