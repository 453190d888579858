"""Read tables of features (numbers, dates, categories, texts, images) with their candidate sets, exclusions, gold labels and groups."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import is_missing, misspelt_labels, near_duplicate_labels
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.column_uses import ColumnUse, describe_columns
from oneof.data.embed import MODELS, text_embedder_here
from oneof.data.files.arrays import array_suffixes, read_arrays
from oneof.data.files.columns import Cells, open_table, read_numbers, subtract_origins
from oneof.data.files.embeddings import SUFFIXES as EMBEDDINGS
from oneof.data.files.label_columns import combine_label_columns
from oneof.data.files.source import TableSource, days, is_gap, wrong_cell
from oneof.data.files.unpacked import check_unpacked
from oneof.data.files.vectors import expand_lists, list_columns
from oneof.data.not_features import category_exclusion_reason, left_out_lines, number_exclusion_reason
from oneof.data.notation import apply_notations
from oneof.data.picture import picture_cell
from oneof.data.placeholders import find_placeholder
from oneof.data.roles import ColumnRoles, Kind, check_column, resolve_roles
from oneof.data.supervision import label_text, read_supervision, unknown_gold
from oneof.data.text_columns import TextUse, decide_texts
from oneof.data.written import DATE_ORDERS

_log = logging.getLogger(__name__)
__all__ = ["ColumnRoles", "ColumnValues", "Columns", "Features", "Table", "read_columns", "read_features", "read_table"]

ColumnValues = list[Any]  # strings, None where missing; images may also be bytes
_COLUMN_SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
_WHOLE_FLOAT = re.compile(r"^(-?\d+)\.0+$")  # "3.0": the integer 3 in a column that became floats


@dataclass(frozen=True)
class Columns:
    """Features of n rows, not yet encoded."""

    source: str  # name of the table in messages
    numbers: NDArray[np.float32]  # [n, k], NaN where missing
    names: list[str]  # [k]
    non_numeric: dict[str, ColumnValues]  # column -> its n categories, texts or images

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Table:
    """A table to learn from: features, candidate sets and what is known about the labels."""

    columns: Columns
    # With globs resolved: `features` are the columns of numbers and dates, `categories` all categories.
    roles: ColumnRoles
    candidates: Candidates
    gold: NDArray[np.intp] | None  # [n], -1 where unknown
    groups: list[str] | None  # [n]
    left_out: dict[str, str]  # column that is not a feature -> the reason, see `not_features`
    uses: dict[str, ColumnUse] = field(default_factory=dict)  # column of the source -> what it is used for

    def remarks(self) -> list[str]:
        """Return what a user should know about how the table was read, a line each."""
        lines = left_out_lines(self.left_out)
        lines += _gap_lines(self.roles)
        if self.roles.dates:
            listed = ", ".join(self.roles.dates)
            remedy = "If labels may depend on the hour, the weekday or the month, add a column of it."
            lines.append(f"columns of dates are read as numbers of days: {listed}. {remedy}")
        if self.gold is not None:
            lines += unknown_gold(self.candidates, self.gold)
        return lines + _label_lines(self.candidates)


def read_table(
    source: Any,
    roles: ColumnRoles = ColumnRoles(),  # noqa: B008 - frozen
    *,
    bare: bool = False,
    known_classes: Sequence[str] = (),
) -> Table:
    """Read a table with candidate sets.

    Parameters
    ----------
    source
        Path of a CSV, TSV, Parquet, npz or .mat file, recognised by its suffix; an Arrow table or a data frame. The columns of an
        npz or .mat file are called x0, x1, ...; its true labels are called `labels` or `target`.
    roles
        Role of each column, and how candidate sets are written.
    bare
        Accept a table without features.
    known_classes
        Classes that there are beside those that the table names.

    Returns
    -------
    Table
        Features and candidate sets of the n rows.

    Raises
    ------
    ValueError
        If the table cannot be read, has no rows, or holds a value that does not fit the role of its column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> pets = pa.table({"size": [1.5, None], "hue": ["red", "blue"], "candidates": ["cat|dog", ""], "not": ["", "dog"]})
    >>> table = read_table(pets, ColumnRoles(exclude="not"))
    >>> table.columns.numbers.tolist(), table.columns.non_numeric, table.candidates.classes.tolist()
    ([[1.5], [nan]], {'hue': ['red', 'blue']}, ['cat', 'dog'])
    >>> table.candidates.mask.tolist()
    [[True, True], [True, False]]
    >>> table.uses["hue"]
    ColumnUse(use='category', reason='text with 2 values')
    """
    is_array_file = _is_array_file(source)
    if isinstance(source, (str, Path)):
        check_unpacked(Path(source), roles.unpacked)
    if is_array_file:
        return _read_array_file(Path(source), roles)
    opened = _open_combined(source, roles)
    if roles.exclude and not roles.candidates and "candidates" in opened.kinds:
        # Exclusions narrow the candidate sets of the table rather than replace them.
        roles = replace(roles, candidates="candidates")
    supervision = []
    for name in (roles.candidates, roles.exclude, roles.gold, roles.group):
        if name:
            supervision.append(name)
    decided = _decide_roles(opened, roles)
    columns, resolved, cells = _read_training_cells(opened, decided.roles, supervision)
    candidates, gold = read_supervision(opened.name, cells, roles, len(columns), known_classes)
    groups = None
    if roles.group:
        groups = [str(cell) for cell in cells[roles.group]]
    features, left_out = _select_features(columns, resolved, decided, candidates)
    if not bare:
        _check_features(features.columns, left_out_lines(left_out))
    return Table(features.columns, features.roles, candidates, gold, groups, left_out, features.uses)


def _open_combined(source: Any, roles: ColumnRoles) -> TableSource:
    """Open a table, with columns of 0 and 1 for each label combined into one, and lists of numbers expanded into columns."""
    opened = open_table(source)
    opened.check_distinct(opened.names)
    opened = combine_label_columns(opened, roles.candidates)
    opened = combine_label_columns(opened, roles.exclude)
    not_numbers = (roles.candidates, roles.exclude, roles.gold, roles.group, *roles.non_numeric, *roles.ignore)
    return expand_lists(opened, not_numbers)


def read_columns(source: Any, roles: ColumnRoles) -> Columns:
    """Read only the features, for prediction.

    Parameters
    ----------
    source
        Path of a CSV, TSV or Parquet file, an Arrow table or a data frame; it may have no rows.
    roles
        Resolved roles of training: every column that was learned from must be there and hold what it held.

    Returns
    -------
    Columns
        Features of the n rows.
    """
    check_has_columns(source)
    if isinstance(source, (str, Path)):
        check_unpacked(Path(source), roles.unpacked)
    opened = open_table(source)
    if list_columns(opened, roles.features)[1]:
        opened = expand_lists(opened, roles.non_numeric)
    present = set(opened.names)
    for name in (*roles.features, *roles.non_numeric):
        if name not in present:
            check_column(name, opened.names, opened.name)
    opened.check_distinct([*roles.features, *roles.non_numeric])
    opened = apply_notations(opened, roles.notations)
    for name in roles.read_as_numbers:
        _check_feature_kind(opened, name, name in roles.dates)
    columns, _ = _read_cells(opened, roles, [])
    return columns


def check_has_columns(source: Any) -> None:
    """Raise if the source is a file of arrays, other than embeddings, or a file of an unknown format."""
    if isinstance(source, (str, Path)) and Path(source).suffix.lower() in EMBEDDINGS:
        return
    if _is_array_file(source):
        raise ValueError(
            f"predictions must be for a table of columns; got {source}. Give a CSV, TSV, Parquet, npy or npz file."
        )


def _check_feature_kind(opened: TableSource, name: str, is_date: bool) -> None:
    """Check that a column holds dates, or numbers, as it did in training."""
    expected_kind = "number"
    if is_date:
        expected_kind = "date"
    if opened.kinds[name] in (expected_kind, "blank"):
        return
    # A column that Arrow takes for text may still hold numbers or dates only: its cells decide.
    if is_date:
        for _, first_row, values in opened.chunks([], [name]):
            days(values, f"{opened.name}, column {name!r}", opened.first_row + first_row)
        return
    non_number = wrong_cell(opened, [name])
    if non_number is not None:
        _, row, value = non_number
        raise ValueError(
            f"column {name!r} must hold numbers, as in training; {opened.name}, row {opened.first_row + row} is {value!r}. "
            "Correct the cell."
        )


class Features(NamedTuple):
    """Features of a table, and the role of each column."""

    columns: Columns
    roles: ColumnRoles  # resolved: the columns that are learned from
    uses: dict[str, ColumnUse]  # column of the table -> what it is used for


def read_features(X: Any) -> Features:
    """Read a data frame or an Arrow table that holds features only.

    Columns are read as they are in a file with candidate sets. Those that are not features, such as free text or row numbers, are
    dropped with a warning.
    """
    opened = open_table(X)
    opened.check_distinct(opened.names)
    opened = expand_lists(opened)
    decided = _decide_roles(opened, ColumnRoles(candidates=None))
    columns, resolved, _ = _read_training_cells(opened, decided.roles, [])
    features, left_out = _select_features(columns, resolved, decided, None)
    lines = [*left_out_lines(left_out, of_a_frame=True), *_gap_lines(features.roles)]
    _check_features(features.columns, lines)
    for line in lines:
        _log.warning(line, stacklevel=3)
    return features


class _DecidedRoles(NamedTuple):
    """Role of every column of a table, as far as it is known before the features are read."""

    requested: ColumnRoles
    roles: ColumnRoles  # resolved
    kinds: Mapping[str, Kind]
    texts: dict[str, TextUse]  # what was decided about each column of text
    left_out: dict[str, str]  # column that is not a feature -> the reason


def _decide_roles(opened: TableSource, requested: ColumnRoles) -> _DecidedRoles:
    """Decide the role of every column, those of text by their values."""
    resolved, unassigned = resolve_roles(opened.kinds, opened.name, requested)
    text_columns = [name for name, kind in unassigned.items() if kind == "text"]
    texts = decide_texts(opened, text_columns)
    has_free_text = any(text.use == "text" for text in texts.values())
    # A user who names a column of text has chosen; other columns are then not embedded by default.
    embed_free_text = not requested.text and has_free_text and text_embedder_here()
    features = set(resolved.features)
    categories = set(resolved.categories)
    embedded = []
    left_out = {}
    for name, kind in unassigned.items():
        use: str = kind
        if name in texts:
            use = texts[name].use
        if use == "number":
            features.add(name)
        elif use == "category":
            categories.add(name)
        elif use == "text" and embed_free_text:
            embedded.append(name)
        else:
            left_out[name] = use

    notations = []
    dates = set(resolved.dates)
    for name, text in texts.items():
        if text.notation is not None:
            notations.append(text.notation)
            if text.notation.form in DATE_ORDERS:
                dates.add(name)
    roles = replace(
        resolved,
        features=_in_order(features, opened.names),
        categories=_in_order(categories, opened.names),
        dates=_in_order(dates, opened.names),
        notations=tuple(notations),
    )
    if embedded:
        roles = replace(roles, text=(*roles.text, *embedded), text_model=MODELS["text"])
    return _DecidedRoles(requested, roles, opened.kinds, texts, left_out)


def _read_training_cells(
    opened: TableSource, roles: ColumnRoles, other_columns: list[str]
) -> tuple[Columns, ColumnRoles, Cells]:
    """Read the features and the cells of other columns; the roles are returned with what was subtracted from the numbers."""
    as_numbers = apply_notations(opened, roles.notations)
    columns, cells = _read_cells(as_numbers, roles, other_columns)
    origins = subtract_origins(as_numbers, columns.names, columns.numbers)
    if not len(columns):
        raise ValueError(f"{opened.name} must have at least one row; got none.")
    return columns, replace(roles, origins=tuple(origins.items())), cells


def _select_features(
    columns: Columns, roles: ColumnRoles, decided: _DecidedRoles, candidates: Candidates | None
) -> tuple[Features, dict[str, str]]:
    """Drop columns whose values show that they are no features, and read placeholders as gaps.

    Returns the features, and all columns that are left out with the reason.
    """
    requested_by_name = {*decided.requested.features, *decided.requested.categories}
    columns, roles, dropped = _drop_non_features(columns, roles, requested_by_name, candidates)
    roles = _replace_placeholders(columns, roles, requested_by_name)
    left_out = decided.left_out | dropped
    uses = describe_columns(decided.kinds, decided.requested, roles, decided.texts, left_out)
    return Features(columns, roles, uses), left_out


def _in_order(chosen: Collection[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen names in the order in which they are listed."""
    return tuple(name for name in names if name in chosen)


