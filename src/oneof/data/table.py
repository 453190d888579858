"""The reader of people's tables: numbers with gaps, dates, categories, texts; sets, exclusions, gold labels and groups, each a column."""

import logging
import re
import zipfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, lookalikes
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.arrays import KEYS, read_arrays
from oneof.data.files.columns import Cells, open_table, read_numbers
from oneof.data.files.source import Source, Unreadable, days, stray_cell, wrong_cell
from oneof.data.not_features import left_out_lines, why_no_category, why_no_feature
from oneof.data.picture import picture_cell
from oneof.data.roles import Roles, check_column, resolve_roles
from oneof.data.supervision import label_text, read_supervision, strange_gold

_log = logging.getLogger(__name__)
__all__ = ["Columns", "Roles", "Table", "Words", "read_columns", "read_features", "read_table"]

Words = list[Any]  # texts, or None; of pictures also bytes
_ARRAYS = (".npz", ".mat")
_CHUNK = 1 << 22  # bytes unpacked at a time
_TEXTS = 50  # columns of text that are looked through for numbers
_ENDINGS = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz", *_ARRAYS)


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
class Table:
    columns: Columns
    roles: Roles  # with globs resolved: features are the columns of numbers and dates, categories the rest of them
    candidates: Candidates
    gold: NDArray[np.intp] | None  # [n], -1 where unknown
    groups: list[str] | None  # [n]
    left_out: dict[str, str]  # columns that are no features, and why: see `not_features`

    def remarks(self) -> list[str]:
        """What a person should know about how the table was read."""
        lines = left_out_lines(self.left_out)
        if self.roles.dates:
            lines.append(f"columns of dates are read as numbers of days: {', '.join(self.roles.dates)}.")
        lines += [] if self.gold is None else strange_gold(self.candidates, self.gold)
        alike = lookalikes(self.candidates.classes[self.candidates.mask.any(0)].tolist())
        pairs = "; ".join(" = ".join(map(ascii, names)) for names in alike[:3])
        if alike:
            lines.append(f"{len(alike)} labels look like others, as {pairs}: write them in one way if they are one.")
        return lines


def read_table(source: Any, roles: Roles = Roles(), *, bare: bool = False) -> Table:  # noqa: B008 - frozen
    """Read a table with candidate sets.

    Parameters
    ----------
    source
        A CSV, TSV, Parquet, npz or .mat file, whose ending says the form; an Arrow table or a pandas frame. The columns of an
        npz or .mat are called x0, x1, ...; its true labels are called `labels` or `target`.
    roles
        Which column plays which part, and how sets are written.
    bare
        Read a table without any feature too.

    >>> import pyarrow as pa
    >>> pets = pa.table({"size": [1.5, None], "hue": ["red", "blue"], "candidates": ["cat|dog", ""], "not": ["", "dog"]})
    >>> table = read_table(pets, Roles(categories=("hue",), exclude="not"))
    >>> table.columns.numbers.tolist(), table.columns.words, table.candidates.classes.tolist()
    ([[1.5], [nan]], {'hue': ['red', 'blue']}, ['cat', 'dog'])
    >>> table.candidates.mask.tolist()
    [[True, True], [True, False]]
    """
    arrays = _is_arrays(source)
    if isinstance(source, (str, Path)):
        _check_unpacked(Path(source), roles.unpacked)
    if arrays:
        return _from_arrays(Path(source), roles)
    opened = open_table(source)
    opened.check_distinct(opened.names)
    if roles.exclude and not roles.candidates and "candidates" in opened.kinds:  # exclusions stand beside sets
        roles = replace(roles, candidates="candidates")
    resolved, left_out = resolve_roles(opened.kinds, opened.name, roles)
    supervision = [name for name in (roles.candidates, roles.exclude, roles.gold, roles.group) if name]
    left_out |= _strays(opened, [name for name, why in left_out.items() if why == "text"][:_TEXTS])
    columns, others = _read(opened, resolved, supervision)
    candidates, gold = read_supervision(opened.name, others, roles, len(columns))
    groups = [str(cell) for cell in others[roles.group]] if roles.group else None
    named = {*roles.features, *roles.categories}
    columns, resolved, suspects = _without_suspects(columns, resolved, named, candidates)
    left_out |= suspects
    if not bare:
        _check_features(columns, left_out_lines(left_out))
    return Table(columns, resolved, candidates, gold, groups, left_out)


