"""Write the label of every training row with the reason for it, in two passes over the purified table, a batch at a time.

The first pass collects what an explanation needs of other rows, the labels and the review queue: some ten bytes a row. The second
writes. Memory does not grow with what else is known of a row: candidates, probabilities, removals, neighbours and copied cells.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.batches import read_batches
from oneof.data.files.columns import check_not_taken
from oneof.data.files.unpacked import check_unpacked
from oneof.ensemble.review_order import queue_places
from oneof.runs.decisions import DECISIONS, Log, ResolvedDecision, decided_table, resolve_decisions
from oneof.runs.explain import explain_rows
from oneof.runs.folder import Run, check_unchanged, is_unchanged
from oneof.runs.labels_csv import id_column, plain_table
from oneof.runs.purified import VoteCounts
from oneof.storage.progress import progress_bar
from oneof.storage.sheets import SheetWriter

_BATCH_ROWS = 1 << 15
_SHOWN_FROM = 100_000  # rows from which on a bar is shown


@dataclass(frozen=True)
class CleanSummary:
    """Count what was written."""

    n_rows: int
    n_to_ask: int
    n_outside: int  # rows whose set seems to miss the truth
    n_decided: int
    warning: str | None  # labels with votes but no row


class LabelLookup(Sequence[str]):
    """The label of every row, four bytes each."""

    def __init__(self, codes: NDArray[np.int32], names: Sequence[str]) -> None:
        self.codes = codes
        self.names = names

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        """Return the label of a row."""
        code = int(self.codes[row])
        return self.names[code]


def write_labels(
    run: Run, out: Path, columns: Sequence[str] = (), separator: str = "|", *, details: bool = False
) -> CleanSummary:
    """Write the label of every training row, why it was chosen, and its place in the review queue.

    Where people voted, the ids of the items are written too, if the training table is still there.

    Parameters
    ----------
    run
        The run whose rows are written, with the decisions of people applied.
    out
        File to write, .parquet or .csv.
    columns
        Columns of the training table to copy.
    separator
        Between the labels of a cell in a CSV.
    details
        Write all columns of the purified table, not only those of `PLAIN_COLUMNS`.
    """
    n = run.metadata["n"]
    decisions = _decisions(run)
    copied = _copied_cells(run, columns)
    ids = _item_ids(run, columns)
    with progress_bar("clean", 2 * n, show=n >= _SHOWN_FROM, unit="rows") as step:
        collected = _collect(run, decisions, step)
        labels = LabelLookup(collected.codes, list(collected.names))
        places = queue_places(collected.ask, collected.gain)
        with SheetWriter(out, separator=separator) as writer:
            for rows, table in _decided_batches(run, decisions):
                explanations = explain_rows(table, labels, run.n_models)
                place = pa.array(places[rows], mask=~collected.ask[rows])
                table = table.append_column("queue", [place]).append_column("why", [explanations])
                if not details:
                    table = plain_table(table)
                table = _with_ids(table, ids)
                for name in columns:
                    table = _with_copied(table, name, copied[name])
                writer.write(table)
                step(steps=table.num_rows)
    return CleanSummary(
        n_rows=n,
        n_to_ask=int(collected.ask.sum()),
        n_outside=collected.n_outside,
        n_decided=collected.n_decided,
        warning=collected.votes.lost_labels(collected.names),
    )


@dataclass
class _Collected:
    """Result of the first pass over n rows."""

    codes: NDArray[np.int32]  # [n] of the labels
    ask: NDArray[np.bool_]  # [n] whether a person should review the row
    gain: NDArray[np.float32]  # [n] of a review
    names: dict[str, int] = field(default_factory=dict)  # label -> its code
    votes: VoteCounts = field(default_factory=VoteCounts)
    n_outside: int = 0
    n_decided: int = 0


def _collect(run: Run, decisions: Mapping[int, ResolvedDecision], step: Callable[..., None]) -> _Collected:
    """Make the first pass: collect what an explanation needs of other rows, and count."""
    n = run.metadata["n"]
    collected = _Collected(np.empty(n, dtype=np.int32), np.empty(n, dtype=bool), np.empty(n, dtype=np.float32))
    for rows, table in _decided_batches(run, decisions):
        collected.codes[rows] = _encode_labels(table["label"], collected.names)
        collected.ask[rows] = table["ask"].to_numpy()
        collected.gain[rows] = table["gain"].to_numpy()
        collected.votes.add(table)
        collected.n_outside += table.num_rows - table["outside"].null_count
        collected.n_decided += pc.sum(table["decided"]).as_py() or 0
        step(steps=table.num_rows)
    return collected


def _with_ids(table: pa.Table, ids: Mapping[str, "_CellStream"]) -> pa.Table:
    """Return the table with the ids of its rows as the second column."""
    for name, cells in ids.items():
        if name not in table.column_names:
            table = table.add_column(1, name, cells.take(table.num_rows))
    return table


def _with_copied(table: pa.Table, name: str, cells: "_CellStream") -> pa.Table:
    """Return the table with a copied column behind the others."""
    check_not_taken(name, table.column_names)
    return table.append_column(name, cells.take(table.num_rows))


def _decisions(run: Run) -> Mapping[int, ResolvedDecision]:
    """Return what people decided, by row; the candidates of all rows are read to check it only if there is anything."""
    if not (run.folder / DECISIONS).exists():
        return {}
    return resolve_decisions(Log(run.folder, run.original).active_decisions)


def _decided_batches(run: Run, decisions: Mapping[int, ResolvedDecision]) -> Iterator[tuple[slice, pa.Table]]:
    """Yield the purified table with the decisions applied, in batches, each with its rows."""
    start = 0
    for batch in run.purified_batches(_BATCH_ROWS):
        rows = slice(start, start + batch.num_rows)
        in_batch = {}
        for row, decision in decisions.items():
            if rows.start <= row < rows.stop:
                in_batch[row - start] = decision
        yield rows, decided_table(batch, in_batch)
        start = rows.stop


def _encode_labels(labels: pa.ChunkedArray, names: dict[str, int]) -> NDArray[np.int32]:
    """Return the code of each label; labels that are new get the next ones."""
    encoded = labels.combine_chunks().dictionary_encode()
    code_of = [names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
    codes: NDArray[np.int32] = np.asarray(code_of, dtype=np.int32)
    return np.asarray(codes[encoded.indices.to_numpy()])


class _CellStream:
    """Read the cells of a column of a file, some at a time."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self._batches = read_batches(path, [], [name], _BATCH_ROWS)
        self._chunks: list[pa.Array] = []

    def take(self, n_rows: int) -> pa.ChunkedArray:
        """Return the next cells."""
        while sum(len(chunk) for chunk in self._chunks) < n_rows:
            batch = next(self._batches)
            self._chunks += [values for _, _, values in batch.chunks([], [self.name])]
        cells = pa.chunked_array(self._chunks)
        self._chunks = cells.slice(n_rows).chunks
        return cells.slice(0, n_rows)


def _copied_cells(run: Run, columns: Sequence[str]) -> dict[str, _CellStream]:
    """Return the cells of columns of the training file; raise if it is missing or has changed since the fit."""
    if not columns:
        return {}
    path = Path(run.metadata["file"])
    check_unchanged(path, run)
    check_unpacked(path)
    return {name: _CellStream(path, name) for name in columns}


def _item_ids(run: Run, columns: Sequence[str]) -> dict[str, _CellStream]:
    """Return the ids of the items that people voted on, unless they are copied anyway or the training table is gone."""
    name = id_column(run.metadata)
    path = Path(run.metadata["file"])
    if name is None or name in columns or not is_unchanged(path, run):
        return {}
    return _copied_cells(run, [name])