def _is_array_file(source: Any) -> bool:
    """Return whether the source is a file of arrays, such as npz; raise if it is a file of an unknown format."""
    if not isinstance(source, (str, Path)):
        return False
    path = Path(source)
    if path.is_dir():
        return False
    if path.exists() and not path.is_file():
        raise ValueError(f"a table must be a file; {path} is a pipe or a device. Save it as a file.")
    suffixes = path.suffixes[-1:]
    if path.suffix.lower() == ".gz":
        suffixes = path.suffixes[-2:]
    suffix = "".join(suffixes).lower()
    if suffix in _COLUMN_SUFFIXES:
        return False
    known = array_suffixes()
    if suffix == ".npy":
        raise ValueError(
            f"candidate sets must be given; {source} has numbers alone. Add --votes FILE, or save x and candidates as npz."
        )
    if suffix not in known:
        endings = ", ".join([*_COLUMN_SUFFIXES, *known])
        raise ValueError(f"a table's file must end in one of {endings}; got {str(source)!r}.")
    return True


def _read_array_file(path: Path, roles: ColumnRoles) -> Table:
    """Read a file of arrays, such as npz, which holds features, candidate sets and perhaps true labels, and nothing else."""
    arrays = read_arrays(path, roles.separator, roles.empty, roles.unpacked)
    gold = None
    missing = [roles.exclude]
    if roles.gold == arrays.labels_key and arrays.labels is not None:
        gold = arrays.labels
    else:
        missing.append(roles.gold)
    missing += [roles.group, *roles.non_numeric]
    for name in missing:
        if name:
            raise ValueError(f"column {name!r} must be in a table of columns; {path} has features and sets only.")
    x = arrays.features
    requested = replace(roles, candidates=None, gold=None)
    names = [f"x{j}" for j in range(x.shape[1])]
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    resolved, left_out = resolve_roles(kinds, str(path), requested)
    is_feature = np.isin(names, resolved.features)
    if not is_feature.all():
        x = np.ascontiguousarray(x[:, is_feature])
    columns = Columns(str(path), x, list(resolved.features), {})
    candidates = read(arrays.candidates.mask, classes=map(label_text, arrays.candidates.classes.tolist()))
    uses = describe_columns(kinds, requested, resolved, {}, left_out)
    return Table(columns, resolved, candidates, gold, None, left_out, uses)


