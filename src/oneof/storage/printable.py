"""Make text from outside safe to print in a terminal."""

import re

# Control characters, and those that hide text or change its direction.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
MOST = 2000  # characters of a message


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def bounded(text: str) -> str:
    """Return the text on one line, printable and at most `MOST` characters long."""
    line = printable(" ".join(text.split()))
    if len(line) <= MOST:
        return line
    return f"{line[: MOST - 4]} ..."


def shortened(text: str, most: int = 60) -> str:
    """Return the text, cut to at most `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."
