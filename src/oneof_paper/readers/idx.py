"""Read the idx format of MNIST and its successors: a magic number, the dimensions, then the values, big-endian."""

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read one idx file, gzipped or not, as an array of the shape that it declares."""
    path = Path(path)
    try:
        with open_content(path, path.suffix == ".gz") as file:
            content = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} must be a whole gzip file; {error}. Download it again.") from error
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] == 0:
        form = "two zero bytes, a type code, a count of dimensions"
        raise ValueError(f"{path} must begin with an idx magic number ({form}); got {magic.hex(' ') or 'nothing'}.")
    dtype = np.dtype(_DTYPES[magic[2]])
    n_dimensions = magic[3]
    header_size = 4 + 4 * n_dimensions
    if len(content) < header_size:
        raise ValueError(f"{path} must hold {n_dimensions} dimensions; it ends inside its header. Download it again.")
    shape = np.frombuffer(content[4:header_size], ">u4").tolist()
    expected_size = dtype.itemsize * math.prod(shape)
    size = len(content) - header_size
    if size != expected_size:
        comparison = "more" if size > expected_size else "fewer"
        raise ValueError(f"{path} must hold {expected_size} bytes of values, as its header says; got {comparison}.")
    values = np.frombuffer(content, dtype, offset=header_size)
    return values.reshape(shape).astype(dtype.newbyteorder("="))


def open_content(path: Path, packed: bool) -> BufferedIOBase:
    """Open the content of a file as a stream of bytes; `packed` if it is gzipped."""
    if packed:
        return gzip.open(path)
    return path.open("rb")
