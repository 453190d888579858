"""Open tables of any form: Parquet, CSV and TSV files, folders of images, Arrow tables, and data frames of pandas, polars and others.

Parquet is read column by column: with row groups of hundreds of megabytes, batches of rows would need as much memory again.
"""

import numbers
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from oneof.data.files.delimited import open_delimited
from oneof.data.files.source import Piece, Source, as_floats, days, is_text, kind_of, readable, without_blanks
from oneof.data.images import list_folder
from oneof.data.roles import Kind, check_column
from oneof.storage.regular import check_regular

_CHUNK_ROWS = 1 << 16
_DATE_SAMPLE = 1000  # texts that show whether a column of text holds dates
Cells = dict[str, list[Any]]  # column -> its values


def open_table(table: Any) -> Source:
    """Open a table for reading.

    Parameters
    ----------
    table
        Path of a .parquet, .csv or .tsv file or of a folder of images, an Arrow table, or a data frame of pandas, polars or any library
        that supports Arrow's protocol. A Source is returned unchanged.

    Returns
    -------
    Source
        Its columns, to be read chunk by chunk.
    """
    if isinstance(table, Source):
        return table
    if isinstance(table, (str, Path)):
        return _open_path(Path(table), str(table))
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return _open_arrow(pa.table(table), "the table")
    if hasattr(table, "iloc") and hasattr(table, "dtypes"):
        return _open_pandas(table)
    arrow_table = _frame_to_arrow(table)
    if arrow_table is not None:
        return _open_arrow(arrow_table, "the frame")
    raise TypeError(f"a table must be a path, an Arrow table or a data frame; got {type(table).__name__}.")


