"""Decide how the numbers and dates in a column of text are written, and read them as numbers.

The decision is made on training rows and stored, so that new rows are read in the same way.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute

from oneof.data.files.source import Chunk, TableSource, as_doubles, days, is_gap, is_text
from oneof.data.roles import Kind, Notation
from oneof.data.written import DATE_ORDERS, WrittenNumber, days_of_date, hours_of_time, split_number
from oneof.storage.printable import plural

_MIN_VALUES = 10  # different numbers or dates; fewer are left as the values of a category
_MAX_STRAY_SHARE = 0.05  # of the cells, that are neither numbers nor known to mean a gap
_MAX_STRAYS = 20  # different ones
_MAX_UNITS = 12  # different ones
_FORMS = (".", ",", "time", *DATE_ORDERS)  # where several fit equally many cells, the first is taken
# Units of one quantity, in terms of its first: where a column mixes them, they are converted to the most frequent one.
_QUANTITIES: tuple[Mapping[str, float], ...] = (
    {"kg": 1.0, "g": 1e-3, "mg": 1e-6, "t": 1e3, "lb": 0.45359237, "oz": 0.028349523},
    {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "km": 1e3, "in": 0.0254, "inch": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344},
    {"l": 1.0, "L": 1.0, "ml": 1e-3, "mL": 1e-3, "cl": 1e-2, "dl": 0.1},
    {"s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "min": 60.0, "minute": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0,
     "day": 86400.0, "week": 604800.0, "month": 2629746.0, "year": 31556952.0, "yr": 31556952.0},
    {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    {"Hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9},
    {"W": 1.0, "kW": 1e3, "MW": 1e6},
    {"st": 1.0, "nd": 1.0, "rd": 1.0, "th": 1.0},
)  # fmt: skip
_MULTIPLIERS = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "mio": 1e6,
    "mio.": 1e6,
    "B": 1e9,
    "bn": 1e9,
    "mrd": 1e9,
    "mrd.": 1e9,
}


@dataclass
class NotationProfile:
    """Counts over the cells of a column of text: how its numbers or dates may be written."""

    cells: int = 0
    gaps: int = 0  # cells that mean a missing value, such as "?"
    forms: Counter[str] = field(default_factory=Counter)  # cells that each of _FORMS fits
    units: Counter[str] = field(default_factory=Counter)  # of the numbers
    values: set[str] = field(default_factory=set)  # numbers, dates or times, the first few different ones
    strays: dict[str, int] = field(default_factory=dict)  # the first few other texts, with their cells
    has_slashes: bool = False
    has_fractions: bool = False  # among the numbers
    n_distinct: int = 0  # numbers, dates or times; those of several chunks are counted in each

    def add(self, text: str, count: int) -> None:
        """Count the cells that hold a text."""
        text = text.strip()
        self.cells += count
        if is_gap(text):
            self.gaps += count
            return
        self.has_slashes |= "/" in text
        written = split_number(text)
        decimals = _decimals_of(written)
        if written is not None and decimals:
            if len(self.units) <= _MAX_UNITS or written.unit in self.units:
                self.units[written.unit] += count
            self.has_fractions |= "." in text or "," in text
        forms = decimals or _forms_of_time(text)
        if not forms:
            if len(self.strays) <= _MAX_STRAYS:
                self.strays[text] = count
            return
        for form in forms:
            self.forms[form] += count
        self.n_distinct += 1
        if len(self.values) < _MIN_VALUES:
            self.values.add(text)

    @property
    def n_known(self) -> int:
        """Return the number of cells that are not known to mean a gap."""
        return self.cells - self.gaps

    def mixed_units(self) -> list[str]:
        """Return the most frequent units of a column of numbers whose units are not of one quantity, otherwise none."""
        n_numbers = max(self.forms["."], self.forms[","])
        if n_numbers < (1 - _MAX_STRAY_SHARE) * self.n_known or _choose_units(self.units) is not None:
            return []
        return [unit for unit, _ in self.units.most_common() if unit][:3]

    def are_codes(self) -> bool:
        """Return whether numbers with a letter or two are codes such as 4711X: whole, different in every cell, of no known unit."""
        units = [unit for unit in self.units if unit]
        if len(units) != 1 or len(units[0]) > 2 or not units[0].isalpha() or self.has_fractions:
            return False
        is_known = any(units[0] in quantity for quantity in _QUANTITIES)
        return not is_known and self.n_distinct >= self.n_known


def _decimals_of(written: WrittenNumber | None) -> list[str]:
    """Return the decimal separators that a number may have; none if it is no number."""
    if written is None:
        return []
    return [decimal for decimal in (".", ",") if written.value(decimal) is not None]


def _forms_of_time(text: str) -> list[str]:
    """Return ["time"] for a time of day, the possible orders of the parts of a date, or nothing for other texts."""
    if hours_of_time(text) is not None:
        return ["time"]
    return [order for order in DATE_ORDERS if days_of_date(text, order) is not None]


class DecidedNotation(NamedTuple):
    """Notation of a column, and the reason."""

    notation: Notation
    reason: str


def decide_notation(column: str, profile: NotationProfile) -> DecidedNotation | None:
    """Decide how the numbers or dates of a column are written; None if it holds neither, or only a few different ones."""
    if len(profile.values) < _MIN_VALUES or len(profile.strays) > _MAX_STRAYS or profile.are_codes():
        return None
    form = max(_FORMS, key=profile.forms.__getitem__)
    is_ambiguous = profile.forms["mdy"] == profile.forms["dmy"]
    if form == "mdy" and is_ambiguous and not profile.has_slashes:
        form = "dmy"
    n_strays = profile.n_known - profile.forms[form]
    # Cells that fit another form, such as 12,5 among 12.5, are not known to be gaps.
    if n_strays > _MAX_STRAY_SHARE * profile.n_known or n_strays != sum(profile.strays.values()):
        return None
    notation = Notation(column, form, gaps=tuple(profile.strays))
    if form in DATE_ORDERS:
        reason = f"dates ({DATE_ORDERS[form]}), as days since 1970"
        if form == "mdy" and is_ambiguous:
            reason += "; month and day may be the other way round"
    elif form == "time":
        reason = "times, as hours"
    else:
        units = _choose_units(profile.units)
        if units is None:
            return None
        notation = replace(notation, units=units)
        reason = _describe_number(form, profile.units, units)
    return DecidedNotation(notation, "; ".join([reason, *_describe_gaps(profile, n_strays)]))


def _describe_number(form: str, counts: Counter[str], units: Mapping[str, float]) -> str:
    """Return the reason for reading a column as numbers: their units, whose cells are `counts`, and the decimal separator."""
    named_units = sorted(unit for unit in counts if unit)
    reason = "numbers written as text"
    if len(named_units) == 1:
        reason = f"numbers with {named_units[0]!r}"
    elif named_units:
        reason = f"numbers with {', '.join(map(repr, named_units))}, converted"
        main = counts.most_common(1)[0][0]
        if units.get(main) == 1 and main:
            reason += f" to {main!r}"
    if form == ",":
        reason += ", with decimal comma"
    return reason


def _describe_gaps(profile: NotationProfile, n_strays: int) -> list[str]:
    """Return what cells are read as gaps, in parts of a sentence."""
    parts = []
    if profile.gaps:
        parts.append(f"{profile.gaps:,} {plural('cell', profile.gaps)} written as a gap")
    if n_strays:
        examples = ", ".join(repr(text[:30]) for text in list(profile.strays)[:3])
        parts.append(f"{n_strays:,} {plural('cell', n_strays)} read as a gap: {examples}")
    return parts


def _choose_units(counts: Counter[str]) -> dict[str, float] | None:
    """Return the factor of each unit in terms of the most frequent one; None if they are not of one quantity."""
    if len(counts) > _MAX_UNITS:
        return None
    units = [unit for unit, _ in counts.most_common() if unit]
    if not units:
        return {"": 1.0}
    for quantity in _QUANTITIES:
        if all(unit in quantity for unit in units):
            factors = {unit: factor / quantity[units[0]] for unit, factor in quantity.items()}
            return {"": 1.0, **factors}  # a number without unit is taken to have the most frequent one
    multiplied = _multiplied_units(units)
    if multiplied is not None:
        return multiplied
    if len(units) == 1:
        return {"": 1.0, units[0]: 1.0}
    return None


def _multiplied_units(units: Sequence[str]) -> dict[str, float] | None:
    """Return the factors of amounts such as `3K` or `$1.2 M`, with one currency or none; None if the units are others."""
    for currency in ("", *(unit.partition(" ")[0] for unit in units)):
        factors = {"": 1.0}
        for multiplier, factor in _MULTIPLIERS.items():
            factors[f"{currency} {multiplier}".strip()] = factor
        if all(unit in factors for unit in units) and len(units) > 1:
            return factors
    return None


def apply_notations(source: TableSource, notations: Sequence[Notation]) -> TableSource:
    """Return a source whose columns are read by their notation, as numbers; without notations the source itself."""
    by_column = {notation.column: notation for notation in notations if notation.column in source.kinds}
    if not by_column:
        return source
    kinds: dict[str, Kind] = {**source.kinds}
    for name in by_column:
        kinds[name] = "number"

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        plain = [name for name in numbers if name not in by_column]
        written = [name for name in numbers if name in by_column]
        if plain or others:
            yield from source.chunks(plain, others)
        if not written:
            return
        for name, first_row, values in source.chunks([], written):
            where = f"{source.name}, column {name!r}"
            yield name, first_row, _read_values(by_column[name], values, where, source.first_row + first_row)

    return replace(source, kinds=kinds, chunks=chunks)


def _read_values(notation: Notation, values: pa.Array, where: str, first_row: int) -> pa.Array:
    """Return the numbers that the cells of a chunk stand for, null for a gap."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not is_text(values.type):  # the column of a table of new rows may hold numbers or dates
        if notation.form in DATE_ORDERS:
            return days(values, where, first_row)
        return as_doubles(values)
    coded = values.dictionary_encode()
    parsed: list[float | None] = []
    for code, text in enumerate(coded.dictionary.to_pylist()):
        value = parse_cell(notation, text)
        if value is None:
            row = first_row + pa.compute.index(coded.indices, pa.scalar(code, coded.indices.type)).as_py()
            raise ValueError(
                f"cells must be written as in training, {describe(notation)}; {where}, row {row} is {text[:60]!r}. "
                "Correct the cell."
            )
        parsed.append(value)
    numbers = pa.array(parsed, pa.float64(), from_pandas=True)
    return numbers.take(coded.indices)


def parse_cell(notation: Notation, text: str) -> float | None:
    """Return the number that a text stands for, NaN for a gap; None if it is not written as the column is."""
    text = text.strip()
    if not text or is_gap(text) or text in notation.gaps:
        return math.nan
    if notation.form in DATE_ORDERS:
        return days_of_date(text, notation.form)
    if notation.form == "time":
        return hours_of_time(text)
    written = split_number(text)
    if written is None or written.unit not in notation.units:
        return None
    value = written.value(notation.form)
    if value is None:
        return None
    return value * notation.units[written.unit]


def describe(notation: Notation) -> str:
    """Describe how a column is written, in a few words."""
    if notation.form in DATE_ORDERS:
        return f"dates as {DATE_ORDERS[notation.form]}"
    if notation.form == "time":
        return "times such as 20:09"
    description = "numbers"
    units = [unit for unit in notation.units if unit]
    if units:
        description += f" with {' or '.join(map(repr, units[:6]))}"
    if notation.form == ",":
        description += ", with decimal comma"
    return description
