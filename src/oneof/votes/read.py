"""Read votes of every form: a row per vote (long), a column per annotator (wide), nested objects, and exports."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oneof.data.files.columns import open_table
from oneof.data.files.source import TableSource, is_number, translate_arrow_errors
from oneof.data.roles import check_column
from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.printable import shortened
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.final_answer import try_parse_json
from oneof.votes.label_studio import is_label_studio, read_label_studio
from oneof.votes.layout import Cells, ColumnOptions, Form, Layout, find_layout, number_or_none
from oneof.votes.records import (
    ANNOTATOR_NAMES,
    ITEM_NAMES,
    MODEL_NAMES,
    TEXT_NAMES,
    Answer,
    Flattened,
    Keys,
    PlacedRecords,
    collect_answers,
    find_name,
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
    keys_of,
    parsed_text,
    votes_key,
)
from oneof.votes.spelling import AS_WRITTEN, Spelling, read_map, read_taxonomy
from oneof.votes.tables import EXAMPLE, VoteTable, check_ending, load_columns, place_of_record, read_records

ITEM = "item"
ANNOTATOR = "annotator"
LABEL = "label"


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
    table = load_columns(source, required, optional)
    row, text = table.texts(label)
    items = table.keys(item).take(row)
    annotators = pc.utf8_trim_whitespace(table.strings(annotator)).dictionary_encode().take(row)
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
    table = load_columns(source, [item], columns)
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
        What separates the labels of one answer. None: an answer is one label.
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
    form
        "long", "wide" or "label-studio". None: recognised.
    """

    path: str
    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"
    columns: tuple[str, ...] = ()
    separator: str | None = "|"
    taxonomy: str | None = None
    confidence: str | None = None
    map: str | None = None
    normalise: bool = False
    classes: tuple[str, ...] | None = None
    from_name: str | None = None
    ranked: bool = False
    on: str | None = None
    form: Form | None = None

    @property
    def name(self) -> str:
        """Return what messages call the source."""
        return self.path or "the table"

    @property
    def spelling(self) -> Spelling:
        """Return how answers are parsed; reads the files of the map and the taxonomy."""
        synonyms = {}
        if self.map is not None:
            synonyms = read_map(self.map)
        taxonomy = None
        if self.taxonomy is not None:
            taxonomy = read_taxonomy(self.taxonomy)
        return Spelling(
            separator=self.separator,
            synonyms=synonyms,
            normalise=self.normalise,
            classes=self.classes,
            taxonomy=taxonomy,
        )


def read_votes(source: Any, *, form: Form | None = None, report_unused: bool = True, **settings: Any) -> Votes:
    """Read votes of any form: long, wide or nested, or an export of Label Studio, Argilla, Prodigy or distilabel.

    Parameters
    ----------
    source
        A path to a file (CSV, TSV, Parquet, JSON Lines or JSON), an Arrow table, a data frame, a list of objects, an object of
        lists, an array with a column per annotator, or a `VotesFile`, which holds the settings too. The index of a pandas frame
        has the items' ids if no column does.
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
    file = _with_settings(source, settings)
    is_array = isinstance(source, np.ndarray) and source.ndim == 2
    if isinstance(source, (VotesFile, str, Path)):
        source = Path(file.path)
        check_ending(source)
    else:
        source = _as_table(source, file.item)
    if form is not None:
        file = replace(file, form=form)
    if is_array and not file.columns:
        file = replace(file, columns=tuple(source.column_names))
    spelling = file.spelling
    is_from_label_studio = file.form == "label-studio"
    if isinstance(source, Path) and (is_from_label_studio or (file.form is None and is_label_studio(source))):
        return read_label_studio(source, from_name=file.from_name, confidence=file.confidence, spelling=spelling)
    records = _records_of(source)
    names = _names_of(source, records)
    if records is not None and file.form is None:
        export = _flatten_export(records, file, names)
        if export is not None:
            votes = collect_answers(file.name, export.answers, spelling)
            return _with_remarks(votes, export.remarks, names, export.used, report_unused)
    layout = _layout_of(source, file, names, records)
    _check_columns(file, layout, names)
    votes = _read_columns_of_votes(source, records, layout, file, spelling)
    used = {*layout.used, *layout.truth, file.confidence or ""}
    return _with_remarks(votes, list(layout.remarks), names, used, report_unused)


def _read_columns_of_votes(
    source: Any, records: PlacedRecords | None, layout: Layout, file: VotesFile, spelling: Spelling
) -> Votes:
    """Read votes from the columns of a table, or the keys of flat records, that a layout names."""
    item = layout.item or file.item
    if not layout.answers:  # no column of a table that is said to be wide may be an annotator's
        return read_wide(source, columns=(), item=item, spelling=spelling)
    if records is None:
        records = _rows_with_rich_cells(source, layout, file)
    if records is not None:
        answers = _answers_of(records, layout, file)
        if answers is not None:
            return collect_answers(file.name, answers, spelling)
    if layout.columns:
        return read_wide(source, columns=layout.columns, item=item, spelling=spelling)
    return read_long(
        source,
        item=item,
        annotator=layout.annotator or file.annotator,
        label=layout.label or file.label,
        confidence=file.confidence,
        spelling=spelling,
        allow_missing=True,
    )


def _as_table(source: Any, item: str) -> Any:
    """Return a list of objects, an object of lists or an array [items, annotators] as a table; a frame's index as the ids if no column has them."""
    if isinstance(source, list):
        return _table_of_objects(source)
    if isinstance(source, dict):
        return _table_of_lists(source)
    if isinstance(source, np.ndarray) and source.ndim == 2:
        columns = {f"annotator {j + 1}": source[:, j].tolist() for j in range(source.shape[1])}
        return pa.table(columns)
    if hasattr(source, "iloc") and hasattr(source, "rename_axis"):
        index = source.index
        names = [str(name) for name in source.columns]
        has_ids = find_name(item, (*ITEM_NAMES, *TEXT_NAMES), names) is not None
        is_default = index.name is None and list(index) == list(range(len(index)))
        is_long = find_name(ANNOTATOR_NAMES[0], ANNOTATOR_NAMES, names) is not None and index.name is None
        if not has_ids and not is_default and not is_long and index.nlevels == 1:
            return source.rename_axis(item).reset_index()
    return source


