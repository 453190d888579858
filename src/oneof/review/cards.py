"""Collect what a person sees of a row: its cells and pictures, its candidates with the reasons, and the nearest resolved rows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from oneof.data.files.columns import open_table, read_numbers
from oneof.data.files.unpacked import check_unpacked
from oneof.data.images import folder_of
from oneof.data.picture import picture_cell, thumbnail
from oneof.data.roles import check_column
from oneof.ensemble.review_order import asking_order
from oneof.review.pictures import encode_picture, find_picture
from oneof.runs.decisions import GOLD
from oneof.runs.explain import describe_removal, reason
from oneof.runs.folder import Run, check_unchanged, is_unchanged
from oneof.runs.plain_labels import id_column

_MIN_COLUMNS = 6  # shown by default, if fewer are texts, pictures, categories or excluded from the features
_MAX_CHARACTERS = 2000  # of a cell
_MAX_ITEM_CHARACTERS = 200  # of a cell beside the row number in the report
_MAX_NEIGHBOUR_CHARACTERS = 80  # of the first cell of a neighbour
_MIN_LIKELY = 0.02  # the probability from which on a label that nobody named is shown at once
_MAX_EXPLAINED = 20  # rows of the report whose label is explained in words
_MAX_THUMBNAILS = 400  # rows of the report with a picture


class Items:
    """Give access to the cells of the training file, for display.

    There are none if the file is missing or has changed since the fit.
    """

    def __init__(self, run: Run, columns: Sequence[str] = ()) -> None:
        path = Path(run.metadata["file"])
        self.folder = folder_of(path)
        self.cells: dict[str, list[Any]] = {}
        self.texts: list[str] = []  # columns that identify a row to people, if none are requested
        roles = defaultdict(tuple, run.metadata["asked"].get("roles") or {})
        self.images: list[str] = list(roles["image"])
        voted_on = id_column(run.metadata)
        self.ids = [] if voted_on is None else [voted_on]
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
            hidden = {roles["candidates"], roles["exclude"], roles["gold"]}
            texts = [name for name in source.names if source.kinds.get(name) == "text" and name not in hidden]
            first = [*self.images, *roles["text"], *self.ids, *roles["ignore"], *roles["categories"]]
            visible = [name for name in (*first, *texts, *source.names) if name not in hidden]
            shown = list(dict.fromkeys(visible))[: max(_MIN_COLUMNS, len(set(first)))]  # numbers come last
        _, self.cells = read_numbers(source, [], shown)
        for name, cells in self.cells.items():
            if name not in self.images and _holds_pictures(cells, self.folder):
                self.images.append(name)
        if self.images and not columns:  # a picture says more than the first of many numbers
            for name in shown:
                if source.kinds.get(name) == "number" and name not in self.texts:
                    del self.cells[name]

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
    first = next((cell for cell in cells if cell is not None), None)
    return isinstance(first, str) and find_picture(first, folder) is not None


def shown_table(run: Run, columns: Sequence[str] = ()) -> pa.Table:
    """Return the purified table with what the report adds to it.

    Rows that people have decided need no review. Added are their decisions, thumbnails, and the columns that identify a row
    to people: `columns`, or else texts and columns that are not features.
    """
    items = Items(run, columns)
    decided = run.decided
    table = run.purified.drop_columns(["ask"]).append_column("ask", decided["ask"])
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
            parts.append(f"{name} {text}" if name in items.ids else text)
        texts.append(" · ".join(parts))
    return table.append_column("item", [pa.array(texts, pa.string())])


def _explain_first(run: Run, table: pa.Table) -> list[str | None]:
    """Return why the first rows of the review queue got their labels; None for the others."""
    n_to_review = pc.sum(table["ask"]).as_py() or 0
    first_rows = asking_order(table)[: min(n_to_review, _MAX_EXPLAINED)]
    labels = table["label"].to_pylist()
    explanations: list[str | None] = [None] * table.num_rows
    for row, cells in zip(first_rows.tolist(), table.take(pa.array(first_rows)).to_pylist(), strict=True):
        explanations[row] = reason(cells, labels, run.n_models)
    return explanations


def _describe_decisions(decided: pa.Table) -> list[str | None]:
    """Return who decided what about each row; None where nobody did, and for gold labels, which have their own column."""
    descriptions: list[str | None] = []
    for row in decided.select(["decided", "by", "label"]).to_pylist():
        by = row["by"]
        description = None
        if by:
            decision = row["label"] if row["decided"] else "unsure"
            description = f"{by}: {decision}"
            if description.startswith(f"{GOLD}: "):
                description = None
        descriptions.append(description)
    return descriptions


def _thumbnails(table: pa.Table, items: Items, column: str) -> list[str | None]:
    """Return thumbnails of some rows, those to review first; None for the others."""
    by_gain = table.sort_by([("ask", "descending"), ("gain", "descending")])
    thumbnails: list[str | None] = [None] * table.num_rows
    for row in by_gain["row"].to_pylist()[:_MAX_THUMBNAILS]:
        thumbnails[row] = thumbnail(items.cells[column][row], items.folder)
    return thumbnails


def _text(cell: Any) -> str:
    """Return a cell as text of limited length."""
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
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

    Under votes every label is a candidate; those that nobody named and the models rule out come last, as not `likely`.
    """
    probability = dict(zip(resolved["original"], resolved["distribution"], strict=True))
    removal = {}
    for removed in resolved["removed"]:
        removal[removed["label"]] = describe_removal(removed, resolved["trained"])
    votes = {}
    for vote in resolved.get("votes") or ():
        votes[vote["label"]] = vote["votes"]
    likely = set(probability)
    if "votes" in resolved:
        likely = {label for label in probability if label in votes or probability[label] >= _MIN_LIKELY}
        likely.add(resolved["label"])
    candidates = []
    in_order = sorted(
        probability, key=lambda label: (label != resolved["label"], label not in likely, -probability[label])
    )
    for label in in_order:
        candidates.append(
            {
                "label": label,
                "likely": label in likely,
                "probability": round(probability[label], 4),
                "votes": votes.get(label),
                "fell": removal.get(label),
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
