"""Read CSV and TSV files, compressed or not, by Arrow, and say what to do about a bad one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from oneof.data.files.source import (
    GAP_SPELLINGS,
    Chunk,
    TableSource,
    Unreadable,
    kind_of,
    translate_arrow_errors,
    wrong_cell,
)
from oneof.data.roles import Kind
from oneof.storage.regular import check_regular
from oneof.storage.sheets import as_written

_MAX_BLOCK = 1 << 30  # bytes
_MAX_HEADER = 1 << 22  # bytes in which the first line is searched


class _RowTooLong(ValueError):
    """Raised for a row that is longer than a block."""


def open_delimited(path: Path) -> TableSource:
    """Open a file as a source; types come from its first block.

    Whole numbers are read as floats, since a later block may have fractions.
    """
    schema = _read_schema(path)
    kinds: dict[str, Kind] = {}
    for field in schema:  # Arrow has looked for dates by itself
        kinds[field.name] = kind_of(field.type, None)
        if pa.types.is_time(field.type):  # Arrow cannot read 20:09 as a number
            kinds[field.name] = "text"
    is_boolean = {field.name: pa.types.is_boolean(field.type) for field in schema}

    def type_of_number(name: str) -> pa.DataType:
        if kinds[name] == "date":
            return pa.string()
        if is_boolean[name]:
            return pa.bool_()
        return pa.float64()

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        types = {name: type_of_number(name) for name in numbers}
        for name in others:
            types[name] = pa.string()
        for row, batch in _batches(path, types):
            for name, values in zip(types, batch.columns, strict=True):
                if types[name] == pa.string():
                    values = as_written(values)
                yield name, row, values

    return TableSource(str(path), _names(schema), kinds, 0, chunks)


def _names(schema: pa.Schema) -> list[str]:
    """Return the names of the columns, with at most one of those that separators at the end of every line make."""
    names: list[str] = []
    has_unnamed = False
    for field in schema:
        if field.name == "" and pa.types.is_null(field.type):
            if has_unnamed:
                continue
            has_unnamed = True
        names.append(field.name)
    return names


def _read_schema(path: Path) -> pa.Schema:
    """Return names and types of the columns."""
    for size in _block_sizes(path):
        with suppress(_RowTooLong), _reader(path, {}, size) as reader:
            _ = reader.schema.names  # inside the block: fails for names that are not UTF-8
            return reader.schema
    raise _longer_than_any_block(path)


def _batches(path: Path, types: dict[str, pa.DataType]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of the first row, and the rows; a file with a row that is longer than a block is read in larger ones."""
    n_yielded = 0
    for size in _block_sizes(path):
        with suppress(_RowTooLong), _reader(path, types, size) as reader:
            start = 0
            for batch in reader:
                end = start + batch.num_rows
                if end > n_yielded:
                    rest = batch.slice(n_yielded - start)
                    yield n_yielded, rest
                    n_yielded = end
                start = end
            return
    raise _longer_than_any_block(path)


def _block_sizes(path: Path) -> Iterator[int]:
    """Yield how many bytes to parse at a time, and larger numbers to try."""
    size = block_size(path)
    while size <= _MAX_BLOCK:
        yield size
        size *= 16


def _longer_than_any_block(path: Path) -> ValueError:
    return ValueError(f"rows must be shorter than {_MAX_BLOCK >> 24} MB; {path} has a longer one. Cut its cells.")


@contextmanager
def _reader(path: Path, types: dict[str, pa.DataType], block_size: int) -> Iterator[pa.csv.CSVStreamingReader]:
    """Open a file for the columns of these types, all if there are none, with errors in our words."""
    check_encoding(path)
    form = pa.csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True)
    convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
    if types:  # once the type of every column is known, these texts are gaps in columns of numbers
        convert.null_values = GAP_SPELLINGS
    options = pa.csv.ReadOptions(use_threads=False, block_size=block_size)
    try:
        # One thread: only then does a ragged row come with its number.
        with translate_arrow_errors(str(path)), pa.csv.open_csv(path, options, form, convert) as reader:
            yield reader
    except Unreadable as error:
        if "straddling object" in str(error):
            raise _RowTooLong from error
        raise ValueError(_explain(path, str(error), types)) from error


def _delimiter(path: Path) -> str:
    """Return what separates the cells: a tab in .tsv, else a comma, or the semicolon or tab of a header that has no comma."""
    if ".tsv" in path.name.lower()[-7:]:  # also before .gz
        return "\t"
    with translate_arrow_errors(str(path)), pa.input_stream(str(path), compression="detect") as stream:
        header = re.sub(rb'"[^"]*"', b"", stream.read(_MAX_HEADER).partition(b"\n")[0])
    if b"," not in header:
        for delimiter in (";", "\t"):
            if delimiter.encode() in header:
                return delimiter
    return ","


def block_size(path: Path) -> int:
    """Return how many bytes to parse at a time: many rows of a wide table too, since every block costs time for every column."""
    with translate_arrow_errors(str(path)), pa.input_stream(str(path), compression="detect") as stream:
        header_end = stream.read(_MAX_HEADER).find(b"\n")
    row_bytes: int = header_end
    if header_end < 0:
        row_bytes = _MAX_HEADER
    return max(1 << 20, 32 * row_bytes, min(256 * row_bytes, 1 << 27))


def check_encoding(path: Path) -> None:
    """Refuse UTF-16, and gzip under another name, which Arrow would take for broken cells."""
    check_regular(path)
    with translate_arrow_errors(str(path)), path.open("rb") as file:
        start = file.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path} must be UTF-8; it is UTF-16. Save it as UTF-8.")
    if start == b"\x1f\x8b" and path.suffix.lower() != ".gz":
        raise ValueError(f"{path} must be text; it is compressed by gzip. Name it {path.name}.gz.")


def _explain(path: Path, message: str, types: dict[str, pa.DataType]) -> str:
    """Return Arrow's message with the place of the error and what to do; as it is where that is not known."""
    # Arrow would call back for a ragged row, but fails inside the call where the row is not UTF-8; so parse its message.
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message)
    if ragged is not None:
        line, expected, got, text = ragged.groups()
        return f"rows must have the header's {expected} cells; {path}, row {int(line) - 2} (line {line}) has {got}: {text[:60]!r}."
    if "Empty CSV" in message:
        return f"{path} must have at least one row; it is empty."
    if re.search("conversion error to (double|bool)", message):
        # Arrow names neither column nor row of a cell that is no number: read the columns again, as text, to find it.
        numbers = [name for name, kind in types.items() if pa.types.is_floating(kind)]
        wrong = wrong_cell(open_delimited(path), numbers)
        if wrong is not None:
            name, row, cell = wrong
            return f"features must be numbers; {path}, column {name!r}, row {row} is {cell!r}. Leave the column out."
    if "invalid UTF8" in message:
        row_number = re.search(r"Row #(\d+)", message)
        where = ""
        if row_number is not None:
            where = f", line {row_number[1]}"
        return f"{path} must be UTF-8; it has other bytes{where}. Save it as UTF-8."
    return message