def _table_of_objects(records: list[Any]) -> pa.Table:
    """Return a list of objects as a table; raise ValueError if it is none."""
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            got = f"element {i} is {shortened(repr(record))}"
            raise ValueError(f"votes in a list must be objects, as {EXAMPLE}; {got}. Leave it out, or write it so.")
    if not records:
        raise ValueError("votes must have at least one row; the list has none.")
    try:
        return pa.Table.from_pylist(records)
    except pa.ArrowException as error:
        raise ValueError(
            f"a key must have values of one type in all objects; {error}. Convert them, as by str()."
        ) from error


def _table_of_lists(columns: dict[Any, Any]) -> pa.Table:
    """Return an object of lists as a table; raise ValueError if the lists do not make one."""
    for name, values in columns.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            got = f"{name!r} holds {shortened(repr(values))}"
            raise ValueError(f"votes in an object must be a list for each column; {got}. Write it as a list.")
    lengths = {str(name): len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{length} in {name!r}" for name, length in lengths.items())
        raise ValueError(f"columns of votes must have one length; there are {got}. Correct them.")
    try:
        return pa.table(columns)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"a column must have values of one type; {error}. Convert them, as by str().") from error


def _check_columns(file: VotesFile, layout: Layout, names: list[str]) -> None:
    """Raise ValueError if a column or key of the items, the annotators or the labels is missing."""
    remedy = "Name the columns with --item, --annotator and --label, or with --columns if each annotator has one."
    if any(is_number(name) for name in names):
        remedy = "The first row must hold the names of the columns. Add it."
    for name in (layout.item, layout.annotator, layout.label):
        if name is not None and names:
            check_column(name, names, file.name, remedy)


def _with_settings(source: Any, settings: dict[str, Any]) -> VotesFile:
    """Return the description of a source of votes, whose path is "" if it is a table in memory."""
    if isinstance(source, VotesFile):
        return replace(source, **settings)
    settings = dict(settings)
    for name in ("columns", "classes"):
        if settings.get(name) is not None:
            settings[name] = tuple(settings[name])
    path = ""
    if isinstance(source, (str, Path)):
        path = str(source)
    known = [field.name for field in fields(VotesFile)]
    for name in settings:
        if name not in known:
            raise TypeError(f"settings must be among {', '.join(known[1:])}; got {name!r}.{did_you_mean(name, known)}")
    return VotesFile(path, **settings)


def _layout_of(source: Any, file: VotesFile, names: list[str], records: PlacedRecords | None) -> Layout:
    """Find the columns of a table or of flat records; raise ValueError for a confidence in the wide form."""
    options = ColumnOptions(file.name, file.item, file.annotator, file.label, file.columns, file.classes, file.form)

    def read_cells(wanted: Sequence[str]) -> Cells:
        if records is None:
            return _table_cells(source, list(wanted))
        return {name: [record.get(name) for _, record in records] for name in wanted}

    layout = find_layout(options, names, read_cells)
    if layout.columns and file.confidence is not None:
        raise ValueError(f"confidence must be left out for a wide table; got {file.confidence!r}. Use the long form.")
    return layout


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


