"""Convert settings to values that JSON can represent, back, and compare them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

from oneof.storage.printable import shortened


def to_serializable(value: Any) -> Any:
    """Return settings as JSON can represent them: a dataclass as its name and its fields, a function as its name."""
    if is_dataclass(value) and not isinstance(value, type):
        return _serialize_dataclass(value)
    if isinstance(value, (list, tuple)):
        return [to_serializable(element) for element in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, partial):
        arguments = [*value.args, *value.keywords.items()]
        return {"partial": to_serializable(value.func), "of": to_serializable(arguments)}
    if isinstance(value, FunctionType):
        return _serialize_function(value)
    if callable(value):
        return _serialize_callable(value)
    if isinstance(value, dict):
        return {str(key): to_serializable(element) for key, element in value.items()}
    return value


def _serialize_dataclass(value: Any) -> dict[str, Any]:
    """Return the name and the fields of a dataclass.

    A field that was added after rows were written is declared as `field(default=..., metadata={"since": "0.2"})`. It is left
    out while it has its default, so that the digests of those rows do not change.
    """
    serialized: dict[str, Any] = {"kind": stored_kind(type(value))}
    for field in fields(value):
        element = getattr(value, field.name)
        if "since" not in field.metadata or element != field.default:
            serialized[field.name] = to_serializable(element)
    return serialized


def stored_kind(kind: type) -> str:
    """Return the name under which settings of this class are stored: its own, or `STORED_KIND` of a class that was renamed."""
    name: str = getattr(kind, "STORED_KIND", kind.__name__)
    return name


def _serialize_function(function: FunctionType) -> str:
    """Return the name of a function; for a lambda or a closure, followed by a checksum of its code."""
    if "<" not in function.__qualname__:
        return function.__name__
    closure = [to_serializable(cell.cell_contents) for cell in function.__closure__ or ()]
    code = function.__code__
    # Nested code objects print their address, which differs between processes.
    constants = [constant for constant in code.co_consts if not hasattr(constant, "co_code")]
    content = repr((code.co_code, code.co_names, constants, closure))
    checksum = hashlib.sha256(content.encode()).hexdigest()[:12]
    return f"{function.__qualname__} {checksum}"


def _serialize_callable(value: Any) -> dict[str, Any]:
    """Return the name of a class, or the name and the attributes of an object that can be called."""
    attributes: dict[str, Any] = {}
    if not isinstance(value, type):
        attributes = getattr(value, "__dict__", {})
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return {"kind": name, **to_serializable(attributes)}


def from_serializable(plain: Any, kinds: Mapping[str, type]) -> Any:
    """Return settings from values as `to_serializable` makes them of dataclasses of these kinds; unknown fields are ignored."""
    if isinstance(plain, list):
        return tuple(from_serializable(element, kinds) for element in plain)
    if not isinstance(plain, dict):
        return plain
    kind: Any = kinds.get(str(plain.get("kind")))
    if kind is None:
        raise ValueError(f"a setting must be of a kind that this version knows; got {plain.get('kind')!r}.")
    arguments = {}
    for field in fields(kind):
        if field.name in plain:
            arguments[field.name] = from_serializable(plain[field.name], kinds)
    return kind(**arguments)


def digest(plain: Any) -> str:
    """Return a short checksum of JSON values, independent of the order of their keys."""
    content = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """Describe where two JSON values first differ; None if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            key_path = key
            if path:
                key_path = f"{path}.{key}"
            difference = first_difference(old.get(key), new.get(key), key_path)
            if difference:
                return difference
        return None
    if old == new:
        return None
    return f"{path} was {shortened(repr(old))}, now {shortened(repr(new))}"
