"""A purification event: labels fall, which is the only way in which sets shrink. Tables change in place."""

from typing import NamedTuple

import torch
from torch import Tensor

from oneof.purify import Purify, Removals
from oneof.training.dense import Table
from oneof.training.processes import Crew


class Purification(NamedTuple):
    """What purification remembers of all rows."""

    seen: Table  # running sum of what was observed since the last event
    threshold: Tensor  # [t]
    round: int  # events so far
    fell: Table  # int16: the round in which a label fell; 0: it did not
    margin: Table  # by how much the best candidate led it then


def begin_purifying(rule: Purify, candidates: Table) -> Purification:
    """What a rule remembers before the first epoch."""
    dtype, device = torch.get_default_dtype(), candidates.values.device
    threshold = torch.as_tensor(rule.start, dtype=dtype, device=device).expand(candidates.shape[0]).clone()
    seen, margin = candidates.zeros(dtype, rest=True), candidates.zeros(dtype)
    return Purification(seen, threshold, 0, candidates.zeros(torch.int16), margin)


def event(rule: Purify, candidates: Table, state: Purification, crew: Crew, labels: int) -> tuple[Tensor, Purification]:
    """How many labels fell [t], and the state with which the next window opens.

    A crew's processes hold an event together: each on its own rows, and of the n·c labels that all have, how many fell is summed.
    """
    removed = torch.zeros_like(state.threshold)
    for fallen in candidates.falls(rule.margins, state.seen, state.threshold):  # type: ignore[arg-type]
        candidates.values[fallen.at] = False
        state.fell.values[fallen.at] = state.round + 1
        state.margin.values[fallen.at] = fallen.margin
        removed += fallen.removed
    (removed,) = crew.total([removed])
    for stored in state.seen.stored("seen"):
        stored.tensor.zero_()
    threshold = rule.advance(state.threshold, removed / labels)
    return removed, state._replace(threshold=threshold, round=state.round + 1)


def removals(state: Purification, candidates: Table, crew: Crew) -> Removals:
    """The labels that fell and are still gone from these sets of all processes (perhaps those of an earlier epoch), as they fell."""
    round, margin = (table.gathered_values(crew).flatten() for table in (state.fell, state.margin))
    at = ((round > 0) & ~candidates.values.flatten()).nonzero().squeeze(1)
    at = at[round[at].argsort(stable=True)]
    trial, row, label, when = (column.to(torch.int32) for column in (*candidates.places(at), round[at]))
    return Removals(trial, row, label, when, margin[at])  # narrow, since there may be many
