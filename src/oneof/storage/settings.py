"""Settings as plain values: what JSON can hold and a person can compare."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

from oneof.storage.printable import shortened


def plain_value(value: Any) -> Any:
    """Settings as JSON has them; a dataclass becomes its name and its fields, a function its name."""
    # A field that was added after rows were written says so, `field(default=..., metadata={"since": "0.2"})`: it is left
    # out while it has its default, so that the digests of those rows stay.
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
        kept = {} if isinstance(value, type) else getattr(value, "__dict__", {})
        return {"kind": getattr(value, "__qualname__", type(value).__qualname__), **plain_value(kept)}
    if isinstance(value, dict):
        return {str(key): plain_value(part) for key, part in value.items()}
    return value


def _function(function: FunctionType) -> str:
    """The name of a function; of one that is not a module's own (a lambda, a closure) also a checksum of what it does."""
    if "<" not in function.__qualname__:
        return function.__name__
    cells = [plain_value(cell.cell_contents) for cell in function.__closure__ or ()]
    code = function.__code__
    constants = [constant for constant in code.co_consts if not hasattr(constant, "co_code")]
    does = repr((code.co_code, code.co_names, constants, cells))
    return f"{function.__qualname__} {hashlib.sha256(does.encode()).hexdigest()[:12]}"


def restored(plain: Any, kinds: Mapping[str, type]) -> Any:
    """Settings from plain values, as `plain_value` makes them of dataclasses of these kinds; names that these have not are passed over."""
    if isinstance(plain, list):
        return tuple(restored(part, kinds) for part in plain)
    if not isinstance(plain, dict):
        return plain
    kind: Any = kinds.get(str(plain.get("kind")))
    if kind is None:
        raise ValueError(f"a setting must be of a kind that this version knows; got {plain.get('kind')!r}.")
    return kind(**{one.name: restored(plain[one.name], kinds) for one in fields(kind) if one.name in plain})


def digest(plain: Any) -> str:
    """A short checksum of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def first_difference(one: Any, other: Any, path: str = "") -> str | None:
    """Where two plain values differ first, and how; None where they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        places = {key: f"{path}.{key}" if path else key for key in one | other}
        found = (first_difference(one.get(key), other.get(key), place) for key, place in places.items())
        return next(filter(None, found), None)
    return None if one == other else f"{path} was {shortened(repr(one))}, now {shortened(repr(other))}"