def _records_of(source: Any) -> PlacedRecords | None:
    """Return the objects of a JSON file, or of a table with nested columns, each with its place; None for flat tables."""
    if isinstance(source, Path) and _is_json(source):
        records, lines = read_records(source)
        return [(place_of_record(source, lines, i), record) for i, record in enumerate(records)]
    if isinstance(source, Path) and source.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        return _records_in_cells(source)
    if isinstance(source, Path):
        table = _nested_parquet(source)
        name = str(source)
    else:
        table = _nested_table(source)
        name = "the table"
    if table is None:
        return None
    return [(f"{name}, row {i}", _without_nulls(record)) for i, record in enumerate(table.to_pylist())]


def _records_in_cells(path: Path) -> PlacedRecords | None:
    """Return the records of Argilla that pandas wrote to a CSV, with lists and objects as text; None for other files."""
    names = open_table(path).names
    if not is_flat_argilla(names) and not {"fields", "responses"} <= set(names):
        return None
    cells = _table_cells(path, list(names))
    records = []
    for i, row in enumerate(zip(*cells.values(), strict=True)):
        record = {}
        for name, cell in zip(cells, row, strict=True):
            if cell != "" and cell is not None:
                parsed = try_parse_json(cell) if isinstance(cell, str) else None
                record[name] = cell if parsed is None else parsed
        records.append((f"{path}, row {i}", record))
    return records


def _nested_parquet(path: Path) -> pa.Table | None:
    """Read a Parquet file with nested columns; return None for other files."""
    if not path.name.lower().endswith((".parquet", ".pq")) or not path.is_file():
        return None
    with translate_arrow_errors(str(path)):
        schema = pq.read_schema(path)
    if not _is_nested(schema):
        return None
    opened = open_table(path)
    opened.check_distinct(opened.names)
    with translate_arrow_errors(str(path)):
        return pq.read_table(path)


def _nested_table(source: Any) -> pa.Table | None:
    """Return an Arrow table or a frame as a table, if it has nested columns."""
    if _has_object_cells(source):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if not isinstance(source, pa.Table) or not _is_nested(source.schema):
        return None
    return source


def _is_nested(schema: pa.Schema) -> bool:
    """Return whether rows must be read as objects: a column holds structs, or lists of models, or the table is Argilla's."""
    has_lists_of_models = any(column.name in MODEL_NAMES and _is_list(column.type) for column in schema)
    return has_lists_of_models or _has_objects(schema) or is_flat_argilla(schema.names)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _has_object_cells(frame: Any) -> bool:
    """Return whether a pandas frame has a column of Python objects, which may be dicts."""
    return hasattr(frame, "dtypes") and hasattr(frame, "iloc") and any(str(kind) == "object" for kind in frame.dtypes)


def _has_objects(schema: pa.Schema) -> bool:
    """Return whether a column holds structs or maps, alone or in lists."""
    for column in schema:
        kind = column.type
        while _is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind) or pa.types.is_map(kind):
            return True
    return False


def _without_nulls(value: Any) -> Any:
    """Return a record without the keys that Arrow adds to structs as nulls; a map becomes an object."""
    if isinstance(value, dict):
        record = {}
        for key, element in value.items():
            if element is not None:
                record[key] = _without_nulls(element)
        return record
    if isinstance(value, list):
        if value and all(isinstance(element, tuple) and len(element) == 2 for element in value):
            return dict(value)
        return [_without_nulls(element) for element in value]
    return value


def _flatten_export(records: PlacedRecords, file: VotesFile, names: list[str]) -> Flattened | None:
    """Flatten records of an export, or with nested votes; None for flat records."""
    keys = Keys(file.item, file.annotator, file.label, file.confidence, file.ranked)
    if is_prodigy(records):
        return flatten_prodigy(records, keys)
    if is_argilla(records):
        return flatten_argilla(records, keys, file.name)
    if is_distilabel(records):
        return flatten_distilabel(records, keys, file.name)
    item = find_name(file.item, (*ITEM_NAMES, *TEXT_NAMES), names)
    nested = votes_key(records)
    if item is not None and nested is not None and nested != file.label and not file.columns:
        return flatten_nested(records, keys._replace(item=item), nested)
    return None


