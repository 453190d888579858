"""Suggest the nearest known name in messages about an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to end a message with if a known name is similar, ignoring case; otherwise the empty string.

    >>> did_you_mean("Prodn", ["cc", "proden"]), did_you_mean("x", ["cc", "proden"])
    (" Did you mean 'proden'?", '')
    """
    by_lower_case: dict[str, str] = {}
    for known_name in known:
        by_lower_case.setdefault(known_name.lower(), known_name)
    matches = get_close_matches(name.lower(), by_lower_case, 1)
    if not matches:
        return ""
    return f" Did you mean {by_lower_case[matches[0]]!r}?"
