"""Resolved labels as Label Studio predictions: tasks that its import takes, each with one choice and its score."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.storage.files import written_beside
from oneof.version import __version__

_BLOCK = 1 << 15  # rows as Python objects at a time


def choice(label: str, name: str, from_name: str, to_name: str) -> dict[str, Any]:
    """A label as a result of a prediction has it."""
    told = {"id": name, "from_name": from_name, "to_name": to_name, "type": "choices"}
    return told | {"value": {"choices": [label]}}


def tasks(
    explained: pa.Table, data: Mapping[str, Sequence[Any]], *, from_name: str, to_name: str
) -> Iterator[dict[str, Any]]:
    """One task per row: `data` holds the row's number and the given columns, `predictions` the label.

    The names are those of the labelling configuration: `<Choices name=from_name toName=to_name>`.

    >>> table = pa.table({"row": [0], "label": ["cat"], "probability": [0.5], "why": ["so"], "queue": [1]})
    >>> task, = tasks(table, {"text": ["a purring thing"]}, from_name="animal", to_name="text")
    >>> task["data"], task["predictions"][0]["result"][0]["value"]
    ({'row': 0, 'oneof_why': 'so', 'oneof_queue': 1, 'text': 'a purring thing'}, {'choices': ['cat']})
    """
    blocks = explained.select(["row", "label", "probability", "why", "queue"]).to_batches(max_chunksize=_BLOCK)
    for i, row in enumerate(row for block in blocks for row in block.to_pylist()):
        result = choice(row["label"], f"row-{row['row']}", from_name, to_name)
        yield {
            "data": {
                "row": row["row"],
                "oneof_why": row["why"],
                "oneof_queue": row["queue"],
                **{name: column[i] for name, column in data.items()},
            },
            "predictions": [
                {"model_version": f"oneof {__version__}", "score": round(row["probability"], 6), "result": [result]}
            ],
        }


def write_tasks(every: Iterator[dict[str, Any]], path: Path) -> None:
    """Write a list of tasks, one a line."""
    with written_beside(path) as file:
        file.write(b"[\n")
        for i, task in enumerate(every):
            file.write((",\n" if i else "").encode() + json.dumps(task, ensure_ascii=False, allow_nan=False).encode())
        file.write(b"\n]\n")
