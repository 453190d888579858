"""Unpickling that cannot run code: plain values and plain NumPy arrays, nothing else.

Two gates. First every opcode is read without being carried out, and one that CIFAR's files have no use for is refused. Then the
few names that those files call are answered by stand-ins of ours, which build an array and can do nothing more.
"""

import io
import math
import pickle
import pickletools
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

_OPCODES = (
    "PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET NONE NEWTRUE NEWFALSE INT BININT BININT1 "
    "BININT2 LONG LONG1 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE "
    "SHORT_BINUNICODE EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_SCARCE = frozenset(["REDUCE", "BUILD", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"])
_MOST_SCARCE = 64  # a batch has about ten; thousands of nested tuples would overflow the stack when hashed
_MOST_MEMO = 1_000_000  # the unpickler allocates up to the highest number asked for


def loads(content: bytes, name: str) -> Any:
    """The value that a pickle of plain values and arrays holds; `name` is what messages call it.

    >>> loads(pickle.dumps({b"labels": [3, 1]}), "batch")
    {b'labels': [3, 1]}
    """
    try:
        _check_opcodes(content)
        return _thaw(_Unpickler(io.BytesIO(content), encoding="bytes").load())
    except _Refused as error:
        raise ValueError(
            f"{name} must be a pickle of plain values and arrays; {error}. Nothing of it was run."
        ) from error
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:
        raise ValueError(
            f"{name} must be a whole pickle; {' '.join(str(error).split())}. Download it again."
        ) from error


class _Refused(Exception):
    """The pickle asks for something that no data batch needs."""


def _check_opcodes(content: bytes) -> None:
    scarce = 0
    allowed = frozenset(_OPCODES.split())
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name not in allowed:
            raise _Refused(f"it uses the instruction {opcode.name}")
        scarce += opcode.name in _SCARCE
        if scarce > _MOST_SCARCE or (opcode.name.endswith("PUT") and cast(int, argument) > _MOST_MEMO):
            raise _Refused("it is built in a way that no data batch is")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        package = module.replace("numpy._core", "numpy.core")  # NumPy 2 moved it
        stand_in = _STAND_INS.get((package, name))
        if stand_in is None:
            raise _Refused(f"it asks for {module}.{name}")
        return stand_in


class _Frozen:
    """Part of an array under construction, in the form of NumPy's own pickling: state comes in by `__setstate__`."""

    __slots__ = ("dtype", "state")

    def __init__(self, dtype: str = "") -> None:
        self.dtype = dtype
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Call:
    """A callable without attributes, so that a pickle's BUILD finds nothing to change."""

    __slots__ = ()


class _Name(_Call):
    def __call__(self, *arguments: Any) -> Any:
        raise _Refused("it calls numpy.ndarray")


class _Reconstruct(_Call):
    def __call__(self, kind: Any, shape: Any, code: Any) -> _Frozen:
        return _Frozen()


class _Dtype(_Call):
    def __call__(self, code: Any, *flags: Any) -> _Frozen:
        return _Frozen(_text(code))


class _FromBuffer(_Call):
    def __call__(self, buffer: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
        return _array(shape, dtype, order == "F", buffer)


class _Encode(_Call):
    """How Python 3 writes bytes in protocol 2."""

    def __call__(self, text: str, encoding: str) -> bytes:
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], _Call] = {
    ("numpy", "ndarray"): _Name(),
    ("numpy", "dtype"): _Dtype(),
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer(),
    ("_codecs", "encode"): _Encode(),
}


def _thaw(value: Any) -> Any:
    """Replace finished stand-ins by arrays, in a dict of values one level deep: all that a data batch is."""
    if isinstance(value, dict):
        return {key: _finish(part) for key, part in value.items()}
    return _finish(value)


def _finish(value: Any) -> Any:
    if not isinstance(value, _Frozen):
        return value
    _, shape, dtype, fortran, raw = value.state
    return _array(shape, dtype, bool(fortran), raw)


def _array(shape: Any, dtype: Any, fortran: bool, raw: Any) -> NDArray[Any]:
    code = dtype.dtype if isinstance(dtype, _Frozen) else ""
    if code not in ("u1", "i1", "i2", "i4", "i8", "f4", "f8", "b1"):
        raise _Refused(f"it holds an array of type {code or 'unknown'}")
    order = "<"
    if len(dtype.state) > 1 and _text(dtype.state[1]) == ">":
        order = ">"
    content = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(content, (bytes, bytearray)) or len(content) != math.prod(shape) * int(code[1:]):
        raise ValueError(f"an array of shape {tuple(shape)} has other bytes than it needs")
    return np.frombuffer(content, np.dtype(order + code)).reshape(shape, order="F" if fortran else "C")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
