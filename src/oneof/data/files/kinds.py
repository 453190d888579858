"""What a column of a table holds, and dates as numbers: they are often written as text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from oneof.data.roles import Kind

_DAY = 86_400  # seconds
_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MISSING = pa.array(pa.csv.ConvertOptions().null_values)


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
    if not is_text(kind) or sample is None:
        return "text"
    texts = without_blanks(sample).drop_null()
    return "date" if len(texts) and _dates(texts) is not None else "text"


def check_finite(floats: NDArray[np.float32], place: Callable[..., str], missing: Any = False) -> None:
    """Refuse features that float32 does not hold, but for those that are missing; `place` says where an entry is, and its value."""
    bad = ~np.isfinite(floats) & ~np.asarray(missing)
    if bad.any():
        at = place(*np.argwhere(bad)[0].tolist())
        raise ValueError(f"features must be finite numbers within float32; {at}. Fill or drop such rows.")


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def without_blanks(values: pa.Array) -> pa.Array:
    """Texts with what says that a value is missing, such as "NA", made so."""
    if not is_text(values.type):
        return values
    return pa.compute.if_else(pa.compute.is_in(values, _MISSING.cast(values.type)), None, values)


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
