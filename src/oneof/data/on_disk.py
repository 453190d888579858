"""Features and images that stay on the disk: rows are read as batches ask for them, so memory does not grow with the file.

The file is plain .npy, which holds every row at a known place. A shuffled epoch reads single rows in the order drawn, the same as
in memory: the shuffling is exact, and so are the numbers. Parquet, which cannot be read by row, is turned into such a file once.
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
from oneof.storage.files import written_beside

BLOCK = 2**22
"""Numbers that are read together when the whole file is gone through."""


class RowsOnDisk:
    """Rows [n, ...] of a .npy file, features as float32 or images as uint8; takes what `fit` asks of a tensor of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    ...     RowsOnDisk(f"{folder}/x.npy").index_select(0, torch.tensor([2, 0]))
    tensor([[4., 5.],
            [0., 1.]])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            array = np.load(self.path, mmap_mode="r")  # reads the header alone
        except (ValueError, EOFError) as error:
            raise ValueError(f"{self.path} must be a whole .npy file; {error}") from error
        plain = isinstance(array, np.memmap) and array.flags.c_contiguous and array.dtype in (np.float32, np.uint8)
        if not plain or array.ndim < 2:
            kind = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
            raise ValueError(f"{self.path} must hold float32 or uint8 [n, ...], row after row; got {kind}.")
        self.shape, self._kind = torch.Size(array.shape), array.dtype
        self._start, self._bytes = array.offset, array[0].nbytes
        self._file = os.open(self.path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def __reduce__(self) -> tuple[type[RowsOnDisk], tuple[Path]]:
        return RowsOnDisk, (self.path,)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self._kind == np.uint8 else torch.get_default_dtype()

    def __getitem__(self, row: int | Tensor) -> Tensor:
        return self.index_select(0, row) if isinstance(row, Tensor) else self._read(row, 1)[0]

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Rows [b, ...] by their numbers [b], as torch's, on the device of these."""
        rows = np.empty((len(index), *self.shape[1:]), dtype=self._kind)
        for row, place in zip(index.tolist(), rows, strict=True):
            self._fill(place, row)
        return torch.from_numpy(rows).to(index.device, self.dtype)

    def split(self, size: int) -> Iterator[Tensor]:
        """All rows, so many at a time, as torch's."""
        return (self._read(start, min(size, len(self) - start)) for start in range(0, len(self), size))

    def blocks(self) -> Iterator[Tensor]:
        """All rows, some megabytes at a time."""
        return self.split(max(1, BLOCK // self.shape[1:].numel()))

    def _read(self, start: int, count: int) -> Tensor:
        rows = np.empty((count, *self.shape[1:]), dtype=self._kind)
        self._fill(rows, start)
        return torch.from_numpy(rows).to(self.dtype)

    def _fill(self, place: NDArray[Any], row: int) -> None:
        """Read as many rows as the place has room for, from this one on."""
        left, at = memoryview(place.data).cast("B"), self._start + row * self._bytes
        while left:
            got = os.preadv(self._file, [left], at)
            if not got:
                raise OSError(f"{self.path} was cut short while it was read; row {row} is gone.")
            left, at = left[got:], at + got


Features = Tensor | RowsOnDisk
"""Features or images [n, ...], in memory or on the disk."""


def fitted_scaling(kind: str | Callable[[Tensor], Affine], x: RowsOnDisk, rows: Tensor) -> Affine:
    """What SCALINGS[kind] is on these rows [m], in double precision, from the file's blocks."""
    # All but minmax depend on each feature's mean and deviation alone, so two rows that have these stand for the whole.
    if not isinstance(kind, str):
        raise ValueError(f"scaling of features on the disk must be one of {', '.join(SCALINGS)}; got a function.")
    if kind == "none":
        return SCALINGS[kind](x[0][None].double())
    times = torch.bincount(rows, minlength=len(x)).double()
    if kind == "minmax":
        some = [block[weight > 0].double() for block, weight in _weighted(x, times) if (weight > 0).any()]
        return SCALINGS[kind](torch.cat([torch.stack([block.amin(0), block.amax(0)]) for block in some]))
    sums = [torch.tensordot(weight, block.double(), 1) for block, weight in _weighted(x, times)]
    mean = torch.stack(sums).sum(0) / len(rows)
    squares = [torch.tensordot(weight, (block.double() - mean).square(), 1) for block, weight in _weighted(x, times)]
    deviation = (torch.stack(squares).sum(0) / len(rows)).sqrt()
    return SCALINGS[kind](torch.stack([mean - deviation, mean + deviation]))


def _weighted(x: RowsOnDisk, times: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    start = 0
    for block in x.blocks():
        yield block, times[start : start + len(block)]
        start += len(block)


def from_parquet(path: str | Path, to: str | Path, columns: Sequence[str] | None = None) -> RowsOnDisk:
    """Turn columns of numbers of a Parquet file, all or those named, into a .npy file of rows, some rows at a time."""
    with pa.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        numbers = [field.name for field in file.schema_arrow if kind_of(field.type, None) == "number"]
        names = numbers if columns is None else list(columns)
        missing = [name for name in names if name not in file.schema_arrow.names]
        if missing or not names:
            got = f"{missing[0]!r} is not there" if missing else "it has none"
            raise ValueError(f"{path} must have columns of numbers; {got}.")
        shape, row = (file.metadata.num_rows, len(names)), 0
        with written_beside(Path(to)) as out:
            np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for batch in file.iter_batches(batch_size=max(1, BLOCK // len(names) // 4), columns=names):
                rows = np.empty((len(batch), len(names)), dtype=np.float32)
                for j, column in enumerate(batch.select(names).columns):  # one by one: each is rounded once
                    values = column.to_numpy(zero_copy_only=False)
                    rows[:, j] = as_floats(values, f"{path}, column {names[j]!r}", first=row)
                out.write(rows.data)
                row += len(batch)
    return RowsOnDisk(to)
