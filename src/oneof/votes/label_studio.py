"""Read votes from Label Studio's JSON export: the choices in its annotations and predictions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from oneof.storage.printable import shortened
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.guess import label_columns
from oneof.votes.spelling import AS_WRITTEN, Spelling
from oneof.votes.tables import load_json


def read_label_studio(
    path: str | Path, *, from_name: str | None = None, confidence: str | None = None, spelling: Spelling = AS_WRITTEN
) -> Votes:
    """Read choices from a Label Studio export, as JSON or JSON-MIN.

    A path of a taxonomy counts as a choice of its last label.

    The annotator is the e-mail address or number of a person, or "model:" and the version for a prediction.
    Cancelled annotations are skipped. A starred annotation (ground truth) is a vote like others; `read_ground_truth` reads the stars.

    Parameters
    ----------
    path
        The exported file.
    from_name
        The control whose choices are votes; needed where the tasks have several, or JSON-MIN does not show which it is.
    confidence
        The field of a prediction, usually "score", that holds its weight in [0, 1]; people have the weight 1.
    spelling
        How the text of a choice is parsed.
    """
    path = Path(path)
    tasks = _tasks(path, from_name)
    choices: list[_Choice] = []
    for position, task in enumerate(tasks):
        choices.extend(_choices(path, position, task, confidence))
    control = _control_of_votes(path, choices, from_name)
    selected = [choice for choice in choices if choice.control == control]
    positions = [choice.position for choice in selected]
    annotators = [choice.annotator for choice in selected]
    ids = _ids(path, tasks)
    weights = None
    if confidence is not None:
        weights = np.array([choice.weight for choice in selected])
    answers = Answers(
        source=str(path),
        item=ids.dictionary_encode().take(positions),
        annotator=pa.array(annotators, pa.string()).dictionary_encode(),
        text=pa.array([choice.text for choice in selected], pa.string()),
        place=lambda i: f"task {ids[positions[i]]}",
        confidence=weights,
    )
    votes = collect(answers, spelling)
    return replace(votes, remarks=(*_unused_parts(tasks, control), *votes.remarks))


class _Choice(NamedTuple):
    """A choice of an annotator in a control of a task."""

    position: int  # of the task in the file
    control: str
    annotator: str
    text: str
    weight: float


def _control_of_votes(path: Path, choices: list[_Choice], from_name: str | None) -> str:
    """Return the control whose choices are votes; raise ValueError if it has none, or if none is named and there are several."""
    present = sorted({choice.control for choice in choices})
    if not present:
        raise ValueError(f"votes must hold at least one label; {path} has no choices.")
    if from_name is None and len(present) > 1:
        raise ValueError(
            f"one control must give the votes; {path} has choices of {', '.join(present)}. Set from_name (--from-name)."
        )
    control = from_name or present[0]
    if control not in present:
        raise ValueError(f"from_name must be a control with choices; got {control!r}, {path} has {', '.join(present)}.")
    return control


def _unused_parts(tasks: list[dict[str, Any]], control: str) -> Iterator[str]:
    """Yield remarks on cancelled annotations, and on controls that are not read."""
    n_cancelled = 0
    unused: dict[str, str] = {}  # control to kind
    for task in tasks:
        for annotation in task.get("annotations") or ():
            if annotation.get("was_cancelled"):
                n_cancelled += 1
                continue
            for result in annotation.get("result") or ():
                name = str(result.get("from_name"))
                if name != control:
                    unused[name] = str(result.get("type", "unknown"))
    if n_cancelled:
        yield f"{n_cancelled:,} cancelled annotations are not counted as votes."
    if unused:
        shown = ", ".join(f"{shortened(name, 40)} ({kind})" for name, kind in sorted(unused.items())[:8])
        yield f"Controls that are not used: {shown}."


def is_label_studio(path: str | Path) -> bool:
    """Return whether a file is a Label Studio export: JSON, and not a list of flat objects."""
    if not Path(path).name.lower().removesuffix(".gz").endswith(".json"):
        return False
    tasks = load_json(Path(path))
    if not isinstance(tasks, list) or not tasks:
        return False
    if all(_is_json_min(task) for task in tasks):
        return True
    for task in tasks:
        if not isinstance(task, dict):
            continue
        if _is_list_of_objects(task.get("annotations")) or _is_list_of_objects(task.get("predictions")):
            return True
    return False


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def read_ground_truth(path: str | Path) -> dict[Any, str]:
    """Read the labels that were starred as ground truth, by the id of the task; of several stars, the last counts.

    Starred annotations with no choice or with several are skipped.
    """
    ground_truth = {}
    for task in load_json(Path(path)):
        if _is_json_min(task):
            continue
        for annotation in task.get("annotations") or ():
            if not annotation.get("ground_truth"):
                continue
            labels = [text for _, text in _chosen(str(path), annotation)]
            if len(labels) == 1:
                ground_truth[task["id"]] = labels[0]
    return ground_truth


def _is_json_min(task: Any) -> bool:
    """Return whether a task is of JSON-MIN: flat, with one annotation."""
    return isinstance(task, dict) and "annotation_id" in task and "annotations" not in task


def _from_json_min(path: Path, task: dict[str, Any], control: str | None) -> dict[str, Any]:
    """Convert a task of JSON-MIN to the form that it has in JSON."""
    if control not in task:
        raise ValueError(f"from_name must be a control with choices; got {control!r}, {path} has {', '.join(task)}.")
    choices = task[control]
    if isinstance(choices, dict):
        choices = choices.get("choices", choices)
    if isinstance(choices, str):
        choices = [choices]
    result = {"from_name": control, "value": {"choices": choices}}
    annotation = {"id": task["annotation_id"], "completed_by": task.get("annotator"), "result": [result]}
    return {"id": task.get("id"), "annotations": [annotation]}


def _guess_control(path: Path, tasks: list[dict[str, Any]]) -> str:
    """Return the one control of JSON-MIN whose choices differ between annotations of a task."""
    names: dict[str, None] = {}
    for task in tasks:
        names.update(dict.fromkeys(task))
    for name in ("id", "annotator"):
        names.pop(name, None)
    cells = {name: [task.get(name) for task in tasks] for name in names}
    controls = label_columns([str(task.get("id")) for task in tasks], cells)
    if len(controls) != 1:
        got = f"{path} has {', '.join(controls or names)}"
        raise ValueError(f"one control must give the votes; {got}. Set from_name (--from-name).")
    return controls[0]


def _tasks(path: Path, control: str | None) -> list[dict[str, Any]]:
    """Read the tasks of an export, at least one, in the form of JSON."""
    tasks = load_json(path)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ValueError(f"a Label Studio export must be a list of tasks; {path} is not. Export it as JSON.")
    if not tasks:
        raise ValueError(f"votes must have at least one row; {path} has none.")
    if control is None and all(_is_json_min(task) for task in tasks):
        control = _guess_control(path, tasks)
    for position, task in enumerate(tasks):
        if _is_json_min(task):
            tasks[position] = _from_json_min(path, task, control)
    for position, task in enumerate(tasks):
        if not any(isinstance(task.get(part), list) for part in ("annotations", "predictions")):
            got = f"{path}, task at position {position} has {', '.join(task) or 'nothing'}. Export it as JSON, not JSON-MIN."
            raise ValueError(f"a Label Studio task must have annotations or predictions; {got}")
    return tasks


def _ids(path: Path, tasks: list[dict[str, Any]]) -> Any:
    """Return the ids of the tasks as an Arrow array, all numbers or all text."""
    ids = [task.get("id") for task in tasks]
    for position, value in enumerate(ids):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            raise ValueError(
                f"a Label Studio task must have an id; {path}, task at position {position} has {value!r}. Correct it."
            )
    kind = pa.string()
    if all(isinstance(value, int) for value in ids):
        kind = pa.int64()
    try:
        return pa.array(ids, kind)
    except (pa.ArrowException, OverflowError) as error:
        got = f"{path} has both, or numbers too large"
        raise ValueError(f"Label Studio ids must be all numbers or all text; {got}.") from error


def _choices(path: Path, position: int, task: dict[str, Any], confidence: str | None) -> Iterator[_Choice]:
    """Yield the choices in a task."""
    where = f"{path}, task at position {position}"
    for annotation in _records(where, task, "annotations"):
        if not annotation.get("was_cancelled"):
            for control, text in _chosen(where, annotation):
                yield _Choice(position, control, person(annotation), text, 1.0)
    for prediction in _records(where, task, "predictions"):
        weight: Any = 1.0
        if confidence is not None:
            weight = prediction.get(confidence)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
            raise ValueError(
                f"{confidence!r} of a prediction must be a number in [0, 1]; {where} has {weight!r}. Correct it."
            )
        model = f"model:{prediction.get('model_version') or 'unnamed'}"
        for control, text in _chosen(where, prediction):
            yield _Choice(position, control, model, text, float(weight))


def _records(where: str, holder: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return a list of objects in a task, an annotation or a prediction; empty if it is missing."""
    records = holder.get(part) or []
    if not _is_list_of_objects(records):
        raise ValueError(
            f"{part} of a Label Studio task must be a list of objects; {where} has another value. Correct it."
        )
    return records


