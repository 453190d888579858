"""A purification event: labels fall, which is the only way in which sets shrink. Tables change in place."""

from __future__ import annotations

import torch
from torch import Tensor

from oneof.purify import Falls, PopState, Purify, Removals
from oneof.training.packed import Packed, Table, sections
from oneof.training.processes import Crew


def begin_purifying(rule: Purify, candidates: Table) -> PopState:
    """What a rule remembers before the first epoch."""
    if isinstance(candidates, Tensor):
        return rule.init(candidates)
    t = candidates.cells.shape[0]
    none = rule.init(torch.empty(t, 0, 1, dtype=torch.bool, device=candidates.device))
    falls = Falls(candidates.zeros(torch.int16).values, candidates.zeros(none.seen.dtype).values)
    return none._replace(seen=candidates.zeros(none.seen.dtype, rest=True), log=falls)


def event(rule: Purify, candidates: Table, state: PopState, crew: Crew, labels: int) -> tuple[Tensor, PopState]:
    """How many labels fell [t], and the state with which the next window opens.

    A crew's processes hold an event together: each on its own rows, and of the n·c labels that all have, how many fell is summed.
    """
    if isinstance(candidates, Packed):
        return _packed_event(rule, candidates, state, crew, labels)
    kept, fallen = rule.remove(candidates, state)
    (removed,) = crew.total([(fallen > 0).sum((1, 2)).to(fallen.dtype)])
    after = rule.advance(state, fallen, removed / labels)
    candidates.copy_(kept)  # in place, as everything that a captured step reads
    return removed, after._replace(seen=state.seen.copy_(after.seen))


def _packed_event(
    rule: Purify, candidates: Packed, state: PopState, crew: Crew, labels: int
) -> tuple[Tensor, PopState]:
    t, m, _ = candidates.cells.shape
    removed = torch.zeros_like(state.threshold)
    for block in candidates.cells.blocks():
        trial = block.rows // m
        left = candidates.values[block.at] & block.inside
        seen = torch.where(block.inside, state.seen.values[block.at], 0.0)
        # all labels off the cells as one, which is no candidate: a row's total needs them
        rest = state.seen.rest[block.rows, None]
        wide = torch.cat([left, torch.zeros_like(left[:, :1])], 1)
        rows = state._replace(seen=torch.cat([seen, rest], 1)[:, None], threshold=state.threshold[trial])
        margin = rule.remove(wide[:, None], rows)[1][:, 0, :-1]  # each row as a trial of its own, with its threshold
        falls = margin > 0
        cells = block.at[falls]
        candidates.values[cells] = False
        state.log.round[cells] = state.round + 1
        state.log.margin[cells] = margin[falls]
        removed.index_add_(0, trial, falls.sum(1).to(removed.dtype))
    (removed,) = crew.total([removed])
    none = rule.init(torch.empty(t, 0, 1, dtype=torch.bool, device=candidates.device))
    after = rule.advance(none._replace(threshold=state.threshold, round=state.round), none.seen, removed / labels)
    state.seen.values.zero_()
    state.seen.rest.zero_()
    return removed, after._replace(seen=state.seen, log=state.log)


def removals(log: Removals | Falls, candidates: Table) -> Removals:
    """The labels that fell and are still gone from these sets (which may be those of an earlier epoch), as they fell."""
    if isinstance(candidates, Packed):
        return _from_cells(log.round, log.margin, candidates)
    gone = ~candidates[log[:3]]
    return Removals(*(column[gone] for column in log))


def gathered_log(log: Removals | Falls, candidates: Table, crew: Crew, first: int) -> Removals | Falls:
    """The logs of all processes as one; `candidates` are this one's, whose rows are those from `first` on."""
    if isinstance(log, Falls):
        return Falls(*(crew.gathered(column, sections(candidates)) for column in log))
    whole = Removals(*(crew.gathered(column, [len(column)]) for column in log._replace(row=log.row + first)))
    order = whole.trial.argsort(stable=True)  # as one process would have written it: by round, trial, row
    order = order[whole.round[order].argsort(stable=True)]
    return Removals(*(column[order] for column in whole))


def _from_cells(round: Tensor, margin: Tensor, candidates: Packed) -> Removals:
    cells = candidates.cells
    at = ((round > 0) & ~candidates.values).nonzero().squeeze(1)
    at = at[round[at].argsort(stable=True)]
    row = torch.searchsorted(cells.starts, at.to(cells.starts.dtype), right=True) - 1
    m = cells.shape[1]
    trial, row, label, when = (one.to(torch.int32) for one in (row // m, row % m, cells.labels[at], round[at]))
    return Removals(trial, row, label, when, margin[at])  # narrow, since there may be many
