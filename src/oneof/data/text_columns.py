"""Decide by its values what a column of text is: a category, free text, an identifier, or numbers written as text.

The limits follow what users of scikit-learn and skrub expect: up to forty values are a category without further thought, a value
must recur to be one at all, and beyond a thousand values a column names things rather than kinds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute

from oneof.data.files.source import TableSource, is_blank
from oneof.data.images import ENDINGS
from oneof.storage.printable import plural

MAX_VALUES = 1000  # of a category: beyond it a column names rows rather than kinds
MAX_PLAIN_VALUES = 40  # of a category whose values all have a feature of their own; see `oneof.data.encode`
MIN_CELLS = 20  # in fewer cells, values may be all different by chance
_MIN_ROWS_PER_VALUE = 2  # on average, in a category
_MIN_WORDS = 3  # in the average cell of free text; names of people and things have fewer
_MIN_NUMBERS = 10  # different values of a column that is meant as numbers, though some cells are none
_MAX_STRAY_SHARE = 0.05  # of its cells that are none
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*|(?=\.))(\.\d*)?([eE][+-]?\d+)?")  # 007 and 01234 are codes


@dataclass
class TextProfile:
    """Counts over the cells of a column of text, collected chunk by chunk."""

    cells: int = 0  # that hold a value
    gaps: int = 0
    values: set[str] = field(default_factory=set)  # different ones, collected until there are more than MAX_VALUES
    words: int = 0  # in all cells
    non_numbers: int = 0  # cells; codes such as 007 are none
    first_non_number: str | None = None  # "row 7 is '12 years'"

    @property
    def is_distinct(self) -> bool:
        """Return whether there are so many different values that they name rows rather than kinds."""
        limit = min(MAX_VALUES, self.cells / _MIN_ROWS_PER_VALUE)
        return self.cells >= MIN_CELLS and len(self.values) > limit

    @property
    def names_pictures(self) -> bool:
        """Return whether all values that were collected are names of picture files."""
        return bool(self.values) and all(value.lower().endswith(ENDINGS) for value in self.values)

    def add(self, first_row: int, texts: pa.Array) -> None:
        """Count the cells of a chunk; the empty text is a gap, as None is."""
        counted = pa.compute.value_counts(texts)
        for value, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            if value is None or value == "":
                self.gaps += count
                continue
            self.cells += count
            if len(self.values) <= MAX_VALUES:
                self.values.add(value)
            self.words += count * len(value.split())
            if is_blank(value) or _PLAIN_NUMBER.fullmatch(value):
                continue
            self.non_numbers += count
            if self.first_non_number is None:
                row = first_row + pa.compute.index(texts, value).as_py()
                self.first_non_number = f"row {row} is {value[:60]!r}"


@dataclass(frozen=True)
class TextUse:
    """Use of a column of text, and the reason."""

    use: str  # "category", "number", or why it is left out: a key of `not_features.REASONS`, or a sentence
    reason: str


def decide_texts(source: TableSource, names: Sequence[str]) -> dict[str, TextUse]:
    """Read columns of text once and decide what each is."""
    profiles = {name: TextProfile() for name in names}
    if profiles:
        for name, first_row, texts in source.chunks([], list(names)):
            profiles[name].add(first_row, texts)
    return {name: decide_text(name, profile) for name, profile in profiles.items()}


def decide_text(name: str, profile: TextProfile) -> TextUse:
    """Decide what one column of text is by the counts of its cells."""
    count = f"{len(profile.values):,}"
    if len(profile.values) > MAX_VALUES:
        count = f"more than {MAX_VALUES:,}"
    if not profile.cells:
        return TextUse("blank", "no value")
    if not profile.non_numbers:
        return TextUse("number", "numbers written as text")
    if _is_meant_as_numbers(profile):
        remedy = "nearly all of its cells are numbers. Write a number there, or nothing."
        sentence = f"column {name!r} is left out, since {profile.first_non_number}; {remedy}"
        return TextUse(sentence, f"{profile.first_non_number}, though nearly all of its cells are numbers")
    if profile.names_pictures:
        return TextUse("pictures", f"names of pictures, {count} different names in {profile.cells:,} cells")
    if not profile.is_distinct:
        return TextUse("category", category_reason("text", len(profile.values), bool(profile.gaps)))
    if profile.words >= _MIN_WORDS * profile.cells:
        return TextUse("text", f"free text, {count} different texts in {profile.cells:,} cells")
    return TextUse("identifier", f"an identifier, {count} different texts in {profile.cells:,} cells")


def category_reason(kind: str, values: int, gaps: bool) -> str:
    """Say how many values a category has, and what becomes of gaps and rare values."""
    parts = [f"{kind} with {values:,} {plural('value', values)}"]
    if gaps:
        parts.append("gaps are a value of their own")
    if values > MAX_PLAIN_VALUES:
        parts.append("rare ones share a feature")
    return "; ".join(parts)


def _is_meant_as_numbers(profile: TextProfile) -> bool:
    few_strays = profile.non_numbers <= max(1, _MAX_STRAY_SHARE * profile.cells)
    return few_strays and len(profile.values) >= _MIN_NUMBERS
