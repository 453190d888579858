"""Read a file in batches of rows, for work that needs a few columns of all rows but never all rows at once."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from oneof.data.files.columns import open_table
from oneof.data.files.source import Chunk, TableSource, translate_arrow_errors
from oneof.data.files.vectors import list_columns
from oneof.data.roles import check_column

_BUFFER_BYTES = 1 << 16  # of each column; without a buffer of its own, a whole column chunk would be read at once
PARQUET = (".parquet", ".pq")  # endings


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that names and patterns such as 'new/*.parquet' stand for, each once."""
    paths: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.exists() or not glob.has_magic(pattern):
            paths.append(path)
            continue
        matches = sorted(map(Path, glob.glob(pattern, recursive=True)))
        if not matches:
            raise ValueError(f"FILE must name files that exist; nothing matches {pattern!r}.")
        paths += matches
    return list(dict.fromkeys(paths))


def read_batches(table: Any, numbers: Sequence[str], others: Sequence[str], n_rows: int) -> Iterator[TableSource]:
    """Yield batches of rows, each as a source that holds the named columns and knows its place in the file.

    A table without rows is one batch without rows.

    Parameters
    ----------
    table
        Path of a CSV, TSV or Parquet file or of a folder of pictures, an Arrow table, or a data frame.
    numbers
        Columns of numbers and dates.
    others
        Columns of any kind, which are read as they are; those of a CSV as text.
    n_rows
        Rows of a batch; the last may have fewer, and those of a CSV may have a few more.
    """
    source = open_table(table)
    numbers, lists = list_columns(source, numbers)
    others = [*others, *lists]
    present = set(source.names)
    for name in (*numbers, *others):
        if name not in present:
            check_column(name, source.names, source.name)
    source.check_distinct([*numbers, *others])
    if isinstance(table, (str, Path)) and Path(table).suffix.lower() in PARQUET:
        tables = _parquet_batches(Path(table), [*numbers, *others], n_rows)
    else:
        tables = _batches_of_chunks(source, list(numbers), list(others), n_rows)
    first_row = 0
    for batch in tables:
        yield _as_source(batch, source, first_row)
        first_row += batch.num_rows


def count_rows(path: Path) -> int | None:
    """Return the number of rows of a file if it can be told without reading it: of Parquet, and of a folder of pictures."""
    if path.suffix.lower() not in PARQUET and not path.is_dir():
        return None
    return open_table(path).rows


def _parquet_batches(path: Path, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
    distinct = list(dict.fromkeys(names))
    with (
        translate_arrow_errors(str(path)),
        pa.parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file,
    ):
        if not file.metadata.num_rows:
            yield file.schema_arrow.empty_table().select(distinct)
        for batch in file.iter_batches(n_rows, columns=distinct, use_threads=False):
            yield pa.Table.from_batches([batch])


def _batches_of_chunks(source: TableSource, numbers: list[str], others: list[str], n_rows: int) -> Iterator[pa.Table]:
    """Collect the chunks of a source into tables of at least so many rows.

    The chunks of a CSV come block by block; those of a table in memory column by column, and are then collected as a whole.
    """
    others = [name for name in dict.fromkeys(others) if name not in numbers]
    chunks: dict[str, list[pa.Array]] = {name: [] for name in (*numbers, *others)}
    if not chunks:
        return
    is_empty = True
    for name, _, values in source.chunks(numbers, others):
        is_empty = False
        chunks[name].append(values)
        lengths = [sum(map(len, column)) for column in chunks.values()]
        if min(lengths) == max(lengths) and lengths[0] >= n_rows:
            yield from _slices(chunks, n_rows)
            chunks = {name: [] for name in chunks}
    if all(chunks.values()):
        yield from _slices(chunks, n_rows)
    elif is_empty:
        fields = [(name, pa.float64()) for name in numbers]
        fields += [(name, pa.string()) for name in others]
        yield pa.schema(fields).empty_table()


def _slices(chunks: dict[str, list[pa.Array]], n_rows: int) -> Iterator[pa.Table]:
    """Yield columns as one table, or as several if they have twice as many rows as requested."""
    table = pa.table({name: pa.chunked_array(column) for name, column in chunks.items()})
    if table.num_rows < 2 * n_rows:
        yield table
        return
    for start in range(0, table.num_rows, n_rows):
        yield table.slice(start, n_rows)


def _as_source(batch: pa.Table, of: TableSource, first_row: int) -> TableSource:
    """Return a batch as a source with the name and the kinds of columns of the file that it is part of."""

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        for name in (*numbers, *others):
            row = 0
            for values in batch.column(name).chunks:
                yield name, row, values
                row += len(values)

    names = batch.column_names
    kinds = {name: of.kinds[name] for name in names}
    return replace(of, names=names, kinds=kinds, rows=batch.num_rows, chunks=chunks, first_row=first_row)
