"""A purification event: labels fall, which is the only way in which sets shrink. Tables change in place."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.purify import Purify, Removals
from oneof.training.processes import Crew
from oneof.training.tables import Table


class Purification(NamedTuple):
    """What purification remembers of all rows."""

    seen: Table  # running sum of what was observed since the last event
    threshold: Tensor  # [t]
    round: int  # events so far
    fell: Table  # int16: the round in which a label fell; 0: it did not
    margin: Table  # by how much the best candidate led it then


def begin_purifying(rule: Purify, candidates: Table) -> Purification:
    """What a rule remembers before the first epoch."""
    none = rule.init(_no_rows(candidates))
    seen, margin = candidates.zeros(none.seen.dtype, rest=True), candidates.zeros(none.seen.dtype)
    return Purification(seen, none.threshold, 0, candidates.zeros(torch.int16), margin)


def event(
    rule: Purify, candidates: Table, state: Purification, crew: Crew, labels: int, memory: Any = ()
) -> tuple[Tensor, Purification]:
    """Return how many of the labels of all processes' rows fell [t], and the state with which the next window opens.

    `memory` is the method's; a rule that resets writes to it.
    """
    none = rule.init(_no_rows(candidates))._replace(threshold=state.threshold, round=state.round)

    def margins(sets: Tensor, seen: Tensor, threshold: Tensor) -> Tensor:
        return rule.remove(sets, none._replace(seen=seen, threshold=threshold))[1]

    removed = torch.zeros_like(state.threshold)
    for at, margin, count in candidates.falls(margins, state.seen, state.threshold):  # type: ignore[arg-type]
        candidates.values[at] = False
        state.fell.values[at] = state.round + 1
        state.margin.values[at] = margin
        removed += count
    (removed,) = crew.total([removed])
    after = rule.advance(none, none.seen, removed / labels)
    if rule.resets:  # methods normalise the weights of the remaining candidates when they read them
        memory.values.copy_(state.seen.values / rule.window * candidates.values)
    for stored in state.seen.stored("seen"):
        stored.tensor.zero_()
    return removed, state._replace(threshold=after.threshold, round=after.round)


def removals(state: Purification, candidates: Table, crew: Crew) -> Removals:
    """The labels that fell and are still gone from these sets of all processes (perhaps those of an earlier epoch), as they fell."""
    round, margin = (table.gathered(crew).values.flatten() for table in (state.fell, state.margin))
    at = ((round > 0) & ~candidates.values.flatten()).nonzero().squeeze(1)
    at = at[round[at].argsort(stable=True)]
    trial, row, label, when = (column.to(torch.int32) for column in (*candidates.places(at), round[at]))
    return Removals(trial, row, label, when, margin[at])  # narrow, since there may be many


def _no_rows(candidates: Table) -> Tensor:
    return torch.empty(candidates.shape[0], 0, 1, dtype=torch.bool, device=candidates.values.device)