def read_columns(source: Any, roles: Roles) -> Columns:
    """Read only the features, for predicting: every column that was learned from must be there and hold what it held."""
    if _is_arrays(source):
        raise ValueError(f"predictions must be for a table of columns; got {source}. Give a CSV, TSV or Parquet file.")
    opened = open_table(source)
    for name in (*roles.features, *roles.words):
        check_column(name, opened.names, opened.name)
    opened.check_distinct([*roles.features, *roles.words])
    for name in roles.features:  # of another kind than in training, one may still be blank, or hold numbers as text
        are_dates = name in roles.dates
        if opened.kinds[name] in ("date" if are_dates else "number", "blank"):
            continue
        for _, first, values in opened.pieces([], [name]) if are_dates else ():
            days(values, f"{opened.name}, column {name!r}", first)
        if not are_dates and (wrong := wrong_cell(opened, [name])):
            got = f"{opened.name}, row {wrong[1]} is {wrong[2]!r}. Mend the cell."
            raise ValueError(f"column {name!r} must hold numbers, as in training; {got}")
    return _read(opened, roles, [], rowless=True)[0]


def read_features(X: Any) -> tuple[Columns, Roles]:
    """Read a frame or an Arrow table of features only, as the same columns are read beside sets in a file."""
    # What is no feature, such as free text or a column that numbers the rows, is left out with a warning.
    opened = open_table(X)
    opened.check_distinct(opened.names)
    resolved, left_out = resolve_roles(opened.kinds, opened.name, Roles(candidates=None))
    columns, _ = _read(opened, resolved, [])
    columns, resolved, suspects = _without_suspects(columns, resolved, set(), None)
    said = left_out_lines(left_out | suspects, of_a_frame=True)
    _check_features(columns, said)
    for line in said:
        _log.warning(line, stacklevel=3)
    return columns, resolved


def _strays(opened: Source, texts: list[str]) -> dict[str, str]:
    """The texts that are numbers but for a few cells, and a line on the first such cell."""
    found: dict[str, str | None] = {}
    for name in texts:
        with suppress(Unreadable):  # objects of several kinds in a frame
            found[name] = stray_cell(opened, name)
    why = "nearly all of its cells are numbers. Write a number there, or nothing."
    return {name: f"column {name!r} is left out, since {cell}; {why}" for name, cell in found.items() if cell}


def _is_arrays(source: Any) -> bool:
    """Is this a file of arrays? One with an ending that nobody can read is refused."""
    if not isinstance(source, (str, Path)):
        return False
    path = Path(source)
    if path.is_dir():
        return False
    if path.exists() and not path.is_file():
        raise ValueError(f"a table must be a file; {path} is a pipe or a device. Save it as a file.")
    suffix = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    if suffix not in _ENDINGS:
        raise ValueError(f"a table's file must end in one of {', '.join(_ENDINGS)}; got {str(source)!r}.")
    return suffix in _ARRAYS


