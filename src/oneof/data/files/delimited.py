"""Read CSV and TSV files, compressed or not, by Arrow, and translate its errors into messages that say what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from oneof.data.files.source import Piece, Source, Unreadable, kind_of, readable, wrong_cell
from oneof.storage.regular import check_regular
from oneof.storage.sheets import as_written

_MAX_HEADER = 1 << 22  # bytes in which the end of the first line is searched


def open_delimited(path: Path) -> Source:
    """Open a CSV or TSV file.

    Types come from the first block; whole numbers are read as floats, since a later block may have fractions.
    """
    with _open_reader(path, {}) as reader:
        schema = reader.schema
    kinds = {field.name: kind_of(field.type, None) for field in schema}  # Arrow has recognised dates itself
    booleans = {field.name for field in schema if pa.types.is_boolean(field.type)}

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        types: dict[str, pa.DataType] = {}
        for name in numbers:
            if kinds[name] == "date":
                types[name] = pa.string()
            elif name in booleans:
                types[name] = pa.bool_()
            else:
                types[name] = pa.float64()
        for name in others:
            types[name] = pa.string()
        first_row = 0
        with _open_reader(path, types) as reader:
            for batch in reader:
                for name, values in zip(types, batch.columns, strict=True):
                    if types[name] == pa.string():
                        values = as_written(values)
                    yield name, first_row, values
                first_row += batch.num_rows

    return Source(str(path), schema.names, kinds, 0, chunks)


@contextmanager
def _open_reader(path: Path, types: dict[str, pa.DataType]) -> Iterator[pa.csv.CSVStreamingReader]:
    """Open Arrow's reader of the columns in `types`, or of all columns if it is empty."""
    check_encoding(path)
    delimiter = "\t" if ".tsv" in path.name.lower()[-7:] else ","
    parse_options = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    convert_options = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
    # One thread: only then does Arrow report the number of a ragged row.
    read_options = pa.csv.ReadOptions(use_threads=False, block_size=block_size(path))
    try:
        with readable(str(path)), pa.csv.open_csv(path, read_options, parse_options, convert_options) as reader:
            yield reader
    except Unreadable as error:
        raise ValueError(_translate_error(path, str(error), types)) from error


def block_size(path: Path) -> int:
    """Return the bytes to parse at a time: many rows of a wide table too, since each block costs time per column."""
    with readable(str(path)), pa.input_stream(str(path), compression="detect") as stream:
        header_bytes = stream.read(_MAX_HEADER).find(b"\n")
    row_bytes = header_bytes if header_bytes >= 0 else _MAX_HEADER
    return max(1 << 20, 32 * row_bytes, min(256 * row_bytes, 1 << 27))


def check_encoding(path: Path) -> None:
    """Raise for a file in UTF-16, which Arrow would report as broken cells."""
    check_regular(path)
    with readable(str(path)), path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{path} must be UTF-8; it is UTF-16. Save it as UTF-8.")


def _translate_error(path: Path, message: str, types: dict[str, pa.DataType]) -> str:
    """Return a message of Arrow's as one that names the place and the remedy."""
    # Arrow can call back for a ragged row, but fails inside the call if the row is not UTF-8; so parse its message.
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message)
    if ragged:
        line, expected, n_cells, text = ragged.groups()
        row = int(line) - 2
        return f"rows must have the header's {expected} cells; {path}, row {row} (line {line}) has {n_cells}: {text[:60]!r}."
    if "Empty CSV" in message:
        return f"{path} must have at least one row; it is empty."
    if re.search("conversion error to (double|bool)", message):
        # Arrow names neither column nor row of a cell that is not a number: read again, as text, to find the first.
        number_columns = [name for name, kind in types.items() if kind != pa.string()]
        non_number = wrong_cell(open_delimited(path), number_columns)
        if non_number is not None:
            name, row, cell = non_number
            return f"features must be numbers; {path}, column {name!r}, row {row} is {cell!r}. Leave the column out."
    if "invalid UTF8" in message:
        place = ""
        line_number = re.search(r"Row #(\d+)", message)
        if line_number:
            place = f", line {line_number[1]}"
        return f"{path} must be UTF-8; it has other bytes{place}. Save it as UTF-8."
    return message