def _open_path(path: Path, name: str) -> Source:
    """Open a file, or a folder of images; `name` is what messages call it."""
    if path.is_dir():
        return _open_arrow(list_folder(path), name)
    check_regular(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _open_parquet(path)
    return open_delimited(path)


def _frame_to_arrow(frame: Any) -> pa.Table | None:
    """Return a data frame of another library as an Arrow table; None if it supports none of the protocols."""
    if hasattr(frame, "__arrow_c_stream__"):
        table = pa.table(frame)
    elif hasattr(frame, "to_arrow"):
        table = frame.to_arrow()
    elif hasattr(frame, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        table = from_dataframe(frame)
    else:
        return None
    fields = [field.with_type(_with_offsets(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _with_offsets(kind: pa.DataType) -> pa.DataType:
    """Return the text type that Arrow's functions accept in place of polars' string views; other types unchanged."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _with_offsets(kind.value_type), kind.ordered)
    return kind


def _open_parquet(path: Path) -> Source:
    """Open a Parquet file."""
    with readable(str(path)), pa.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        n_rows = file.metadata.num_rows
        samples = _sample_texts(file)

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        # Without a small buffer each column chunk, often the whole column of the file, would be read at once.
        with readable(str(path)), pa.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for name in [*numbers, *others]:
                first_row = 0
                for batch in file.iter_batches(_CHUNK_ROWS, columns=[name], use_threads=False):
                    yield name, first_row, batch.column(0)
                    first_row += batch.num_rows

    kinds = {field.name: kind_of(field.type, samples.get(field.name)) for field in schema}
    return Source(str(path), schema.names, kinds, n_rows, chunks)


def _sample_texts(file: pa.parquet.ParquetFile) -> dict[str, pa.Array]:
    """Return the first values of each column of text; not of columns with the same name, which Arrow cannot select."""
    counts = Counter(file.schema_arrow.names)
    names = []
    for field in file.schema_arrow:
        if is_text(field.type) and counts[field.name] == 1:
            names.append(field.name)
    if not names:
        return {}
    batch = next(file.iter_batches(_DATE_SAMPLE, columns=names), None)
    if batch is None:
        return {}
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _open_arrow(table: pa.Table, source_name: str) -> Source:
    """Open an Arrow table."""

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        for name in [*numbers, *others]:
            first_row = 0
            for values in table.column(name).chunks:
                yield name, first_row, values
                first_row += len(values)

    kinds: dict[str, Kind] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kinds[name] = kind_of(column.type, column[:_DATE_SAMPLE].combine_chunks())
    return Source(source_name, table.column_names, kinds, table.num_rows, chunks)


def _open_pandas(frame: Any) -> Source:
    """Open a pandas data frame."""
    names = [str(name) for name in frame.columns]
    kinds: dict[str, Kind] = {}
    positions: dict[str, int] = {}
    for j, name in enumerate(names):
        kinds[name] = _pandas_kind(frame.iloc[:, j])
        positions.setdefault(name, j)

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        for name in [*numbers, *others]:
            with readable(f"the frame, column {name!r}"):
                yield name, 0, _as_arrow(frame.iloc[:, positions[name]])

    return Source("the frame", names, kinds, len(frame), chunks)


def _as_arrow(column: Any) -> pa.Array:
    """Convert a pandas column to Arrow; a mix of texts and numbers becomes text, as it would be in a file."""
    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        cells = column[~column.isna()]
        if not all(isinstance(cell, (str, numbers.Number)) for cell in cells):
            raise
        values = pa.array(cells.map(str).reindex(column.index), pa.string(), from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values


def _pandas_kind(column: Any) -> Kind:
    """Return what a pandas column holds."""
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column.dtype):
        return "number"
    try:
        values = _as_arrow(column)
    except (pa.ArrowException, TypeError, ValueError):
        return "other"
    return kind_of(values.type, values[:_DATE_SAMPLE])


def read_numbers(source: Source, numbers: list[str], others: list[str]) -> tuple[NDArray[np.float32], Cells]:
    """Read columns chunk by chunk into one array of numbers, and lists.

    Parameters
    ----------
    source
        The opened table.
    numbers
        d columns of numbers or dates.
    others
        Columns of anything.

    Returns
    -------
    x : NDArray
        Numbers [n, d], NaN where missing; dates as days since 1970.
    cells : dict
        Column -> its n values.
    """
    try:
        x = np.empty((source.rows, len(numbers)), dtype=np.float32)
    except (MemoryError, ValueError) as error:
        raise ValueError(
            f"{source.name} must fit in memory; {source.rows} rows of {len(numbers)} features do not. "
            "Choose fewer features."
        ) from error
    cells: Cells = {name: [] for name in others}
    positions = {name: j for j, name in enumerate(numbers)}
    n_rows = dict.fromkeys([*numbers, *others], 0)
    for name, first_row, values in source.pieces(numbers, others):
        end = first_row + len(values)
        n_rows[name] = end
        if name in cells:
            cells[name] += _to_objects(values)
            continue
        if end > len(x):  # the number of rows of a CSV is known only at its end
            x.resize((max(end, 3 * len(x) // 2), len(numbers)), refcheck=False)
        where = f"{source.name}, column {name!r}"
        is_date = source.kinds[name] == "date"
        convertible = days(values, where, first_row) if is_date else without_blanks(values)
        doubles = pa.compute.cast(convertible, pa.float64()).to_numpy(zero_copy_only=False)
        x[first_row:end, positions[name]] = as_floats(doubles, where, first=first_row, gaps=True)
    if len(set(n_rows.values())) > 1:
        raise ValueError(
            f"{source.name} must have as many rows in every column; "
            f"got {min(n_rows.values())} to {max(n_rows.values())}."
        )
    x.resize((max(n_rows.values(), default=source.rows), len(numbers)), refcheck=False)
    return x, cells


def _to_objects(values: pa.Array) -> list[Any]:
    """Return values as Python objects; equal texts are one object, or a million cells would be a million strings."""
    if not is_text(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    encoded = values.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [None if code is None else texts[code] for code in encoded.indices.to_pylist()]


def read_columns_of(table: Any, names: list[str], taken: list[str]) -> Cells:
    """Read columns that are copied to a result; none may have the name of one of its columns, `taken`."""
    source = open_table(table)
    for name in names:
        check_column(name, source.names, source.name)
        if name in taken:
            raise ValueError(f"--column must not have the name of a column of the result; got {name!r}. Leave it out.")
    if not names:
        return {}
    distinct = list(dict.fromkeys(names))
    _, cells = read_numbers(source, [], distinct)
    return cells
