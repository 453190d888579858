"""Open tables of any form as sources of columns: Parquet, CSV and TSV files, folders of pictures, Arrow tables, data frames.

Parquet comes column by column: with row groups of hundreds of megabytes, batches of rows need as much again.
"""

import numbers
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from oneof.data.files.delimited import open_delimited
from oneof.data.files.embeddings import SUFFIXES, open_embeddings
from oneof.data.files.hugging_face import dataset_table, is_dataset
from oneof.data.files.source import (
    Chunk,
    TableSource,
    Unreadable,
    as_doubles,
    as_floats,
    days,
    is_text,
    kind_of,
    translate_arrow_errors,
    without_blanks,
)
from oneof.data.images import list_folder
from oneof.data.roles import Kind, check_column
from oneof.storage.regular import check_regular

_ROWS_PER_PIECE = 1 << 16
_MAX_ROUNDING = 1e-4  # of the range of a column: what single precision may lose
_MAX_SIZE_BY_RANGE = 1000  # of numbers that single precision holds well enough without a closer look
_TEXT_SAMPLE = 1000  # texts that decide whether a column holds dates
Cells = dict[str, list[Any]]  # by column


def open_table(table: Any) -> TableSource:
    """Open a path to .parquet, .csv, .tsv, .npy or .npz or to a folder of pictures, an Arrow table, a frame of pandas, polars or any library with Arrow's protocol, or a dataset of Hugging Face.

    A source is returned as it is.
    """
    if isinstance(table, TableSource):
        return table
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        return replace(_arrow(list_folder(Path(table))), name=str(table))
    if isinstance(table, (str, Path)):
        path = Path(table)
        check_regular(path)
        if path.suffix.lower() in SUFFIXES:
            return open_embeddings(path)
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path)
        return open_delimited(path)
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return _arrow(pa.table(table))
    if hasattr(table, "iloc") and hasattr(table, "dtypes"):
        return _pandas(table)
    if is_dataset(table):
        return replace(_arrow(dataset_table(table)), name="the dataset")
    frame = _interchanged(table)
    if frame is not None:
        return replace(_arrow(frame), name="the frame")
    raise TypeError(f"a table must be a path, an Arrow table or a data frame; got {type(table).__name__}.")


