"""Collect what a person sees of a row: its cells and pictures, its candidates with the reasons, and the nearest resolved rows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.batches import read_batches
from oneof.data.files.columns import open_table, read_numbers
from oneof.data.files.source import TableSource
from oneof.data.files.unpacked import check_unpacked
from oneof.data.images import folder_of
from oneof.data.picture import picture_cell, thumbnail
from oneof.data.roles import check_column
from oneof.ensemble.accuracy import LabelAccuracy, measure_labels
from oneof.ensemble.review_order import reviewing_order
from oneof.review.pictures import encode_picture, find_picture
from oneof.runs.decisions import DECISIONS, GOLD, Log, ResolvedDecision, decided_table, resolve_decisions
from oneof.runs.explain import describe_removal, reason
from oneof.runs.folder import Run, check_unchanged, is_unchanged
from oneof.runs.labels_csv import id_column

_MIN_COLUMNS = 6  # shown by default, if fewer are texts, pictures, categories or excluded from the features
_MAX_CHARACTERS = 2000  # of a cell
_MAX_ITEM_CHARACTERS = 200  # of a cell beside the row number in the report
_MAX_NEIGHBOUR_CHARACTERS = 80  # of the first cell of a neighbour
_MIN_LIKELY = 0.02  # the probability from which on a label that nobody named is shown at once
_MAX_EXPLAINED = 20  # rows of the report whose label is explained in words
_MAX_THUMBNAILS = 400  # rows of the report with a picture
_BATCH_ROWS = 1 << 15


class Items:
    """Give access to the cells of the training file, for display.

    There are none if the file is missing or has changed since the fit.
    """

    def __init__(self, run: Run, columns: Sequence[str] = (), rows: NDArray[np.intp] | None = None) -> None:
        """Read the cells of all rows, or of `rows`, in increasing order, without holding the others in memory."""
        path = Path(run.metadata["file"])
        self._rows = rows
        self.folder = folder_of(path)
        self.cells: dict[str, list[Any]] = {}
        self.texts: list[str] = []  # columns that identify a row to people, if none are requested
        roles = defaultdict(tuple, run.metadata["asked"].get("roles") or {})
        self.images: list[str] = list(roles["image"])
        self.ids: list[str] = []
        item_column = id_column(run.metadata)  # by which votes name the rows
        if item_column is not None:
            self.ids.append(item_column)
        if columns:
            check_unchanged(path, run)
        if columns or is_unchanged(path, run):
            check_unpacked(path)
            self._read(path, columns, roles)

    def _read(self, path: Path, columns: Sequence[str], roles: Mapping[str, Any]) -> None:
        """Read the requested columns and the pictures, or a selection of all columns if none are requested."""
        source = open_table(path)
        for name in columns:
            check_column(name, source.names, source.name)
        for name in dict.fromkeys((*self.ids, *roles["text"], *roles["ignore"])):
            if name in source.names:
                self.texts.append(name)
        if columns:
            shown = list(dict.fromkeys([*columns, *self.images]))
        else:
            shown = self._choose_columns(source, roles)
        if self._rows is None:
            _, self.cells = read_numbers(source, [], shown)
        elif shown:
            _, self.cells = read_numbers(open_table(_read_rows(path, shown, self._rows)), [], shown)
        for name, cells in self.cells.items():
            if name not in self.images and _holds_pictures(cells, self.folder):
                self.images.append(name)
        if self.images and not columns:  # a picture says more than the first of many numbers
            for name in shown:
                if source.kinds.get(name) == "number" and name not in self.texts:
                    self.cells.pop(name, None)

    def _choose_columns(self, source: TableSource, roles: Mapping[str, Any]) -> list[str]:
        """Return the columns to show if none are requested: those with a role first, then texts, then numbers."""
        with_role = [*self.images, *roles["text"], *self.ids, *roles["ignore"], *roles["categories"]]
        texts = [name for name in source.names if source.kinds.get(name) == "text"]
        hidden = {roles["candidates"], roles["exclude"], roles["gold"]}
        names = []
        for name in dict.fromkeys([*with_role, *texts, *source.names]):
            if name not in hidden:
                names.append(name)
        n_shown = max(_MIN_COLUMNS, len(set(with_role)))
        return names[:n_shown]

    def show(self, row: int) -> list[tuple[str, str]]:
        """Return name and text of every column that is not a picture and has a value."""
        shown = []
        for name, cells in self.cells.items():
            if name not in self.images and cells[row] is not None:
                shown.append((name, _text(cells[row])))
        return shown

    def picture(self, row: int, column: str) -> Path | bytes | None:
        """Return the file or the bytes of a row's picture, or None unless it is a picture inside the folder of the table."""
        if column not in self.images or column not in self.cells:
            return None
        cells = self.cells[column]
        if not 0 <= row < len(cells):
            return None
        return find_picture(picture_cell(cells[row]), self.folder)

    def pictures(self, row: int) -> list[str]:
        """Return the columns that hold a picture of a row."""
        return [column for column in self.images if self.picture(row, column)]

    def encoded_picture(self, row: int, column: str, max_side: int | None = None) -> tuple[bytes, str]:
        """Return the content and type of a row's picture, in a format that browsers show, at most `max_side` pixels a side."""
        picture = self.picture(row, column)
        if picture is None:
            raise ValueError("the row has no such picture beside its table.")
        return encode_picture(picture, max_side)


