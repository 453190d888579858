"""Limit how much a compressed file may hold: a small one may unpack to more than any memory."""

import zipfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oneof.data.roles import ColumnRoles

GIGABYTES = ColumnRoles.unpacked
"""That a compressed file may hold unless it is trusted."""
SAY_MORE = "If you trust it, give --unpacked a larger number."
UNPACK_FIRST = "If you trust it, unpack it first, or save it as CSV."
_CHUNK = 1 << 22  # bytes unpacked at a time
_DAMAGE = (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, pa.ArrowException)


def check_unpacked(path: Path, gigabytes: float | None = None, remedy: str = SAY_MORE) -> None:
    """Refuse a .gz, .npz or Parquet file that holds more than this (None: GIGABYTES); damaged files are left to their readers."""
    if gigabytes is None:
        gigabytes = GIGABYTES
    limit = bytes_of(gigabytes)
    suffix = path.suffix.lower()
    size = 0
    with suppress(*_DAMAGE):
        if suffix == ".npz":
            with zipfile.ZipFile(path) as file:
                size = sum(part.file_size for part in file.infolist())
        elif suffix in (".parquet", ".pq"):
            size = parquet_bytes(pq.read_metadata(path))
        elif suffix == ".gz":
            size = _gzip_bytes(path, limit)
    if size > limit:
        raise too_large(path, gigabytes, remedy)


def bytes_of(gigabytes: float) -> int:
    return int(gigabytes * 2**30)


def too_large(path: Path, gigabytes: float, remedy: str = SAY_MORE) -> ValueError:
    return ValueError(f"a compressed file must not hold more than {gigabytes:g} GB; {path} does. {remedy}")


def parquet_bytes(metadata: pq.FileMetaData) -> int:
    """Return about how many bytes a Parquet file holds, by its metadata: a long run of one value takes next to none in it."""
    cells: int = metadata.num_rows * metadata.num_columns
    values = 0  # lists have more than one in a cell
    stored = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        stored += group.total_byte_size
        values += sum(group.column(i).num_values for i in range(group.num_columns))
    return max(stored, 4 * cells, 4 * values)


def most_values(metadata: pq.FileMetaData) -> int:
    """Return how many values the longest column of a Parquet file has, by its metadata: each element of a list is one."""
    totals = [0] * metadata.num_columns
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for i in range(group.num_columns):
            totals[i] += group.column(i).num_values
    return max(totals, default=0)


def _gzip_bytes(path: Path, limit: int) -> int:
    """Count the bytes that a gzip file holds, as far as the limit."""
    size = 0
    with pa.input_stream(str(path), compression="gzip") as stream:
        while size <= limit and (chunk := stream.read(_CHUNK)):
            size += len(chunk)
    return size
