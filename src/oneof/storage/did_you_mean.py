"""The nearest name that is known, for messages about one that is not."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to end a message with, if a known name is like this one, whatever the case; or nothing.

    >>> did_you_mean("Prodn", ["cc", "proden"]), did_you_mean("x", ["cc", "proden"])
    (" Did you mean 'proden'?", '')
    """
    folded = {one.lower(): one for one in reversed(list(known))}
    near = get_close_matches(name.lower(), folded, 1)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""
