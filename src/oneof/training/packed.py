"""Tables at rest that grow with the candidates and not with the classes.

The labels of all sets lie one after the other, a *cell* each, and a table has a value per cell; rows leave and enter it dense
[t, b, c], as methods see them. Cells stay when a label falls: a table of bool says which are left. A full set, of which nothing
is known, has a single cell that stands for every label: what is put there is let go, so it carries no memory.

Work on all rows goes over the cells, some at a time (`Cells.blocks`): what is done to a set does not depend on which labels it
has, so rows [r, k] of cells serve as well as rows [r, c] of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from oneof.methods.base import each, parts
from oneof.training.device import free_memory
from oneof.training.processes import Crew

BLOCK = 2**20  # cells that are worked on together
Fallen = tuple[Tensor, Tensor, Tensor]  # labels at an event: where in a table's values, by which margins, how many [t]


class Stored(NamedTuple):
    """A tensor that training changes, as a checkpoint keeps it."""

    name: str
    tensor: Tensor
    sections: list[int] | None = None  # of a process's own rows: how many belong to each trial; None: all have the same


@dataclass(frozen=True, eq=False)
class Cells:
    """Which labels the rows of t trials have cells for."""

    labels: Tensor  # [cells] int16 or int32, sorted within a row; -1 in the one cell of a full set
    starts: Tensor  # [t * m + 1] where the cells of each row begin
    shape: tuple[int, int, int]  # t, m, c
    width: int  # cells of the longest row
    bounds: tuple[int, ...]  # [t + 1] where the cells of each trial begin
    full: tuple[int, ...]  # [t] rows with a full set

    def at(self, rows: Tensor, width: int) -> Tensor:
        """Numbers [..., width] of the cells of rows [...]; a row with fewer repeats its last."""
        begin, end = self.starts[rows].long(), self.starts[rows + 1].long()
        steps = torch.arange(width, device=rows.device)
        return torch.minimum(begin[..., None] + steps, end[..., None] - 1)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows [r] of all trials, short ones first, their cells [r, k], and which of these are no repetition."""
        lengths, order = self.starts.diff().sort()
        size = max(1, BLOCK // self.width)
        for some, rows in zip(lengths.split(size), order.split(size), strict=True):  # type: ignore[no-untyped-call]
            width = int(some[-1])
            yield rows, self.at(rows, width), torch.arange(width, device=rows.device) < some[:, None]


def cells_of(labels: Tensor, starts: Tensor, shape: tuple[int, int, int]) -> Cells:
    """Cells with what is worked out of them once; labels as int64 or narrower, starts as int64."""
    t, m, c = shape
    narrow = torch.int16 if c <= torch.iinfo(torch.int16).max else torch.int32
    wide = torch.int32 if len(labels) <= torch.iinfo(torch.int32).max else torch.int64
    full = (labels[starts[:-1]] == -1).view(t, m).sum(1)
    longest, bounds = int(starts.diff().max()), tuple(starts[::m].tolist())
    return Cells(labels.to(narrow), starts.to(wide), shape, longest, bounds, tuple(full.tolist()))


def starts_of(lengths: Tensor) -> Tensor:
    """Where rows of these lengths [r] begin when they lie one after the other, and where the last ends [r + 1]."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


@dataclass(frozen=True, eq=False)
class Packed:
    """A table [t, m, c] with values at its cells alone; its methods are those of `oneof.training.tables.Dense`.

    >>> sets = pack(torch.tensor([[[True, False, True], [True, True, True]]]))
    >>> sets.cells.labels
    tensor([ 0,  2, -1], dtype=torch.int16)
    >>> sets.take(torch.tensor([[1, 0]]))
    tensor([[[ True,  True,  True],
             [ True, False,  True]]])
    """

    cells: Cells
    values: Tensor  # [cells]
    rest: Tensor | None = None  # [t * m] the sum of what was put off the cells, for who needs a row's total

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.cells.shape

    @property
    def sections(self) -> list[int]:
        """How many of the values, trials one after the other, belong to each trial."""
        return [b - a for a, b in pairwise(self.cells.bounds)]

    def take(self, where: Tensor) -> Tensor:
        """Zero off the cells."""
        at = self.cells.at(where, self.cells.width)
        labels, values = self.cells.labels[at], self.values[at]
        dense = values.new_zeros(*where.shape, self.cells.shape[2])
        dense.scatter_(-1, labels.clamp_min(0).long(), values)
        return torch.where(labels[..., :1] < 0, values[..., :1], dense) if any(self.cells.full) else dense

    def put(self, where: Tensor, rows: Tensor) -> None:
        """What lies off the cells is added to the rest, if one is kept."""
        at = self.cells.at(where, self.cells.width)
        labels = self.cells.labels[at].long()
        new = rows.gather(-1, labels.clamp_min(0))
        if any(self.cells.full):
            new = torch.where(labels < 0, self.values[at], new)
        self.values.index_copy_(0, at.flatten(), new.flatten())
        if self.rest is not None:
            outside = rows.scatter(-1, labels.clamp_min(0), 0.0).sum(-1)
            self.rest.index_add_(0, where.flatten(), outside.flatten())

    def chosen(self, where: Tensor) -> Packed:
        cells, (t, m) = self.cells, where.shape
        flat = where.reshape(-1)
        if cells.shape[:2] == (t, m) and bool((flat.diff() == 1).all()):  # all of them, in order: the cells are shared
            return Packed(cells, self.values.clone(memory_format=torch.contiguous_format))
        lengths = (cells.starts[flat + 1] - cells.starts[flat]).long()
        starts = starts_of(lengths)
        labels, values = (one.new_empty(int(starts[-1])) for one in (cells.labels, self.values))
        for rows in torch.arange(len(flat), device=flat.device).split(BLOCK):  # type: ignore[no-untyped-call]
            a, b = int(starts[rows[0]]), int(starts[rows[-1] + 1])
            shift = cells.starts[flat[rows]] - starts[rows]
            at = shift.repeat_interleave(lengths[rows]) + torch.arange(a, b, device=flat.device)
            labels[a:b], values[a:b] = cells.labels[at], self.values[at]
        return Packed(cells_of(labels, starts, (t, m, cells.shape[2])), values)

    def zeros(self, dtype: torch.dtype, rest: bool = False) -> Packed:
        t, m, _ = self.cells.shape
        values = torch.zeros_like(self.values, dtype=dtype, memory_format=torch.contiguous_format)
        return Packed(self.cells, values, values.new_zeros(t * m) if rest else None)

    def dense(self) -> Tensor:
        """Some rows at a time, if all of them fit."""
        t, m, c = self.cells.shape
        free = free_memory(self.values.device)
        if t * m * c > free:
            needed = f"{t * m * c / 1e9:,.0f} GB and {free / 1e9:,.0f} GB are free"
            raise ValueError(f"the sets as a mask would take {needed}. Use sparse(trial) of a fit: a SciPy matrix.")
        whole = self.values.new_empty(t * m, c)
        for rows in torch.arange(t * m, device=whole.device).split(max(1, BLOCK // self.cells.width)):  # type: ignore[no-untyped-call]
            whole[rows] = self.take(rows)
        return whole.view(t, m, c)

    def packed(self) -> Packed:
        return self

    def count_cells(self) -> int:
        return len(self.values) // self.cells.shape[0]

    def sparse(self, trial: int) -> csr_array:
        """A trial's sets as a SciPy matrix [m, c] of bool; of a full set every label is stored."""
        _, m, c = self.cells.shape
        a, b = self.cells.bounds[trial : trial + 2]
        left, labels = self.values[a:b].cpu(), self.cells.labels[a:b].cpu()
        starts = self.cells.starts[trial * m : (trial + 1) * m + 1].cpu().long() - a
        count = torch.where(labels < 0, c, left.long())
        ends = starts_of(count)[starts]
        every = torch.where(labels < 0, 0, labels).repeat_interleave(count)
        if self.cells.full[trial]:
            within = torch.arange(len(every)) - starts_of(count)[:-1].repeat_interleave(count)
            every += within * (labels < 0).repeat_interleave(count)
        return csr_array((np.ones(len(every), dtype=bool), every.numpy(), ends.numpy()), shape=(m, c))

    def sizes(self) -> Tensor:
        """A full set counts with all of its labels."""
        left = torch.stack([trial.sum() for trial in self.values.split(self.sections)])  # type: ignore[no-untyped-call]
        return left + (self.cells.shape[2] - 1) * torch.tensor(self.cells.full, device=left.device)

    def by_trial(self, numbers: Tensor) -> Tensor:
        return numbers.repeat_interleave(torch.tensor(self.sections, device=numbers.device))

    def places(self, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        row = torch.searchsorted(self.cells.starts, at.to(self.cells.starts.dtype), right=True) - 1
        m = self.cells.shape[1]
        return row // m, row % m, self.cells.labels[at]

    def first_memory(self, init: Callable[..., Any], prior: Packed | None) -> Any:
        """A full set names no label, and gets what `init` makes of any of its labels."""
        full = torch.ones(1, 1, self.cells.shape[2], dtype=torch.bool, device=self.values.device)
        of_full = init(full)
        memory = each(lambda part: self.zeros(part.dtype), of_full)
        for _, at, inside in self.cells.blocks():
            weighed = () if prior is None else (prior.values[at][None],)
            for table, rows in zip(parts(memory), parts(init(inside[None], *weighed)), strict=True):
                table.values[at[inside]] = rows[0][inside]
        for table, rows in zip(parts(memory), parts(of_full), strict=True):
            table.values[self.cells.labels == -1] = rows[0, 0, 0]
        return memory

    def weighed(self, weights: Any, dtype: torch.dtype, log: Callable[[Tensor, Tensor], Tensor]) -> Packed:
        named, lengths = self.cells.labels >= 0, self.cells.starts.diff().long()
        row = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
        given, label = row % self.cells.shape[1], self.cells.labels.long().clamp_min(0)
        found = weights[given.cpu().numpy().copy(), label.cpu().numpy().copy()]  # SciPy wants arrays of NumPy's own
        own = torch.as_tensor(np.asarray(found, dtype=np.float64).ravel()).to(lengths.device, dtype)
        own = torch.where(named, own, 0.0)  # a full set names no label
        largest = own.new_zeros(len(lengths)).scatter_reduce_(0, row, own, "amax")
        return Packed(self.cells, torch.where(named, log(own, largest[row]), 0.0))

    def falls(self, margins: Callable[..., Tensor], seen: Packed, threshold: Tensor) -> Iterator[Fallen]:
        assert seen.rest is not None
        for rows, at, inside in self.cells.blocks():
            trial = rows // self.cells.shape[1]
            left = self.values[at] & inside
            sums = torch.where(inside, seen.values[at], 0.0)
            # all labels off the cells as one, which is no candidate: a row's total needs them
            wide = torch.cat([left, torch.zeros_like(left[:, :1])], 1)[:, None]
            sums = torch.cat([sums, seen.rest[rows, None]], 1)[:, None]
            margin = margins(wide, sums, threshold[trial])[:, 0, :-1]  # each row as a trial, with its threshold
            falls = margin > 0
            count = torch.zeros_like(threshold).index_add_(0, trial, falls.sum(1).to(threshold.dtype))
            yield at[falls], margin[falls], count

    def stored(self, name: str) -> Iterator[Stored]:
        """The cells follow from the data."""
        yield Stored(f"{name}.values", self.values, self.sections)
        if self.rest is not None:
            t, m, _ = self.cells.shape
            yield Stored(f"{name}.rest", self.rest, [m] * t)

    def identity(self) -> tuple[Tensor, ...]:
        return self.cells.labels, self.cells.starts

    def gathered(self, crew: Crew) -> Packed:
        if crew.size == 1:
            return self
        t, m, c = self.cells.shape
        lengths = crew.gathered(self.cells.starts.diff().long(), [m] * t)
        labels = crew.gathered(self.cells.labels, self.sections)
        cells = cells_of(labels, starts_of(lengths), (t, len(lengths) // t, c))
        return Packed(cells, crew.gathered(self.values, self.sections))

    def joined(self, others: Sequence[Packed]) -> Packed:
        tables = [self, *others]
        lengths = torch.cat([table.cells.starts.diff().long() for table in tables])
        labels = torch.cat([table.cells.labels for table in tables])
        shape = (sum(table.shape[0] for table in tables), *self.shape[1:])
        return Packed(cells_of(labels, starts_of(lengths), shape), torch.cat([table.values for table in tables]))


def pack(mask: Tensor) -> Packed:
    """Sets [t, m, c] (a bool mask) as a packed table, some rows at a time."""
    t, m, c = mask.shape
    flat = mask.flatten(0, 1)
    labels, lengths = [], []
    for rows in flat.split(max(1, 16 * BLOCK // c)):  # type: ignore[no-untyped-call]
        size = rows.sum(-1)
        shown = torch.where((size == c)[:, None], torch.arange(c, device=mask.device) == 0, rows)
        row, label = shown.nonzero(as_tuple=True)
        labels.append(torch.where(size[row] == c, -1, label).to(torch.int32))
        lengths.append(torch.where(size == c, 1, size))
    return whole_sets(cells_of(torch.cat(labels), starts_of(torch.cat(lengths)), (t, m, c)))


def whole_sets(cells: Cells) -> Packed:
    """The sets with every label of theirs; a single True stands for all and takes no room."""
    return Packed(cells, torch.ones(1, dtype=torch.bool, device=cells.labels.device).expand(len(cells.labels)))
