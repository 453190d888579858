"""Validate values from JSON files.

A shape is a type (or a tuple of types), [shape] for a list of such values, {name: shape} for an object with these names,
{str: shape} for an object with any names, or a set of the strings that are allowed.
"""

import math
from typing import Any

from oneof.storage.printable import shortened

_LARGEST_INTEGER = 2**64
NUMBER = (int, float)
NOTHING = type(None)
_TYPE_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    NOTHING: "null",
}


def find_schema_error(value: Any, shape: Any, path: str = "") -> str | None:
    """Describe where a value first departs from a schema; None if it fits."""
    if isinstance(shape, set):
        if isinstance(value, str) and value in shape:
            return None
        allowed = " or ".join(map(repr, sorted(shape)))
        return _describe_mismatch(path, allowed, value)
    if isinstance(shape, (list, dict)) and not isinstance(value, type(shape)):
        return _describe_mismatch(path, _TYPE_NAMES[type(shape)], value)
    if isinstance(shape, list):
        return _find_error_in_list(value, shape[0], path)
    if isinstance(shape, dict):
        return _find_error_in_object(value, shape, path)
    types = shape
    if not isinstance(shape, tuple):
        types = (shape,)
    if not isinstance(value, types) or isinstance(value, bool):
        names = [_TYPE_NAMES[type_] for type_ in types if type_ in _TYPE_NAMES]
        return _describe_mismatch(path, " or ".join(dict.fromkeys(names)), value)
    if _is_too_large(value):
        return _describe_mismatch(path, "a number of 64 bits", value)
    return None


def _is_too_large(value: Any) -> bool:
    """Return whether a number is infinite or NaN, or a whole one that neither a float nor an array can hold."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER


def _find_error_in_list(values: list[Any], shape: Any, path: str) -> str | None:
    for i, element in enumerate(values):
        error = find_schema_error(element, shape, f"{path}[{i}]")
        if error:
            return error
    return None


def _find_error_in_object(value: dict[str, Any], shape: dict[Any, Any], path: str) -> str | None:
    shapes = shape
    if str in shape:  # any names
        shapes = dict.fromkeys(value, shape[str])
    for name, element_shape in shapes.items():
        element_path = name
        if path:
            element_path = f"{path}.{name}"
        if name not in value:
            return f"{element_path} is missing"
        error = find_schema_error(value[name], element_shape, element_path)
        if error:
            return error
    return None


def _describe_mismatch(path: str, expected: str, value: Any) -> str:
    return f"{path or 'it'} must be {expected}, not {shortened(repr(value), 40)}"
