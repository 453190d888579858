"""Parse numbers, dates and times of day as people write them: `12 kg`, `45 %`, `$1,200`, `1.234,56`, `31.12.2024`, `8:09 pm`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

DATE_ORDERS: Mapping[str, str] = {
    "ymd": "year, month, day",
    "mdy": "month, day, year",
    "dmy": "day, month, year",
    "named": "day, name of the month, year",
}

_MAX_LENGTH = 60  # of a text that may be a number or a date
_CURRENCIES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|TRY|KRW|SGD|HKD|US\\$|R\\$|Rs\\.?"
)
_APPROXIMATELY = ("<", ">", "~", "\u2248", "\u2264", "\u2265", "<=", ">=", "ca", "ca.")  # before a number; ignored
_SIGN = "[+\\-\u2212]?"
_GROUP_GAP = re.compile("(?<=\\d)[ '\u00a0\u202f\u2019](?=\\d{3}(?!\\d))")  # of "12 000" and "12'000"
_NUMBER = re.compile(
    f"(?P<sign>{_SIGN})"
    f"(?P<before>{_CURRENCIES}|ca\\.?|[^\\w\\s.,;:/+\\-\u2212()'\"#]{{0,3}})\\s?"
    f"(?P<inner_sign>{_SIGN})"
    "(?P<digits>[\\d.,]+(?:[eE][+-]?\\d+)?)\\+?\\s?"  # 65+ is 65
    "(?P<unit>[^\\d\\s.,;:/+\\-\u2212()'\"#][^\\d,;:()]*[23]?|)",
    re.ASCII,
)
# A leading zero is a code's, as of 007. Groups of thousands have three digits.
_WITH_POINT = re.compile(r"(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+|(?=\.\d))(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_WITH_COMMA = re.compile(r"(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+|(?=,\d))(?:,\d*)?(?:[eE][+-]?\d+)?", re.ASCII)

_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s?(?P<half>[AaPp]\.?[Mm]\.?)?"
_TIME_AFTER_DATE = rf"(?:(?:[ T]|, | at ){_TIME}\s?(?P<zone>Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?"
_TIME_ALONE = re.compile(_TIME, re.ASCII)
_DATE = re.compile(
    rf"(?P<first>\d{{1,4}})(?P<between>[./-])(?P<middle>\d{{1,2}})(?P=between)(?P<last>\d{{4}}|\d{{1,2}}){_TIME_AFTER_DATE}",
    re.ASCII,
)
_NAMED_DATE = re.compile(
    r"(?:[^\W\d]{2,10}\.?, )?"  # the day of the week
    r"(?:(?P<day>\d{1,2})\.?[ -]?(?P<month>[^\W\d]{3,9})\.?|(?P<month_first>[^\W\d]{3,9})\.? (?P<day_after>\d{1,2}))"
    rf",?[ -](?P<year>\d{{4}}){_TIME_AFTER_DATE}"
)
_MONTHS = (
    ("jan", "january", "januar"),
    ("feb", "february", "februar"),
    ("mar", "march", "m\u00e4r", "m\u00e4rz"),
    ("apr", "april"),
    ("may", "mai"),
    ("jun", "june", "juni"),
    ("jul", "july", "juli"),
    ("aug", "august"),
    ("sep", "sept", "september"),
    ("oct", "october", "okt", "oktober"),
    ("nov", "november"),
    ("dec", "december", "dez", "dezember"),
)
_MONTH_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR_OF_TWO_DIGITS = 1969  # as `datetime.strptime` reads them


class WrittenNumber(NamedTuple):
    """A number as it is written: sign, digits and unit."""

    is_negative: bool
    digits: str  # with the separators of decimals and of groups of thousands
    unit: str  # a currency or a unit of measurement, or both

    def value(self, decimal: str) -> float | None:
        """Return the number, given the decimal separator, "." or ","; None if the digits do not fit it."""
        if decimal == ".":
            if _WITH_POINT.fullmatch(self.digits) is None:
                return None
            number = float(self.digits.replace(",", ""))
        else:
            if _WITH_COMMA.fullmatch(self.digits) is None:
                return None
            number = float(self.digits.replace(".", "").replace(",", "."))
        if self.is_negative:
            return -number
        return number


def split_number(text: str) -> WrittenNumber | None:
    """Split a text into sign, digits and unit; None if it is not one number.

    >>> split_number("-$1,200.50"), split_number("12 Years")
    (WrittenNumber(is_negative=True, digits='1,200.50', unit='$'), WrittenNumber(is_negative=False, digits='12', unit='year'))
    """
    if len(text) > _MAX_LENGTH:
        return None
    is_in_brackets = text.startswith("(") and text.endswith(")")  # as accountants write a negative amount
    if is_in_brackets:
        text = text[1:-1]
    match = _NUMBER.fullmatch(_GROUP_GAP.sub("", text))
    if match is None:
        return None
    before = match["before"]
    if before in _APPROXIMATELY:
        before = ""
    unit = match["unit"].strip()
    if len(unit) > 2:  # shorter ones differ by case, as MB and mb do
        unit = unit.casefold().removesuffix("s")
    is_negative = is_in_brackets or (match["sign"] or match["inner_sign"]) in ("-", "\u2212")
    return WrittenNumber(is_negative, match["digits"], f"{before} {unit}".strip())


def hours_of_time(text: str) -> float | None:
    """Return the hours of a time of day, or of a duration in hours and minutes; None if it is none.

    >>> hours_of_time("8:30 pm"), hours_of_time("48:15")
    (20.5, 48.25)
    """
    match = _TIME_ALONE.fullmatch(text)
    if match is None:
        return None
    return _hours(match)


def days_of_date(text: str, order: str) -> float | None:
    """Return the days since 1970 of a date whose parts come in this order, a key of DATE_ORDERS; None if it is none.

    >>> days_of_date("31.12.1970", "dmy"), days_of_date("Jan 2, 1970 12:00", "named")
    (364.0, 1.5)
    """
    if len(text) > _MAX_LENGTH:
        return None
    if order == "named":
        match = _NAMED_DATE.fullmatch(text)
        if match is None:
            return None
        month = _MONTH_NUMBERS.get((match["month"] or match["month_first"]).casefold())
        if month is None:
            return None
        return _days(int(match["year"]), month, int(match["day"] or match["day_after"]), match)
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    parts = dict(zip(order, match.group("first", "middle", "last"), strict=True))
    if len(parts["d"]) > 2 or len(parts["m"]) > 2:
        return None
    year = int(parts["y"])
    if len(parts["y"]) == 2:
        # 1.2.10 may be a version: a day and a month with points or hyphens beside a short year have two digits.
        is_padded = len(parts["d"]) == len(parts["m"]) == 2
        if order == "ymd" or not (is_padded or match["between"] == "/"):
            return None
        year += 1900
        if year < _FIRST_YEAR_OF_TWO_DIGITS:
            year += 100
    elif len(parts["y"]) != 4:
        return None
    return _days(year, int(parts["m"]), int(parts["d"]), match)


def _days(year: int, month: int, day: int, match: re.Match[str]) -> float | None:
    """Return the days since 1970 of a date and the time that follows it in the match."""
    try:
        midnight = datetime(year, month, day, tzinfo=_time_zone(match["zone"]))
    except ValueError:  # such as the 31st of February
        return None
    hours: float | None = 0.0
    if match["hour"] is not None:
        hours = _hours(match)
    if hours is None:
        return None
    return (midnight - _EPOCH).total_seconds() / 86_400 + hours / 24


def _time_zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC", "GMT"):
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    if text[0] == "-":
        offset = -offset
    return timezone(offset)


def _hours(match: re.Match[str]) -> float | None:
    """Return the hours of a time in a match; None if it has more than 59 minutes or seconds."""
    hour = int(match["hour"])
    minute = int(match["minute"])
    second = float((match["second"] or "0").replace(",", "."))
    if minute >= 60 or second >= 60:
        return None
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour %= 12
        if match["half"][0] in "pP":
            hour += 12
    return hour + minute / 60 + second / 3600
