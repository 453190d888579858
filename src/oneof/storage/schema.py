"""What a value from a JSON file must look like, and the first place where it does not.

A shape is a type (or several), [shape] for a list of such, {name: shape} for an object that has these names, {str: shape} for one
with any names, or a set of the values that are allowed.
"""

from typing import Any

from oneof.storage.printable import shortened

NUMBER = (int, float)
NOTHING = type(None)
_WORDS = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "an object", NOTHING: "null"}


def first_misfit(value: Any, shape: Any, path: str = "") -> str | None:
    """Where a value departs from a shape first, and how; None if it fits."""
    if isinstance(shape, set):
        fits = isinstance(value, str) and value in shape
        return None if fits else _must(path, " or ".join(map(repr, sorted(shape))), value)
    if isinstance(shape, (list, dict)) and not isinstance(value, type(shape)):
        return _must(path, _WORDS[type(shape)], value)
    if isinstance(shape, list):
        found = (first_misfit(part, shape[0], f"{path}[{i}]") for i, part in enumerate(value))
        return next((misfit for misfit in found if misfit), None)
    if isinstance(shape, dict):
        shapes = dict.fromkeys(value, shape[str]) if str in shape else shape
        places = {name: f"{path}.{name}" if path else name for name in shapes}
        found = (
            first_misfit(value[name], part, places[name]) if name in value else f"{places[name]} is missing"
            for name, part in shapes.items()
        )
        return next((misfit for misfit in found if misfit), None)
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, kinds) and not isinstance(value, bool):
        return None
    return _must(path, " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds if kind in _WORDS)), value)


def _must(path: str, wanted: str, value: Any) -> str:
    return f"{path or 'it'} must be {wanted}, not {shortened(repr(value), 40)}"
