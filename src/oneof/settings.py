"""Settings as plain values: what JSON can hold and a person can compare."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def plain_value(value: Any) -> Any:
    """Settings as JSON has them; a dataclass becomes its name and its fields, a function its name.

    >>> from oneof.purify import Pop
    >>> plain_value(Pop())["kind"], plain_value((1, 2.5, None))
    ('Pop', [1, 2.5, None])
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, **named}
    if isinstance(value, (list, tuple)):
        return [plain_value(part) for part in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if callable(value):
        return getattr(value, "__name__", repr(value))
    return value


def first_difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two plain values differ first, and how; None where they are equal.

    >>> first_difference({"training": {"epochs": 5}}, {"training": {"epochs": 9}})
    'training.epochs was 5, now 9'
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            found = first_difference(one.get(key), other.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return None
    return None if one == other else f"{path} was {_short(one)}, now {_short(other)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
