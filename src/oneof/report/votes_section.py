"""Summarise the votes that people gave: how far they agree, what they confuse, and how accurate each of them seems."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from oneof.report.heat_map import draw_heat_map
from oneof.report.input_section import draw_sizes
from oneof.runs.purified import Purified

_MAX_LABELS = 14  # in the map of confusions
_MAX_ANNOTATORS = 12


def vote_matrix(table: Purified) -> Any:
    """Return the votes [n, c] as a sparse matrix; None for a run without votes."""
    if "votes" not in table.cells.column_names:
        return None
    column = table.cells["votes"].combine_chunks()
    votes = pc.list_flatten(column)
    row = pc.list_parent_indices(column).to_numpy()
    code_of = {name: j for j, name in enumerate(table.names)}
    labels = [code_of.get(name, -1) for name in pc.struct_field(votes, "label").to_pylist()]
    label = np.array(labels, dtype=np.int64)
    counts = np.asarray(pc.struct_field(votes, "votes").to_numpy(zero_copy_only=False), dtype=np.float64)
    is_known = label >= 0
    shape = (table.n, len(table.names))
    return csr_array((counts[is_known], (row[is_known], label[is_known])), shape=shape)


def summarise_votes(table: Purified, votes: Any, people: Mapping[str, Any]) -> SimpleNamespace:
    """Return figures and plots of the votes [n, c], and of the annotators, the least accurate first."""
    per_row = np.asarray(votes.sum(1)).ravel()
    largest = votes.max(axis=1).toarray().ravel()
    n_labels = np.diff(votes.indptr)
    by_accuracy = sorted(people.get("annotators", []), key=lambda annotator: annotator["accuracy"])
    shown = []
    for annotator in by_accuracy[:_MAX_ANNOTATORS]:
        defaults = {"low": None, "high": None, "agreement": None, "mistake": None}
        shown.append({**defaults, **annotator})
    return SimpleNamespace(
        per_row=float(per_row.mean()),
        named=float(n_labels.mean()),
        unanimous=int(((n_labels == 1) & (per_row > 1)).sum()),
        single=int(((n_labels == 1) & (per_row <= 1)).sum()),
        without=int((n_labels == 0).sum()),
        overruled=_count_overruled(table, votes, largest),
        alpha=people.get("alpha"),
        size_counts=_counts(n_labels),
        size_histogram=draw_sizes(np.bincount(n_labels), "labels that a row's votes name"),
        confusion=_draw_confusion(table, votes),
        mapped=min(_MAX_LABELS, int((table.resolved > 0).sum())),
        n_labels=len(table.names),
        annotators=shown,
        n_annotators=len(by_accuracy),
        mistakes=people.get("mistakes", []),
        n_votes=people.get("votes", 0),
        n_items=people.get("items", 0),
    )


def _count_overruled(table: Purified, votes: Any, largest: NDArray[np.float64]) -> int:
    """Count the rows whose label has fewer votes than another."""
    for_label = np.asarray(votes[np.arange(table.n), table.label]).ravel()
    return int((for_label < largest).sum())


def _counts(sizes: NDArray[np.integer[Any]]) -> list[tuple[int, int]]:
    """Return pairs of a size and the number of rows that have it."""
    values, counts = np.unique(sizes, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


def _draw_confusion(table: Purified, votes: Any) -> Any:
    """Draw the share of each label in the votes on rows that were resolved to one label."""
    labels = np.argsort(-table.resolved, kind="stable")[:_MAX_LABELS]
    labels = labels[table.resolved[labels] > 0]
    shares = np.zeros((len(labels), len(labels)))
    for i, label in enumerate(labels):
        on_rows = np.asarray(votes[table.label == label].sum(0)).ravel()
        shares[i] = on_rows[labels] / max(on_rows.sum(), 1.0)
    return draw_heat_map("confusion", shares, labels, table.names, diagonal=True)