def _holds_pictures(cells: Sequence[Any], folder: Path) -> bool:
    """Return whether a column names picture files, judged by its first value."""
    for cell in cells:
        if cell is not None:
            return isinstance(cell, str) and find_picture(cell, folder) is not None
    return False


def _read_rows(path: Path, names: list[str], rows: NDArray[np.intp]) -> pa.Table:
    """Return columns of some rows of a file, given in increasing order; a batch of rows is in memory at a time."""
    parts = []
    start = 0
    for batch in read_batches(path, [], names, _BATCH_ROWS):
        first, end = np.searchsorted(rows, [start, start + batch.rows])
        columns = {}
        for name in names:
            chunks = [values for _, _, values in batch.chunks([], [name])]
            columns[name] = pa.chunked_array(chunks).take(pa.array(rows[first:end] - start))
        parts.append(pa.table(columns))
        start += batch.rows
    return pa.concat_tables(parts)


class RowSample(NamedTuple):
    """Rows of a run that were drawn at random, and what is known about all rows."""

    purified: pa.Table  # in the order of the file; `row` is the number of a row there
    n_rows: int  # of the run
    label_accuracy: LabelAccuracy | None  # of all labels, where gold labels measure it


def sample_rows(run: Run, size: int) -> RowSample:
    """Draw rows of a run, reading its purified table a batch at a time."""
    n = run.metadata["n"]
    rows = np.sort(np.random.default_rng(n).choice(n, size, replace=False, shuffle=False))
    parts = []
    is_right = np.zeros(n, dtype=bool)
    is_known = np.zeros(n, dtype=bool)
    start = 0
    for batch in run.purified_batches(_BATCH_ROWS):
        end = start + batch.num_rows
        first, last = np.searchsorted(rows, [start, end])
        parts.append(batch.take(pa.array(rows[first:last] - start)))
        if "gold" in batch.column_names:
            is_known[start:end] = np.asarray(pc.is_valid(batch["gold"]))
            is_right[start:end] = np.asarray(pc.fill_null(pc.equal(batch["label"], batch["gold"]), False))
        start = end
    label_accuracy = None
    if is_known.any():
        label_accuracy = measure_labels(is_right, is_known)
    return RowSample(pa.concat_tables(parts).combine_chunks(), n, label_accuracy)


def shown_table(run: Run, columns: Sequence[str] = (), sample: RowSample | None = None) -> pa.Table:
    """Return the purified table, or a sample of its rows, with what the report adds to it.

    Rows that people have decided need no review. Added are their decisions, thumbnails, and the columns that identify a row
    to people: `columns`, or else texts and columns that are not features.
    """
    if sample is None:
        items = Items(run, columns)
        purified = run.purified
        decided = run.decided
    else:
        purified = sample.purified
        rows = purified["row"].to_numpy()
        items = Items(run, columns, rows)
        decided = decided_table(purified, _decisions_at(run, rows))
    table = purified.drop_columns(["ask"]).append_column("ask", decided["ask"])
    decisions = _describe_decisions(decided)
    if any(decisions):
        table = table.append_column("decision", [pa.array(decisions, pa.string())])
    image_columns = [name for name in items.images if name in items.cells]
    if image_columns:
        thumbnails = _thumbnails(table, items, image_columns[0])
        table = table.append_column("picture", [pa.array(thumbnails, pa.string())])
    table = table.append_column("why", [pa.array(_explain_first(run, table), pa.string())])
    names = list(columns) or [name for name in items.texts if name not in items.images]
    if not items.cells or not names:
        return table
    texts = []
    for row in range(table.num_rows):
        parts = []
        for name in names:
            text = _text(items.cells[name][row])[:_MAX_ITEM_CHARACTERS]
            if name in items.ids:
                text = f"{name} {text}"
            parts.append(text)
        texts.append(" · ".join(parts))
    return table.append_column("item", [pa.array(texts, pa.string())])


