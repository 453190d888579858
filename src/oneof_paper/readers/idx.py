"""The idx format of MNIST and its successors: a magic number, the dimensions, then the values, big end first."""

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
    dtype, start = np.dtype(_DTYPES[magic[2]]), 4 + 4 * magic[3]
    if len(content) < start:
        raise ValueError(f"{path} must hold {magic[3]} dimensions; it ends inside its header. Download it again.")
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    expected, got = dtype.itemsize * math.prod(shape), len(content) - start
    if got != expected:
        more = "more" if got > expected else "fewer"
        raise ValueError(f"{path} must hold {expected} bytes of values, as its header says; got {more}.")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def open_content(path: Path, packed: bool) -> BufferedIOBase:
    """The file's content as a stream of bytes: unpacked where it is gzipped."""
    return gzip.open(path) if packed else path.open("rb")
