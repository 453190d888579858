"""Unpickling that cannot run code: plain values and plain NumPy arrays, nothing else.

Two gates. First every opcode is read without being carried out, and one that CIFAR's files have no use for is refused. Then the
few names that those files call are answered by stand-ins of ours, which remember the call and can do nothing more.
`torch.load(weights_only=True)` knows neither STACK_GLOBAL nor BINSTRING, which CIFAR's files use (torch 2.13).
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
_SCARCE = frozenset(["REDUCE", "BUILD", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"])
_MOST_SCARCE = 64  # a batch has about ten; thousands of nested tuples would overflow the stack when hashed
_DAMAGE = (pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
_MOST_MEMO = 1_000_000  # the unpickler allocates up to the highest number asked for


def loads(content: bytes, name: str) -> Any:
    """The value that a pickle of plain values and arrays holds; `name` is what messages call it."""
    try:
        _check_opcodes(content)
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if isinstance(value, dict):  # a data batch is a dict of values, one level deep
            return {key: _finished(part) for key, part in value.items()}
        return _finished(value)
    except _Refused as error:
        said = f"{name} must be a pickle of plain values and arrays; {error}. Nothing of it was run."
        raise ValueError(said) from error
    except _DAMAGE as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{name} must be a whole pickle; {said}. Download it again.") from error


class _Refused(Exception):
    """The pickle asks for something that no data batch needs."""


def _check_opcodes(content: bytes) -> None:
    scarce, allowed = 0, frozenset(_OPCODES.split())
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name not in allowed:
            raise _Refused(f"it uses the instruction {opcode.name}")
        scarce += opcode.name in _SCARCE
        if scarce > _MOST_SCARCE or (opcode.name.endswith("PUT") and cast(int, argument) > _MOST_MEMO):
            raise _Refused("it is built in a way that no data batch is")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        asked = f"{module}.{name}".replace("numpy._core", "numpy.core")  # NumPy 2 moved it
        if asked not in _NAMES:
            raise _Refused(f"it asks for {module}.{name}")
        return _StandIn(asked)


_FROM_BUFFER = "numpy.core.numeric._frombuffer"
_NAMES = ("numpy.ndarray", "numpy.dtype", "numpy.core.multiarray._reconstruct", _FROM_BUFFER, "_codecs.encode")


class _StandIn:
    """What a pickle calls or fills, with what it was called with and filled with: all that can be done to it is to keep that."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = ()

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "numpy.ndarray":
            raise _Refused("it calls numpy.ndarray")
        if self.name == "_codecs.encode":  # how Python 3 writes bytes in protocol 2
            return arguments[0].encode("latin1")
        return _StandIn(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _finished(made: Any) -> Any:
    """A value as it is; the array of a stand-in, in the form of NumPy's own pickling."""
    if not isinstance(made, _StandIn):
        return made
    if made.name == _FROM_BUFFER:
        content, dtype, shape, order = made.arguments
    else:
        _, shape, dtype, fortran, content = made.state
        order = "F" if fortran else "C"
    code = _text(dtype.arguments[0]) if isinstance(dtype, _StandIn) and dtype.arguments else "unknown"
    if code not in ("u1", "i1", "i2", "i4", "i8", "f4", "f8", "b1"):
        raise _Refused(f"it holds an array of type {code}")
    end = ">" if len(dtype.state) > 1 and _text(dtype.state[1]) == ">" else "<"
    if not isinstance(content, (bytes, bytearray)) or len(content) != math.prod(shape) * int(code[1:]):
        raise ValueError(f"an array of shape {tuple(shape)} has other bytes than it needs")
    return np.frombuffer(content, np.dtype(end + code)).reshape(shape, order="F" if order == "F" else "C")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
