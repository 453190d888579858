"""Text from outside, made fit for a terminal."""

import re

_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
MOST = 2000  # characters of a message


def printable(text: str) -> str:
    """The text with control characters and those that hide or turn text around written as escapes."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def bounded(text: str) -> str:
    """The text on one line, printable, and not longer than a person reads."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= MOST else f"{line[: MOST - 4]} ..."


def shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
