"""Tables to learn from: numbers with gaps, categories, texts; sets, exclusions, gold labels and groups, each a column."""

from __future__ import annotations

import fnmatch
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, sets_of_cells, split_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.columns import Source, is_number, open_table, read_numbers
from oneof.data.formats import check_column, read_table, suffix_of
from oneof.data.row_numbers import numbers_rows

Words = list[str | None]


@dataclass(frozen=True)
class Roles:
    """Which column plays which part. A column has one part; what has no part is not read."""

    features: tuple[str, ...] = ("*",)  # names, or globs, which take columns of numbers; text by its name is a category
    categories: tuple[str, ...] = ()  # taken as categories even where they are numbers
    text: tuple[str, ...] = ()  # to embed as sentences
    image: tuple[str, ...] = ()  # names of image files, to embed
    candidates: str | None = "candidates"
    exclude: str | None = None  # labels that a row does not have
    gold: str | None = None  # true labels of some rows
    group: str | None = None  # rows of one group stay on one side of a split
    ignore: tuple[str, ...] = ()  # never a feature
    separator: str = "|"
    empty: str = "error"  # or "unlabelled"


@dataclass(frozen=True)
class Columns:
    """The features of n rows as they stand in the table."""

    source: str  # what messages call the table
    numbers: NDArray[np.float32]  # [n, k], NaN where missing
    names: list[str]  # [k]
    words: dict[str, Words]  # categories, texts and image names, by column

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Mixed:
    """A table to learn from."""

    columns: Columns
    roles: Roles  # with globs resolved: features are the columns of numbers, categories the rest of them
    candidates: Candidates
    gold: NDArray[np.intp] | None  # [n], -1 where unknown
    groups: list[str] | None  # [n]
    left_out: list[str]  # columns of text that no part was given to
    row_numbers: list[str]  # columns that number the rows, which a glob does not take


def read_mixed(table: Any, roles: Roles) -> Mixed:
    """Read what a table has to teach.

    >>> import pyarrow as pa
    >>> table = pa.table({"size": [1.5, None], "hue": ["red", "blue"], "candidates": ["cat|dog", ""], "not": ["", "dog"]})
    >>> mixed = read_mixed(table, Roles(features=("*", "hue"), exclude="not"))
    >>> mixed.columns.numbers.tolist(), mixed.columns.words, mixed.candidates.classes.tolist()
    ([[1.5], [nan]], {'hue': ['red', 'blue']}, ['cat', 'dog'])
    >>> mixed.candidates.mask.tolist()
    [[True, True], [True, False]]
    """
    if not roles.separator:
        raise ValueError("separator must not be empty; got ''.")
    if suffix_of(table) in (".npz", ".mat"):
        return _from_arrays(table, roles)
    source = open_table(table)
    if roles.exclude and not roles.candidates and "candidates" in source.columns:  # exclusions stand beside sets
        roles = replace(roles, candidates="candidates")
    by_name = set(roles.features)
    roles, left_out = resolve_roles(source, roles)
    supervision = [name for name in (roles.candidates, roles.exclude, roles.gold, roles.group) if name]
    words = [*roles.categories, *roles.text, *roles.image]
    x, others = read_numbers(source, list(roles.features), [*words, *supervision], missing=True)
    if len(x) == 0:
        raise ValueError(f"{source.name} must have at least one row; got none.")
    x, roles, row_numbers = _without_row_numbers(x, roles, by_name, source.name)
    columns = Columns(source.name, x, list(roles.features), _all_words(others, roles))
    reading = {roles.candidates: sets_of_cells, roles.exclude: sets_of_cells, roles.gold: split_cells}
    cells = {name: way(others[name], roles.separator, _where(source, name)) for name, way in reading.items() if name}
    candidates, gold = _supervision(source.name, cells, roles, len(x))
    groups = [str(cell) for cell in others[roles.group]] if roles.group else None
    return Mixed(columns, roles, candidates, gold, groups, left_out, row_numbers)


