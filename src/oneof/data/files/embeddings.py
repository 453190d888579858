"""Read files of embeddings (.npy, .npz) as tables, with a column for each number and one for the ids of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.files.arrays import DAMAGE
from oneof.data.files.source import Chunk, TableSource, kind_of
from oneof.data.files.unpacked import check_unpacked
from oneof.data.roles import Kind
from oneof.storage.printable import one_line

SUFFIXES = (".npy", ".npz")
ITEM = "item"  # the column of the ids, by which votes are joined
_FEATURES = ("x", "embeddings", "features", "vectors")  # accepted names of the array of numbers
_IDS = ("item", "items", "ids", "id")  # accepted names of the ids
_ENDING = "Save numbers [n, d] as x, and the ids of the rows [n] as ids."


def open_embeddings(path: Path) -> TableSource:
    """Open an array [n, d] of an .npy file, or of an .npz file with ids and other columns [n], as a table.

    The numbers are columns x0, x1 and so on. Rows without ids are numbered from 0 in the column `item`.
    """
    check_unpacked(path)
    numbers, columns = _read(path)
    n, d = numbers.shape
    names = [f"x{j}" for j in range(d)]
    position = {name: j for j, name in enumerate(names)}
    cells = {name: pa.array(values) for name, values in columns.items()}
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    for name, values in cells.items():
        kinds[name] = kind_of(values.type, values[:1000])

    def chunks(number_names: list[str], others: list[str]) -> Iterator[Chunk]:
        for name in [*number_names, *others]:
            if name in position:
                yield name, 0, pa.array(numbers[:, position[name]])
            else:
                yield name, 0, cells[name]

    return TableSource(str(path), [*cells, *names], kinds, n, chunks)


def _read(path: Path) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the numbers [n, d] of a file, and its other columns [n]."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                stored = {"x": loaded}
            else:
                stored = {key: loaded[key] for key in loaded.files}
    except (*DAMAGE, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} must be a whole file of plain arrays; {reason}") from error
    key = _first_key(_FEATURES, stored)
    if key is None:
        held = one_line(", ".join(stored)) or "none"
        raise ValueError(f"{path} must hold one of {', '.join(_FEATURES)}; it has {held}. {_ENDING}")
    numbers = stored.pop(key)
    if numbers.ndim != 2 or numbers.dtype.kind not in "biuf" or 0 in numbers.shape:
        raise ValueError(
            f"{path}, {key!r} must hold numbers [n, d]; got {numbers.dtype} {list(numbers.shape)}. {_ENDING}"
        )
    columns: dict[str, NDArray[Any]] = {ITEM: np.arange(len(numbers))}
    ids_key = _first_key(_IDS, stored)
    if ids_key is not None:
        columns[ITEM] = stored.pop(ids_key)
        if columns[ITEM].shape != (len(numbers),):
            got = list(columns[ITEM].shape)
            raise ValueError(
                f"{path}, {ids_key!r} must hold an id for each of {len(numbers)} rows; got {got}. {_ENDING}"
            )
    for name, values in stored.items():
        if values.shape == (len(numbers),):  # not masks of candidates, nor the names of classes
            columns[name] = values
    return numbers, columns


def _first_key(names: Sequence[str], stored: Mapping[str, Any]) -> str | None:
    """Return the first of these names that the file has; None if it has none of them."""
    for name in names:
        if name in stored:
            return name
    return None
