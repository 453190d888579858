"""Votes from a table: a row per vote (long), or a row per item and a column per annotator (wide); or from a file of any form."""

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
from oneof.votes.tables import load, read_records

_FEW = 0.5  # of the rows: a column with more distinct values than this share holds no labels
_ALIKE = 0.8  # of its values that a column must share with other columns, to be an annotator's beside theirs


def read_long(
    source: Any,
    *,
    item: str = "item",
    annotator: str = "annotator",
    label: str = "label",
    confidence: str | None = None,
    spelling: Spelling = AS_WRITTEN,
) -> Votes:
    """Read a table with a row per vote: CSV, TSV, Parquet, JSON Lines or a JSON list of objects, an Arrow table or a data frame.

    Parameters
    ----------
    source
        A path, or the table itself.
    item, annotator, label
        The columns to read. An annotator may have several rows for an item, or several labels in one cell (a list, or
        text that `spelling.separator` divides): that is one vague answer.
    confidence
        The column, if any, that says in [0, 1] what each vote counts.
    spelling
        How the text of a label is read.

    >>> table = pa.table({"item": [7, 7, 8], "annotator": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]})
    >>> votes = read_long(table)
    >>> votes.items.to_pylist(), votes.labels, votes.label.tolist()
    ([7, 8], ['cat', 'dog'], [0, 1, 0])
    """
    table = load(source, [item, annotator, label] + ([] if confidence is None else [confidence]))
    row, text = table.texts(label)
    said = table.keys(item).take(row), table.strings(annotator).dictionary_encode().take(row), text
    sure = None if confidence is None else table.confidences(confidence)[row]
    answers = Answers(table.name, *said, lambda i: f"column {label!r}, {table.row(int(row[i]))}", sure)
    return collect(answers, spelling)


def read_wide(source: Any, *, columns: Sequence[str], item: str = "item", spelling: Spelling = AS_WRITTEN) -> Votes:
    """Read a table with a row per item and a column per annotator or language model; an empty cell is no answer.

    >>> table = pa.table({"item": ["x", "y"], "gpt": ["cat|dog", "dog"], "claude": ["cat", None]})
    >>> votes = read_wide(table, columns=["gpt", "claude"], spelling=Spelling(separator="|"))
    >>> [votes.annotators[j] for j in votes.annotator]
    ['gpt', 'gpt', 'claude', 'gpt']
    """
    if not columns:
        raise ValueError("columns must name at least one annotator's column of a wide table; got none.")
    table = load(source, [item], columns)
    item_of = table.keys(item)
    if len(item_of.dictionary) < len(item_of):
        number = item_of.indices.to_numpy()
        twice = number[np.argmax(np.bincount(number)[number] > 1)]
        first, second = map(table.row, np.flatnonzero(number == twice)[:2])
        got = f"{table.name} has {item_of.dictionary[int(twice)]} in {first} and {second}"
        remedy = "Drop one, or use the long form."
        raise ValueError(f"column {item!r} of a wide table must hold each item once; {got}. {remedy}")
    people = list(dict.fromkeys(columns))
    rows, texts = zip(*(table.texts(column) for column in people), strict=True)
    row, annotator = np.concatenate(rows), np.repeat(np.arange(len(people)), [*map(len, rows)])
    said = item_of.take(row), pa.DictionaryArray.from_arrays(annotator, people), pa.concat_arrays(texts)
    answers = Answers(table.name, *said, lambda i: f"column {people[annotator[i]]!r}, {table.row(row[i])}")
    return collect(answers, spelling)


@dataclass(frozen=True)
class VotesFile:
    path: str
    item: str = "item"  # the column by which votes and features belong together
    annotator: str = "annotator"
    label: str = "label"
    columns: tuple[str, ...] = ()  # names or globs of annotators' columns, one each; (): guessed if it must be
    separator: str | None = None  # between the labels of one answer
    taxonomy: str | None = None  # a file of labels below labels


