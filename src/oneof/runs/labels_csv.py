"""Select the columns of labels.csv, which `oneof clean` writes, with candidates in order of probability; with votes, only labels that somebody named."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from oneof.runs.purified_columns import PLAIN_COLUMNS

_PROBABILITY_DIGITS = 4
_NOT_WITH_VOTES = ("kept", "outside")  # with votes any label may be right, and none is removed


def id_column(metadata: Mapping[str, Any]) -> str | None:
    """Return the column of the training table that has the ids of the items that people voted on; None without votes."""
    votes = metadata["asked"].get("votes")
    if not votes:
        return None
    people = metadata.get("people", {})
    if "on" in people:
        return None if people["on"] is None else str(people["on"])
    return str(votes.get("on") or votes["item"])


def plain_table(table: pa.Table) -> pa.Table:
    """Return the columns that `oneof clean` writes, with candidates in order of probability.

    `original` has the candidates, with votes those that somebody named; `votes` and `probabilities` have a number for each.
    """
    originals = []
    probabilities = []
    vote_counts = []
    for row in _candidate_cells(table):
        labels = []
        rounded = []
        votes = []
        for label, probability, n_votes in ordered_candidates(row):
            labels.append(label)
            rounded.append(round(probability, _PROBABILITY_DIGITS))
            votes.append(n_votes)
        originals.append(labels)
        probabilities.append(rounded)
        vote_counts.append(votes)
    columns: dict[str, Any] = {name: table[name] for name in table.column_names}
    columns["original"] = pa.array(originals, pa.list_(pa.string()))
    columns["probabilities"] = pa.array(probabilities, pa.list_(pa.float64()))
    has_votes = "votes" in columns
    if has_votes:
        columns["votes"] = pa.array(vote_counts, pa.list_(pa.float64()))
    names = []
    for name in PLAIN_COLUMNS:
        if name in columns and not (has_votes and name in _NOT_WITH_VOTES):
            names.append(name)
    return pa.table({name: columns[name] for name in names})


def with_named_labels(table: pa.Table) -> pa.Table:
    """Return the purified table with the labels that people named as candidates; a table without votes is returned unchanged.

    Where people voted, every label is a candidate of every row, since all annotators may have erred.
    """
    if "votes" not in table.column_names:
        return table
    originals = []
    distributions = []
    for row in _candidate_cells(table):
        candidates = ordered_candidates(row)
        originals.append([label for label, _, _ in candidates])
        distributions.append([probability for _, probability, _ in candidates])
    original = pa.array(originals, table.schema.field("original").type)
    distribution = pa.array(distributions, table.schema.field("distribution").type)
    for name, column in (("original", original), ("kept", original), ("distribution", distribution)):
        table = table.set_column(table.column_names.index(name), name, [column])
    return table


def ordered_candidates(row: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return the candidates of a row with probability and votes, the most probable first; with votes, only those that were named."""
    votes = row.get("votes")
    counts: dict[str, float] = {}
    for vote in votes or ():
        counts[vote["label"]] = float(vote["votes"])
    candidates = []
    probability_of = dict(zip(row["original"], row["distribution"], strict=True))
    for label, probability in probability_of.items():
        if votes is None or label in counts:
            candidates.append((label, float(probability), counts.get(label, 0.0)))
    candidates.sort(key=lambda candidate: (-candidate[1], -candidate[2]))
    return candidates


def _candidate_cells(table: pa.Table) -> list[dict[str, Any]]:
    """Return the cells of each row that `ordered_candidates` needs; a row without votes has an empty list of them."""
    names = ["original", "distribution"]
    has_votes = "votes" in table.column_names
    if has_votes:
        names.append("votes")
    rows: list[dict[str, Any]] = table.select(names).to_pylist()
    if has_votes:
        for row in rows:
            row["votes"] = row["votes"] or []
    return rows
