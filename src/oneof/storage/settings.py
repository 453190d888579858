"""Settings as plain values: what JSON can hold and a person can compare."""

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any


def plain_value(value: Any) -> Any:
    """Settings as JSON has them; a dataclass becomes its name and its fields, a function its name.

    A field that was added after rows were written says so, `field(default=..., metadata={"since": "0.2"})`: it is left out while
    it has its default, so that the digests of those rows stay.

    >>> from oneof.purify import Pop
    >>> plain_value(Pop())["kind"], plain_value((1, 2.5, None))
    ('Pop', [1, 2.5, None])
    """
    if is_dataclass(value) and not isinstance(value, type):
        given = [(field, getattr(value, field.name)) for field in fields(value)]
        told = {field.name: one for field, one in given if "since" not in field.metadata or one != field.default}
        return {"kind": type(value).__name__, **{name: plain_value(one) for name, one in told.items()}}
    if isinstance(value, (list, tuple)):
        return [plain_value(part) for part in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, partial):
        return {"partial": plain_value(value.func), "of": plain_value([*value.args, *value.keywords.items()])}
    if isinstance(value, FunctionType):
        return _function(value)
    if callable(value):
        return {
            "kind": getattr(value, "__qualname__", type(value).__qualname__),
            **plain_value(getattr(value, "__dict__", {}) if not isinstance(value, type) else {}),
        }
    if isinstance(value, dict):
        return {str(key): plain_value(part) for key, part in value.items()}
    return value


def _function(function: FunctionType) -> str:
    """The name of a function; of one that is not a module's own (a lambda, a closure) also a checksum of what it does."""
    if "<" not in function.__qualname__:
        return function.__name__
    cells = [plain_value(cell.cell_contents) for cell in function.__closure__ or ()]
    does = repr(
        (
            function.__code__.co_code,
            function.__code__.co_names,
            [c for c in function.__code__.co_consts if not hasattr(c, "co_code")],
            cells,
        )
    )
    return f"{function.__qualname__} {hashlib.sha256(does.encode()).hexdigest()[:12]}"


def digest(plain: Any) -> str:
    """A short checksum of plain values, whatever the order of their keys.

    >>> digest({"lr": 0.1, "epochs": 5}) == digest({"epochs": 5, "lr": 0.1})
    True
    """
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


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