def _without_row_numbers(
    x: NDArray[np.float32], roles: Roles, by_name: set[str], where: str
) -> tuple[NDArray[np.float32], Roles, list[str]]:
    """Features without those that number the rows, unless they were asked for by name."""
    found = [name for j, name in enumerate(roles.features) if name not in by_name and numbers_rows(name, x[:, j])]
    if not found:
        return x, roles, found
    kept = [j for j, name in enumerate(roles.features) if name not in found]
    if not kept and not (roles.categories or roles.text or roles.image):
        raise ValueError(
            f"features must be columns to learn from; {where} has only {', '.join(found)}, which numbers the rows. Join your features to it."
        )
    return np.ascontiguousarray(x[:, kept]), replace(roles, features=tuple(roles.features[j] for j in kept)), found


def read_columns(table: Any, roles: Roles) -> Columns:
    """Read only the features, for predicting: every column that was learned from must be there and hold what it held."""
    if suffix_of(table) in (".npz", ".mat"):
        raise ValueError(f"predictions must be for a table of columns; got {table}. Give a CSV, TSV or Parquet file.")
    source = open_table(table)
    words = [*roles.categories, *roles.text, *roles.image]
    for name in (*roles.features, *words):
        check_column(name, source.columns, source.name)
    for name in roles.features:
        if not source.numeric[name]:
            _check_numbers(source, name)
    x, others = read_numbers(source, list(roles.features), words, missing=True)
    return Columns(source.name, x, list(roles.features), _all_words(others, roles))


def resolve_roles(source: Source, roles: Roles) -> tuple[Roles, list[str]]:
    """The roles with every glob replaced by the columns that it takes, and the columns of text that have no part."""
    given = [roles.candidates, roles.exclude, roles.gold, roles.group, *roles.text, *roles.image, *roles.ignore]
    taken = [name for name in given if name]
    for name in (*taken, *roles.categories):
        check_column(name, source.columns, source.name)
    _check_one_part(taken, roles.categories, source.name)
    free = [name for name in source.columns if name not in taken and name not in roles.categories]
    chosen: set[str] = set()
    for pattern in roles.features:
        chosen |= _matching(pattern, free, source)
    features = tuple(name for name in free if name in chosen and source.numeric[name])
    by_name = tuple(name for name in free if name in chosen and not source.numeric[name])
    left_out = [name for name in free if name not in chosen and not source.numeric[name]]
    if not (features or by_name or roles.categories or roles.text or roles.image):
        _check_rows(source)
        raise ValueError(
            f"features must be columns to learn from; {source.name} has no column of numbers for {', '.join(roles.features)} "
            f"among {', '.join(free) or 'none'}. Name columns of text to take them as categories."
        )
    return replace(roles, features=features, categories=(*roles.categories, *by_name)), left_out


def _check_rows(source: Source) -> None:
    """A table without rows has columns of no type: say so first."""
    if not any(len(values) for _, _, values in source.pieces([], list(source.columns)[:1])):
        raise ValueError(f"{source.name} must have at least one row; got none.")


def _check_one_part(taken: list[str], categories: Sequence[str], where: str) -> None:
    every = [*taken, *categories]
    twice = next((name for i, name in enumerate(every) if name in every[:i]), None)
    if twice is not None:
        raise ValueError(f"a column must have one part; {where}, column {twice!r} was given two. Name it once.")


def _matching(pattern: str, free: list[str], source: Source) -> set[str]:
    if pattern in free:
        return {pattern}
    if not any(sign in pattern for sign in "*?["):
        check_column(pattern, free, source.name)
    found = {name for name in free if source.numeric[name] and fnmatch.fnmatchcase(name, pattern)}
    if not found and pattern != "*":
        raise ValueError(f"features must match a column of numbers; {source.name} has none for {pattern!r}.")
    return found


def _where(source: Source, column: str) -> str:
    return f"{source.name}, column {column!r}"


def _check_numbers(source: Source, name: str) -> None:
    """A column that is not of numbers may be blank, or hold numbers as text."""
    for _, first, values in source.pieces([], [name]):
        wrong = next((row for row, cell in enumerate(values.to_pylist()) if not is_number(cell)), None)
        if wrong is not None:
            given = values[wrong].as_py()
            raise ValueError(
                f"column {name!r} must hold numbers, as in training; {source.name}, row {first + wrong} is {given!r}. Mend the cell."
            )


