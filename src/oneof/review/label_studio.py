"""Serve a run to Label Studio as its machine-learning backend.

Label Studio requests predictions for tasks and reports what people annotated; training runs in the background. A task
belongs to a row of the run by `data.row`, which `oneof clean` writes, or by the item column that votes were joined on. Other
tasks are predicted from their data, if these have the columns that the model was trained on.

Whoever has the token may request predictions, record annotations and start training: Label Studio sends it as the password of basic
authentication, its webhooks as a header.
"""

import base64
import binascii
import hmac
import math
import re
from http import HTTPStatus
from typing import Any

import pyarrow as pa

from oneof.data.supervision import label_text
from oneof.data.table import read_columns
from oneof.review.label_studio_tasks import FROM_NAME, TaskContent, choice, rows_by_item
from oneof.review.server import MAX_NAME_LENGTH, Json, LocalServer, Refusal
from oneof.review.session import MAX_ID_LENGTH, MAX_LABEL_LENGTH, Review
from oneof.runs.decisions import Decision
from oneof.storage.schema import NOTHING, NUMBER, find_schema_error
from oneof.votes.label_studio import chosen_labels, person

# Without "<" inside a tag: a search from each of many tags that do not end would go through the whole text.
_CONTROL_TAG = re.compile(r"<(?:Choices|Taxonomy|Labels)\b([^<>]*)>", re.IGNORECASE)
USER = "oneof"  # of basic authentication
_OPEN_PATHS = ("/", "/health")  # they tell nothing about the run
_ANNOTATION = {
    "id": (int, str, NOTHING),
    "updated_at": (str, NOTHING),
    "lead_time": (*NUMBER, NOTHING),
    "completed_by": (int, str, dict, NOTHING),
}