def _explain_first(run: Run, table: pa.Table) -> list[str | None]:
    """Return why the first rows of the review queue got their labels; None for the others."""
    n_to_review = pc.sum(table["ask"]).as_py() or 0
    first_rows = reviewing_order(table)[: min(n_to_review, _MAX_EXPLAINED)]
    labels = table["label"].to_pylist()
    has_all_rows = table.num_rows == run.metadata["n"]
    explanations: list[str | None] = [None] * table.num_rows
    for row, cells in zip(first_rows.tolist(), table.take(pa.array(first_rows)).to_pylist(), strict=True):
        if not has_all_rows:
            cells["neighbours"] = []  # they may be rows that are not in the table
        explanations[row] = reason(cells, labels, run.n_models)
    return explanations


def _decisions_at(run: Run, rows: NDArray[np.intp]) -> dict[int, ResolvedDecision]:
    """Return what people decided about some rows, in increasing order, by the position of each."""
    if not (run.folder / DECISIONS).exists():
        return {}
    by_position = {}
    for row, decision in resolve_decisions(Log(run.folder, run.original).active_decisions).items():
        position = int(np.searchsorted(rows, row))
        if position < len(rows) and rows[position] == row:
            by_position[position] = decision
    return by_position


def _describe_decisions(decided: pa.Table) -> list[str | None]:
    """Return who decided what about each row; None where nobody did, and for gold labels, which have their own column."""
    descriptions: list[str | None] = []
    for row in decided.select(["decided", "by", "label"]).to_pylist():
        by = row["by"]
        if not by or by == GOLD:
            descriptions.append(None)
        elif row["decided"]:
            descriptions.append(f"{by}: {row['label']}")
        else:
            descriptions.append(f"{by}: unsure")
    return descriptions


def _thumbnails(table: pa.Table, items: Items, column: str) -> list[str | None]:
    """Return thumbnails of some rows, those to review first; None for the others."""
    by_gain = table.sort_by([("ask", "descending"), ("gain", "descending")])
    thumbnails: list[str | None] = [None] * table.num_rows
    position_of = {row: position for position, row in enumerate(table["row"].to_pylist())}
    for number in by_gain["row"].to_pylist()[:_MAX_THUMBNAILS]:
        row = position_of[number]
        thumbnails[row] = thumbnail(items.cells[column][row], items.folder)
    return thumbnails


def _text(cell: Any) -> str:
    """Return a cell as text of limited length."""
    text = str(cell)
    if isinstance(cell, float):
        text = f"{cell:.6g}"
    if len(text) > _MAX_CHARACTERS:
        return f"{text[:_MAX_CHARACTERS]}..."
    return text


def card(run: Run, items: Items, row: int) -> dict[str, Any]:
    """Return everything that the review page shows of a row, ready for JSON."""
    resolved = run.purified.slice(row, 1).to_pylist()[0]
    neighbours = []
    for neighbour in resolved["neighbours"]:
        label = run.purified["label"][neighbour].as_py()
        neighbours.append(
            {
                "row": neighbour,
                "label": label,
                "item": _first_text(items, neighbour),
                "pictures": items.pictures(neighbour)[:1],
            }
        )
    return {
        "row": row,
        "item": items.show(row),
        "pictures": items.pictures(row),
        "candidates": _candidates(resolved),
        "suggested": resolved["label"],
        "outside": resolved["outside"],
        "near": neighbours,
    }


def _candidates(resolved: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates of a row with their evidence: the chosen label first, then by decreasing probability.

    With votes every label is a candidate. Those that nobody named and that models find improbable come last, as not `likely`.
    """
    probability = dict(zip(resolved["original"], resolved["distribution"], strict=True))
    removal = {}
    for removed in resolved["removed"]:
        removal[removed["label"]] = describe_removal(removed, resolved["trained"])
    votes = {}
    for vote in resolved.get("votes") or ():
        votes[vote["label"]] = vote["votes"]
    likely = set()
    for label in probability:
        is_likely = "votes" not in resolved or label in votes or probability[label] >= _MIN_LIKELY
        if is_likely or label == resolved["label"]:
            likely.add(label)

    def position(label: str) -> tuple[bool, bool, float]:
        return label != resolved["label"], label not in likely, -probability[label]

    candidates = []
    for label in sorted(probability, key=position):
        candidates.append(
            {
                "label": label,
                "likely": label in likely,
                "probability": round(probability[label], 4),
                "votes": votes.get(label),
                "removal": removal.get(label),
            }
        )
    return candidates


def _first_text(items: Items, row: int) -> str:
    """Return the start of the first column that is shown of a row."""
    shown = items.show(row)
    if not shown:
        return ""
    _, text = shown[0]
    return text[:_MAX_NEIGHBOUR_CHARACTERS]
