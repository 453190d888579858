"""The reader of people's tables: numbers with gaps, dates, categories, texts; sets, exclusions, gold labels and groups, each a column."""

import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, lookalikes
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.column_uses import ColumnUse, describe_columns
from oneof.data.embed import MODELS, text_embedder_here
from oneof.data.files.arrays import KEYS, read_arrays
from oneof.data.files.columns import Cells, open_table, read_numbers
from oneof.data.files.source import Source, days, wrong_cell
from oneof.data.files.unpacked import check_unpacked
from oneof.data.not_features import left_out_lines, why_no_category, why_no_feature
from oneof.data.picture import picture_cell
from oneof.data.roles import Kind, Roles, check_column, resolve_roles
from oneof.data.supervision import label_text, read_supervision, strange_gold
from oneof.data.text_columns import TextUse, decide_texts

_log = logging.getLogger(__name__)
__all__ = ["Columns", "Features", "Roles", "Table", "Words", "read_columns", "read_features", "read_table"]

Words = list[Any]  # texts, or None; of pictures also bytes
_ARRAYS = (".npz", ".mat")
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
    uses: dict[str, ColumnUse] = field(default_factory=dict)  # what each column of the source became

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
    >>> table = read_table(pets, Roles(exclude="not"))
    >>> table.columns.numbers.tolist(), table.columns.words, table.candidates.classes.tolist()
    ([[1.5], [nan]], {'hue': ['red', 'blue']}, ['cat', 'dog'])
    >>> table.candidates.mask.tolist()
    [[True, True], [True, False]]
    >>> table.uses["hue"]
    ColumnUse(use='category', reason='text with 2 values')
    """
    arrays = _is_arrays(source)
    if isinstance(source, (str, Path)):
        check_unpacked(Path(source), roles.unpacked)
    if arrays:
        return _from_arrays(Path(source), roles)
    opened = open_table(source)
    opened.check_distinct(opened.names)
    if roles.exclude and not roles.candidates and "candidates" in opened.kinds:  # exclusions stand beside sets
        roles = replace(roles, candidates="candidates")
    resolved, left_out, texts = _resolve(opened, roles)
    supervision = [name for name in (roles.candidates, roles.exclude, roles.gold, roles.group) if name]
    columns, others = _read(opened, resolved, supervision)
    candidates, gold = read_supervision(opened.name, others, roles, len(columns))
    groups = [str(cell) for cell in others[roles.group]] if roles.group else None
    named = {*roles.features, *roles.categories}
    columns, resolved, suspects = _without_suspects(columns, resolved, named, candidates)
    left_out |= suspects
    if not bare:
        _check_features(columns, left_out_lines(left_out))
    uses = describe_columns(opened.kinds, roles, resolved, texts, left_out)
    return Table(columns, resolved, candidates, gold, groups, left_out, uses)


def read_columns(source: Any, roles: Roles) -> Columns:
    """Read only the features, for predicting: every column that was learned from must be there and hold what it held."""
    if _is_arrays(source):
        raise ValueError(f"predictions must be for a table of columns; got {source}. Give a CSV, TSV or Parquet file.")
    if isinstance(source, (str, Path)):
        check_unpacked(Path(source), roles.unpacked)
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


class Features(NamedTuple):
    """The features of a frame, and how they were found."""

    columns: Columns
    roles: Roles  # with the columns that are learned from
    uses: dict[str, ColumnUse]  # what each column of the frame became


def read_features(X: Any) -> Features:
    """Read a frame or an Arrow table of features only, as the same columns are read beside sets in a file."""
    # What is no feature, such as free text or a column that numbers the rows, is left out with a warning.
    opened = open_table(X)
    opened.check_distinct(opened.names)
    requested = Roles(candidates=None)
    resolved, left_out, texts = _resolve(opened, requested)
    columns, _ = _read(opened, resolved, [])
    columns, resolved, suspects = _without_suspects(columns, resolved, set(), None)
    left_out |= suspects
    lines = left_out_lines(left_out, of_a_frame=True)
    _check_features(columns, lines)
    for line in lines:
        _log.warning(line, stacklevel=3)
    return Features(columns, resolved, describe_columns(opened.kinds, requested, resolved, texts, left_out))


def _resolve(opened: Source, requested: Roles) -> tuple[Roles, dict[str, str], dict[str, TextUse]]:
    """Return the roles of all columns, those left out with the reason, and what the values of texts decided."""
    resolved, untaken = resolve_roles(opened.kinds, opened.name, requested)
    texts = decide_texts(opened, [name for name, why in untaken.items() if why == "text"])
    features = set(resolved.features)
    categories = set(resolved.categories)
    embedded = []
    # Whoever names a column of text has chosen; another one is then not embedded unasked.
    embeds = not requested.text and any(text.use == "text" for text in texts.values()) and text_embedder_here()
    left_out = {}
    for name, why in untaken.items():
        use = texts[name].use if name in texts else why
        if use == "number":
            features.add(name)
        elif use == "category":
            categories.add(name)
        elif use == "text" and embeds:
            embedded.append(name)
        else:
            left_out[name] = use
    resolved = replace(
        resolved,
        features=tuple(name for name in opened.names if name in features),
        categories=tuple(name for name in opened.names if name in categories),
        text=(*resolved.text, *embedded),
        text_model=MODELS["text"] if embedded else resolved.text_model,
    )
    return resolved, left_out, texts


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


def _from_arrays(path: Path, roles: Roles) -> Table:
    """Files of arrays have features, sets and perhaps true labels, and no other part."""
    x, sets, labels = read_arrays(path, roles.separator, roles.empty, roles.unpacked)
    known = roles.gold == KEYS[path.suffix.lower()][2] and labels is not None
    parts = (roles.exclude, None if known else roles.gold, roles.group, *roles.words)
    other = next((name for name in parts if name), None)
    if other is not None:
        raise ValueError(f"column {other!r} must be in a table of columns; {path} has features and sets only.")
    asked = replace(roles, candidates=None, gold=None)
    features = [f"x{j}" for j in range(x.shape[1])]
    kinds: dict[str, Kind] = dict.fromkeys(features, "number")
    resolved, left_out = resolve_roles(kinds, str(path), asked)
    kept = np.isin(features, resolved.features)
    columns = Columns(str(path), x if kept.all() else np.ascontiguousarray(x[:, kept]), list(resolved.features), {})
    candidates = read(sets.mask, classes=map(label_text, sets.classes.tolist()))
    uses = describe_columns(kinds, asked, resolved, {}, left_out)
    return Table(columns, resolved, candidates, labels if known else None, None, left_out, uses)


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
    found |= {name: why_no_category(name, columns.words[name], sets, roles.separator) for name in kinds}
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
