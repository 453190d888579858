"""Votes from Label Studio's JSON export: the choices of its annotations and predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.spelling import AS_WRITTEN, Spelling
from oneof.votes.tables import load_json


def read_label_studio(
    path: str | Path, *, from_name: str | None = None, confidence: str | None = None, spelling: Spelling = AS_WRITTEN
) -> Votes:
    """Read choices from a Label Studio export, as JSON or JSON-MIN (which needs `from_name`).

    A person's annotation votes under their e-mail address or number, a prediction under "model:" and its version.
    Cancelled annotations do not vote. A starred annotation, a ground truth, is a vote like others; `read_stars` reads the stars.

    Parameters
    ----------
    path
        The exported file.
    from_name
        The control whose choices are votes; needed where the tasks have several.
    confidence
        The field of a prediction, usually "score", that says in [0, 1] what it counts; people count 1.
    spelling
        How the text of a choice is read.
    """
    path = Path(path)
    tasks = _tasks(path, from_name)
    places = [f"{path}, task at position {i}" for i in range(len(tasks))]
    every = [(i, *one) for i, task in enumerate(tasks) for one in _choices(places[i], task, confidence)]
    present = sorted({name for _, name, *_ in every})
    if not present:
        raise ValueError(f"votes must hold at least one label; {path} has no choices.")
    if from_name is None and len(present) > 1:
        raise ValueError(f"one control must give the votes; {path} has choices of {', '.join(present)}. Say from_name.")
    control = from_name or present[0]
    if control not in present:
        raise ValueError(f"from_name must be a control with choices; got {control!r}, {path} has {', '.join(present)}.")
    position, _, people, texts, sure = zip(*(choice for choice in every if choice[1] == control), strict=True)
    ids = _ids(path, tasks)
    item, annotator = ids.dictionary_encode().take(position), pa.array(people, pa.string()).dictionary_encode()
    text, known = pa.array(texts, pa.string()), None if confidence is None else np.array(sure)
    answers = Answers(str(path), item, annotator, text, lambda i: f"task {ids[position[i]]}", known)
    return collect(answers, spelling)


def is_label_studio(path: str | Path) -> bool:
    """Is a file a Label Studio export: JSON, and not a list of flat objects?"""
    is_json = Path(path).name.lower().removesuffix(".gz").endswith(".json")
    tasks = load_json(Path(path)) if is_json else None
    if not isinstance(tasks, list):
        return False
    objects = [task for task in tasks if isinstance(task, dict)]
    records = [task.get(part) for task in objects for part in ("annotations", "predictions")]
    nested = any(isinstance(some, list) and all(isinstance(one, dict) for one in some) for some in records)
    return nested or (bool(tasks) and all(map(_is_min, tasks)))


def read_stars(path: str | Path) -> dict[Any, str]:
    """The labels of annotations that were starred as ground truth, by the task's id; of several the last."""
    tasks = [task for task in load_json(Path(path)) if not _is_min(task)]
    starred = [(task["id"], one) for task in tasks for one in task.get("annotations") or () if one.get("ground_truth")]
    chosen = [(number, [text for _, text in _chosen(str(path), one)]) for number, one in starred]
    return {number: labels[0] for number, labels in chosen if len(labels) == 1}


def _is_min(task: Any) -> bool:
    """Is it a task of JSON-MIN: flat, an annotation each?"""
    return isinstance(task, dict) and "annotation_id" in task and "annotations" not in task


def _unfolded(path: Path, task: dict[str, Any], control: str | None) -> dict[str, Any]:
    """A task of JSON-MIN as JSON has it."""
    if control not in task:
        raise ValueError(f"from_name must be a control with choices; got {control!r}, {path} has {', '.join(task)}.")
    said = task[control] if isinstance(task[control], dict) else {}
    labels = said.get("choices", task[control])
    chosen = {"from_name": control, "value": {"choices": [labels] if isinstance(labels, str) else labels}}
    annotation = {"id": task["annotation_id"], "completed_by": task.get("annotator"), "result": [chosen]}
    return {"id": task.get("id"), "annotations": [annotation]}


def _tasks(path: Path, control: str | None) -> list[dict[str, Any]]:
    tasks = load_json(path)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ValueError(f"a Label Studio export must be a list of tasks; {path} is not. Export it as JSON.")
    if not tasks:
        raise ValueError(f"votes must have at least one row; {path} has none.")
    tasks = [_unfolded(path, task, control) if _is_min(task) else task for task in tasks]
    for position, task in enumerate(tasks):
        if not any(isinstance(task.get(part), list) for part in ("annotations", "predictions")):
            got = f"{path}, task at position {position} has {', '.join(task) or 'nothing'}. Export it as JSON, not JSON-MIN."
            raise ValueError(f"a Label Studio task must have annotations or predictions; {got}")
    return tasks


def _ids(path: Path, tasks: list[dict[str, Any]]) -> Any:
    """Task ids as an Arrow array, all numbers or all text."""
    ids = [task.get("id") for task in tasks]
    for position, value in enumerate(ids):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            raise ValueError(f"a Label Studio task must have an id; {path}, task at position {position} has {value!r}.")
    try:
        return pa.array(ids, pa.int64() if all(isinstance(value, int) for value in ids) else pa.string())
    except (pa.ArrowException, OverflowError) as error:
        said = f"Label Studio ids must be all numbers or all text; {path} has both, or numbers too large."
        raise ValueError(said) from error


def _choices(where: str, task: dict[str, Any], confidence: str | None) -> Iterator[tuple[str, str, str, float]]:
    """Control, annotator, text and confidence of every label that was chosen in a task."""
    for annotation in _records(where, task, "annotations"):
        if not annotation.get("was_cancelled"):
            yield from ((control, person(annotation), text, 1.0) for control, text in _chosen(where, annotation))
    for prediction in _records(where, task, "predictions"):
        sure = 1.0 if confidence is None else prediction.get(confidence)
        if isinstance(sure, bool) or not isinstance(sure, (int, float)) or not 0 <= sure <= 1:
            raise ValueError(f"{confidence!r} of a prediction must be a number in [0, 1]; {where} has {sure!r}.")
        model = f"model:{prediction.get('model_version') or 'unnamed'}"
        yield from ((control, model, text, float(sure)) for control, text in _chosen(where, prediction))


def _records(where: str, holder: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """A list of objects in a task, an annotation or a prediction; empty where it is left out."""
    records = holder.get(part) or []
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ValueError(f"{part} of a Label Studio task must be a list of objects; {where}.")
    return records


def _chosen(where: str, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The controls and texts of an annotation's or a prediction's choices."""
    for result in _records(where, record, "result"):
        value = result.get("value")
        if not isinstance(value, dict) or "choices" not in value:
            continue  # another control's: a rating, a box, a comment
        chosen = value["choices"]
        if not isinstance(chosen, list) or not all(isinstance(text, str) for text in chosen):
            raise ValueError(f"choices must be a list of texts; {where} has {chosen!r}.")
        yield from ((str(result.get("from_name")), text) for text in chosen)


def chosen_labels(annotation: dict[str, Any], control: str) -> list[str]:
    """The labels that an annotation chose in a control; in any, where it has only another."""
    found = list(_chosen("the annotation", annotation))
    return [text for name, text in found if name == control] or [text for _, text in found]


def person(annotation: dict[str, Any]) -> str:
    """Who annotated: an e-mail address or a number; an annotation by nobody known stands for itself."""
    person = annotation.get("completed_by")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id")
    return f"annotation {annotation.get('id')}" if person is None else str(person)
