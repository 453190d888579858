"""A table as a stream of pieces of columns, what a column holds, and dates as numbers: they are often written as text."""

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

_NULLS = tuple(pa.csv.ConvertOptions().null_values)
_DAY = 86_400  # seconds
_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Piece = tuple[str, int, pa.Array]  # column, first row, values


@dataclass(frozen=True)
class Source:
    """A table that can be read once or more, some columns at a time and piece by piece, so that one piece is in memory."""

    name: str  # the file, or "the table": what messages call it
    names: list[str]  # of its columns, as they stand: a name may be there twice
    kinds: dict[str, Kind]  # by name
    rows: int  # as many as are known beforehand; 0 if none are
    pieces: Callable[[list[str], list[str]], Iterator[Piece]]  # of columns of numbers, and of others

    def check_distinct(self, names: Iterable[str]) -> None:
        """Refuse a name that two columns have."""
        count = Counter(self.names)
        twice = next((name for name in names if count[name] > 1), None)
        if twice is not None:
            raise ValueError(f"columns must have distinct names; {self.name} has {twice!r} twice. Rename one.")


class Unreadable(ValueError):
    """A file that Arrow could not read, in one line."""


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Arrow's errors as one line that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:  # cells are Arrow's to check, names are Python's
        said = f"{name} must be UTF-8; the names of its columns have other bytes. Save it as UTF-8."
        raise Unreadable(said) from error
    except (pa.ArrowException, OSError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # no such file, no permission: the system's own words
        raise Unreadable(f"{name} cannot be read; {' '.join(str(error).split())[:200]}") from error


def kind_of(kind: pa.DataType, sample: pa.Array | None) -> Kind:
    """What a column of an Arrow type holds; texts are looked at, since dates are often written as such."""
    types = pa.types
    if types.is_null(kind):
        return "blank"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
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
    return "date" if len(texts) and _dates(texts) is not None else "text"


def as_floats(
    values: NDArray[Any], where: str, *, first: int = 0, names: Sequence[str] = (), gaps: bool = False
) -> NDArray[np.float32]:
    """Features [n] or [n, d], of the rows from the first on, as float32, which must hold them; NaN may stand for gaps."""
    with np.errstate(over="ignore"):
        floats: NDArray[np.float32] = values.astype(np.float32)
    bad = ~np.isfinite(floats)
    if gaps:
        bad &= ~np.isnan(values)
    if bad.any():
        row, *column = at = tuple(np.argwhere(bad)[0].tolist())
        place = "".join(f", column {names[j]!r}" for j in column)
        got = f"{where}{place}, row {first + row} is {values[at]}. Fill or drop such rows."
        raise ValueError(f"features must be finite numbers within float32; {got}")
    return floats


def is_text(kind: pa.DataType) -> bool:
    """Is this one of Arrow's types of text?"""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def without_blanks(values: pa.Array) -> pa.Array:
    """Texts with what says that a value is missing, such as "NA", made so."""
    if not is_text(values.type):
        return values
    return pa.compute.if_else(pa.compute.is_in(values, pa.array(_NULLS, values.type)), None, values)


def _dates(texts: pa.Array) -> pa.Array | None:
    """Texts as points in time, if all are ISO dates, with a time zone or without one."""
    for unit, zone in (("us", None), ("us", "UTC"), ("ns", None), ("ns", "UTC")):
        try:
            return texts.cast(pa.timestamp(unit, zone))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return None


def days(values: pa.Array, where: str, first_row: int) -> pa.Array:
    """Dates as numbers of days since 1970; a cell that is none is an error."""
    dates = _dates(without_blanks(values)) if is_text(values.type) else values
    if dates is not None and pa.types.is_null(dates.type):
        return dates
    if dates is not None and pa.types.is_date(dates.type):
        dates = dates.cast(pa.timestamp("ms"))
    if dates is None or not pa.types.is_timestamp(dates.type):
        row = next((row for row in range(len(values)) if _dates(without_blanks(values[row : row + 1])) is None), 0)
        got = f"{where}, row {first_row + row} is {values[row].as_py()!r}. Mend the cell, or leave the column out."
        raise ValueError(f"dates must all be written in one way, such as 2024-12-31; {got}")
    return pa.compute.divide(dates.cast(pa.int64()).cast(pa.float64()), float(_DAY * _SECOND[dates.type.unit]))


def wrong_cell(source: Source, names: list[str]) -> tuple[str, int, Any] | None:
    """Column, row and value of the first cell in these columns that is no number."""
    for name, first, values in source.pieces([], names):
        for row, cell in enumerate(values.to_pylist(), first):
            if not is_number(cell):
                return name, row, cell
    return None


def is_blank(text: str) -> bool:
    """Does a text say that a value is missing, as "NA" does?"""
    return text in _NULLS


def is_number(cell: Any) -> bool:
    """Is a cell blank, or does it say a number?"""
    if cell is None or cell in _NULLS:
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
