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
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("JSON must not be nested so deeply") from None
    except UnicodeEncodeError:
        raise ValueError("text must be valid Unicode; it has a lone surrogate") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"numbers must be finite; got {text[:20]}")
    return value
