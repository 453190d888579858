"""Label Studio: resolved labels as tasks with predictions, which its import takes, and a backend for models.

The backend is asked for predictions of tasks and told what people annotated; training goes to the background. A task is a row of the run by `data.row`, which `oneof clean` writes, or by the column of items that votes were joined on; other tasks
are predicted from their data, if these have the columns that were learned from.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.data.files.columns import open_table, read_numbers
from oneof.data.supervision import label_text
from oneof.data.table import read_columns
from oneof.runs.folder import Run
from oneof.runs.review.decisions import Decision
from oneof.runs.review.server import Json, LocalServer
from oneof.runs.review.session import Review
from oneof.storage.files import written_beside
from oneof.version import __version__
from oneof.votes.label_studio import chosen_labels, is_label_studio, person
from oneof.votes.tables import load_json

_BLOCK = 1 << 15  # rows as Python objects at a time
_CHOICES = re.compile(r"<(?:Choices|Taxonomy|Labels)\b([^>]*)>", re.IGNORECASE)


def choice(label: str, name: str, from_name: str, to_name: str) -> dict[str, Any]:
    """A label as a result of a prediction has it."""
    told = {"id": name, "from_name": from_name, "to_name": to_name, "type": "choices"}
    return told | {"value": {"choices": [label]}}


def tasks(
    explained: pa.Table, data: Mapping[str, Sequence[Any]], from_name: str, to_name: str, known: Mapping[int, Json] = {}
) -> Iterator[Json]:
    """One task per row: `data` holds the row's number and the given columns, `predictions` the label.

    Rows that were its tasks (`known`) keep their `id` and `data`. Its configuration has `<Choices name=from_name toName=to_name>`.
    """
    blocks = explained.select(["row", "label", "probability", "why", "queue"]).to_batches(max_chunksize=_BLOCK)
    for row in (row for block in blocks for row in block.to_pylist()):
        number, task = row["row"], known.get(row["row"], {})
        result = choice(row["label"], f"row-{number}", from_name, to_name)
        told = {"row": number, "oneof_why": row["why"], "oneof_queue": row["queue"]}
        carried = {name: column[number] for name, column in data.items()}
        said = {"model_version": f"oneof {__version__}", "score": round(row["probability"], 6), "result": [result]}
        identity = {"id": task["id"]} if task else {}
        yield identity | {"data": {**task.get("data", {}), **told, **carried}, "predictions": [said]}


def tasks_of(run: Run) -> dict[int, Json]:
    """The tasks of the Label Studio export whose votes a run learned from, by row; none where there was no such export."""
    rows = rows_by_item(run)
    path = Path(run.facts["asked"]["votes"]["path"]) if rows else Path()
    if path.suffix != ".json" or not path.is_file() or not is_label_studio(path):
        return {}
    by_id = {label_text(task["id"]): task for task in load_json(path) if "data" in task}
    return {row: by_id[item] for item, row in rows.items() if item in by_id}


def rows_by_item(run: Run) -> dict[str, int]:
    """Rows by the item that votes were joined on; none where there were no votes, or the table is gone."""
    votes, file = run.facts["asked"].get("votes"), Path(run.facts["file"])
    if not votes or not file.is_file():
        return {}
    cells = read_numbers(open_table(file), [], [votes["item"]])[1][votes["item"]]
    return {label_text(cell): row for row, cell in enumerate(cells)}


def write_tasks(every: Iterator[Json], path: Path) -> None:
    """Write a list of tasks, one a line."""
    with written_beside(path) as file:
        file.write(b"[\n")
        for i, task in enumerate(every):
            file.write((",\n" if i else "").encode() + json.dumps(task, ensure_ascii=False, allow_nan=False).encode())
        file.write(b"\n]\n")


class Backend(LocalServer):
    """Serves one run to one Label Studio."""

    most = 1 << 28

    def __init__(self, review: Review, port: int) -> None:
        self.names, self.rows = ("label", "text"), rows_by_item(review.run)
        unused = ("/validate", "/delete", "/duplicate_model", "/job_status")
        self.ways = {f"POST {path}": lambda asked: {} for path in unused}
        self.ways |= {
            f"GET {path}": lambda asked: {"status": "UP", "model_class": "oneof"} for path in ("/", "/health")
        }
        self.ways |= {
            "GET /versions": lambda asked: {"versions": [self.version]},
            "POST /setup": self.set_up,
            "POST /predict": self.predict,
            "POST /webhook": self.hear,
            "POST /train": lambda asked: self.hear({"action": "START_TRAINING"}),
        }
        super().__init__(review, port)

    @property
    def version(self) -> str:
        return f"oneof {self.review.id}"

    def row_of(self, task: Json) -> int | None:
        data = task.get("data")
        row = data.get("row") if isinstance(data, dict) else None
        if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < len(self.review.labels):
            return row
        return self.rows.get(label_text(task.get("id")))

    def predict(self, asked: Json) -> Json:
        """A choice and its score for every task; an empty one where nothing is known."""
        self.set_up(asked)
        table, results = self.review.run.decided, []
        for task in asked.get("tasks") or []:
            row = self.row_of(task)
            known = None if row is None else tuple(table[name][row].as_py() for name in ("label", "probability"))
            label, score = known or self._from_data(task.get("data") or {}) or (None, 0.0)
            result = [] if label is None else [choice(label, f"task-{task.get('id')}", *self.names)]
            results.append({"result": result, "score": round(float(score), 6), "model_version": self.version})
        return {"results": results, "model_version": self.version}

    def _from_data(self, data: dict[str, Any]) -> tuple[str, float] | None:
        model = self.review.run.model
        if model.encoding.pixels:
            return None  # a file must not be opened for whoever asks
        try:
            columns = read_columns(pa.table({name: [cell] for name, cell in data.items()}), model.encoding.roles)
        except (ValueError, TypeError, pa.ArrowException):
            return None  # not the columns that were learned from
        found = model.probabilities(model.encoding.transform(columns))[0]
        return model.classes[int(found.argmax())], float(found.max())

    def set_up(self, asked: Json) -> Json:
        """Read the names of the control from the labelling configuration."""
        config = str(asked.get("schema") or asked.get("label_config") or "")
        for given in _CHOICES.findall(config):
            names = [re.search(rf"""\b{name}\s*=\s*["']([^"']*)["']""", given) for name in ("name", "toName")]
            if names[0] and names[1]:
                self.names = names[0][1], names[1][1]
                break
        return {"model_version": self.version}

    def hear(self, asked: Json) -> Json:
        """Keep what people annotated: an annotation is an answer of its person, and one that is deleted is undone."""
        action, task, annotation = (asked.get(name) for name in ("action", "task", "annotation"))
        if action == "START_TRAINING":
            self.review.learn()
        if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED") and isinstance(annotation, dict):
            row = self.row_of(task) if isinstance(task, dict) else None
            ignored = row is None or annotation.get("was_cancelled")
            labels = () if ignored else tuple(dict.fromkeys(chosen_labels(annotation, self.names[0])))
            if row is not None and labels:
                with self.review.lock:
                    self.review.log.write(self._decision(row, labels, annotation))
        if action == "ANNOTATIONS_DELETED":
            gone = [f"label-studio-{one.get('id')}-" for one in asked.get("annotations") or []]
            with self.review.lock:
                for decision in self.review.log.standing:
                    if decision.id.startswith(tuple(gone)):
                        self.review.log.retract(decision.id, decision.who)
        return {"status": "ok"}

    def _decision(self, row: int, labels: tuple[str, ...], annotation: Json) -> Decision:
        before = tuple(self.review.run.purified["original"][row].as_py())
        kind = "none" if not set(labels) & set(before) else "set" if len(labels) > 1 else "label"
        name = f"label-studio-{annotation.get('id')}-{annotation.get('updated_at')}"
        said = labels[:1] if kind == "none" else tuple(label for label in labels if label in before)
        told = (person(annotation), self.review.id, before, self.review.labels[row], "queue")
        return Decision(row, kind, said, *told, float(annotation.get("lead_time") or 0), name)