def _interchanged(frame: Any) -> pa.Table | None:
    """Return a frame of another library as an Arrow table; None if it has none of the protocols."""
    with translate_arrow_errors("the frame"):
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        if hasattr(frame, "to_arrow"):
            return frame.to_arrow()
        if hasattr(frame, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(frame)
    return None


def _with_offsets(kind: pa.DataType) -> pa.DataType:
    """Return the type of text that Arrow's functions take in place of polars' views; other types as they are."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _with_offsets(kind.value_type), kind.ordered)
    return kind


def _parquet(path: Path) -> TableSource:
    """Return a Parquet file as a source."""
    with translate_arrow_errors(str(path)), pa.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        n_rows = file.metadata.num_rows
        names = schema.names  # inside the block: fails for names that are not UTF-8
        samples = _text_samples(file, schema)

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        # Without a buffer of its own each column chunk, often the whole column of the file, would be read at once.
        with (
            translate_arrow_errors(str(path)),
            pa.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file,
        ):
            for name in [*numbers, *others]:
                row = 0
                for batch in file.iter_batches(_ROWS_PER_PIECE, columns=[name], use_threads=False):
                    yield name, row, batch.column(0)
                    row += batch.num_rows

    kinds = {field.name: kind_of(field.type, samples.get(field.name)) for field in schema}
    return TableSource(str(path), names, kinds, n_rows, chunks)


def _text_samples(file: pa.parquet.ParquetFile, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the first texts of every column of text whose name is unique."""
    count = Counter(schema.names)
    texts = []
    for field in schema:
        if is_text(field.type) and count[field.name] == 1:
            texts.append(field.name)
    if not texts:
        return {}
    first_batch = next(file.iter_batches(_TEXT_SAMPLE, columns=texts), None)
    if first_batch is None:
        return {}
    return dict(zip(first_batch.schema.names, first_batch.columns, strict=True))


def _arrow(table: pa.Table) -> TableSource:
    """Return an Arrow table as a source."""

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        for name in [*numbers, *others]:
            row = 0
            for values in table.column(name).chunks:
                yield name, row, values
                row += len(values)

    fields = [field.with_type(_with_offsets(field.type)) for field in table.schema]
    if fields != list(table.schema):
        table = table.cast(pa.schema(fields))
    kinds = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kinds[name] = kind_of(column.type, column[:_TEXT_SAMPLE].combine_chunks())
    return TableSource("the table", table.column_names, kinds, table.num_rows, chunks)


def _pandas(frame: Any) -> TableSource:
    """Return a frame of pandas as a source."""
    names = [str(name) for name in frame.columns]
    first_position: dict[str, int] = {}
    for j, name in enumerate(names):
        first_position.setdefault(name, j)

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        for name in [*numbers, *others]:
            with translate_arrow_errors(f"the frame, column {name!r}"):
                yield name, 0, _as_arrow(frame.iloc[:, first_position[name]])

    kinds = {name: _pandas_kind(frame.iloc[:, j]) for j, name in enumerate(names)}
    return TableSource("the frame", names, kinds, len(frame), chunks)


def _as_arrow(column: Any) -> pa.Array:
    """Return a column of pandas as Arrow has it; objects of several kinds become text, as they would be in a file."""
    if column.dtype.kind == "c":  # Arrow has no complex numbers
        raise Unreadable(f"columns must hold real numbers; got {column.dtype}.")
    if hasattr(column, "sparse"):
        column = column.sparse.to_dense()
    elif hasattr(column, "dt") and hasattr(column.dt, "to_timestamp"):  # periods
        column = column.dt.to_timestamp()
    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        cells = column[~column.isna()]
        if all(isinstance(cell, (list, tuple, set, frozenset)) for cell in cells):
            return pa.array(cells.map(list).reindex(column.index), from_pandas=True)
        if not all(isinstance(cell, (str, numbers.Number)) for cell in cells):
            raise
        values = pa.array(cells.map(str).reindex(column.index), pa.string(), from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values


def _pandas_kind(column: Any) -> Kind:
    """Return what a column of pandas holds."""
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
        return "number"
    try:
        values = _as_arrow(column)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return "other"
    return kind_of(values.type, values[:_TEXT_SAMPLE])


def read_numbers(
    source: TableSource, numbers: list[str], others: list[str], origins: Mapping[str, float] | None = None
) -> tuple[NDArray[np.float32], Cells]:
    """Read columns of numbers and dates as x [n, d], chunk by chunk into one array, and the other columns as lists.

    A missing number becomes NaN, a date the number of days since 1970. What `origins` has for a column is subtracted.
    """
    if origins is None:
        origins = {}
    try:
        x = np.empty((source.rows, len(numbers)), dtype=np.float32)
    except (MemoryError, ValueError) as error:
        raise ValueError(
            f"{source.name} must fit in memory; {source.rows} rows of {len(numbers)} features do not. Choose fewer features."
        ) from error
    lists: Cells = {name: [] for name in others}
    column = {name: j for j, name in enumerate(numbers)}
    ends = dict.fromkeys([*numbers, *others], 0)
    for name, row, values in source.chunks(numbers, others):
        end = row + len(values)
        ends[name] = end
        if name in lists:
            lists[name] += _objects(values)
            continue
        if end > len(x):  # the number of rows of a CSV is known only at its end
            x.resize((max(end, 3 * len(x) // 2), len(numbers)), refcheck=False)
        where = f"{source.name}, column {name!r}"
        row_in_file = source.first_row + row
        if source.kinds[name] == "date":
            cleaned = days(values, where, row_in_file)
        else:
            cleaned = without_blanks(values)
        floats = as_doubles(cleaned).to_numpy(zero_copy_only=False)
        if name in origins:
            floats = floats - origins[name]
        x[row:end, column[name]] = as_floats(floats, where, first=row_in_file, gaps=True)
    if len(set(ends.values())) > 1:
        raise ValueError(
            f"{source.name} must have as many rows in every column; got {min(ends.values())} to {max(ends.values())}."
        )
    x.resize((max(ends.values(), default=source.rows), len(numbers)), refcheck=False)
    return x, lists


def subtract_origins(source: TableSource, numbers: list[str], x: NDArray[np.float32]) -> dict[str, float]:
    """Subtract from columns of x [n, d], whose differences single precision has swallowed, their smallest value, and return it.

    Such columns are times in milliseconds, or moments of a day as days since 1970.
    """
    origins = {}
    for j, name in enumerate(numbers):
        values = x[:, j]
        if not len(values) or np.isnan(values).all():
            continue
        low = float(np.nanmin(values))
        high = float(np.nanmax(values))
        size = max(abs(low), abs(high))
        if size <= _MAX_SIZE_BY_RANGE * (high - low) or size < 1:
            continue
        exact = _read_exactly(source, name)
        spread = float(np.nanmax(exact) - np.nanmin(exact))
        if spread > 0 and np.nanmax(np.abs(exact - exact.astype(np.float32))) > _MAX_ROUNDING * spread:
            origins[name] = float(np.nanmin(exact))
            x[:, j] = exact - origins[name]
    return origins


def _read_exactly(source: TableSource, name: str) -> NDArray[np.float64]:
    """Return a column of numbers or dates [n] in double precision."""
    parts = []
    for _, first_row, values in source.chunks([name], []):
        if source.kinds[name] == "date":
            values = days(values, f"{source.name}, column {name!r}", source.first_row + first_row)
        parts.append(as_doubles(without_blanks(values)).to_numpy(zero_copy_only=False))
    return np.concatenate(parts)


def _objects(values: pa.Array) -> list[Any]:
    """Return a chunk as Python objects; equal texts are one object, or a million cells would be a million strings."""
    if not is_text(values.type):
        return values.to_pylist()  # type: ignore[no-any-return]
    coded = values.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    cells: list[Any] = []
    for code in coded.indices.to_pylist():
        if code is None:
            cells.append(None)
        else:
            cells.append(texts[code])
    return cells


def check_not_taken(name: str, taken: Collection[str]) -> None:
    """Raise if a column to copy has the name of a column of the result."""
    if name in taken:
        raise ValueError(f"--column must not have the name of a column of the result; got {name!r}. Leave it out.")


def read_columns_of(table: Any, names: list[str], taken: list[str]) -> Cells:
    """Read columns to carry along to a result, which has columns of its own (`taken`)."""
    source = open_table(table)
    for name in names:
        check_column(name, source.names, source.name)
        check_not_taken(name, taken)
    if not names:
        return {}
    _, cells = read_numbers(source, [], list(dict.fromkeys(names)))
    return cells
