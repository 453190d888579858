"""Make text from outside safe to print in a terminal, and messages fit to read."""

import re

# Control characters, and those that hide text or change its direction.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
MOST = 2000  # characters of a message


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def one_line(text: str) -> str:
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


def plural(noun: str, count: int) -> str:
    """Return the singular of a noun for a count of one, otherwise its plural.

    >>> plural("row", 1), plural("row", 2)
    ('row', 'rows')
    """
    if count == 1:
        return noun
    return f"{noun}s"


def describe_error(error: Exception) -> str:
    """Return the message of an error; that of the operating system without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    reason = error.strerror[:1].lower() + error.strerror[1:]
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    if not paths:
        return reason
    return f"{' -> '.join(paths)}: {reason}"