class Backend(LocalServer):
    """Serve one run to one Label Studio as its machine-learning backend.

    Parameters
    ----------
    review : Review
        The run, and what people decide about it.
    port : int
        Port of the server; 0 for any that is free.
    token : str or None
        What a request must prove to know; None to answer every program on this machine.
    """

    max_body = 1 << 24  # bytes of a request: Label Studio sends tasks in small batches

    def __init__(self, review: Review, port: int, token: str | None = None) -> None:
        self.token = token
        # Name and toName of the control, as in our configuration; `set_up` replaces them by those of the project.
        self.control_names = (FROM_NAME, TaskContent(review.items).to_name)
        self.row_of_item = rows_by_item(review.run)
        self.routes = {
            "GET /": self._health,
            "GET /health": self._health,
            "GET /versions": self._versions,
            "POST /setup": self.set_up,
            "POST /predict": self.predict,
            "POST /webhook": self.handle_event,
            "POST /train": self._train,
        }
        for unused in ("/validate", "/delete", "/duplicate_model", "/job_status"):
            self.routes[f"POST {unused}"] = self._do_nothing
        super().__init__(review, port)

    def refuse(self, query: Json, headers: Any, path: str) -> Refusal | None:
        """Return how a request is refused, or None: all but the state of health requires the token."""
        if self.token is not None and path not in _OPEN_PATHS:
            password = _password(headers.get("Authorization") or "")
            if not hmac.compare_digest(password.encode(), self.token.encode()):
                message = "the user and password, or the header, that oneof label-studio printed are required."
                return Refusal(message, HTTPStatus.UNAUTHORIZED)
        return super().refuse(query, headers, path)

    @property
    def version(self) -> str:
        """Return the version of the model, which changes with every fit."""
        return f"oneof {self.review.id}"

    def row_of(self, task: Json) -> int | None:
        """Return the row of the run that a task belongs to, by its `data.row` or its id."""
        data = task.get("data")
        if isinstance(data, dict):
            row = data.get("row")
            if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < len(self.review.labels):
                return row
        return self.row_of_item.get(label_text(task.get("id")))

    def predict(self, request: Json) -> Json:
        """Return a choice and its score for every task; an empty result for tasks that cannot be predicted."""
        self.set_up(request)
        tasks = request.get("tasks") or []
        _check(tasks, [dict], "tasks")
        resolved = self.review.run.decided
        results = []
        for task in tasks:
            result = []
            score = 0.0
            prediction = self._predict_task(task, resolved)
            if prediction is not None:
                label, score = prediction
                result = [choice(label, f"task-{task.get('id')}", *self.control_names)]
            results.append({"result": result, "score": round(float(score), 6), "model_version": self.version})
        return {"results": results, "model_version": self.version}

    def _predict_task(self, task: Json, resolved: pa.Table) -> tuple[str, float] | None:
        """Return the resolved label of the task's row with its probability, or else a prediction from the task's data."""
        row = self.row_of(task)
        if row is not None:
            return resolved["label"][row].as_py(), resolved["probability"][row].as_py()
        data = task.get("data")
        if isinstance(data, dict):
            return self._predict_data(data)
        return None

    def _predict_data(self, data: dict[str, Any]) -> tuple[str, float] | None:
        """Return the model's prediction for a task's data, or None if these lack the columns of the training table."""
        model = self.review.run.model
        if model.encoding.roles.image:
            return None  # requests must not be able to open files
        try:
            row = pa.table({name: [cell] for name, cell in data.items()})
            columns = read_columns(row, model.encoding.roles)
            features = model.encoding.transform(columns)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            return None
        probabilities = model.probabilities(features)[0]
        return model.classes[int(probabilities.argmax())], float(probabilities.max())

    def set_up(self, request: Json) -> Json:
        """Read the names of the control from the labelling configuration."""
        config = str(request.get("schema") or request.get("label_config") or "")
        for attributes in _CONTROL_TAG.findall(config):
            from_name = _attribute(attributes, "name")
            to_name = _attribute(attributes, "toName")
            if from_name is not None and to_name is not None:
                self.control_names = (from_name, to_name)
                break
        return {"model_version": self.version}

    def handle_event(self, request: Json) -> Json:
        """Record an annotation as a decision of its annotator, retract those that were deleted, or start training."""
        action = request.get("action")
        if action == "START_TRAINING":
            self.review.learn()
        elif action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
            self._record(request.get("task"), request.get("annotation"))
        elif action == "ANNOTATIONS_DELETED":
            annotations = request.get("annotations") or []
            _check(annotations, [dict], "annotations")
            self._retract(annotations)
        return {"status": "ok"}

    def _record(self, task: Any, annotation: Any) -> None:
        """Record an annotation unless it was skipped, has no label, or belongs to no row of the run."""
        if not isinstance(task, dict) or not isinstance(annotation, dict):
            return
        row = self.row_of(task)
        if row is None or annotation.get("was_cancelled"):
            return
        labels = tuple(dict.fromkeys(chosen_labels(annotation, self.control_names[0])))
        if labels:
            decision = self._decision(row, labels, annotation)
            with self.review.lock:
                self.review.check_folder()
                self.review.log.write(decision)

    def _retract(self, annotations: list[Json]) -> None:
        """Retract the decisions that were made by these annotations."""
        prefixes = tuple(f"label-studio-{annotation.get('id')}-" for annotation in annotations)
        with self.review.lock:
            self.review.check_folder()
            for decision in self.review.log.active_decisions:
                if decision.id.startswith(prefixes):
                    self.review.log.retract(decision.id, decision.who)

    def _decision(self, row: int, labels: tuple[str, ...], annotation: Json) -> Decision:
        """Return an annotation as a decision about a row; raise ValueError if the log must not hold it."""
        fields = {name: annotation.get(name) for name in _ANNOTATION}
        _check(fields, _ANNOTATION, "annotation")
        seconds = annotation.get("lead_time") or 0
        if not 0 <= seconds < math.inf:
            raise ValueError(f"annotation.lead_time must be a finite number from 0 on; got {seconds}.")
        decision_id = f"label-studio-{annotation.get('id')}-{annotation.get('updated_at')}"
        if len(decision_id) > MAX_ID_LENGTH or any(len(label) > MAX_LABEL_LENGTH for label in labels):
            raise ValueError(f"an annotation must have ids and labels of at most {MAX_LABEL_LENGTH} characters.")
        candidates = tuple(self.review.run.purified["original"][row].as_py())
        chosen_candidates = tuple(label for label in labels if label in candidates)
        if not chosen_candidates:
            kind = "none"
            chosen = labels[:1]
            self.review.check_typed_label(chosen[0], is_new=True)
        else:
            kind = "label"
            if len(labels) > 1:
                kind = "set"
            chosen = chosen_candidates
        return Decision(
            row=row,
            kind=kind,
            labels=chosen,
            who=person(annotation)[:MAX_NAME_LENGTH],
            run=self.review.id,
            before=candidates,
            suggested=self.review.labels[row],
            drawn="queue",
            seconds=seconds,
            id=decision_id,
        )

    def _health(self, request: Json) -> Json:
        return {"status": "UP", "model_class": "oneof"}

    def _versions(self, request: Json) -> Json:
        return {"versions": [self.version]}

    def _train(self, request: Json) -> Json:
        return self.handle_event({"action": "START_TRAINING"})

    def _do_nothing(self, request: Json) -> Json:
        return {}


def _password(header: str) -> str:
    """Return the token in an Authorization header, or an empty text: the password of basic authentication, or a token as it is."""
    scheme, _, credentials = header.strip().partition(" ")
    if scheme.lower() in ("token", "bearer"):
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    user, _, password = pair.partition(":")
    if user != USER:
        return ""
    return password


def _check(value: Any, shape: Any, name: str) -> None:
    """Raise ValueError, which names the part, if a part of a request does not have this shape."""
    misfit = find_schema_error(value, shape, name)
    if misfit is not None:
        raise ValueError(f"a request must be one that Label Studio sends; {misfit}.")


def _attribute(attributes: str, name: str) -> str | None:
    """Return the value of an attribute in the text of an XML tag, or None if it is missing."""
    match = re.search(rf"""\b{name}\s*=\s*["']([^"']*)["']""", attributes)
    if match is None:
        return None
    return match[1]
