"""People's own tables: features, candidate sets and perhaps true labels out of one file or frame."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, sets_of_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.arrays import Stored, from_mat, from_npz

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True)
class Table:
    """A person's table: features, candidate sets and, for reporting only, true labels."""

    x: NDArray[np.float32]  # [n, d]
    candidates: Candidates
    labels: NDArray[np.intp] | None  # [n], columns of candidates.classes; -1 where unknown
    features: list[str]  # [d]


def read_table(
    path_or_frame: Any,
    *,
    features: Sequence[str] = ("*",),
    candidates: str = "candidates",
    label: str | None = None,
    separator: str = "|",
    empty: str = "error",
    classes: Sequence[Any] | None = None,
    complementary: bool = False,
    missing: bool = False,
) -> Table:
    """Read a table with candidate sets from a CSV, TSV, Parquet, npz or .mat file, an Arrow table or a pandas frame.

    Parameters
    ----------
    path_or_frame
        A path, whose ending says the form, or the table itself. An npz holds `x` [n, d], `candidates` (a mask [n, c], or [n]
        texts) and perhaps `labels` [n] (names, or columns of the mask; -1 unknown) and `classes` [c]; a .mat holds `data`, `partial_target` and perhaps `target`.
    features
        Names of columns, or globs, which take the numeric columns that they match. The sets and labels are never features.
        The columns of an npz or .mat are called x0, x1, ...
    candidates
        The column of sets: lists, or text with a separator such as `a|b|c`.
    label
        The column of true labels, for reporting only; missing means unknown. Those of an npz or .mat are taken as they are.
    separator
        What stands between the labels of a text cell.
    empty, classes, complementary
        As for `oneof.read`.
    missing
        Missing numbers become NaN; without it they are an error.

    >>> import pyarrow as pa
    >>> table = read_table(pa.table({"size": [1.5, 2.0], "candidates": ["cat|dog", "dog"]}))
    >>> table.x.tolist(), table.features, table.candidates.mask.tolist(), table.candidates.classes.tolist()
    ([[1.5], [2.0]], ['size'], [[True, True], [False, True]], ['cat', 'dog'])
    """
    if not separator:
        raise ValueError("separator must not be empty; got ''.")
    suffix = suffix_of(path_or_frame)
    if suffix == ".mat":
        raw = _chosen(from_mat(Path(path_or_frame)), features)
    elif suffix == ".npz":
        raw = _chosen(from_npz(Path(path_or_frame)), features)
    else:
        raw = _from_columns(path_or_frame, features, candidates, label, missing)
    sets = _read_sets(raw, separator, classes, complementary, empty)
    return Table(raw.x, sets, _true_labels(raw, sets), raw.features)


def suffix_of(table: Any) -> str | None:
    """The ending of a path, one of those that can be read; None for a table in memory."""
    if not isinstance(table, (str, Path)):
        return None
    path = Path(table)
    suffix = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    if suffix not in (*_TABLES, ".npz", ".mat"):
        known = ", ".join((*_TABLES, ".npz", ".mat"))
        raise ValueError(f"a table's file must end in one of {known}; got {str(table)!r}.")
    return suffix


# ----------------------------------------------------------------------------------------------------- tables of columns


def _from_columns(table: Any, features: Sequence[str], candidates: str, label: str | None, missing: bool) -> Stored:
    from oneof.data.files.columns import open_table, read_numbers

    source = open_table(table)
    for name in filter(None, (candidates, label)):
        check_column(name, source.columns, source.name)
    free = {name: numeric for name, numeric in source.numeric.items() if name not in (candidates, label)}
    chosen = _choose(features, free, source.name)
    x, others = read_numbers(source, chosen, [candidates, *([label] if label else [])], missing=missing)
    if len(x) == 0:
        raise ValueError(f"{source.name} must have at least one row; got none.")
    sets_name = f"{source.name}, column {candidates!r}"
    labels = others[label] if label else None
    labels_name = f"{source.name}, column {label!r}"
    return Stored(source.name, x, chosen, others[candidates], sets_name, labels, labels_name)


def _choose(features: Sequence[str], numeric: dict[str, bool], where: str) -> list[str]:
    """The columns that names and globs ask for, in the table's order."""
    chosen: set[str] = set()
    for pattern in [features] if isinstance(features, str) else features:
        if pattern in numeric:
            if not numeric[pattern]:
                raise ValueError(
                    f"features must be columns of numbers; {where}, column {pattern!r} holds something else."
                )
            chosen.add(pattern)
            continue
        if not any(sign in pattern for sign in "*?["):
            check_column(pattern, list(numeric), where)
        matches = [name for name, is_number in numeric.items() if is_number and fnmatch.fnmatchcase(name, pattern)]
        if not matches:
            raise ValueError(f"features must match a column of numbers; {where} has none for {pattern!r}.")
        chosen.update(matches)
    return [name for name in numeric if name in chosen]


def check_column(name: str, columns: list[str], where: str) -> None:
    """Refuse a name that is no column, with the nearest one that is."""
    if name not in columns:
        near = difflib.get_close_matches(name, columns, n=1)
        shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"column {name!r} must be in {where}; it has {shown}.{hint}")


def _chosen(raw: Stored, features: Sequence[str]) -> Stored:
    names = _choose(features, dict.fromkeys(raw.features, True), raw.name)
    columns = [raw.features.index(name) for name in names]
    x = raw.x if len(names) == len(raw.features) else np.ascontiguousarray(raw.x[:, columns])
    return replace(raw, x=x, features=names)


# ---------------------------------------------------------------------------------------------------------- sets, labels


def _read_sets(
    raw: Stored, separator: str, classes: Sequence[Any] | None, complementary: bool, empty: str
) -> Candidates:
    sets = sets_of_cells(raw.sets, separator, raw.sets_name) if isinstance(raw.sets, list) else raw.sets
    names = raw.classes if classes is None else classes
    try:
        return read(sets, classes=names, complementary=complementary, empty=empty)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{raw.sets_name}: {error}") from error


def _true_labels(raw: Stored, sets: Candidates) -> NDArray[np.intp] | None:
    """Labels as columns of the mask, -1 where missing; one outside its row's set is an error."""
    if raw.labels is None:
        return None
    column = _columns_of_labels(raw, sets)
    labels = np.full(len(raw.x), -1, dtype=np.intp)
    for row, label in enumerate(raw.labels):
        if is_missing(label):
            continue
        j = -1 if isinstance(label, (list, dict)) else column.get(label, -1)
        if j < 0 or not sets.mask[row, j]:
            raise ValueError(
                f"a true label must be in its row's candidate set; {raw.labels_name}, row {row} is {label!r}, the set is "
                f"{sets.classes[sets.mask[row]].tolist()[:8]}."
            )
        labels[row] = j
    return labels


def _columns_of_labels(raw: Stored, sets: Candidates) -> dict[Any, int]:
    """Where a label as stored lies in the mask: by name, by its text, or by number beside a mask."""
    column = {name: j for j, name in enumerate(sets.classes.tolist())}
    stored = {label for label in raw.labels or () if isinstance(label, (str, int, float))}
    if isinstance(raw.sets, np.ndarray) and all(isinstance(label, int) for label in stored):
        return {j: j for j in range(len(column))}
    return {label: column.get(label, column.get(str(label).strip(), -1)) for label in stored}
