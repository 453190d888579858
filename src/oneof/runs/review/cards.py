"""What a person sees of a row: its item, the candidates with what speaks for and against each, and the nearest resolved rows."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.data.files.columns import open_table, read_numbers
from oneof.data.files.unpacked import check_unpacked
from oneof.data.images import folder_of
from oneof.data.picture import thumbnail
from oneof.data.roles import check_column
from oneof.runs.explain import fell
from oneof.runs.folder import Run, fingerprint
from oneof.runs.review.decisions import GOLD

PICTURES = {f".{kind}": f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")} | {".jpg": "image/jpeg"}
_FEW = 6  # columns that are shown when nobody says which, and few are texts, pictures or left out of the features
_LONG = 2000  # characters of a cell
_PICTURED = 400  # rows of the report with a picture


class Items:
    """The columns of the file that a run learned from, to show; none where the file is gone or another."""

    def __init__(self, run: Run, columns: Sequence[str] = ()) -> None:
        path = Path(run.facts["file"])
        self.folder = folder_of(path)
        self.cells: dict[str, list[Any]] = {}
        self.texts: list[str] = []  # columns by which people know their rows, if nobody says which
        roles = defaultdict(tuple, run.facts["asked"].get("roles") or {})
        self.images: list[str] = list(roles["image"])
        if path.exists() and fingerprint(path) == run.facts["fingerprint"] and path.suffix not in (".npz", ".mat"):
            check_unpacked(path)
            source = open_table(path)
            for name in columns:
                check_column(name, source.names, source.name)
            self.texts = [name for name in [*roles["text"], *roles["ignore"]] if name in source.names]
            hidden = {roles[name] for name in ("candidates", "exclude", "gold")}
            first = [*self.images, *roles["text"], *roles["ignore"], *roles["categories"]]
            others = [name for name in (*first, *source.names) if name not in hidden]
            shown = [*columns, *self.images] if columns else list(dict.fromkeys(others))[: max(_FEW, len(first))]
            self.cells = read_numbers(source, [], list(dict.fromkeys(shown)))[1]
        elif columns:
            why = f"{path} is gone or another"
            raise ValueError(f"--column needs the file that was learned from, unchanged; {why}. Leave it out.")

    def show(self, row: int) -> list[tuple[str, str]]:
        """Name and text of every column that is no picture."""
        texts = [(name, cells[row]) for name, cells in self.cells.items() if name not in self.images]
        return [(name, _text(cell)) for name, cell in texts if cell is not None]

    def picture(self, row: int, column: str) -> Path | None:
        """The picture of a row, if it is one and lies in the folder of the table."""
        cells = self.cells.get(column) if column in self.images else None
        if cells is None or not 0 <= row < len(cells) or not isinstance(cells[row], str):
            return None
        path = (self.folder / cells[row]).resolve()
        inside = path.is_relative_to(self.folder.resolve()) and path.suffix.lower() in PICTURES
        return path if inside and path.is_file() else None


def shown_table(run: Run, columns: Sequence[str] = ()) -> pa.Table:
    """The purified table for the report: with what a person knows each row by, and nothing asked where people decided."""
    items, decided = Items(run, columns), run.decided
    said = zip(*(decided[name].to_pylist() for name in ("decided", "by", "label")), strict=True)
    told = [(f"{by}: {label}" if final else f"{by}: unsure") if by else None for final, by, label in said]
    words = [None if word is None or word.startswith(f"{GOLD}: ") else word for word in told]  # gold has its column
    table = run.purified.drop_columns(["ask"]).append_column("ask", decided["ask"])
    if any(words):
        table = table.append_column("decision", [pa.array(words, pa.string())])
    cells = next((items.cells[name] for name in items.images if name in items.cells), None)
    if cells is not None:  # small pictures of some rows: those first that a person is asked about
        order = table.sort_by([("ask", "descending"), ("gain", "descending")])["row"].to_pylist()[:_PICTURED]
        small = {row: thumbnail(cells[row], items.folder) for row in order}
        pictures = pa.array([small.get(row) for row in range(table.num_rows)], pa.string())
        table = table.append_column("picture", [pictures])
    names = list(columns) or items.texts
    if not items.cells or not names:
        return table
    shown = [" · ".join(_text(items.cells[name][row])[:200] for name in names) for row in range(table.num_rows)]
    return table.append_column("item", [pa.array(shown, pa.string())])


def _text(cell: Any) -> str:
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def card(run: Run, items: Items, row: int) -> dict[str, Any]:
    """Everything that the page shows of a row, as JSON holds it."""
    found = run.purified.slice(row, 1).to_pylist()[0]
    share = dict(zip(found["original"], found["distribution"], strict=True))
    why = {fall["label"]: fell(fall, found["trained"]) for fall in found["removed"]}
    votes = {vote["label"]: vote["votes"] for vote in found.get("votes") or ()}
    labels = sorted(share, key=lambda label: (label != found["label"], -share[label]))
    told = [{"label": x, "probability": round(share[x], 4), "votes": votes.get(x), "fell": why.get(x)} for x in labels]
    shown = {i: (items.show(i) or [("", "")])[0][1][:80] for i in found["neighbours"]}
    near = [{"row": i, "label": run.purified["label"][i].as_py(), "item": text} for i, text in shown.items()]
    pictures = [column for column in items.images if items.picture(row, column)]
    about = {"row": row, "item": items.show(row), "pictures": pictures, "candidates": told}
    return about | {"suggested": found["label"], "outside": found["outside"], "near": near}
