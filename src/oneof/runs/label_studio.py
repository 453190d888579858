"""Resolved labels as Label Studio predictions: tasks that its import takes, each with one choice and its score."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.data.files.columns import open_table, read_numbers
from oneof.data.supervision import label_text
from oneof.runs.folder import Run
from oneof.storage.files import written_beside
from oneof.version import __version__
from oneof.votes.label_studio import is_label_studio
from oneof.votes.tables import load_json

_BLOCK = 1 << 15  # rows as Python objects at a time


def choice(label: str, name: str, from_name: str, to_name: str) -> dict[str, Any]:
    """A label as a result of a prediction has it."""
    told = {"id": name, "from_name": from_name, "to_name": to_name, "type": "choices"}
    return told | {"value": {"choices": [label]}}


def tasks(
    explained: pa.Table,
    data: Mapping[str, Sequence[Any]],
    *,
    from_name: str,
    to_name: str,
    known: Mapping[int, dict[str, Any]] = {},
) -> Iterator[dict[str, Any]]:
    """One task per row: `data` holds the row's number and the given columns, `predictions` the label.

    Rows that were Label Studio's tasks (`known`) keep their `id` and `data`. The names are those of the labelling configuration: `<Choices name=from_name toName=to_name>`.

    >>> table = pa.table({"row": [0], "label": ["cat"], "probability": [0.5], "why": ["so"], "queue": [1]})
    >>> task, = tasks(table, {"text": ["a purring thing"]}, from_name="animal", to_name="text")
    >>> task["data"], task["predictions"][0]["result"][0]["value"]
    ({'row': 0, 'oneof_why': 'so', 'oneof_queue': 1, 'text': 'a purring thing'}, {'choices': ['cat']})
    """
    blocks = explained.select(["row", "label", "probability", "why", "queue"]).to_batches(max_chunksize=_BLOCK)
    for row in (row for block in blocks for row in block.to_pylist()):
        result = choice(row["label"], f"row-{row['row']}", from_name, to_name)
        task = known.get(row["row"], {})
        yield {
            **({"id": task["id"]} if task else {}),
            "data": {
                **task.get("data", {}),
                "row": row["row"],
                "oneof_why": row["why"],
                "oneof_queue": row["queue"],
                **{name: column[row["row"]] for name, column in data.items()},
            },
            "predictions": [
                {"model_version": f"oneof {__version__}", "score": round(row["probability"], 6), "result": [result]}
            ],
        }


def tasks_of(run: Run) -> dict[int, dict[str, Any]]:
    """The tasks of the Label Studio export whose votes a run learned from, by row; none where there was no such export."""
    votes, file = run.facts["asked"].get("votes"), Path(run.facts["file"])
    path = Path(votes["path"]) if votes else file
    if not votes or path.suffix != ".json" or not (path.is_file() and file.is_file() and is_label_studio(path)):
        return {}
    by_id = {label_text(task["id"]): task for task in load_json(path) if "data" in task}
    return {row: by_id[item] for item, row in rows_by_item(run).items() if item in by_id}


def rows_by_item(run: Run) -> dict[str, int]:
    """Rows by the item that votes were joined on; none where there were no votes, or the table is gone."""
    votes, file = run.facts["asked"].get("votes"), Path(run.facts["file"])
    if not votes or not file.is_file():
        return {}
    cells = read_numbers(open_table(file), [], [votes["item"]])[1][votes["item"]]
    return {label_text(cell): row for row, cell in enumerate(cells)}


def write_tasks(every: Iterator[dict[str, Any]], path: Path) -> None:
    """Write a list of tasks, one a line."""
    with written_beside(path) as file:
        file.write(b"[\n")
        for i, task in enumerate(every):
            file.write((",\n" if i else "").encode() + json.dumps(task, ensure_ascii=False, allow_nan=False).encode())
        file.write(b"\n]\n")
