"""Store the parameters and labels of an estimator as JSON, and read them back with their types."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.methods import METHODS
from oneof.purify import PURIFY
from oneof.storage.settings import from_serializable, to_serializable

RENAMED = {
    "hidden": "hidden_layer_sizes",
    "n_trials": "n_estimators",
    "network": "architecture",
    "networks": "n_estimators",
    "processes": "n_jobs",
    "resolve_first": "prepurify",
    "views": "augmentation",
    "rule": "criterion",
}
"""Parameters that earlier folders hold under another name."""

KINDS = {kind.__name__: kind for kind in (*METHODS.values(), *PURIFY.values())}
CONTAINERS = {"tuple": tuple, "list": list}
PLAIN = (bool, int, float, str)


def params_to_json(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the parameters that JSON can hold, each with its type; a random generator becomes the seed that was drawn from it."""
    storable = {}
    for name, value in params.items():
        is_generator = value is not None and not isinstance(value, (int, np.integer))
        if name == "random_state" and is_generator:
            value = seed
        try:
            storable[name] = _to_json(value)
        except TypeError:
            continue  # such as a method that the user wrote: the reopened estimator has the default
    return storable


def read_stored(stored: Any, names: list[str], seed: int) -> tuple[dict[str, Any], NDArray[Any]]:
    """Return the parameters and labels of a fit; from a folder that holds neither, the seed and the labels as text."""
    if stored is None:
        return {"random_state": seed}, np.asarray(names)
    try:
        params = {}
        for name, value in stored["params"].items():
            params[RENAMED.get(name, name)] = _from_json(value)
        classes = np.asarray(names)
        if stored["labels"] is not None:
            classes = _labels_from_json(stored["labels"], names)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"run.json must be the file that save wrote; its entry 'estimator' is damaged, or of another version: {error}. "
            "Fit it again."
        ) from error
    return params, classes


def labels_to_json(classes: NDArray[Any]) -> dict[str, Any] | None:
    """Return the labels with their type; None for labels such as dates, which JSON would turn into text."""
    values = classes.tolist()
    if not all(isinstance(value, PLAIN) for value in values):
        return None
    return {"dtype": classes.dtype.str, "values": values}


def _labels_from_json(stored: Mapping[str, Any], names: list[str]) -> NDArray[Any]:
    """Return stored labels; raise unless they are the labels of that name."""
    classes = np.array(stored["values"], dtype=_dtype(stored["dtype"]))
    if [str(label) for label in classes.tolist()] != names:
        raise ValueError("the labels differ from those of the model")
    return classes


def _dtype(name: Any) -> np.dtype[Any]:
    """Return the NumPy type of numbers or text with this name; for any other name, that of Python objects."""
    is_known = isinstance(name, str) and len(name) > 1 and name[1] in "biufU" and name[2:].isdecimal()
    if not is_known:
        return np.dtype(object)
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _to_json(value: Any) -> Any:
    """Return a value that JSON can hold and `_from_json` restores; raise TypeError if there is none."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, PLAIN):
        return value
    if type(value) in CONTAINERS.values():
        return {type(value).__name__: [_to_json(part) for part in value]}
    if isinstance(value, np.ndarray):
        labels = labels_to_json(value)
        if labels is not None and value.ndim == 1:
            return {"array": labels}
    if KINDS.get(type(value).__name__) is type(value):
        return to_serializable(value)
    raise TypeError(f"a parameter must be one that JSON can hold; got {type(value).__name__}.")


def _from_json(value: Any) -> Any:
    """Restore what `_to_json` returned."""
    if not isinstance(value, dict):
        return value
    for name, container in CONTAINERS.items():
        if name in value:
            return container(_from_json(part) for part in value[name])
    if "array" in value:
        stored = value["array"]
        return _labels_from_json(stored, [str(label) for label in stored["values"]])
    return from_serializable(value, KINDS)
