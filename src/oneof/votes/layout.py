"""Find where a table of votes has items, annotators and labels: by the names of its columns, else by their values."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from oneof.data.files.source import is_number
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.printable import shortened
from oneof.votes.guess import WideColumns, annotator_columns, are_counts, label_columns
from oneof.votes.records import ANNOTATOR_NAMES, ITEM_NAMES, LABEL_NAMES, RANKING_NAMES, TEXT_NAMES, find_name
from oneof.votes.tables import without_decimals

Form = Literal["long", "wide", "label-studio"]
Cells = Mapping[str, Sequence[Any]]  # by column
_MAX_LISTED = 12  # names of columns in a remark


class ColumnOptions(NamedTuple):
    """Options about the columns of a table of votes."""

    source: str  # its name in messages
    item: str
    annotator: str
    label: str
    columns: tuple[str, ...]  # names or patterns of annotators' columns
    classes: tuple[str, ...] | None
    form: Form | None


class Layout(NamedTuple):
    """The columns of a table of votes. One without `columns` is long, a row per vote; else there is a column per annotator."""

    item: str | None  # None: the rows are the items
    annotator: str | None = None  # None: the votes on an item are numbered
    label: str | None = None  # None: there is a column per label, with its probability
    columns: tuple[str, ...] = ()  # a column per annotator
    labels: tuple[str, ...] = ()  # a column per label
    truth: tuple[str, ...] = ()  # columns of true labels, which are not read
    ranked: bool = False  # whether the first label of a list counts most, by the name of the label's column
    remarks: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """Return the columns that hold answers."""
        if self.label is not None:
            return (self.label,)
        return self.columns or self.labels

    @property
    def used(self) -> set[str]:
        """Return the names of the columns that are read."""
        names = set(self.answers)
        for name in (self.item, self.annotator):
            if name is not None:
                names.add(name)
        return names

    @property
    def is_complete(self) -> bool:
        """Return whether columns name the item of every row, and the annotator and the label of every vote."""
        has_votes = bool(self.columns) or (self.annotator is not None and self.label is not None)
        return self.item is not None and has_votes


def find_layout(options: ColumnOptions, names: Sequence[str], read_cells: Callable[[Sequence[str]], Cells]) -> Layout:
    """Return the columns that hold the votes, as options name them or as they are guessed.

    `read_cells` returns the values of columns; it is called only where their names are not enough.
    """
    item = find_name(options.item, ITEM_NAMES, names)
    if options.columns and options.form != "long":
        return _wide(options, names, _matching_columns(options, names, item), (), read_cells)
    annotator = find_name(options.annotator, ANNOTATOR_NAMES, names)
    label = find_name(options.label, LABEL_NAMES, names)
    has_default_names = annotator == options.annotator and label == options.label
    is_long = options.form == "long" or (has_default_names and options.form is None)
    if is_long or not names:
        return _long(options, names, annotator, label, read_cells)
    guessed = _guess_wide(options, names, item, annotator, label, read_cells)
    if guessed.annotators or options.form == "wide":
        return _wide(options, names, guessed.annotators, tuple(guessed.truth), read_cells)
    return _long(options, names, annotator, label, read_cells)


def _guess_wide(
    options: ColumnOptions,
    names: Sequence[str],
    item: str | None,
    annotator: str | None,
    label: str | None,
    read_cells: Callable[[Sequence[str]], Cells],
) -> WideColumns:
    """Return the columns that hold annotators' answers; none if the table seems to be long."""
    not_annotators = {item}
    if annotator is not None and options.form is None:
        # With a column of annotators a table is long, unless each item has one row and other columns share labels.
        if item is None or not _are_distinct(read_cells([item])[item]):
            return WideColumns([], [])
        not_annotators |= {annotator, label}
    candidates = [name for name in names if name not in not_annotators]
    return _guess_annotators(options, candidates, read_cells)