def _chosen(where: str, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield control and text of each choice in an annotation or a prediction."""
    for result in _records(where, record, "result"):
        value = result.get("value")
        if isinstance(value, dict) and "taxonomy" in value:
            chosen = _ends_of_paths(where, value["taxonomy"])
        elif isinstance(value, dict) and "choices" in value:
            chosen = value["choices"]
        else:
            continue  # of another kind of control, such as a rating, a box or a comment
        if not isinstance(chosen, list) or not all(isinstance(text, str) for text in chosen):
            raise ValueError(f"choices must be a list of texts; {where} has {chosen!r}. Correct it.")
        control = str(result.get("from_name"))
        for text in chosen:
            yield control, text


def _ends_of_paths(where: str, paths: Any) -> list[Any]:
    """Return the last label of each path of a taxonomy."""
    if not isinstance(paths, list) or not all(isinstance(path, list) and path for path in paths):
        raise ValueError(f"a taxonomy must be a list of paths; {where} has {paths!r}. Correct it.")
    return [path[-1] for path in paths]


def chosen_labels(annotation: dict[str, Any], control: str) -> list[str]:
    """Return the labels chosen in a control of an annotation, or in any other if this control has none."""
    choices = list(_chosen("the annotation", annotation))
    of_control = [text for name, text in choices if name == control]
    return of_control or [text for _, text in choices]


def person(annotation: dict[str, Any]) -> str:
    """Return the annotator's e-mail address or number, or a name made of the annotation's id where neither is known."""
    annotator = annotation.get("completed_by")
    if isinstance(annotator, dict):
        annotator = annotator.get("email") or annotator.get("id")
    if annotator is None:
        return f"annotation {annotation.get('id')}"
    return str(annotator)