def read_votes(asked: VotesFile) -> Votes:
    """Read votes: Label Studio's JSON, {"votes": {who: label}} per item, a row per vote, or a column per annotator."""
    taxonomy = None if asked.taxonomy is None else read_taxonomy(asked.taxonomy)
    path, spelling = Path(asked.path), Spelling(separator=asked.separator, taxonomy=taxonomy)
    if is_label_studio(path):
        return read_label_studio(path, spelling=spelling)
    if path.name.lower().removesuffix(".gz").endswith((".json", ".jsonl", ".ndjson")):
        rows, _ = read_records(path)
        if all(isinstance(row.get("votes"), dict) and asked.item in row for row in rows):
            return read_long(_nested(rows, asked.item, path), item=asked.item, spelling=spelling)
    elif wide := annotator_columns(asked):
        return read_wide(path, columns=wide, item=asked.item, spelling=spelling)
    return read_long(path, item=asked.item, annotator=asked.annotator, label=asked.label, spelling=spelling)


def _nested(rows: list[dict[str, Any]], item: str, path: Path) -> pa.Table:
    """Records {item, votes: {who: a label, or a list of them}} as a row per vote."""
    every = [(str(row[item]), *vote) for row in rows for vote in row["votes"].items()]
    cast = [(key, who, said) for key, who, said in every if said not in (None, "")]
    lists = any(isinstance(said, list) for *_, said in cast)
    labels: list[list[str]] = []
    for key, who, said in cast:
        given = [label for label in (said if isinstance(said, list) else [said]) if label is not None]
        wrong = [label for label in given if isinstance(label, (list, dict)) or label != label]
        if wrong:
            got = f"{path}, item {key}, {who!r} has {shortened(repr(wrong[0]))}. Take it out, or write its name."
            raise ValueError(f"votes must be texts, numbers or lists of them; {got}")
        labels.append([_text(label) if lists else str(label) for label in given])
    return pa.table({item: [key for key, *_ in cast], "annotator": [who for _, who, _ in cast], "label": labels})


def _text(label: Any) -> str:
    """As Arrow writes it, which has lists elsewhere: 1.0 is 1."""
    return str(pa.scalar(label).cast(pa.string()) if isinstance(label, (bool, float)) else label)


def annotator_columns(asked: VotesFile) -> list[str]:
    """The columns of a table with one column per annotator; none if it has a row per vote."""
    if not asked.path.lower().removesuffix(".gz").endswith((".csv", ".tsv", ".parquet", ".pq")):
        return []
    names = open_table(Path(asked.path)).names
    beside = [name for name in names if name != asked.item]
    found: list[str] = []
    for pattern in asked.columns:
        matching = [name for name in beside if fnmatchcase(name, pattern)]
        if not matching:
            hint = did_you_mean(pattern, names)
            raise ValueError(f"annotators must be columns of {asked.path}; none matches {pattern!r}.{hint}")
        found += matching
    if found or {asked.annotator, asked.label} <= set(names):
        return list(dict.fromkeys(found))
    return _guessed(Path(asked.path), beside)


def _guessed(path: Path, names: list[str]) -> list[str]:
    """Columns of few distinct values that they share: two or more, or none."""
    values: dict[str, set[str]] = {}
    lengths: dict[str, int] = {}
    for name, first, piece in open_table(path).pieces([], names):
        lengths[name] = first + len(piece)
        values.setdefault(name, set()).update(str(cell) for cell in piece.to_pylist() if cell not in (None, ""))
    few = {name: own for name, own in values.items() if 0 < len(own) <= max(2, _FEW * lengths[name])}
    others = {name: set().union(*(own for key, own in few.items() if key != name)) for name in few}
    found = [name for name, own in few.items() if len(own & others[name]) >= _ALIKE * len(own)]
    return found if len(found) > 1 else []
