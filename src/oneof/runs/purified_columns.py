"""List the columns of the purified table of a run, and check them when it is opened, so that no command meets values that it cannot use.

Types are checked by the schema, before anything is read; a small file may claim any number of rows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROUNDING = 1e-6  # by which a number may leave its range


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):  # text that is read with each value once
        kind = kind.value_type
    return bool(pa.types.is_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _list_of(is_element: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(pa.types.is_list(kind)) and is_element(kind.value_type)


def _struct_of(fields: dict[str, Callable[[pa.DataType], bool]]) -> Callable[[pa.DataType], bool]:
    def fits(kind: pa.DataType) -> bool:
        if not pa.types.is_struct(kind):
            return False
        for name, is_field in fields.items():
            position = kind.get_field_index(name)
            if position < 0 or not is_field(kind.field(position).type):
                return False
        return True

    return fits


_REMOVAL_FIELDS: dict[str, Callable[[pa.DataType], bool]] = {
    "label": _is_text,
    "round": _is_number,
    "margin": _is_number,
    "trials": _is_number,
}
_REMOVAL = _struct_of(_REMOVAL_FIELDS)
_VOTE = _struct_of({"label": _is_text, "votes": _is_number})
_REQUIRED: dict[str, Callable[[pa.DataType], bool]] = {
    "row": pa.types.is_integer,
    "original": _list_of(_is_text),
    "kept": _list_of(_is_text),
    "label": _is_text,
    "probability": pa.types.is_floating,
    "margin": pa.types.is_floating,
    "agreement": pa.types.is_floating,
    "ask": pa.types.is_boolean,
    "outside": _is_text,
    "removed": _list_of(_REMOVAL),
    "trained": pa.types.is_integer,
    "neighbours": _list_of(pa.types.is_integer),
    "gain": pa.types.is_floating,
    "distribution": _list_of(pa.types.is_floating),
}
_OPTIONAL: dict[str, Callable[[pa.DataType], bool]] = {
    "gold": _is_text,
    "group": _is_text,
    "votes": _list_of(_VOTE),
}
_WITH_GAPS = ("outside", "gold", "group", "votes")
_RANGES = {  # a margin is negative where a label outside of the set was chosen
    "probability": (0.0, 1.0),
    "margin": (-1.0, 1.0),
    "agreement": (0.0, 1.0),
    "distribution": (0.0, 1.0),
    "gain": (-math.inf, math.inf),
}


COLUMNS = (*_REQUIRED, *_OPTIONAL)
"""Columns that a purified table may have; others are not read."""

PLAIN_COLUMNS = (
    "row",
    "label",
    "probability",
    "ask",
    "queue",
    "original",
    "votes",
    "probabilities",
    "kept",
    "outside",
    "group",
    "gold",
    "decided",
    "by",
    "why",
)
"""Columns that `oneof clean` writes to labels.csv, in this order; --details writes the others too, which are for programs."""


def schema_misfit(schema: pa.Schema) -> str | None:
    """Return how the columns of a table differ from those of a purified table, or None."""
    for name in _REQUIRED:
        if schema.names.count(name) == 0:
            return f"column {name!r} is missing"
    for name, is_right in {**_REQUIRED, **_OPTIONAL}.items():
        count = schema.names.count(name)
        if count > 1:
            return f"column {name!r} is there {count} times"
        if count and not is_right(schema.field(name).type):
            return f"column {name!r} must not hold {schema.field(name).type}"
    return None


def values_misfit(table: pa.Table, classes: Sequence[str], first_row: int = 0, n: int | None = None) -> str | None:
    """Return which values no purified table of a run with these classes can have, or None.

    The table may be a batch of one with n rows, from `first_row` on.
    """
    if n is None:
        n = table.num_rows
    for name in _REQUIRED:
        if name not in _WITH_GAPS and _has_gaps(table[name]):
            return f"column {name!r} has gaps"
    expected_rows = np.arange(first_row, first_row + table.num_rows)
    if not np.array_equal(table["row"].to_numpy(), expected_rows):
        return "column 'row' must count the rows"
    for name, (low, high) in _RANGES.items():
        values = _elements(table[name]).to_numpy()
        if not np.isfinite(values).all():
            return f"column {name!r} must hold finite numbers"
        if ((values < low - _ROUNDING) | (values > high + _ROUNDING)).any():
            return f"column {name!r} must hold numbers from {low:g} to {high:g}"
    neighbours = _elements(table["neighbours"]).to_numpy()
    if len(neighbours) and not (neighbours.min() >= 0 and neighbours.max() < n):
        return f"column 'neighbours' must name rows from 0 to {n - 1}"
    known = pa.array(list(classes), pa.string())
    for name in ("original", "kept", "label", "outside"):
        if not _all_in(_elements(table[name]).drop_null(), known):
            return f"column {name!r} has a label that is not a class of the run"
    return _distribution_misfit(table) or _removals_misfit(table, known)


def _distribution_misfit(table: pa.Table) -> str | None:
    """Return what is wrong with the probabilities of the candidates, or None."""
    sizes = pc.list_value_length(table["original"])
    if table.num_rows and pc.min(sizes).as_py() < 1:
        return "column 'original' has an empty set"
    if not sizes.equals(pc.list_value_length(table["distribution"])):
        return "column 'distribution' must have a number for every label of 'original'"
    if table.num_rows:
        starts = np.cumsum(sizes.to_numpy()) - sizes.to_numpy()
        totals = np.add.reduceat(_elements(table["distribution"]).to_numpy(), starts)
        if not (totals > 0).all():
            return "column 'distribution' must have a positive number in every row"
    return None


def _removals_misfit(table: pa.Table, known: pa.Array) -> str | None:
    """Return what is wrong with the labels that were removed, or None."""
    removals = {}
    for name in _REMOVAL_FIELDS:
        removals[name] = pc.struct_field(_elements(table["removed"]), name)
        if removals[name].null_count:
            return "column 'removed' has gaps"
    if not np.isfinite(removals["margin"].to_numpy()).all():
        return "column 'removed' must hold finite numbers"
    if not _all_in(removals["label"], known):
        return "column 'removed' has a label that is not a class of the run"
    return None


def _all_in(labels: Any, known: pa.Array) -> bool:
    """Return whether all labels are known."""
    return bool(pc.all(pc.is_in(labels, value_set=known), min_count=0).as_py())


def _elements(column: pa.ChunkedArray) -> Any:
    """Return the values of a column, or those in its lists."""
    if pa.types.is_list(column.type):
        return pc.list_flatten(column)
    return column


def _has_gaps(column: pa.ChunkedArray) -> bool:
    """Return whether a cell, or an element of a list, is missing."""
    return bool(column.null_count or _elements(column).null_count)
