"""Purification events of a stack of trials: labels are removed from candidate sets, which shrink in no other way."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.purify import PopState, Purify, Removals
from oneof.training.processes import ProcessGroup


class Purification(NamedTuple):
    """Hold what a rule remembers of the training rows of t trials; the tensors are written to in place."""

    posterior_sum: Tensor  # [t, m, c] running sum of what was observed since the last event
    threshold: Tensor  # [t]
    round: int  # events so far
    removal_round: Tensor  # [t, m, c] int16, the round in which a label was removed; 0 if it was not
    margin: Tensor  # [t, m, c] by how much the best candidate led it then


def begin_purifying(rule: Purify, candidates: Tensor) -> Purification:
    """Return what a rule remembers before the first epoch, for candidates [t, m, c]."""
    initial = _without_rows(rule, candidates)
    posterior_sum = torch.zeros_like(candidates, dtype=initial.posterior_sum.dtype)
    removal_round = torch.zeros_like(candidates, dtype=torch.int16)
    margin = torch.zeros_like(candidates, dtype=initial.posterior_sum.dtype)
    return Purification(posterior_sum, initial.threshold, 0, removal_round, margin)


def run_event(
    rule: Purify, candidates: Tensor, state: Purification, group: ProcessGroup, labels: int, memory: Any = ()
) -> tuple[Tensor, Purification]:
    """Remove labels from candidates [t, m, c] in place, and open the next window.

    Parameters
    ----------
    rule
        The rule that decides which labels are removed.
    candidates
        The sets of this process's rows.
    state
        What the rule remembers.
    group
        The processes that share the rows.
    labels
        Labels of all processes' rows: rows times classes.
    memory
        The method's memory, to which a rule that resets weights writes.

    Returns
    -------
    tuple of Tensor and Purification
        How many labels were removed [t], and the state for the next window.
    """
    before = _without_rows(rule, candidates)._replace(threshold=state.threshold, round=state.round)
    _, margin = rule.remove(candidates, before._replace(posterior_sum=state.posterior_sum))
    is_removed = margin > 0
    candidates[is_removed] = False
    state.removal_round[is_removed] = state.round + 1
    state.margin[is_removed] = margin[is_removed]
    local_count = torch.zeros_like(state.threshold) + is_removed.sum((1, 2))
    (count,) = group.total([local_count])
    after = rule.advance(before, before.posterior_sum, count / labels)
    if rule.resets:  # methods normalise the weights of the remaining candidates when they read them
        memory.copy_(state.posterior_sum / rule.window * candidates)
    state.posterior_sum.zero_()
    return count, state._replace(threshold=after.threshold, round=after.round)


def removals(state: Purification, candidates: Tensor, group: ProcessGroup) -> Removals:
    """List the removed labels of all processes' rows that are not in these sets [t, m, c], perhaps those of an earlier epoch.

    They are in the order of their rounds.
    """
    round = group.gathered_rows(state.removal_round).flatten()
    margin = group.gathered_rows(state.margin).flatten()
    index = ((round > 0) & ~candidates.flatten()).nonzero().squeeze(1)
    index = index[round[index].argsort(stable=True)]
    _, m, c = candidates.shape
    # not torch.unravel_index, which imports a second's worth of modules; int32, since there may be many
    trial = (index // (m * c)).to(torch.int32)
    row = (index // c % m).to(torch.int32)
    label = (index % c).to(torch.int32)
    return Removals(trial, row, label, round[index].to(torch.int32), margin[index])


def _without_rows(rule: Purify, candidates: Tensor) -> PopState:
    """Return a rule's initial state for as many trials as candidates [t, m, c] have, but for no rows."""
    no_rows = torch.empty(len(candidates), 0, 1, dtype=torch.bool, device=candidates.device)
    return rule.init(no_rows)
