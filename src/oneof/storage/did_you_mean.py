"""The nearest name that is known, for messages about one that is not."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name, whatever the case; None if none is."""
    folded = {one.lower(): one for one in reversed(list(known))}
    found = get_close_matches(name.lower(), folded, 1)
    return folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to end a message with, or nothing.

    >>> did_you_mean("prodn", ["cc", "proden"])
    " Did you mean 'proden'?"
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {near!r}?"