def _guess_annotators(
    options: ColumnOptions, candidates: Sequence[str], read_cells: Callable[[Sequence[str]], Cells]
) -> WideColumns:
    """Return those of the candidates that hold annotators' answers by their values; raise ValueError if they are counts."""
    if not candidates:
        return WideColumns([], [])
    cells = read_cells(candidates)
    values = {name: distinct_labels(cells[name]) for name in candidates}
    n_rows = {name: len(cells[name]) for name in candidates}
    guessed = annotator_columns(values, n_rows, options.classes)
    if guessed.annotators and options.form is None:
        _check_no_counts(options, guessed.annotators, cells)
    return guessed


def _are_distinct(cells: Sequence[Any]) -> bool:
    """Return whether no two cells have the same text."""
    return len(set(map(str, cells))) == len(cells)


def _matching_columns(options: ColumnOptions, names: Sequence[str], item: str | None) -> list[str]:
    """Return the columns that the patterns of the options match."""
    matches: list[str] = []
    others = [name for name in names if name != item]
    for pattern in options.columns:
        matching = [name for name in others if fnmatchcase(name, pattern)]
        if not matching:
            hint = did_you_mean(pattern, names)
            raise ValueError(f"annotators must be columns of {options.source}; none matches {pattern!r}.{hint}")
        matches.extend(matching)
    return list(dict.fromkeys(matches))


def _wide(
    options: ColumnOptions,
    names: Sequence[str],
    columns: Sequence[str],
    truth: tuple[str, ...],
    read_cells: Callable[[Sequence[str]], Cells],
) -> Layout:
    """Return the layout of a table with a column per annotator; its item is a column of ids, of distinct texts, or the row."""
    remarks = []
    item = find_name(options.item, ITEM_NAMES, names)
    if item is None and options.item == ITEM_NAMES[0]:
        item = _distinct_texts(set(names) - set(columns), read_cells)
        if item is None:
            remarks.append("No column has ids of items: they are the numbers of the rows, from 0.")
        else:
            remarks.append(f"Items are identified by {item!r}.")
    elif item is None:
        item = options.item  # named and not there: an error where it is read
    if not options.columns and columns:
        each = f"Each of these columns is an annotator: {_listed(columns)}."
        remarks.append(f"{each} If that is wrong, name them: --columns.")
    if truth:
        listed = ", ".join(map(repr, truth))
        remarks.append(f"Not taken for an annotator, by its name: {listed}. If it is one, name all of them: --columns.")
    return Layout(item, columns=tuple(columns), truth=truth, remarks=tuple(remarks))


def _distinct_texts(names: set[str], read_cells: Callable[[Sequence[str]], Cells]) -> str | None:
    """Return the first column of `TEXT_NAMES` in which no text occurs twice; None if there is none."""
    for name in TEXT_NAMES:
        if name in names and _are_distinct(read_cells([name])[name]):
            return name
    return None


def _long(
    options: ColumnOptions,
    names: Sequence[str],
    annotator: str | None,
    label: str | None,
    read_cells: Callable[[Sequence[str]], Cells],
) -> Layout:
    """Return the layout of a table with a row per vote."""
    item = find_name(options.item, (*ITEM_NAMES, *TEXT_NAMES), names) or options.item
    if item in names and annotator is not None and label is None and options.label == LABEL_NAMES[0]:
        others = [name for name in names if name not in (item, annotator)]
        cells = read_cells([item, *others])
        labels = _probability_columns(others, cells)
        if labels:
            read = f"item {item!r}, annotator {annotator!r}, the probability of each label: {_listed(labels)}"
            return Layout(item, annotator, None, labels=tuple(labels), remarks=(f"Columns read: {read}.",))
        label = _guess_label(options, item, others, cells)
    lacks_annotator = annotator is None and options.annotator == ANNOTATOR_NAMES[0]
    if lacks_annotator and label is not None and item in names and not _are_distinct(read_cells([item])[item]):
        remark = (
            "No column names the annotators: the first vote on each item is taken for annotator 1, and so on. "
            "If a column does, name it with --annotator."
        )
        return Layout(item, None, label, ranked=label in RANKING_NAMES, remarks=(remark,))
    annotator = annotator or options.annotator
    label = label or options.label
    remarks = []
    if (item, annotator, label) != (options.item, options.annotator, options.label):
        remarks.append(f"Columns read: item {item!r}, annotator {annotator!r}, label {label!r}.")
    return Layout(item, annotator, label, ranked=label in RANKING_NAMES, remarks=tuple(remarks))