def _all_words(others: dict[str, list[Any]], roles: Roles) -> dict[str, Words]:
    kinds = {name: [_category(cell) for cell in others[name]] for name in roles.categories}
    return kinds | {name: [_word(cell) for cell in others[name]] for name in (*roles.text, *roles.image)}


def _word(cell: Any) -> str | None:
    return None if is_missing(cell) else str(cell)


def _category(cell: Any) -> str | None:
    """A name; a whole number is the same one as a float, which gaps make of it, and as the text of either."""
    text = None if is_missing(cell) else _text(cell)
    return text if text is None else re.sub(r"^(-?\d+)\.0+$", r"\1", text)


# ----------------------------------------------------------------------------------------------------------- supervision


def _supervision(
    name: str, cells: dict[str, list[list[Any]]], roles: Roles, n: int
) -> tuple[Candidates, NDArray[np.intp] | None]:
    """The sets of all rows: what is said to be possible, without what is said to be wrong."""
    if not roles.candidates and not roles.exclude:
        raise ValueError(f"candidates must be a column of {name}, or exclusions; got neither.")
    classes = _classes([labels for column in cells.values() for labels in column])
    possible, wrong, gold = (
        _mask(cells[column], classes, f"{name}, column {column!r}") if column else np.zeros((n, len(classes)), bool)
        for column in (roles.candidates, roles.exclude, roles.gold)
    )
    silent: NDArray[np.bool_] = np.logical_not(possible.any(axis=1))
    if roles.empty == "error" and (silent & ~wrong.any(1)).any():
        row = int((silent & ~wrong.any(1)).argmax())
        raise ValueError(
            f"every row must have candidates; {name}, row {row} has none. "
            "Drop such rows, or say --empty unlabelled if nothing is known about them."
        )
    left = (possible | silent[:, None]) & ~wrong
    if not left.any(1).all():
        row = int((~left.any(1)).argmax())
        raise ValueError(f"exclusions must leave a label; {name}, row {row} has none left. Drop such rows.")
    return read(left, classes=classes), _gold(gold, name, roles.gold) if roles.gold else None


def _classes(rows: list[list[Any]]) -> list[str]:
    """Every label as text, sorted: numbers by their value."""
    labels = {label for row in rows for label in row}
    if all(isinstance(label, numbers.Real) for label in labels):
        return [_text(label) for label in sorted(labels)]
    return sorted({_text(label) for label in labels})


def _text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _mask(rows: list[list[Any]], classes: list[str], where: str) -> NDArray[np.bool_]:
    column = {name: j for j, name in enumerate(classes)}
    lengths = np.fromiter(map(len, rows), dtype=np.intp, count=len(rows))
    mask = np.zeros((len(rows), len(classes)), dtype=bool)
    mask[np.repeat(np.arange(len(rows)), lengths), [column[_text(label)] for row in rows for label in row]] = True
    return mask


def _gold(mask: NDArray[np.bool_], name: str, column: str | None) -> NDArray[np.intp]:
    several = mask.sum(1) > 1
    if several.any():
        raise ValueError(
            f"a gold label must be one label; {name}, column {column!r}, row {int(several.argmax())} has several."
        )
    return np.where(mask.any(1), mask.argmax(1), -1)


def _from_arrays(path: str | Path, roles: Roles) -> Mixed:
    """Files of arrays have features and sets, and no other part."""
    parts = (roles.exclude, roles.gold, roles.group, *roles.categories, *roles.text, *roles.image)
    other = next((name for name in parts if name), None)
    if other is not None:
        raise ValueError(f"column {other!r} must be in a table of columns; {path} has features and sets only.")
    table = read_table(path, features=roles.features, empty=roles.empty)
    roles = replace(roles, features=tuple(table.features))
    names = [_text(label) for label in table.candidates.classes.tolist()]
    columns = Columns(str(path), table.x, table.features, {})
    return Mixed(columns, roles, read(table.candidates.mask, classes=names), None, None, [], [])
