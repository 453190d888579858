"""Read and write durations as people do: 90s, 2m, 1h."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str, name: str) -> float:
    """Return the seconds of a duration such as "90", "90s", "2m", "1.5h" or "1h 30m".

    Raises ValueError, with the name of the option, for other text and for less than a second.

    >>> parse_duration("2m", "--time-limit"), parse_duration("1h30m", "--time-limit"), parse_duration("90", "--time-limit")
    (120.0, 5400.0, 90.0)
    """
    number = r"\d+(?:\.\d+)?"
    compact = text.replace(" ", "").lower()
    seconds = 0.0
    if re.fullmatch(number, compact):
        seconds = float(compact)
    elif re.fullmatch(rf"(?:{number}[smh])+", compact):
        for amount, unit in re.findall(rf"({number})([smh])", compact):
            seconds += float(amount) * _SECONDS[unit]
    if seconds < 1:
        raise ValueError(f"{name} must be a time of a second or more, such as 90s, 2m or 1h; got {text!r}.")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration in words, to two digits or so.

    >>> format_duration(8.2), format_duration(130), format_duration(8000)
    ('8 s', '2 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min"


def format_limit(seconds: float) -> str:
    """Return a duration as an option takes it, rounded to minutes, or to ten seconds below two minutes.

    >>> format_limit(47), format_limit(130), format_limit(8000)
    ('50s', '2m', '133m')
    """
    if seconds < 115:
        return f"{max(10, 10 * round(seconds / 10))}s"
    return f"{round(seconds / 60)}m"