def _check_unpacked(path: Path, gigabytes: float) -> None:
    """Refuse a .gz, .npz or Parquet file that holds more than this; damaged files are left to their readers."""
    limit, suffix, size = int(gigabytes * 2**30), path.suffix.lower(), 0
    damage = (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, pa.ArrowException)
    with suppress(*damage):
        if suffix == ".npz":
            with zipfile.ZipFile(path) as file:
                size = sum(part.file_size for part in file.infolist())
        elif suffix in (".parquet", ".pq"):
            facts = pq.read_metadata(path)
            groups = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
            size = max(4 * facts.num_rows * facts.num_columns, groups)
        elif suffix == ".gz":
            with pa.input_stream(str(path), compression="gzip") as stream:
                while size <= limit and (chunk := stream.read(_CHUNK)):
                    size += len(chunk)
    if size > limit:
        remedy = "If you trust it, say --unpacked with a larger number."
        raise ValueError(f"a compressed file must not hold more than {gigabytes:g} GB; {path} does. {remedy}")


def _from_arrays(path: Path, roles: Roles) -> Table:
    """Files of arrays have features, sets and perhaps true labels, and no other part."""
    x, sets, labels = read_arrays(path, roles.separator, roles.empty)
    known = roles.gold == KEYS[path.suffix.lower()][2] and labels is not None
    parts = (roles.exclude, None if known else roles.gold, roles.group, *roles.words)
    other = next((name for name in parts if name), None)
    if other is not None:
        raise ValueError(f"column {other!r} must be in a table of columns; {path} has features and sets only.")
    asked = replace(roles, candidates=None, gold=None)
    features = [f"x{j}" for j in range(x.shape[1])]
    resolved, left_out = resolve_roles(dict.fromkeys(features, "number"), str(path), asked)
    kept = np.isin(features, resolved.features)
    columns = Columns(str(path), x if kept.all() else np.ascontiguousarray(x[:, kept]), list(resolved.features), {})
    candidates = read(sets.mask, classes=map(label_text, sets.classes.tolist()))
    return Table(columns, resolved, candidates, labels if known else None, None, left_out)


def _read(source: Source, roles: Roles, others: list[str], rowless: bool = False) -> tuple[Columns, Cells]:
    """The features, and the cells of other columns; a table to learn from has rows."""
    x, lists = read_numbers(source, list(roles.features), [*roles.words, *others])
    if not rowless and not len(x):
        raise ValueError(f"{source.name} must have at least one row; got none.")
    # Of categories a whole number is the same one as a float, which gaps make of it, and as the text of either.
    kinds = {
        name: [None if is_missing(cell) else re.sub(r"^(-?\d+)\.0+$", r"\1", label_text(cell)) for cell in lists[name]]
        for name in roles.categories
    }
    texts = {name: [None if is_missing(cell) else str(cell) for cell in lists[name]] for name in roles.text}
    pictures = {name: [picture_cell(cell) for cell in lists[name]] for name in roles.image}
    return Columns(source.name, x, list(roles.features), kinds | texts | pictures), lists


def _without_suspects(
    columns: Columns, roles: Roles, named: set[str], sets: Candidates | None
) -> tuple[Columns, Roles, dict[str, str]]:
    """Without what globs took and is no feature, which is told with its reason; what a person named stays."""
    numbers = {name: columns.numbers[:, j] for j, name in enumerate(columns.names) if name not in roles.dates}
    found = {name: why_no_feature(name, values, sets) for name, values in numbers.items() if name not in named}
    kinds = [name for name in roles.categories if name not in named]
    found |= {name: why_no_category(name, columns.words[name], sets) for name in kinds}
    why = {name: reason for name, reason in found.items() if reason}
    if not why:
        return columns, roles, {}
    kept = [j for j, name in enumerate(columns.names) if name not in why]
    names = [columns.names[j] for j in kept]
    words = {name: cells for name, cells in columns.words.items() if name not in why}
    roles = replace(roles, features=tuple(names), categories=tuple(n for n in roles.categories if n in words))
    return Columns(columns.source, np.ascontiguousarray(columns.numbers[:, kept]), names, words), roles, why


def _check_features(columns: Columns, left_out: list[str]) -> None:
    if not columns.names and not columns.words:
        needed = f"features must be columns to learn from; {columns.source} has none. Join your features to it."
        raise ValueError(" ".join([needed, *left_out]))
