"""A table as a stream of pieces of columns, whatever its form, and which of its cells are no numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from oneof.data.files.kinds import is_text
from oneof.data.roles import Kind

_NULLS = tuple(pa.csv.ConvertOptions().null_values)
_STRAY = 0.05  # share of cells that may be no number in a column that seems to be meant as numbers
_FEW = 10  # cells that such a column has at least
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


def wrong_cell(source: Source, names: list[str]) -> tuple[str, int, Any] | None:
    """Column, row and value of the first cell in these columns that is no number."""
    cells = (
        (name, row, cell)
        for name, first, values in source.pieces([], names)
        for row, cell in enumerate(values.to_pylist(), first)
    )
    return next((found for found in cells if not is_number(found[2])), None)


def stray_cell(source: Source, name: str) -> str | None:
    """The first cell that is no number in a column of texts that are numbers but for a few; None where it is no such column."""
    cells = wrong = 0
    first = None
    for _, row, values in source.pieces([], [name]):
        if not is_text(values.type):
            return None
        bad = [cell for cell in values.unique().to_pylist() if not is_number(cell)]
        cells += len(values) - values.null_count
        if bad:
            at = pa.compute.is_in(values, pa.array(bad, values.type)).to_numpy(zero_copy_only=False)
            wrong += int(at.sum())
            first = first or f"row {row + int(at.argmax())} is {values[int(at.argmax())].as_py()[:60]!r}"
        if wrong > max(1, _STRAY * cells):
            return None
    return first if cells >= _FEW else None


def is_number(cell: Any) -> bool:
    """Is a cell blank, or does it say a number?"""
    if cell is None or cell in _NULLS:
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
