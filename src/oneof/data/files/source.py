"""Stream a table in chunks of columns, tell what a column holds, and convert dates, which are often written as text."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from oneof.data.roles import Kind

LARGEST_FEATURE = 1e30
"""In size. Float32 holds larger numbers, but neither their sums nor their differences."""
_NULLS = tuple(pa.csv.ConvertOptions().null_values)  # texts that mean a missing value, such as "NA"
# Texts that people write for a missing value among numbers or dates, in lower case. In a column of texts they are values like others.
_GAPS = frozenset({
    "?", "??", "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "n.a.", "n.a", "na", "n/a", "none", "nil", "null", "nan", "nat",
    "<na>", "<null>", "missing", "unknown", "not available", "not applicable", "no data", "(blank)", "(empty)",
    "unbekannt", "k.a.", "k. a.", "keine angabe",
    "#n/a", "#value!", "#ref!", "#div/0!", "#name?", "#num!", "#null!",
})  # fmt: skip
GAP_SPELLINGS = sorted({*_NULLS, *_GAPS, *map(str.upper, _GAPS), *map(str.capitalize, _GAPS)})
_SECONDS_PER_DAY = 86_400
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Of ISO dates written as text: microseconds reach further, nanoseconds keep more digits.
_TIMESTAMPS = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
Chunk = tuple[str, int, pa.Array]  # column, first row, values


@dataclass(frozen=True)
class TableSource:
    """A table whose columns are read chunk by chunk, any number of times, so that only one chunk is in memory."""

    name: str  # path of the file, or "the table", for messages
    names: list[str]  # columns in order; a name may occur twice
    kinds: dict[str, Kind]  # column -> what it holds
    rows: int  # number of rows, or 0 if it is not known before reading
    chunks: Callable[[list[str], list[str]], Iterator[Chunk]]  # chunks of columns of numbers, and of other columns
    first_row: int = 0  # number of the first row in its file, for messages about a batch of rows

    def check_distinct(self, names: Iterable[str]) -> None:
        """Raise if one of the names occurs twice among the columns."""
        counts = Counter(self.names)
        for name in names:
            if counts[name] > 1:
                raise ValueError(f"columns must have distinct names; {self.name} has {name!r} twice. Rename one.")


class Unreadable(ValueError):
    """Raised, with a message of one line, for a file that Arrow cannot read."""


@contextmanager
def translate_arrow_errors(name: str) -> Iterator[None]:
    """Translate Arrow's errors into one line that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:  # raised for column names; Arrow reports the cells itself
        raise Unreadable(
            f"{name} must be UTF-8; the names of its columns have other bytes. Save it as UTF-8."
        ) from error
    except (pa.ArrowException, OSError, KeyError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        if isinstance(error, OSError) and error.errno is not None:  # such as no file of this name, or no permission
            raise OSError(error.errno, os.strerror(error.errno), name) from error
        reason = " ".join(str(error).split())
        raise Unreadable(f"{name} cannot be read; {reason[:200]}") from error


def kind_of(kind: pa.DataType, sample: pa.Array | None) -> Kind:
    """Return what a column of an Arrow type holds; a sample of a text column shows whether it holds dates."""
    types = pa.types
    if types.is_null(kind):
        return "blank"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return "number"
    if types.is_time(kind) or types.is_duration(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_dictionary(kind):
        return "category"
    if not is_text(kind):
        return "other"
    if sample is None:
        return "text"
    texts = without_blanks(sample).drop_null()
    if len(texts) and _parse_dates(texts) is not None:
        return "date"
    return "text"


def as_floats(
    values: NDArray[Any], where: str, *, first: int = 0, names: Sequence[str] = (), gaps: bool = False
) -> NDArray[np.float32]:
    """Convert features to float32 and check that learners can compute with them.

    Parameters
    ----------
    values
        Features [n] or [n, d].
    where
        What messages call the array.
    first
        Number of its first row, for messages.
    names
        Names of the d columns, for messages.
    gaps
        Whether NaN is allowed, for missing values.
    """
    with np.errstate(over="ignore"):
        floats: NDArray[np.float32] = values.astype(np.float32)
    bad = ~(np.abs(floats) <= LARGEST_FEATURE)
    if gaps:
        bad &= ~np.isnan(values)
    if bad.any():
        position = tuple(np.argwhere(bad)[0].tolist())
        row = first + position[0]
        if len(position) > 1:
            where += f", column {names[position[1]]!r}"
        raise ValueError(
            f"features must be finite numbers of at most {LARGEST_FEATURE:g} in size; {where}, row {row} is "
            f"{values[position]}. Fill or drop such rows, or divide the column."
        )
    return floats


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of its types of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def without_blanks(values: pa.Array) -> pa.Array:
    """Replace texts that mean a missing value, such as "NA" and "?", by null."""
    if not is_text(values.type):
        return values
    is_null = pa.compute.is_in(values, pa.array(GAP_SPELLINGS, values.type))
    return pa.compute.if_else(is_null, None, values)


def _parse_dates(texts: pa.Array) -> pa.Array | None:
    """Return texts as timestamps if all are ISO dates, with a time zone or without; otherwise None."""
    for timestamp in _TIMESTAMPS:
        try:
            return texts.cast(timestamp)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return None


def days(values: pa.Array, where: str, first_row: int) -> pa.Array:
    """Convert dates to days since 1970; raise for the first cell that is not a date."""
    dates = values
    if is_text(values.type):
        dates = _parse_dates(without_blanks(values))
    if dates is not None and pa.types.is_null(dates.type):
        return dates
    if dates is not None and pa.types.is_date(dates.type):
        dates = dates.cast(pa.timestamp("ms"))
    if dates is None or not pa.types.is_timestamp(dates.type):
        row = _first_non_date(values)
        raise ValueError(
            f"dates must all be written in one way, such as 2024-12-31; {where}, row {first_row + row} is "
            f"{values[row].as_py()!r}. Correct the cell, or leave the column out."
        )
    units_per_day = _SECONDS_PER_DAY * _UNITS_PER_SECOND[dates.type.unit]
    timestamps = as_doubles(dates.cast(pa.int64()))
    return pa.compute.divide(timestamps, float(units_per_day))


def as_doubles(values: pa.Array) -> pa.Array:
    """Cast numbers, or texts that hold numbers, to float64; whole numbers above 2**53 are rounded, as in Python.

    Times of day and durations become hours.
    """
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        units_per_hour = 3600 * _UNITS_PER_SECOND[values.type.unit]
        if values.type.bit_width == 32:
            values = values.cast(pa.int32())
        return pa.compute.divide(as_doubles(values.cast(pa.int64())), float(units_per_hour))
    return pa.compute.cast(values, pa.float64(), safe=False)


def _first_non_date(values: pa.Array) -> int:
    """Return the position of the first value that is not a date; 0 if each is one, but written in different ways."""
    for row in range(len(values)):
        if _parse_dates(without_blanks(values[row : row + 1])) is None:
            return row
    return 0


def wrong_cell(source: TableSource, names: list[str]) -> tuple[str, int, Any] | None:
    """Return column, row and value of the first cell in these columns that is not a number; None if all are."""
    for name, first_row, values in source.chunks([], names):
        for row, cell in enumerate(values.to_pylist(), first_row):
            if not is_number(cell):
                return name, row, cell
    return None


def is_blank(text: str) -> bool:
    """Return whether a text means a missing value, as "NA" does."""
    return text in _NULLS


def is_gap(text: str) -> bool:
    """Return whether a text means a missing value among numbers or dates, as "NA", "?" and "-" do."""
    return text in _NULLS or text.casefold() in _GAPS


def is_number(cell: Any) -> bool:
    """Return whether a cell is blank, a number, or a number written as text."""
    if cell is None or (isinstance(cell, str) and is_gap(cell)):
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
