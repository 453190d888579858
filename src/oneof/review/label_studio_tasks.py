"""Write the rows of a run as tasks of Label Studio, and the labelling configuration that shows them.

The `data` of a task has the row's contents (`image`, `text`, `cells`), the candidates with their probabilities as choices, and the reason
for the label; the label itself is the task's prediction. Tasks are in the order of the review queue, in which Label Studio shows them. Rows
that came from tasks of Label Studio keep the `id` and `data` of these.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from oneof.data.files.columns import open_table, read_numbers
from oneof.data.supervision import label_text
from oneof.review.cards import Items
from oneof.review.pictures import BROWSER_FORMATS, encode_picture
from oneof.review.server import Json
from oneof.runs.folder import Run
from oneof.storage.files import atomic_write
from oneof.version import __version__
from oneof.votes.label_studio import is_label_studio
from oneof.votes.tables import load_json

FROM_NAME = "label"  # name of the choices in our configuration
LOCAL_FILES = "/data/local-files/?d="  # address at which Label Studio serves files of its machine
_BATCH_SIZE = 1 << 15  # rows converted to Python objects at a time
_MIN_WORDS = 3  # per cell on average, from which on a column is shown as text
_SAMPLE_CELLS = 100  # cells that decide whether a column is text
_FILTER_FROM = 10  # number of classes from which on the choices have a search field


@dataclass(frozen=True)
class TaskContent:
    """Show a row to people: its pictures, its texts, and its other cells as a table.

    Parameters
    ----------
    items : Items
        The cells of the training file.
    picture_url : str, optional
        Prefix of a picture's address, followed by its path relative to the folder of the table. None: Label Studio serves the files
        itself, with the parent of the table's folder as its document root.
    """

    items: Items
    picture_url: str | None = None

    @classmethod
    def of(cls, run: Run, picture_url: str | None = None) -> "TaskContent":
        """Return the content of a run's rows: the columns that the review shows, and all that hold free text."""
        items = Items(run)
        if items.cells:
            hidden_texts = []
            for name, column in run.metadata.get("columns", {}).items():
                is_text = column["use"] == "text" or column["reason"].startswith("free text")
                if is_text and name not in items.cells:
                    hidden_texts.append(name)
            if hidden_texts:
                items = Items(run, [*items.cells, *hidden_texts])
        return cls(items, picture_url)

    @cached_property
    def images(self) -> dict[str, str]:
        """Return the columns of pictures, by their names in `data` of a task."""
        columns: dict[str, str] = {}
        for name in self.items.images:
            if name not in self.items.cells:
                continue
            key = "image"
            if columns:
                key = f"image_{len(columns) + 1}"
            columns[key] = name
        return columns

    @cached_property
    def texts(self) -> list[str]:
        """Return the columns of text."""
        columns = []
        for name, cells in self.items.cells.items():
            if name not in self.items.images and _is_text(cells):
                columns.append(name)
        return columns

    @cached_property
    def others(self) -> list[str]:
        """Return the columns that are shown as a table."""
        return [name for name in self.items.cells if name not in self.items.images and name not in self.texts]

    @property
    def to_name(self) -> str:
        """Return the name of the object that is labelled: image, text or cells."""
        if self.images:
            return "image"
        if self.texts or not self.others:
            return "text"
        return "cells"

    def data(self, row: int) -> Json:
        """Return what is shown of a row; missing values are empty strings."""
        shown: Json = {}
        for key, column in self.images.items():
            shown[key] = self._picture(row, column)
        cells = dict(self.items.show(row))
        if self.texts:
            paragraphs = []
            for name in self.texts:
                if name not in cells:
                    continue
                paragraph = cells[name]
                if len(self.texts) > 1:
                    paragraph = f"{name}: {paragraph}"
                paragraphs.append(paragraph)
            shown["text"] = "\n\n".join(paragraphs)
        if self.others:
            shown["cells"] = {name: cells.get(name, "") for name in self.others}
        if not shown:
            shown["text"] = f"row {row}"
        return shown

    def _picture(self, row: int, column: str) -> str:
        """Return the address of a row's picture, or the picture itself if Label Studio could not show its file."""
        picture = self.items.picture(row, column)
        if picture is None:
            return ""
        if isinstance(picture, Path) and picture.suffix.lower() in BROWSER_FORMATS:
            folder = self.items.folder.resolve()
            prefix = self.picture_url
            if prefix is None:
                prefix = f"{LOCAL_FILES}{quote(folder.name)}/"
            return prefix + quote(picture.relative_to(folder).as_posix())
        try:
            content, content_type = encode_picture(picture)
        except ValueError:
            return ""
        return f"data:{content_type};base64,{b64encode(content).decode()}"


def _is_text(cells: Sequence[Any]) -> bool:
    """Return whether cells hold sentences rather than numbers, categories or names."""
    words = 0
    n_cells = 0
    for cell in cells:
        if cell is None:
            continue
        if not isinstance(cell, str):
            return False
        words += len(cell.split())
        n_cells += 1
        if n_cells == _SAMPLE_CELLS:
            break
    return n_cells > 0 and words >= _MIN_WORDS * n_cells


