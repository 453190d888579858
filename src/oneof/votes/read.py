"""Read votes of every form: a row per vote (long), a column per annotator (wide), nested objects, and exports."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneof.data.files.columns import open_table
from oneof.data.files.source import translate_arrow_errors
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.printable import shortened
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.label_studio import is_label_studio, read_label_studio
from oneof.votes.records import (
    ANNOTATOR_NAMES,
    ITEM_NAMES,
    LABEL_NAMES,
    Flattened,
    Keys,
    Placed,
    collect_answers,
    first_name,
    flatten_argilla,
    flatten_distilabel,
    flatten_long,
    flatten_nested,
    flatten_prodigy,
    flatten_wide,
    is_argilla,
    is_distilabel,
    is_flat_argilla,
    is_prodigy,
    votes_key,
)
from oneof.votes.spelling import AS_WRITTEN, Spelling, read_map, read_taxonomy
from oneof.votes.tables import VoteTable, load, place_of_record, read_records

_MAX_DISTINCT = 0.5  # of the rows: a column with more distinct values than this share is not taken for an annotator's
_MIN_SHARED = 0.8  # of its distinct values that an annotator's column must share with other such columns
_MIN_SHARED_WIDE = 0.5  # the same where no columns of annotator and label are there, so that the table can only be wide


def read_long(
    source: Any,
    *,
    item: str = "item",
    annotator: str = "annotator",
    label: str = "label",
    confidence: str | None = None,
    spelling: Spelling = AS_WRITTEN,
    allow_missing: bool = False,
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
    allow_missing
        Whether a row without a label is no vote. False: it is an error.

    Examples
    --------
    >>> table = pa.table({"item": [7, 7, 8], "annotator": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]})
    >>> votes = read_long(table)
    >>> votes.items.to_pylist(), votes.labels, votes.label.tolist()
    ([7, 8], ['cat', 'dog'], [0, 1, 0])
    """
    required = [item, annotator]
    optional = []
    if allow_missing:
        optional.append(label)
    else:
        required.append(label)
    if confidence is not None:
        required.append(confidence)
    table = load(source, required, optional)
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
        A file in any of the forms that `read_votes` reads.
    item
        The column of the items' ids.
    annotator, label
        Long form: the columns of the annotator and of the label.
    columns
        Wide form: names or glob patterns of the annotators' columns. Empty: detected if the table is not in long form.
    separator
        What separates the labels of one answer.
    taxonomy
        A file of labels below labels.
    confidence
        The column of the weight of a vote in [0, 1].
    map
        A file that maps answers to labels.
    normalise
        Ignore case and surrounding space of labels.
    classes
        All labels. None: the labels that occur.
    from_name
        Label Studio: the control whose choices are votes.
    ranked
        Whether the first label of a list counts most. False: the labels of a list are equally plausible.
    on
        The column of the table of features that holds the items' ids. None: the name that `item` has.
    """

    path: str
    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"
    columns: tuple[str, ...] = ()
    separator: str | None = None
    taxonomy: str | None = None
    confidence: str | None = None
    map: str | None = None
    normalise: bool = False
    classes: tuple[str, ...] | None = None
    from_name: str | None = None
    ranked: bool = False
    on: str | None = None

    @property
    def spelling(self) -> Spelling:
        """Return how answers are parsed; reads the files of the map and the taxonomy."""
        return Spelling(
            separator=self.separator,
            synonyms=read_map(self.map) if self.map is not None else {},
            normalise=self.normalise,
            classes=self.classes,
            taxonomy=read_taxonomy(self.taxonomy) if self.taxonomy is not None else None,
        )


Form = Literal["long", "wide", "label-studio"]


def read_votes(source: Any, *, form: Form | None = None, report_unused: bool = True, **settings: Any) -> Votes:
    """Read votes of any form: long, wide or nested, or an export of Label Studio, Argilla, Prodigy or distilabel.

    Parameters
    ----------
    source
        A path to a file (CSV, TSV, Parquet, JSON Lines or JSON), an Arrow table, a data frame, or a `VotesFile`, which holds
        the settings too.
    form
        "long", "wide" or "label-studio". None: recognised by the names of the columns and their values.
    report_unused
        Whether a remark lists the columns that are not read.
    settings
        Fields of `VotesFile`: `item`, `annotator`, `label`, `confidence`, `columns`, `map`, `normalise`, `classes` and others.

    Examples
    --------
    >>> table = pa.table({"id": [7, 7], "model": ["gpt", "claude"], "answer": ["cat", "dog"]})
    >>> votes = read_votes(table)
    >>> votes.annotators, votes.labels
    (['gpt', 'claude'], ['cat', 'dog'])
    """
    if isinstance(source, VotesFile):
        file = replace(source, **settings)
        source = Path(file.path)
    else:
        is_path = isinstance(source, (str, Path))
        for name in ("columns", "classes"):
            if settings.get(name) is not None:
                settings[name] = tuple(settings[name])
        file = VotesFile(str(source) if is_path else "", **settings)
        source = Path(source) if is_path else source
    spelling = file.spelling
    if isinstance(source, Path):
        is_export = form is None and (is_label_studio(source) or (file.from_name is not None and _is_json_list(source)))
        if form == "label-studio" or is_export:
            return read_label_studio(source, from_name=file.from_name, confidence=file.confidence, spelling=spelling)
    records = _records_of(source)
    if records is not None:
        flattened = _flatten(records, file, form)
        if flattened is not None:
            name = str(source) if isinstance(source, Path) else "the table"
            votes = collect_answers(name, flattened.answers, spelling)
            names = list(dict.fromkeys(name for _, record in records for name in record))
            return _with_remarks(votes, flattened.remarks, names, flattened.used, report_unused)
    names = _names_of(source, records)
    columns = _wide_columns(source, file, form, names, records)
    if form == "wide" or columns:
        if file.confidence is not None:
            raise ValueError(
                f"confidence must be left out for a wide table; got {file.confidence!r}. Use the long form."
            )
        item = first_name(file.item, ITEM_NAMES, names) or file.item
        votes = read_wide(source, columns=columns, item=item, spelling=spelling)
        return _with_remarks(votes, [], names, {item, *columns}, report_unused)
    item = first_name(file.item, ITEM_NAMES, names) or file.item
    annotator = first_name(file.annotator, ANNOTATOR_NAMES, names) or file.annotator
    label = first_name(file.label, LABEL_NAMES, names) or file.label
    votes = read_long(
        source,
        item=item,
        annotator=annotator,
        label=label,
        confidence=file.confidence,
        spelling=spelling,
        allow_missing=True,
    )
    remarks = []
    if (item, annotator, label) != (file.item, file.annotator, file.label):
        remarks.append(f"Columns read: item {item!r}, annotator {annotator!r}, label {label!r}.")
    return _with_remarks(votes, remarks, names, {item, annotator, label, file.confidence or item}, report_unused)


def _with_remarks(votes: Votes, remarks: list[str], names: list[str], used: set[str], report_unused: bool) -> Votes:
    """Return votes with more remarks, among them the columns that are not used."""
    remarks = [*remarks, *votes.remarks]
    unused = [name for name in names if name not in used]
    if report_unused and unused:
        shown = ", ".join(shortened(name, 40) for name in unused[:8])
        if len(unused) > 8:
            shown += ", ..."
        remarks.append(f"Not used: {shown}.")
    return replace(votes, remarks=tuple(remarks))


def _is_json(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith((".json", ".jsonl", ".ndjson"))


def _is_json_list(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".json")


def _records_of(source: Any) -> Placed | None:
    """Return the objects of a JSON file, or of a table with nested columns, each with its place; None for flat tables."""
    if isinstance(source, Path):
        if _is_json(source):
            records, lines = read_records(source)
            return [(place_of_record(source, lines, i), record) for i, record in enumerate(records)]
        if not source.name.lower().endswith((".parquet", ".pq")) or not source.is_file():
            return None
        with translate_arrow_errors(str(source)):
            schema = pq.read_schema(source)
        if not _has_objects(schema) and not is_flat_argilla(schema.names):
            return None
        table = pq.read_table(source)
        name = str(source)
    else:
        table = source if isinstance(source, pa.Table) else None
        if table is None and _has_object_cells(source):
            table = pa.Table.from_pandas(source, preserve_index=False)
        if table is None or not (_has_objects(table.schema) or is_flat_argilla(table.schema.names)):
            return None
        name = "the table"
    return [(f"{name}, row {i}", _without_nulls(record)) for i, record in enumerate(table.to_pylist())]


def _has_object_cells(frame: Any) -> bool:
    """Return whether a pandas frame has a column of Python objects, which may be dicts."""
    return hasattr(frame, "dtypes") and hasattr(frame, "iloc") and any(str(kind) == "object" for kind in frame.dtypes)


def _has_objects(schema: pa.Schema) -> bool:
    """Return whether a column holds structs or maps, alone or in lists."""
    for column in schema:
        kind = column.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind) or pa.types.is_map(kind):
            return True
    return False


def _without_nulls(value: Any) -> Any:
    """Return a record without the keys that Arrow adds to structs as nulls; a map becomes an object."""
    if isinstance(value, dict):
        return {key: _without_nulls(element) for key, element in value.items() if element is not None}
    if isinstance(value, list):
        if value and all(isinstance(element, tuple) and len(element) == 2 for element in value):
            return dict(value)
        return [_without_nulls(element) for element in value]
    return value


def _flatten(records: Placed, file: VotesFile, form: Form | None) -> Flattened | None:
    """Flatten records that are nested or an export; None for flat records, which are read as tables are."""
    names = list(dict.fromkeys(name for _, record in records for name in record))
    source = file.path or "the table"
    keys = Keys(file.item, file.annotator, file.label, file.confidence, file.ranked)
    if form is None:
        if is_prodigy(records):
            return flatten_prodigy(records, keys)
        if is_argilla(records):
            return flatten_argilla(records, keys, source)
        if is_distilabel(records):
            return flatten_distilabel(records, keys, source)
    item = first_name(file.item, ITEM_NAMES, names)
    nested = votes_key(records)
    if form is None and item is not None and nested is not None and nested != file.label and not file.columns:
        return flatten_nested(records, keys._replace(item=item), nested)
    columns = _wide_columns(None, file, form, names, records)
    annotator = first_name(file.annotator, ANNOTATOR_NAMES, names)
    label = first_name(file.label, LABEL_NAMES, names)
    is_wide = bool(columns) or form == "wide"
    wanted = columns if is_wide else [label or file.label]
    needs_weights = False
    for name in wanted:
        cells = [record.get(name) for _, record in records]
        has_objects = any(isinstance(cell, dict) for cell in cells)
        has_lists_of_objects = any(isinstance(cell, list) and any(isinstance(e, dict) for e in cell) for cell in cells)
        is_ranking = file.ranked and any(isinstance(cell, list) for cell in cells)
        needs_weights = needs_weights or has_objects or has_lists_of_objects or is_ranking
    if not needs_weights or item is None:
        return None
    if is_wide:
        return flatten_wide(records, keys._replace(item=item), columns)
    if annotator is None or label is None:
        return None
    return flatten_long(records, keys._replace(item=item, annotator=annotator, label=label))


def _names_of(source: Any, records: Placed | None) -> list[str]:
    """Return the names of the columns or keys."""
    if records is not None:
        return list(dict.fromkeys(name for _, record in records for name in record))
    if isinstance(source, Path) and not _has_table_ending(source):
        return []  # read_long says which endings are read
    return list(open_table(source).names)


def _has_table_ending(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv", ".parquet", ".pq"))


def annotator_columns(file: VotesFile) -> list[str]:
    """Return the annotators' columns of a table in wide form; none if it is in long form."""
    path = Path(file.path)
    if not _has_table_ending(path):
        return []
    return _wide_columns(path, file, None, list(open_table(path).names), None)


