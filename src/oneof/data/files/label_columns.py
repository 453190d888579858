"""Combine columns of 0 and 1, one for each label, into a column of sets of labels."""

import fnmatch
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.files.source import Chunk, TableSource, as_doubles
from oneof.data.roles import Kind


def combine_label_columns(source: TableSource, pattern: str | None) -> TableSource:
    """Return a source in which the columns that match a pattern such as `is_*` are one column of that name, of lists of labels.

    A label is what the star stands for. A source that has a column of the pattern's name, or none that matches, is returned as it is.
    """
    if not pattern or "*" not in pattern or pattern in source.kinds:
        return source
    before, _, after = pattern.partition("*")
    labels = {}
    for name in source.names:
        if fnmatch.fnmatchcase(name, pattern):
            labels[name] = name[len(before) : len(name) - len(after)]
    if not labels:
        return source
    source.check_distinct(labels)
    for name in labels:
        if source.kinds[name] != "number":
            raise ValueError(f"columns of labels must hold 0 and 1; {source.name}, column {name!r} holds other cells.")
    kinds: dict[str, Kind] = {name: kind for name, kind in source.kinds.items() if name not in labels}
    kinds[pattern] = "other"
    names = [name for name in source.names if name not in labels]

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        plain = [name for name in others if name != pattern]
        if numbers or plain:
            yield from source.chunks(numbers, plain)
        if pattern in others:
            yield pattern, 0, _read_sets(source, labels)

    return replace(source, names=[*names, pattern], kinds=kinds, chunks=chunks)


def _read_sets(source: TableSource, labels: dict[str, str]) -> pa.Array:
    """Return for each row the labels whose column holds 1."""
    parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in labels}
    for name, first_row, values in source.chunks(list(labels), []):
        numbers = as_doubles(values).to_numpy(zero_copy_only=False)
        is_wrong = ~np.isin(numbers, (0, 1))
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise ValueError(
                f"columns of labels must hold 0 and 1; {source.name}, column {name!r}, row {source.first_row + first_row + row} "
                f"is {numbers[row]:g}. For probabilities, give y as a frame in Python."
            )
        parts[name].append(numbers)
    mask = np.stack([np.concatenate(parts[name]) for name in labels], axis=1) > 0
    names = np.array(list(labels.values()), dtype=object)
    return pa.array([names[row].tolist() for row in mask], pa.list_(pa.string()))
