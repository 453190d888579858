"""Unpickle plain values and plain NumPy arrays without running code.

There are two checks. First all opcodes are read without being executed, and a pickle with one that CIFAR's files do not need is
refused. Then the few names that those files call are replaced by placeholders, which record the call and can do nothing more.
`torch.load(weights_only=True)` does not support STACK_GLOBAL and BINSTRING, which CIFAR's files use (torch 2.13).
"""

import io
import math
import pickle
import pickletools
from typing import Any, cast

import numpy as np

_OPCODES = (
    "PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET NONE NEWTRUE NEWFALSE INT BININT BININT1 "
    "BININT2 LONG LONG1 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE "
    "SHORT_BINUNICODE EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_ALLOWED_OPCODES = frozenset(_OPCODES.split())
_LIMITED_OPCODES = frozenset(["REDUCE", "BUILD", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"])
_MAX_LIMITED = 64  # a batch has about ten; thousands of nested tuples would overflow the stack when hashed
_DAMAGE = (pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
_MAX_MEMO = 1_000_000  # the unpickler allocates up to the highest number in the pickle


def loads(content: bytes, name: str) -> Any:
    """Return the value of a pickle of plain values and arrays; messages refer to it by `name`."""
    try:
        _check_opcodes(content)
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if isinstance(value, dict):  # a data batch is a dict of values, one level deep
            return {key: _build_array(part) for key, part in value.items()}
        return _build_array(value)
    except _Refused as error:
        message = f"{name} must be a pickle of plain values and arrays; {error}. Nothing of it was run."
        raise ValueError(message) from error
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} must be a whole pickle; {reason}. Download it again.") from error


class _Refused(Exception):
    """The pickle contains something that no data batch needs."""


def _check_opcodes(content: bytes) -> None:
    """Refuse a pickle with opcodes that no data batch needs, or with too many of those that nest."""
    limited_count = 0
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name not in _ALLOWED_OPCODES:
            raise _Refused(f"it uses the instruction {opcode.name}")
        if opcode.name in _LIMITED_OPCODES:
            limited_count += 1
        memo_is_too_large = opcode.name.endswith("PUT") and cast(int, argument) > _MAX_MEMO
        if limited_count > _MAX_LIMITED or memo_is_too_large:
            raise _Refused("it is built in a way that no data batch is")


class _Unpickler(pickle.Unpickler):
    """Return a placeholder for the names that data batches use, and refuse all others."""

    def find_class(self, module: str, name: str) -> Any:
        qualified_name = f"{module}.{name}".replace("numpy._core", "numpy.core")  # NumPy 2 moved it
        if qualified_name not in _NAMES:
            raise _Refused(f"it asks for {module}.{name}")
        return _Placeholder(qualified_name)


_FROM_BUFFER = "numpy.core.numeric._frombuffer"
_NAMES = ("numpy.ndarray", "numpy.dtype", "numpy.core.multiarray._reconstruct", _FROM_BUFFER, "_codecs.encode")


class _Placeholder:
    """Stands for a function or an object of a pickle, and records its arguments and its state."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = ()

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "numpy.ndarray":
            raise _Refused("it calls numpy.ndarray")
        if self.name == "_codecs.encode":  # how Python 3 writes bytes in protocol 2
            return arguments[0].encode("latin1")
        return _Placeholder(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _build_array(value: Any) -> Any:
    """Return the array that a placeholder describes, as NumPy pickles it; any other value as it is."""
    if not isinstance(value, _Placeholder):
        return value
    if value.name == _FROM_BUFFER:
        content, dtype, shape, order = value.arguments
    else:
        _, shape, dtype, is_fortran, content = value.state
        order = "F" if is_fortran else "C"
    code = "unknown"
    if isinstance(dtype, _Placeholder) and dtype.arguments:
        code = _text(dtype.arguments[0])
    if code not in ("u1", "i1", "i2", "i4", "i8", "f4", "f8", "b1"):
        raise _Refused(f"it holds an array of type {code}")
    is_big_endian = len(dtype.state) > 1 and _text(dtype.state[1]) == ">"
    byte_order = ">" if is_big_endian else "<"
    if not isinstance(content, (bytes, bytearray)) or len(content) != math.prod(shape) * int(code[1:]):
        raise ValueError(f"an array of shape {tuple(shape)} has other bytes than it needs")
    flat = np.frombuffer(content, np.dtype(byte_order + code))
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return str(value)