def _listed(names: Sequence[str]) -> str:
    """Return the first names of columns for a remark."""
    listed = ", ".join(shortened(name, 40) for name in names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        listed += ", ..."
    return listed


def _guess_label(options: ColumnOptions, item: str, others: Sequence[str], cells: Cells) -> str | None:
    """Return the only column of a long table whose values may be labels, None if there is none; raise ValueError if there are several."""
    items = [str(cell) for cell in cells[item]]
    candidates = label_columns(items, {name: cells[name] for name in others})
    if len(candidates) > 1:
        listed = ", ".join(candidates)
        raise ValueError(f"one column must hold the labels; {options.source} has {listed}. Name it with --label.")
    if not candidates:
        return None
    return candidates[0]


def _probability_columns(names: Sequence[str], cells: Cells) -> list[str]:
    """Return the columns of numbers, if they hold probabilities of labels: two or more, whose rows add up to 1."""
    numeric = []
    for name in names:
        if cells[name] and all(cell is None or is_number(cell) for cell in cells[name]):
            numeric.append(name)
    if len(numeric) < 2:
        return []
    rows = _number_rows(numeric, cells)
    sums = [sum(value or 0.0 for value in row) for row in rows]
    is_distribution = are_counts(rows) and abs(sorted(sums)[len(sums) // 2] - 1) < 0.02
    if not is_distribution:
        return []
    return numeric


def _number_rows(names: Sequence[str], cells: Cells) -> list[list[float | None]]:
    """Return the rows of columns of numbers."""
    rows = []
    for row in zip(*(cells[name] for name in names), strict=True):
        rows.append([number_or_none(cell) for cell in row])
    return rows


def number_or_none(cell: Any) -> float | None:
    """Return the number in a cell; None if the cell is empty."""
    if cell in (None, ""):
        return None
    return float(cell)


def _check_no_counts(options: ColumnOptions, columns: Sequence[str], cells: Cells) -> None:
    """Raise ValueError if columns that were taken for annotators hold counts of votes, a column per label."""
    for name in columns:
        if not all(cell in (None, "") or is_number(cell) for cell in cells[name]):
            return
    if are_counts(_number_rows(columns, cells)):
        listed = ", ".join(columns[:6])
        got = f"{options.source} has numbers in {listed}, and each row has the same sum, like counts or probabilities of labels"
        remedy = "In Python, pass them as y. If they are labels of annotators, name the columns with --columns."
        raise ValueError(f"votes must name labels; {got}. {remedy}")


def distinct_labels(cells: Sequence[Any]) -> set[str]:
    """Return what may be labels in cells: values, the elements of lists, and the keys of objects of numbers."""
    labels: set[str] = set()
    for cell in cells:
        labels.update(_labels_in_cell(cell))
    return labels


def _labels_in_cell(cell: Any) -> list[str]:
    """Return what may be labels in a cell."""
    if cell is None or cell == "" or cell != cell:
        return []
    if isinstance(cell, Mapping):
        are_scores = all(isinstance(score, (int, float)) or score is None for score in cell.values())
        if not are_scores:
            return []
        return list(cell)
    if not isinstance(cell, (list, tuple)):
        return [without_decimals(str(cell))]
    labels = []
    for element in cell:
        if not isinstance(element, (dict, list)):
            labels.append(without_decimals(str(element)))
    return labels