def _read_cells(source: TableSource, roles: ColumnRoles, other_columns: list[str]) -> tuple[Columns, Cells]:
    """Read the features, and the cells of other columns."""
    numbers, cells = read_numbers(
        source, list(roles.features), [*roles.non_numeric, *other_columns], dict(roles.origins)
    )
    non_numeric: dict[str, ColumnValues] = {}
    for name in roles.categories:
        non_numeric[name] = [_category_value(cell) for cell in cells[name]]
    for name in roles.text:
        non_numeric[name] = [_text_value(cell) for cell in cells[name]]
    for name in roles.image:
        non_numeric[name] = [picture_cell(cell) for cell in cells[name]]
    position = {name: j for j, name in enumerate(roles.features)}
    for name, number in roles.placeholders:
        values = numbers[:, position[name]]
        values[values == np.float32(number)] = np.nan
    return Columns(source.name, numbers, list(roles.features), non_numeric), cells


def _text_value(cell: Any) -> str | None:
    """Return a text, or None where it is missing."""
    if is_missing(cell):
        return None
    return str(cell)


def _category_value(cell: Any) -> str | None:
    """Return a category as a string, the same for 3, 3.0 and "3.0": a column of integers with gaps is read as floats."""
    if is_missing(cell):
        return None
    return _WHOLE_FLOAT.sub(r"\1", label_text(cell))


