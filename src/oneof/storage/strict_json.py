"""Parse JSON that comes from outside."""

import json
import math
import re
from typing import Any, NoReturn

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # the escape of one; a pair of them is a character


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError, with a message of one line, for what no file of ours holds.

    That is NaN, infinite numbers, lone surrogates, which JSON can spell and UTF-8 cannot, and lists within lists without end.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_float)
        half = lone_surrogate(value, text)
    except RecursionError:
        raise ValueError("JSON must not be nested so deeply") from None
    if half is not None:
        raise ValueError("text must be valid Unicode; it has a lone surrogate")
    return value


def lone_surrogate(value: Any, text: str) -> str | None:
    """Return a lone surrogate in a value that was parsed from a text, with some characters around it; None if there is none."""
    if not _SURROGATE.search(text):
        return None
    written = json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    try:
        written.encode()
    except UnicodeEncodeError as error:
        return written[max(error.start - 30, 0) : error.end + 30]
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"numbers must be finite; got {text[:20]}")
    return value
