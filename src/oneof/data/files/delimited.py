"""CSV and TSV files, packed or not, read by Arrow; what it says of a bad one in words that tell what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from oneof.data.files.source import Piece, Source, Unreadable, kind_of, readable, wrong_cell
from oneof.storage.regular import check_regular
from oneof.storage.sheets import as_written

_HEADER = 1 << 22  # bytes in which the first line is looked for


def open_delimited(path: Path) -> Source:
    """Types come from the first block; whole numbers are read as floats, since a later block may have fractions."""
    with _reader(path, {}) as reader:
        schema, names = reader.schema, reader.schema.names
    kinds = {field.name: kind_of(field.type, None) for field in schema}  # Arrow has looked for dates by itself
    truths = {field.name: pa.bool_() for field in schema if pa.types.is_boolean(field.type)}

    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        types = {name: pa.string() if kinds[name] == "date" else truths.get(name, pa.float64()) for name in numbers}
        types |= dict.fromkeys(others, pa.string())
        row = 0
        with _reader(path, types) as reader:
            for batch in reader:
                for name, values in zip(types, batch.columns, strict=True):
                    yield name, row, as_written(values) if types[name] == pa.string() else values
                row += batch.num_rows

    return Source(str(path), names, kinds, 0, pieces)


@contextmanager
def _reader(path: Path, types: dict[str, pa.DataType]) -> Iterator[pa.csv.CSVStreamingReader]:
    check_encoding(path)
    form = pa.csv.ParseOptions(delimiter="\t" if ".tsv" in path.name.lower()[-7:] else ",", newlines_in_values=True)
    convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
    options = pa.csv.ReadOptions(use_threads=False, block_size=block_size(path))
    try:
        # One thread: only then does a ragged row come with its number.
        with readable(str(path)), pa.csv.open_csv(path, options, form, convert) as reader:
            yield reader
    except Unreadable as error:
        raise ValueError(_in_our_words(path, str(error), types)) from error


def block_size(path: Path) -> int:
    """Bytes that are parsed at a time: many rows of a wide table too, since every block costs time for every column."""
    with readable(str(path)), pa.input_stream(str(path), compression="detect") as stream:
        header = stream.read(_HEADER).find(b"\n")
    row = header if header >= 0 else _HEADER
    return max(1 << 20, 32 * row, min(256 * row, 1 << 27))


def check_encoding(path: Path) -> None:
    """Refuse UTF-16, which Arrow would take for broken cells."""
    check_regular(path)
    with readable(str(path)), path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError(f"{path} must be UTF-8; it is UTF-16. Save it as UTF-8.")


def _in_our_words(path: Path, message: str, types: dict[str, pa.DataType]) -> str:
    # Arrow would call back for a ragged row, but fails inside the call where the row is not UTF-8; so read its words.
    if ragged := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message):
        line, expected, got, text = ragged.groups()
        return f"rows must have the header's {expected} cells; {path}, row {int(line) - 2} (line {line}) has {got}: {text[:60]!r}."
    if "Empty CSV" in message:
        return f"{path} must have at least one row; it is empty."
    # Arrow says neither column name nor row of a cell that is no number: look again, as text, for the first.
    numbers = [name for name, kind in types.items() if kind != pa.string()]
    if re.search("conversion error to (double|bool)", message) and (wrong := wrong_cell(open_delimited(path), numbers)):
        name, row, cell = wrong
        return f"features must be numbers; {path}, column {name!r}, row {row} is {cell!r}. Leave the column out."
    if "invalid UTF8" in message:
        where = re.search(r"Row #(\d+)", message)
        return f"{path} must be UTF-8; it has other bytes{f', line {where[1]}' if where else ''}. Save it as UTF-8."
    return message
