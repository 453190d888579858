"""Features and images that stay on disk: rows are read batch by batch, so memory does not grow with the file.

The file is a plain .npy, in which every row has a known offset. A shuffled epoch reads single rows in the same order as in memory,
so that results are the same. Parquet, which cannot be read row by row, is converted to such a file once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.files.source import as_floats, kind_of
from oneof.data.scaling import SCALINGS, Affine
from oneof.storage.files import atomic_write

BLOCK = 2**22
"""Numbers that are read at a time when the whole file is scanned."""


class OnDiskFeatures:
    """Rows [n, ...] of a .npy file, float32 features or uint8 images, with the methods of a tensor that `fit` uses.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    ...     OnDiskFeatures(f"{folder}/x.npy").index_select(0, torch.tensor([2, 0]))
    tensor([[4., 5.],
            [0., 1.]])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            array = np.load(self.path, mmap_mode="r")  # reads the header alone
        except (ValueError, EOFError) as error:
            raise ValueError(f"{self.path} must be a whole .npy file; {error}") from error
        is_supported = (
            isinstance(array, np.memmap) and array.flags.c_contiguous and array.dtype in (np.float32, np.uint8)
        )
        if not is_supported or array.ndim < 2:
            kind = "an archive"
            if isinstance(array, np.ndarray):
                kind = f"{array.dtype} {list(array.shape)}"
            raise ValueError(f"{self.path} must hold float32 or uint8 [n, ...], row after row; got {kind}.")
        self.shape = torch.Size(array.shape)
        self._numpy_dtype = array.dtype
        self._data_offset = array.offset
        self._row_bytes = array[0].nbytes
        self._file = os.open(self.path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def __reduce__(self) -> tuple[type[OnDiskFeatures], tuple[Path]]:
        return OnDiskFeatures, (self.path,)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the tensors that are read: uint8 for images, otherwise torch's default."""
        if self._numpy_dtype == np.uint8:
            return torch.uint8
        return torch.get_default_dtype()

    def __getitem__(self, row: int | Tensor) -> Tensor:
        if isinstance(row, Tensor):
            return self.index_select(0, row)
        return self._read(row, 1)[0]

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return the rows [b, ...] at an index [b], on its device, as `Tensor.index_select` does."""
        rows = np.empty((len(index), *self.shape[1:]), dtype=self._numpy_dtype)
        for row, buffer in zip(index.tolist(), rows, strict=True):
            self._read_into(buffer, row)
        return torch.from_numpy(rows).to(index.device, self.dtype)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield all rows, `size` at a time, as `Tensor.split` does."""
        for start in range(0, len(self), size):
            yield self._read(start, min(size, len(self) - start))

    def blocks(self) -> Iterator[Tensor]:
        """Yield all rows, BLOCK numbers at a time."""
        return self.split(max(1, BLOCK // self.shape[1:].numel()))

    def _read(self, start: int, count: int) -> Tensor:
        """Return `count` rows from `start` on."""
        rows = np.empty((count, *self.shape[1:]), dtype=self._numpy_dtype)
        self._read_into(rows, start)
        return torch.from_numpy(rows).to(self.dtype)

    def _read_into(self, buffer: NDArray[Any], row: int) -> None:
        """Fill a buffer with as many rows as it holds, from `row` on."""
        remaining = memoryview(buffer.data).cast("B")
        offset = self._data_offset + row * self._row_bytes
        while remaining:
            n_bytes = os.preadv(self._file, [remaining], offset)
            if not n_bytes:
                raise OSError(f"{self.path} was cut short while it was read; row {row} is gone.")
            remaining = remaining[n_bytes:]
            offset += n_bytes


Features = Tensor | OnDiskFeatures
"""Features or images [n, ...], in memory or on disk."""


def fitted_scaling(kind: str | Callable[[Tensor], Affine], x: OnDiskFeatures, rows: Tensor) -> Affine:
    """Fit SCALINGS[kind] on rows [m] of a file, in double precision and block by block."""
    if not isinstance(kind, str):
        raise ValueError(f"scaling of features on the disk must be one of {', '.join(SCALINGS)}; got a function.")
    scaling = SCALINGS[kind]
    if kind == "none":
        return scaling(x[0][None].double())
    counts = torch.bincount(rows, minlength=len(x)).double()  # a row may be drawn several times
    if kind == "minmax":
        extremes = []
        for block, weights in _weighted_blocks(x, counts):
            if (weights > 0).any():
                sampled = block[weights > 0].double()
                extremes.append(torch.stack([sampled.amin(0), sampled.amax(0)]))
        return scaling(torch.cat(extremes))
    # The other scalings depend only on the mean and the deviation of each feature. Two rows with the same mean and
    # deviation therefore give the same scaling as all rows.
    sums = []
    for block, weights in _weighted_blocks(x, counts):
        sums.append(torch.tensordot(weights, block.double(), 1))
    mean = torch.stack(sums).sum(0) / len(rows)
    squares = []
    for block, weights in _weighted_blocks(x, counts):
        squares.append(torch.tensordot(weights, (block.double() - mean).square(), 1))
    deviation = (torch.stack(squares).sum(0) / len(rows)).sqrt()
    return scaling(torch.stack([mean - deviation, mean + deviation]))


def _weighted_blocks(x: OnDiskFeatures, weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all rows block by block, each block with the weights of its rows."""
    start = 0
    for block in x.blocks():
        yield block, weights[start : start + len(block)]
        start += len(block)


def from_parquet(path: str | Path, to: str | Path, columns: Sequence[str] | None = None) -> OnDiskFeatures:
    """Convert a Parquet file to a .npy file of rows, a few rows at a time.

    Parameters
    ----------
    path
        The Parquet file.
    to
        The .npy file to write.
    columns
        Names of columns of numbers; None for all of them.

    Returns
    -------
    OnDiskFeatures
        Features [n, d] of the new file.
    """
    with pa.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        names = _number_columns(file.schema_arrow, path, columns)
        shape = (file.metadata.num_rows, len(names))
        batch_size = max(1, BLOCK // len(names) // 4)
        first_row = 0
        with atomic_write(Path(to)) as out:
            np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for batch in file.iter_batches(batch_size=batch_size, columns=names):
                rows = np.empty((len(batch), len(names)), dtype=np.float32)
                for j, column in enumerate(batch.select(names).columns):  # one by one, so that each is rounded once
                    values = column.to_numpy(zero_copy_only=False)
                    rows[:, j] = as_floats(values, f"{path}, column {names[j]!r}", first=first_row)
                out.write(rows.data)
                first_row += len(batch)
    return OnDiskFeatures(to)


def _number_columns(schema: pa.Schema, path: str | Path, requested: Sequence[str] | None) -> list[str]:
    """Return the requested columns, or all columns of numbers; raise if one is missing or there are none."""
    if requested is None:
        names = [field.name for field in schema if kind_of(field.type, None) == "number"]
    else:
        names = list(requested)
    for name in names:
        if name not in schema.names:
            raise ValueError(f"{path} must have columns of numbers; {name!r} is not there.")
    if not names:
        raise ValueError(f"{path} must have columns of numbers; it has none.")
    return names
