"""Tensors with a row for every training example, inside a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, distributed, nn


class TableModule(nn.Module):
    """Module that holds tables: tensors that describe a data set rather than a network.

    `.to()` moves them, and `state_dict` and `load_state_dict` save and restore them, as for buffers. They are not registered as
    buffers because `DistributedDataParallel` would broadcast rank 0's copy before every forward, also where the module is part of
    a larger one, and overwrite the rows that other ranks have written. Casts to half precision leave them as they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, Tensor] = {}
        self.epoch = 0

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, table in self.tables.items():
            moved = fn(table)
            is_half = moved.is_floating_point() and moved.dtype.itemsize < 4
            if is_half:
                moved = table.to(moved.device)
            self.tables[name] = moved
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, table in self.tables.items():
            destination[prefix + name] = table
        destination[prefix + "epoch"] = torch.tensor(self.epoch)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        table_keys = {prefix + name for name in (*self.tables, "epoch")}
        others = {key: value for key, value in state_dict.items() if key not in table_keys}
        super()._load_from_state_dict(others, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        missing_keys.extend(sorted(table_keys - state_dict.keys()))
        for name, table in self.tables.items():
            if prefix + name not in state_dict:
                continue
            saved = state_dict[prefix + name]
            if saved.shape == table.shape:
                self.tables[name] = saved.detach().to(table.device, table.dtype, copy=True)
            else:
                error_msgs.append(
                    f"size mismatch for {prefix}{name}: it was saved for {list(saved.shape)}, this criterion has "
                    f"{list(table.shape)}. Build it from the candidates that it was saved with."
                )
        if prefix + "epoch" in state_dict:
            self.epoch = int(state_dict[prefix + "epoch"])


class LastPositions:
    """Finds the last position of each row number in a batch, so that a row that stands several times is written once and for all.

    On a CPU `index_copy_` goes through a batch in its order, and nothing has to be found. On a GPU which of several rows it leaves is not determined.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._scratch: Tensor | None = None  # [n]

    def __call__(self, at: Tensor) -> Tensor | None:
        """Return for every row number of a batch [b] the last position that holds it; None: write the batch in its order."""
        if at.device.type == "cpu":
            return None
        if self._scratch is None or self._scratch.device != at.device:
            self._scratch = torch.zeros(self.rows, dtype=torch.int64, device=at.device)
        positions = torch.arange(len(at), device=at.device)
        self._scratch.scatter_reduce_(0, at, positions, "amax", include_self=False)
        return self._scratch.index_select(0, at)


class WriteLog:
    """Record which rows of some tables this process has written since they were last merged with those of other processes."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.writes = 0
        self._written: Tensor | None = None  # [n] number of the write, 0: none

    def mark(self, at: Tensor) -> None:
        """Record that the rows `at` [b] are written."""
        if world_size() == 1:
            return
        self.writes += 1
        self._on(at.device).index_fill_(0, at, self.writes)

    def merge(self, tables: list[Tensor]) -> None:
        """Give every process the rows that any of them has written, in place; of several writers of a row, the last."""
        if world_size() == 1 or not tables:
            return
        written = self._on(tables[0].device)
        last_write = torch.where(written > 0, written * world_size() + distributed.get_rank(), -1)
        last_write_of_all = last_write.clone()
        distributed.all_reduce(last_write_of_all, distributed.ReduceOp.MAX)
        is_written = last_write_of_all >= 0
        is_last_writer = (last_write == last_write_of_all) & is_written
        for table in tables:
            shape = (-1, *[1] * (table.dim() - 1))
            numbers = table
            if table.dtype == torch.bool:
                numbers = table.to(torch.uint8)
            merged = torch.where(is_last_writer.view(shape), numbers, 0)
            distributed.all_reduce(merged)
            table.copy_(torch.where(is_written.view(shape), merged, numbers))
        written.zero_()
        self.writes = 0

    def _on(self, device: torch.device) -> Tensor:
        if self._written is None:
            self._written = torch.zeros(self.rows, dtype=torch.int64, device=device)
        self._written = self._written.to(device)
        return self._written


def put_rows(table: Tensor, at: Tensor, rows: Tensor, last: Tensor | None) -> None:
    """Write rows [b, ...] of a batch at `at` [b], in place; `last` is what `LastPositions` returned."""
    if last is not None:
        rows = rows.index_select(0, last)
    table.index_copy_(0, at, rows.to(table.dtype))


def world_size() -> int:
    """Return the number of processes that train together; 1 where torch.distributed is not in use."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1
