"""Tables as streams of pieces of columns: Parquet, CSV and TSV files, Arrow tables, pandas frames.

A source knows its columns and yields those that are asked for piece by piece, so that only one piece is in memory beside the
result. Parquet comes column by column: with row groups of hundreds of megabytes, batches of rows need as much again.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from oneof.data.files.kinds import check_finite, days, is_text, kind_of, without_blanks
from oneof.data.images import list_folder
from oneof.data.roles import Kind, check_column
from oneof.storage.sheets import as_written

_NULLS = tuple(pa.csv.ConvertOptions().null_values)
_PIECE = 1 << 16  # rows
_HEADER = 1 << 22  # bytes in which the first line of a CSV is looked for
_STRAY = 0.05  # share of cells that may be no number in a column that seems to be meant as numbers
_FEW = 10  # cells that such a column has at least
_LOOKED_AT = 1000  # texts, to see whether a column of texts holds dates
Piece = tuple[str, int, pa.Array]  # column, first row, values
Cells = dict[str, list[Any]]  # by column


@dataclass(frozen=True)
class Source:
    """A table that can be read once or more, some columns at a time."""

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


def open_table(table: Any) -> Source:
    """A source for a path to .parquet, .csv or .tsv, or to a folder of pictures, for an Arrow table, or for a pandas frame; or the source that is given."""
    if isinstance(table, Source):
        return table
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        return replace(_arrow(list_folder(Path(table))), name=str(table))
    if isinstance(table, (str, Path)):
        return _parquet(Path(table)) if Path(table).suffix.lower() in (".parquet", ".pq") else _csv(Path(table))
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return _arrow(pa.table(table))
    if hasattr(table, "columns") and hasattr(table, "dtypes"):
        return _pandas(table)
    raise TypeError(f"a table must be a path, an Arrow table or a data frame; got {type(table).__name__}.")


def read_numbers(source: Source, numbers: list[str], others: list[str]) -> tuple[NDArray[np.float32], Cells]:
    """Columns of numbers and dates as x [n, d], written piece by piece into one array; the other columns as lists.

    A missing number becomes NaN, a date the number of days since 1970.
    """
    x = _allocate(source, len(numbers))
    lists: Cells = {name: [] for name in others}
    column = {name: j for j, name in enumerate(numbers)}
    ends = dict.fromkeys([*numbers, *others], 0)
    for name, row, values in source.pieces(numbers, others):
        ends[name] = end = row + len(values)
        if name in lists:
            lists[name] += _objects(values)
            continue
        if end > len(x):  # the number of rows of a CSV is known only at its end
            x.resize((max(end, 3 * len(x) // 2), len(numbers)), refcheck=False)
        where = f"{source.name}, column {name!r}"
        plain = days(values, where, row) if source.kinds[name] == "date" else without_blanks(values)
        x[row:end, column[name]] = _floats(plain, where, row)
    if len(set(ends.values())) > 1:
        got = f"got {min(ends.values())} to {max(ends.values())}."
        raise ValueError(f"{source.name} must have as many rows in every column; {got}")
    x.resize((max(ends.values(), default=source.rows), len(numbers)), refcheck=False)
    return x, lists


def read_columns_of(table: Any, names: list[str], taken: list[str]) -> Cells:
    """Columns to carry along to a result, which has others of its own."""
    source = open_table(table)
    for name in names:
        check_column(name, source.names, source.name)
        if name in taken:
            raise ValueError(f"--column must not have the name of a column of the result; got {name!r}. Leave it out.")
    return read_numbers(source, [], list(dict.fromkeys(names)))[1] if names else {}


def _objects(values: pa.Array) -> list[Any]:
    """A piece as Python objects; equal texts are one object, or a million cells would be a million strings."""
    if not is_text(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    coded = values.dictionary_encode()
    words = [*coded.dictionary.to_pylist(), None]
    return [words[-1 if j is None else j] for j in coded.indices.to_pylist()]


def _allocate(source: Source, d: int) -> NDArray[np.float32]:
    try:
        return np.empty((source.rows, d), dtype=np.float32)
    except (MemoryError, ValueError) as error:
        got = f"{source.rows} rows of {d} features do not. Choose fewer features."
        raise ValueError(f"{source.name} must fit in memory; {got}") from error


def _floats(column: pa.Array, where: str, first_row: int) -> NDArray[np.float32]:
    values: NDArray[Any] = pa.compute.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        floats: NDArray[np.float32] = values.astype(np.float32)
    check_finite(floats, lambda i: f"{where}, row {first_row + i} is {values[i]:g}", missing=np.isnan(values))
    return floats


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


# ----------------------------------------------------------------------------------------------------------- the sources


def _parquet(path: Path) -> Source:
    with readable(str(path)), pa.parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        count = Counter(schema.names)
        texts = [field.name for field in schema if is_text(field.type) and count[field.name] == 1]
        first = next(file.iter_batches(_LOOKED_AT, columns=texts), None) if texts else None
    samples = {} if first is None else dict(zip(texts, first.columns, strict=True))

    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        # Without a buffer of its own each column chunk, often the whole column of the file, would be read at once.
        with readable(str(path)), pa.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for name in [*numbers, *others]:
                row = 0
                for batch in file.iter_batches(_PIECE, columns=[name], use_threads=False):
                    yield name, row, batch.column(0)
                    row += batch.num_rows

    kinds = {field.name: kind_of(field.type, samples.get(field.name)) for field in schema}
    return Source(str(path), schema.names, kinds, rows, pieces)


def _csv(path: Path) -> Source:
    """Types come from the first block; whole numbers are read as floats, since a later block may have fractions."""
    with _csv_reader(path, {}) as reader:
        schema, names = reader.schema, reader.schema.names
    kinds = {field.name: kind_of(field.type, None) for field in schema}  # Arrow has looked for dates by itself
    truths = {field.name: pa.bool_() for field in schema if pa.types.is_boolean(field.type)}

    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        types = {name: pa.string() if kinds[name] == "date" else truths.get(name, pa.float64()) for name in numbers}
        types |= dict.fromkeys(others, pa.string())
        row = 0
        with _csv_reader(path, types) as reader:
            for batch in reader:
                for name, values in zip(types, batch.columns, strict=True):
                    yield name, row, as_written(values) if types[name] == pa.string() else values
                row += batch.num_rows

    return Source(str(path), names, kinds, 0, pieces)


@contextmanager
def _csv_reader(path: Path, types: dict[str, pa.DataType]) -> Iterator[pa.csv.CSVStreamingReader]:
    check_encoding(path)
    delimiter = "\t" if ".tsv" in path.name.lower()[-7:] else ","
    form = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
    options = pa.csv.ReadOptions(use_threads=False, block_size=_block_size(path))
    try:
        # One thread: only then does a ragged row come with its number.
        with readable(str(path)), pa.csv.open_csv(path, options, form, convert) as reader:
            yield reader
    except Unreadable as error:
        raise ValueError(_csv_message(path, str(error), types)) from error


def _block_size(path: Path) -> int:
    """Bytes that are parsed at a time: many rows of a wide table too, since every block costs time for every column."""
    with readable(str(path)), pa.input_stream(str(path), compression="detect") as stream:
        header = stream.read(_HEADER).find(b"\n")
    row = header if header >= 0 else _HEADER
    return max(1 << 20, 32 * row, min(256 * row, 1 << 27))


def check_encoding(path: Path) -> None:
    """Refuse UTF-16, which Arrow would take for broken cells."""
    with readable(str(path)), path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{path} must be UTF-8; it is UTF-16. Save it as UTF-8.")


def _csv_message(path: Path, message: str, types: dict[str, pa.DataType]) -> str:
    """What Arrow says of a CSV, in our words where we know what to do."""
    # Arrow would call back for a ragged row, but fails inside the call where the row is not UTF-8; so read its words.
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message)
    if ragged is not None:
        line, expected, got, text = ragged.groups()
        return f"rows must have the header's {expected} cells; {path}, row {int(line) - 2} (line {line}) has {got}: {text[:60]!r}."
    if "Empty CSV" in message:
        return f"{path} must have at least one row; it is empty."
    if "conversion error to double" in message or "conversion error to bool" in message:
        # Arrow says neither column name nor row of a cell that is no number: look again, as text, for the first.
        wrong = wrong_cell(_csv(path), [name for name, kind in types.items() if kind != pa.string()])
        if wrong:
            name, row, cell = wrong
            return f"features must be numbers; {path}, column {name!r}, row {row} is {cell!r}. Leave the column out."
    if "invalid UTF8" in message:
        where = re.search(r"Row #(\d+)", message)
        line = f", line {where[1]}" if where else ""
        return f"{path} must be UTF-8; it has other bytes{line}. Save it as UTF-8."
    return message


def wrong_cell(source: Source, names: list[str]) -> tuple[str, int, Any] | None:
    """Column, row and value of the first cell in these columns that is no number."""
    for name, first, values in source.pieces([], names):
        for row, cell in enumerate(values.to_pylist(), first):
            if not is_number(cell):
                return name, row, cell
    return None


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


def _arrow(table: pa.Table) -> Source:
    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        for name in [*numbers, *others]:
            row = 0
            for values in table.column(name).chunks:
                yield name, row, values
                row += len(values)

    columns = zip(table.column_names, table.columns, strict=True)
    kinds = {name: kind_of(one.type, one[:_LOOKED_AT].combine_chunks()) for name, one in columns}
    return Source("the table", table.column_names, kinds, table.num_rows, pieces)


def _pandas(frame: Any) -> Source:
    names = [str(name) for name in frame.columns]
    place = {name: j for j, name in reversed(list(enumerate(names)))}

    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        for name in [*numbers, *others]:
            with readable(f"the frame, column {name!r}"):
                yield name, 0, _as_arrow(frame.iloc[:, place[name]])

    kinds = {name: _pandas_kind(frame.iloc[:, j]) for j, name in enumerate(names)}
    return Source("the frame", names, kinds, len(frame), pieces)


def _as_arrow(column: Any) -> pa.Array:
    values = pa.array(column, from_pandas=True)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _pandas_kind(column: Any) -> Kind:
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column.dtype):
        return "number"
    try:
        values = _as_arrow(column)
    except (pa.ArrowException, TypeError, ValueError):
        return "text"  # objects of several kinds, which may not be read at all
    return kind_of(values.type, values[:_LOOKED_AT])