def _answers_of(records: PlacedRecords, layout: Layout, file: VotesFile) -> list[Answer] | None:
    """Return the answers in flat records that are more than texts; None for those that are read as tables are."""
    ranked = file.ranked or layout.ranked
    separator = None
    if ranked:
        separator = file.separator  # splits texts that are rankings
    if layout.is_complete and not separator and not _have_rich_cells(records, layout.answers, ranked):
        return None
    completed = _complete(records, layout, separator)
    keys = Keys(layout.item or ITEM, layout.annotator or ANNOTATOR, layout.label or LABEL, file.confidence, ranked)
    if layout.columns:
        return flatten_wide(completed, keys, layout.columns).answers
    return flatten_long(completed, keys).answers


def _have_rich_cells(records: PlacedRecords, names: Sequence[str], ranked: bool) -> bool:
    """Return whether one of the cells with these names is more than a text."""
    for _, record in records:
        for name in names:
            if _is_rich(record.get(name), ranked):
                return True
    return False


def _is_rich(cell: Any, ranked: bool) -> bool:
    """Return whether a cell is an object, a list of objects, a ranking, or a text in JSON."""
    if isinstance(cell, str):
        return try_parse_json(cell) is not None
    if isinstance(cell, list):
        return ranked or any(isinstance(element, dict) for element in cell)
    return isinstance(cell, dict)


def _complete(records: PlacedRecords, layout: Layout, separator: str | None) -> PlacedRecords:
    """Return records with an item, an annotator and a label each; texts in JSON are parsed, and split at a separator."""
    n_votes: Counter[str] = Counter()
    completed = []
    for row, (place, original) in enumerate(records):
        record = dict(original)
        if layout.item is None:
            record[ITEM] = row
        if not layout.columns and layout.annotator is None:
            item = str(record.get(layout.item or ITEM))
            n_votes[item] += 1
            record[ANNOTATOR] = f"annotator {n_votes[item]}"
        if layout.labels:
            record[LABEL] = {name: number_or_none(record.get(name)) for name in layout.labels}
        for name in layout.columns or (layout.label or LABEL,):
            if isinstance(record.get(name), str):
                record[name] = parsed_text(record[name], separator)
        completed.append((place, record))
    return completed


def _rows_with_rich_cells(source: Any, layout: Layout, file: VotesFile) -> PlacedRecords | None:
    """Return the rows of a table that cannot be read column by column: rankings, texts in JSON, no column of items or annotators."""
    if not layout.used:
        return None
    opened = open_table(source)
    if not layout.used <= set(opened.names):
        return None  # read_long and read_wide say which column is missing
    is_ranked = file.ranked or layout.ranked
    if layout.is_complete and not is_ranked and not _has_json_texts(opened, list(layout.answers)):
        return None
    names = list(layout.answers)
    if layout.annotator is not None:
        names.append(layout.annotator)
    cells = _table_cells(source, names)
    if file.confidence is not None:
        cells[file.confidence] = load_columns(source, [file.confidence]).confidences(file.confidence).tolist()
    if layout.item is not None:
        cells[layout.item] = load_columns(source, [layout.item]).keys(layout.item).to_pylist()
    rows = zip(*cells.values(), strict=True)
    return [(f"{opened.name}, row {i}", dict(zip(cells, row, strict=True))) for i, row in enumerate(rows)]


def _has_json_texts(opened: TableSource, names: list[str]) -> bool:
    """Return whether a cell of these columns is a text in JSON."""
    for _, _, chunk in opened.chunks([], names):
        if not (pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)):
            continue
        for text in pc.unique(chunk).to_pylist():
            if text and text.lstrip()[:1] in ("{", "[", "`") and try_parse_json(text) is not None:
                return True
    return False


def _names_of(source: Any, records: PlacedRecords | None) -> list[str]:
    """Return the names of the columns or keys."""
    if records is not None:
        return keys_of(records)
    if isinstance(source, Path) and not _has_table_ending(source):
        return []  # read_long says which endings are read
    return list(open_table(source).names)


def _has_table_ending(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv", ".parquet", ".pq"))


def table_layout(file: VotesFile) -> Layout | None:
    """Return where votes are in a table, whose other columns may be features; None for files of other kinds."""
    path = Path(file.path)
    if not _has_table_ending(path):
        return None
    return _layout_of(path, file, list(open_table(path).names), None)


def _table_cells(source: Any, names: list[str]) -> dict[str, list[Any]]:
    """Return the values of columns of a table."""
    cells: dict[str, list[Any]] = {name: [] for name in names}
    for name, _, chunk in open_table(source).chunks([], names):
        cells[name].extend(chunk.to_pylist())
    return cells