def _wide_columns(
    source: Any, file: VotesFile, form: Form | None, names: list[str], records: Placed | None
) -> list[str]:
    """Return the annotators' columns that the patterns match, or that are detected; none if the table is in long form."""
    if form == "long" or not names:
        return []
    item = first_name(file.item, ITEM_NAMES, names)
    other_names = [name for name in names if name != item]
    matches: list[str] = []
    for pattern in file.columns:
        matching = [name for name in other_names if fnmatchcase(name, pattern)]
        if not matching:
            hint = did_you_mean(pattern, names)
            raise ValueError(
                f"annotators must be columns of {file.path or 'the table'}; none matches {pattern!r}.{hint}"
            )
        matches.extend(matching)
    is_long = file.annotator in names and file.label in names
    if matches or (is_long and form is None):
        return list(dict.fromkeys(matches))
    has_long_names = False
    if first_name(file.annotator, ANNOTATOR_NAMES, names) and first_name(file.label, LABEL_NAMES, names):
        has_long_names = True
    min_shared = _MIN_SHARED if has_long_names else _MIN_SHARED_WIDE
    if records is None:
        values, n_rows = _table_values(source, other_names)
        return _shared_columns(values, n_rows, min_shared)
    values = {}
    for name in other_names:
        values[name] = set()
        for _, record in records:
            values[name].update(_labels_in(record.get(name)))
    return _shared_columns(values, dict.fromkeys(other_names, len(records)), min_shared)


def _labels_in(cell: Any) -> list[str]:
    """Return what may be labels in a cell of a record: a value, the elements of a list, or the keys of an object of numbers."""
    if cell in (None, ""):
        return []
    if isinstance(cell, dict):
        if all(isinstance(score, (int, float)) or score is None for score in cell.values()):
            return list(cell)
        return []
    if isinstance(cell, list):
        return [str(element) for element in cell if not isinstance(element, (dict, list))]
    return [str(cell)]


def _table_values(source: Any, names: list[str]) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Return the distinct values of columns as text, and their numbers of rows."""
    values: dict[str, set[str]] = {}
    n_rows: dict[str, int] = {}
    for name, start, chunk in open_table(source).chunks([], names):
        n_rows[name] = start + len(chunk)
        cells = values.setdefault(name, set())
        for cell in chunk.to_pylist():
            cells.update(_labels_in(cell))
    return values, n_rows


def _shared_columns(values: dict[str, set[str]], n_rows: dict[str, int], min_shared: float) -> list[str]:
    """Return the columns that have few distinct values and share them with each other: two or more, or none."""
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
        if len(distinct & in_other_columns) >= min_shared * len(distinct):
            columns.append(name)
    return columns if len(columns) > 1 else []
