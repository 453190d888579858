"""What a compressed file unpacks to: a small one may hold more than a machine has."""

import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_CHUNK = 1 << 22


def check_unpacked(path: Path, gigabytes: float) -> None:
    """Refuse a .gz, .npz or Parquet file that holds more than this; damaged files are left to their readers."""
    limit = int(gigabytes * 2**30)
    try:
        size = _size(path, limit)
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, pa.ArrowException):
        return
    if size > limit:
        remedy = "If you trust it, say --unpacked with a larger number."
        raise ValueError(f"a compressed file must not hold more than {gigabytes:g} GB; {path} does. {remedy}")


def _size(path: Path, limit: int) -> int:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with zipfile.ZipFile(path) as file:
            return sum(part.file_size for part in file.infolist())
    if suffix in (".parquet", ".pq"):
        facts = pq.read_metadata(path)
        groups = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        return int(max(4 * facts.num_rows * facts.num_columns, groups))
    size = 0
    if suffix == ".gz":
        with pa.input_stream(str(path), compression="gzip") as stream:
            while size <= limit and (chunk := stream.read(_CHUNK)):
                size += len(chunk)
    return size