def _drop_non_features(
    columns: Columns, roles: ColumnRoles, requested_by_name: set[str], candidates: Candidates | None
) -> tuple[Columns, ColumnRoles, dict[str, str]]:
    """Drop columns that a glob matched but whose values show that they are not features.

    Returns the columns and the roles without them, and the reason for each. Columns requested by name stay.
    """
    reasons: dict[str, str] = {}
    for j, name in enumerate(columns.names):
        if name in requested_by_name:
            continue
        reason = number_exclusion_reason(name, columns.numbers[:, j], candidates)
        if name in roles.dates and reason != "blank":  # dates at regular intervals are features
            continue
        if reason:
            reasons[name] = reason
    for name in roles.categories:
        if name in requested_by_name:
            continue
        reason = category_exclusion_reason(name, columns.non_numeric[name], candidates, roles.separator)
        if reason:
            reasons[name] = reason
    if not reasons:
        return columns, roles, {}
    names = []
    is_feature = np.zeros(len(columns.names), dtype=bool)
    for j, name in enumerate(columns.names):
        if name not in reasons:
            names.append(name)
            is_feature[j] = True
    numbers = np.ascontiguousarray(columns.numbers[:, is_feature])
    non_numeric = dict(columns.non_numeric)
    for name in reasons:
        non_numeric.pop(name, None)
    roles = replace(
        roles,
        features=tuple(names),
        categories=_in_order(non_numeric, roles.categories),
        dates=_in_order(names, roles.dates),
        notations=tuple(notation for notation in roles.notations if notation.column not in reasons),
        origins=tuple((name, origin) for name, origin in roles.origins if name not in reasons),
    )
    return Columns(columns.source, numbers, names, non_numeric), roles, reasons


