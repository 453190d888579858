"""Read votes from a table with a row per vote (long), or with a row per item and a column per annotator (wide)."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from oneof.data.files.columns import open_table
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.printable import shortened
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.label_studio import is_label_studio, read_label_studio
from oneof.votes.spelling import AS_WRITTEN, Spelling, read_taxonomy
from oneof.votes.tables import VoteTable, load, read_records

_MAX_DISTINCT = 0.5  # of the rows: a column with more distinct values than this share is not taken for an annotator's
_MIN_SHARED = 0.8  # of its distinct values that an annotator's column must share with other such columns


def read_long(
    source: Any,
    *,
    item: str = "item",
    annotator: str = "annotator",
    label: str = "label",
    confidence: str | None = None,
    spelling: Spelling = AS_WRITTEN,
) -> Votes:
    """Read a table with a row per vote.

    Parameters
    ----------
    source
        A path to a file (CSV, TSV, Parquet, JSON Lines or a JSON list of objects), an Arrow table or a data frame.
    item, annotator, label
        The columns to read. An annotator may have several rows for an item, or several labels in one cell (a list, or
        text with `spelling.separator` between them): that is one vague answer.
    confidence
        The column, if any, with the weight of each vote in [0, 1].
    spelling
        How the text of a label is parsed.

    Examples
    --------
    >>> table = pa.table({"item": [7, 7, 8], "annotator": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]})
    >>> votes = read_long(table)
    >>> votes.items.to_pylist(), votes.labels, votes.label.tolist()
    ([7, 8], ['cat', 'dog'], [0, 1, 0])
    """
    columns = [item, annotator, label]
    if confidence is not None:
        columns.append(confidence)
    table = load(source, columns)
    row, text = table.texts(label)
    items = table.keys(item).take(row)
    annotators = table.strings(annotator).dictionary_encode().take(row)
    weights = None
    if confidence is not None:
        weights = table.confidences(confidence)[row]

    def place(i: int) -> str:
        return f"column {label!r}, {table.row(int(row[i]))}"

    return collect(Answers(table.name, items, annotators, text, place, weights), spelling)


def read_wide(source: Any, *, columns: Sequence[str], item: str = "item", spelling: Spelling = AS_WRITTEN) -> Votes:
    """Read a table with a row per item and a column per annotator or language model.

    Parameters
    ----------
    source
        A path to a file (CSV, TSV, Parquet, JSON Lines or a JSON list of objects), an Arrow table or a data frame.
    columns
        The annotators' columns. An empty cell is no answer.
    item
        The column of the items' ids, each of which may occur once.
    spelling
        How the text of a cell is parsed.

    Examples
    --------
    >>> table = pa.table({"item": ["x", "y"], "gpt": ["cat|dog", "dog"], "claude": ["cat", None]})
    >>> votes = read_wide(table, columns=["gpt", "claude"], spelling=Spelling(separator="|"))
    >>> [votes.annotators[j] for j in votes.annotator]
    ['gpt', 'gpt', 'claude', 'gpt']
    """
    if not columns:
        raise ValueError("columns must name at least one annotator's column of a wide table; got none.")
    table = load(source, [item], columns)
    ids = table.keys(item)
    _check_distinct(ids, item, table)
    annotators = list(dict.fromkeys(columns))
    rows = []
    texts = []
    for column in annotators:
        column_rows, column_texts = table.texts(column)
        rows.append(column_rows)
        texts.append(column_texts)
    row = np.concatenate(rows)
    annotator = np.repeat(np.arange(len(annotators)), [len(column_rows) for column_rows in rows])

    def place(i: int) -> str:
        return f"column {annotators[annotator[i]]!r}, {table.row(row[i])}"

    encoded_annotator = pa.DictionaryArray.from_arrays(annotator, annotators)
    return collect(Answers(table.name, ids.take(row), encoded_annotator, pa.concat_arrays(texts), place), spelling)


def _check_distinct(ids: Any, column: str, table: VoteTable) -> None:
    """Raise ValueError if an id occurs in two rows."""
    if len(ids.dictionary) == len(ids):
        return
    index = ids.indices.to_numpy()
    is_repeated = np.bincount(index)[index] > 1
    repeated = index[np.argmax(is_repeated)]
    first, second = np.flatnonzero(index == repeated)[:2]
    got = f"{table.name} has {ids.dictionary[int(repeated)]} in {table.row(first)} and {table.row(second)}"
    remedy = "Drop one, or use the long form."
    raise ValueError(f"column {column!r} of a wide table must hold each item once; {got}. {remedy}")


@dataclass(frozen=True)
class VotesFile:
    """Describe a file of votes.

    Parameters
    ----------
    path
        Label Studio's JSON, JSON records, or a table in long or wide form.
    item
        The column of the items' ids, on which votes and features are joined.
    annotator, label
        Long form: the columns of the annotator and of the label.
    columns
        Wide form: names or glob patterns of the annotators' columns. Empty: detected if the table is not in long form.
    separator
        What separates the labels of one answer.
    taxonomy
        A file of labels below labels.
    """

    path: str
    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"
    columns: tuple[str, ...] = ()
    separator: str | None = None
    taxonomy: str | None = None


def read_votes(file: VotesFile) -> Votes:
    """Read votes of any form: Label Studio's JSON, {"votes": {annotator: label}} per item, long or wide tables."""
    path = Path(file.path)
    taxonomy = None
    if file.taxonomy is not None:
        taxonomy = read_taxonomy(file.taxonomy)
    spelling = Spelling(separator=file.separator, taxonomy=taxonomy)
    if is_label_studio(path):
        return read_label_studio(path, spelling=spelling)
    if path.name.lower().removesuffix(".gz").endswith((".json", ".jsonl", ".ndjson")):
        records, _ = read_records(path)
        if all(isinstance(record.get("votes"), dict) and file.item in record for record in records):
            return read_long(_flatten_records(records, file.item, path), item=file.item, spelling=spelling)
    else:
        columns = annotator_columns(file)
        if columns:
            return read_wide(path, columns=columns, item=file.item, spelling=spelling)
    return read_long(path, item=file.item, annotator=file.annotator, label=file.label, spelling=spelling)