def labelling_config(content: TaskContent, classes: Sequence[str]) -> str:
    """Return the labelling configuration, in XML, that shows the tasks of a run.

    The choices are those that each task has in `candidates`.
    """
    lines = ["<View>"]
    for key in content.images:
        lines.append(f'  <Image name="{key}" value="${key}" zoom="true" maxWidth="500px"/>')
    if content.texts or content.to_name == "text":
        lines.append('  <Text name="text" value="$text"/>')
    if content.others:
        lines.append('  <Table name="cells" value="$cells"/>')
    to_name = content.to_name
    if len(classes) >= _FILTER_FROM:
        lines.append(f'  <Filter name="filter" toName="{FROM_NAME}" minlength="0" placeholder="search the labels"/>')
    lines.append(
        f'  <Choices name="{FROM_NAME}" toName="{to_name}" value="$candidates" choice="single-radio" required="true" showInline="true"/>'
    )
    lines.append('  <Text name="why" value="$oneof_why"/>')
    lines.append("</View>")
    return "\n".join(lines)


def choice(label: str, name: str, from_name: str, to_name: str) -> Json:
    """Return a label in the form of a prediction's result."""
    return {
        "id": name,
        "from_name": from_name,
        "to_name": to_name,
        "type": "choices",
        "value": {"choices": [label]},
    }


def choices(row: Mapping[str, Any], classes: Sequence[str]) -> list[Json]:
    """Return the labels that a person may choose for a row.

    The first is its label, then come its other candidates by decreasing probability, then all other classes.
    """
    probability = dict(zip(row["original"], row["distribution"], strict=True))
    offered = []
    for label in sorted(probability, key=lambda label: (label != row["label"], -probability[label])):
        share = round(probability[label], 4)
        offered.append({"value": label, "html": f"{escape(label)} <small>{share:.0%}</small>", "probability": share})
    for label in classes:
        if label not in probability:
            offered.append({"value": label})
    return offered


def tasks(
    explained: pa.Table,
    classes: Sequence[str],
    content: TaskContent,
    copied: Mapping[str, Sequence[Any]],
    from_name: str,
    to_name: str,
    known: Mapping[int, Json] = {},
) -> Iterator[Json]:
    """Yield one task per row, in the order of the review queue, with the resolved label as its prediction.

    Parameters
    ----------
    explained : pyarrow.Table
        The purified table with the columns `queue` and `why`.
    classes : sequence of str
        All labels of the run.
    content : TaskContent
        What is shown of a row.
    copied : mapping
        Columns of the training file to add to `data` of the tasks, by name.
    from_name, to_name : str
        As in `<Choices name=from_name toName=to_name>` of the labelling configuration.
    known : mapping
        The tasks of Label Studio that rows came from; these rows keep the `id` and `data` of their task.
    """
    columns = explained.select(
        ["row", "label", "probability", "why", "queue", "original", "distribution", "ask", "gain"]
    )
    in_order = columns.sort_by([("ask", "descending"), ("gain", "descending"), ("row", "ascending")])
    for batch in in_order.to_batches(max_chunksize=_BATCH_SIZE):
        for row in batch.to_pylist():
            number = row["row"]
            known_task = known.get(number)
            task: Json = {}
            if known_task is None:
                task["data"] = {**content.data(number), "candidates": choices(row, classes)}
            else:
                task["id"] = known_task["id"]
                task["data"] = dict(known_task["data"])
            task["data"].update(row=number, oneof_why=row["why"], oneof_queue=row["queue"])
            for name, column in copied.items():
                task["data"][name] = column[number]
            prediction = {
                "model_version": f"oneof {__version__}",
                "score": round(row["probability"], 6),
                "result": [choice(row["label"], f"row-{number}", from_name, to_name)],
            }
            task["predictions"] = [prediction]
            yield task


def tasks_of(run: Run) -> dict[int, Json]:
    """Return the tasks of the Label Studio export that the run's votes came from, by row; empty for other votes."""
    row_of_item = rows_by_item(run)
    if not row_of_item:
        return {}
    path = Path(run.metadata["asked"]["votes"]["path"])
    if path.suffix != ".json" or not path.is_file() or not is_label_studio(path):
        return {}
    task_of_item = {}
    for task in load_json(path):
        if "data" in task:
            task_of_item[label_text(task["id"])] = task
    task_of_row = {}
    for item, row in row_of_item.items():
        if item in task_of_item:
            task_of_row[row] = task_of_item[item]
    return task_of_row


def rows_by_item(run: Run) -> dict[str, int]:
    """Return the row of each item that votes were joined on; empty for a run without votes or if the table is missing."""
    votes = run.metadata["asked"].get("votes")
    file = Path(run.metadata["file"])
    if not votes or not file.is_file():
        return {}
    item_column = votes["item"]
    _, columns = read_numbers(open_table(file), [], [item_column])
    return {label_text(cell): row for row, cell in enumerate(columns[item_column])}


def write_tasks(all_tasks: Iterator[Json], path: Path) -> None:
    """Write tasks as a JSON list, one task per line."""
    with atomic_write(path) as file:
        file.write(b"[\n")
        separator = b""
        for task in all_tasks:
            text = json.dumps(task, ensure_ascii=False, allow_nan=False)
            file.write(separator + text.encode())
            separator = b",\n"
        file.write(b"\n]\n")