def _replace_placeholders(columns: Columns, roles: ColumnRoles, requested_by_name: set[str]) -> ColumnRoles:
    """Replace numbers that stand for a missing value by NaN, in place, and return the roles with these numbers.

    Columns requested by name stay as they are.
    """
    placeholders = []
    for j, name in enumerate(columns.names):
        if name in requested_by_name or name in roles.dates:
            continue
        number = find_placeholder(columns.numbers[:, j])
        if number is not None:
            placeholders.append((name, number))
            columns.numbers[columns.numbers[:, j] == number, j] = np.nan
    return replace(roles, placeholders=tuple(placeholders))


def _label_lines(candidates: Candidates) -> list[str]:
    """Return a line on labels that may mean nothing, that look like others, and that may be misspelt, where there are such."""
    lines = []
    used_labels = candidates.classes[candidates.mask.any(0)].tolist()
    gap_labels = [label for label in used_labels if is_gap(str(label))]
    if gap_labels:
        listed = ", ".join(map(repr, gap_labels))
        remedy = "If so, leave such cells empty (--empty unlabelled)."
        lines.append(f"labels may mean that nothing is known: {listed}. {remedy}")
    duplicates = near_duplicate_labels(used_labels)
    if duplicates:
        examples = []
        for spellings in duplicates[:3]:
            examples.append(" = ".join(map(ascii, spellings)))
        look_alike = f"{len(duplicates)} labels look like others, such as {'; '.join(examples)}"
        lines.append(f"{look_alike}: write them in one way if they are one.")
    n_rows = {}
    for label, count in zip(candidates.classes.tolist(), candidates.mask.sum(0).tolist(), strict=True):
        n_rows[str(label)] = count
    misspelt = misspelt_labels(n_rows)
    if misspelt:
        examples = []
        for label, other in misspelt[:3]:
            examples.append(f"{label!a} ({n_rows[label]:,} rows) for {other!a} ({n_rows[other]:,})")
        lines.append(f"labels may be misspelt: {'; '.join(examples)}. Correct them if they are.")
    return lines


def _gap_lines(roles: ColumnRoles) -> list[str]:
    """Return a line on each column in which cells that are not empty are read as missing values."""
    lines = []
    for notation in roles.notations:
        if notation.gaps:
            listed = ", ".join(repr(text[:30]) for text in notation.gaps[:3])
            lines.append(f"column {notation.column!r} holds numbers or dates; other cells are read as gaps: {listed}.")
    for name, number in roles.placeholders:
        lines.append(f"column {name!r}: {number:g} is read as a missing value.")
    return lines


def _check_features(columns: Columns, left_out: list[str]) -> None:
    """Raise if there is nothing to learn from, with the lines on what was left out."""
    if columns.names or columns.non_numeric:
        return
    message = f"features must be columns to learn from; {columns.source} has none. Join your features to it."
    raise ValueError(" ".join([message, *left_out]))