def _flatten_records(records: list[dict[str, Any]], item: str, path: Path) -> pa.Table:
    """Convert records {item, votes: {annotator: a label, or a list of labels}} to a table with a row per answer."""
    ids = []
    annotators = []
    answers = []
    for record in records:
        for annotator, answer in record["votes"].items():
            if answer not in (None, ""):
                ids.append(str(record[item]))
                annotators.append(annotator)
                answers.append(answer)
    has_lists = any(isinstance(answer, list) for answer in answers)
    to_text = _arrow_text if has_lists else str
    labels: list[list[str]] = []
    for key, annotator, answer in zip(ids, annotators, answers, strict=True):
        values = answer if isinstance(answer, list) else [answer]
        values = [value for value in values if value is not None]
        for value in values:
            is_nan = value != value
            if isinstance(value, (list, dict)) or is_nan:
                got = f"{path}, item {key}, {annotator!r} has {shortened(repr(value))}"
                remedy = "Remove it, or replace it by the label's name."
                raise ValueError(f"votes must be texts, numbers or lists of them; {got}. {remedy}")
        labels.append([to_text(value) for value in values])
    return pa.table({item: ids, "annotator": annotators, "label": labels})


def _arrow_text(label: Any) -> str:
    """Return a label as Arrow converts it to text, as it does where labels are read as lists: 1.0 becomes 1."""
    if isinstance(label, (bool, float)):
        return str(pa.scalar(label).cast(pa.string()))
    return str(label)


def annotator_columns(file: VotesFile) -> list[str]:
    """Return the annotators' columns of a table in wide form; none if it is in long form."""
    if not file.path.lower().removesuffix(".gz").endswith((".csv", ".tsv", ".parquet", ".pq")):
        return []
    names = open_table(Path(file.path)).names
    other_names = [name for name in names if name != file.item]
    matches: list[str] = []
    for pattern in file.columns:
        matching = [name for name in other_names if fnmatchcase(name, pattern)]
        if not matching:
            hint = did_you_mean(pattern, names)
            raise ValueError(f"annotators must be columns of {file.path}; none matches {pattern!r}.{hint}")
        matches.extend(matching)
    is_long = file.annotator in names and file.label in names
    if matches or is_long:
        return list(dict.fromkeys(matches))
    return _detect_annotator_columns(Path(file.path), other_names)


def _detect_annotator_columns(path: Path, names: list[str]) -> list[str]:
    """Return the columns that have few distinct values and share them with each other: two or more, or none."""
    values: dict[str, set[str]] = {}
    n_rows: dict[str, int] = {}
    for name, start, chunk in open_table(path).pieces([], names):
        n_rows[name] = start + len(chunk)
        cells = [str(cell) for cell in chunk.to_pylist() if cell not in (None, "")]
        values.setdefault(name, set()).update(cells)
    few_values: dict[str, set[str]] = {}
    for name, distinct in values.items():
        if 0 < len(distinct) <= max(2, _MAX_DISTINCT * n_rows[name]):
            few_values[name] = distinct
    columns = []
    for name, distinct in few_values.items():
        in_other_columns: set[str] = set()
        for other_name, other_distinct in few_values.items():
            if other_name != name:
                in_other_columns |= other_distinct
        if len(distinct & in_other_columns) >= _MIN_SHARED * len(distinct):
            columns.append(name)
    return columns if len(columns) > 1 else []
