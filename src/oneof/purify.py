"""POP: progressive purification of candidate sets (Xu et al., ICML 2023).

Four rules, each a frozen dataclass: `Pop`, ours; `PopPrinted`, Algorithm 1 of the paper; `PopRatio`, the rule of its released code;
`PopReleased`, that code with its numbers. None knows a method: the mask shrinks, and every method reads the mask. Only where a rule
`resets` does the engine also write a method's weights.

The engine calls `observe` on the rows of every batch in the last `window` epochs before an event (of a rule that is `current`: on
all rows at the event), and at the event `remove` on all rows, then `advance`. Numbers of a rule are floats, or tensors [t] with one value per trial (`stack_rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from oneof.candidates.mask import masked, posterior, softmax


class Removals(NamedTuple):
    """Labels that were removed: one entry each, in the order of their removal."""

    trial: Tensor  # [m]
    row: Tensor  # [m], counted within the trial's training rows
    label: Tensor  # [m]
    round: Tensor  # [m], the event, counted from 1
    margin: Tensor  # [m], by how much the best candidate led when the label was removed


class PopState(NamedTuple):
    """State of purification between two batches."""

    posterior_sum: Tensor  # [t, n, c] running sum of what was observed since the last event
    threshold: Tensor  # [t]
    round: int  # events so far
    log: Removals


@dataclass(frozen=True)
class PurificationSchedule:
    """When purification happens."""

    warm_up: int = 20  # epochs before the first event
    interval: int = 5  # epochs from one event to the next
    window: int = 5  # epochs whose posteriors are averaged at an event
    every_round: bool = True  # move the threshold at every event, not only at quiet ones

    current: ClassVar[bool] = False
    """Whether posteriors are computed for all rows at an event, in place of a mean over the steps of the window."""

    resets: ClassVar[bool] = False
    """Whether an event sets the method's weights to the window mean on the remaining candidates."""

    def __post_init__(self) -> None:
        if not 1 <= self.window <= self.interval:
            why = "so that no removed label is averaged in"
            raise ValueError(f"window must lie between 1 and interval ({self.interval}), {why}; got {self.window}.")
        if self.warm_up < 0:
            raise ValueError(f"warm_up must not be negative; got {self.warm_up}.")

    def event(self, epoch: int) -> bool:
        """Return whether there is an event at the end of this epoch, counted from 0.

        >>> [epoch for epoch in range(25) if PurificationSchedule(warm_up=10, interval=5).event(epoch)]
        [10, 15, 20]
        """
        return epoch >= self.warm_up and (epoch - self.warm_up) % self.interval == 0

    def observing(self, epoch: int) -> bool:
        """Return whether this epoch lies in the window of the next event.

        >>> [epoch for epoch in range(16) if PurificationSchedule(warm_up=10, interval=5, window=2).observing(epoch)]
        [9, 10, 14, 15]
        """
        epochs_to_event = self.warm_up - epoch
        if epoch > self.warm_up:
            epochs_to_event %= self.interval
        return epochs_to_event < self.window and not self.current


@dataclass(frozen=True)
class Pop(PurificationSchedule):
    r"""Remove a label when the best candidate leads it by a threshold, which is lowered from event to event: Algorithm 1, as we run it.

        remove j from S_i   when   q_im - q_ij >= e,   m = argmax_{k in S_i} q_ik
        e <- max(e - e_s, e_end)   after every round (or, `every_round` = False, after one without removals)

    q: the softmax over *all* labels, averaged over the window; so a row whose mass lies outside its set is left alone.
    Differs from Algorithm 1 (`PopPrinted`): the threshold moves at every event and not only after one without removals, q is a mean
    over the steps of the last epochs and not the posterior of the moment, and there are epochs between events. The paper
    prints no numbers; how these were chosen, without true labels, is in docs/decisions/0003-pop-defaults.md.
    """

    e0: float = 0.9  # threshold of the first event
    e_end: float = 0.1  # its floor
    e_s: float = 0.1  # by how much it is lowered at a time

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _holds(self.e_end > 0) or not _holds(self.e_end <= self.e0):
            why = "or best candidates would be removed"
            raise ValueError(f"e_end must be positive and at most e0 ({self.e0}), {why}; got {self.e_end}.")
        if not _holds(self.e_s >= 0):
            raise ValueError(f"e_s must not be negative; got {self.e_s}.")

    def init(self, candidates: Tensor) -> PopState:
        return _begin(candidates, self.e0)

    def observe(self, posterior_sum: Tensor, logits: Tensor, candidates: Tensor) -> Tensor:
        return posterior_sum + softmax(logits)

    def remove(self, candidates: Tensor, state: PopState) -> tuple[Tensor, Tensor]:
        margin = _margin_to_best(state.posterior_sum, candidates)
        return _without(candidates, margin, margin >= state.threshold[..., None, None])

    def advance(self, state: PopState, margin: Tensor, share: Tensor) -> PopState:
        due = (share == 0) | self.every_round
        lower = torch.maximum(state.threshold - self.e_s, torch.zeros_like(state.threshold) + self.e_end)
        return _next(state, margin, torch.where(due, lower, state.threshold))


@dataclass(frozen=True)
class PopPrinted(Pop):
    r"""Run Algorithm 1 as printed: after the warm-up, each epoch is a round, and posteriors are computed anew for every row.

        remove j from S_i   when   f_m(x_i) - f_j(x_i) >= e,   m = argmax_{k in S_i} f_k(x_i)
        e <- max(e - e_s, e_end)   after a round without a single removal

    f: the softmax over all labels in evaluation mode, of the network as it is at the end of the round.
    Differs from print where print cannot be meant: m is the best candidate (the best label overall could empty the set), e is lowered
    while e > e_end (printed: e <= e_end, where it would never move), and epsilon, which nobody can observe, is part of e.
    """

    interval: int = 1
    window: int = 1
    every_round: bool = False

    current: ClassVar[bool] = True


@dataclass(frozen=True)
class PopRatio(PurificationSchedule):
    r"""Remove a label when its share of the best candidate's posterior is below a threshold: the rule of the released code.

        remove j from S_i   when   q_ij / max_{k in S_i} q_ik < theta
        theta <- theta (1 + inc)   while theta < theta_end, after a quiet round (or after every round)

    q: the softmax over the current *set*, averaged over the window. Quiet: fewer than `quiet`·n·c entries were removed.
    Differs from the released code (`PopReleased`): the method's weights are not reset to the window mean (it hurts, and it is the
    method's memory), a running sum stands for the window of copies, and the defaults move (the released inc = 1e-3 at quiet
    rounds alone takes theta from 0.001 to 0.0011 in 500 epochs).
    """

    warm_up: int = 10
    theta: float = 1e-2  # threshold of the first event
    theta_end: float = 0.4  # it stops growing here
    inc: float = 0.3  # by which share it grows at a time
    quiet: float = 1e-4  # share of the n·c entries below which a round counts as quiet

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _holds(self.theta > 0) or not _holds(self.theta_end < 1) or not _holds(self.theta <= self.theta_end):
            raise ValueError(f"theta must satisfy 0 < theta <= theta_end < 1; got {self.theta} and {self.theta_end}.")
        if not _holds(self.inc >= 0):
            raise ValueError(f"inc must not be negative; got {self.inc}.")

    def init(self, candidates: Tensor) -> PopState:
        return _begin(candidates, self.theta)

    def observe(self, posterior_sum: Tensor, logits: Tensor, candidates: Tensor) -> Tensor:
        return posterior_sum + posterior(logits, candidates)

    def remove(self, candidates: Tensor, state: PopState) -> tuple[Tensor, Tensor]:
        best = masked(state.posterior_sum, candidates).amax(-1, keepdim=True)
        return _without(
            candidates,
            _margin_to_best(state.posterior_sum, candidates),
            state.posterior_sum < state.threshold[..., None, None] * best,
        )

    def advance(self, state: PopState, margin: Tensor, share: Tensor) -> PopState:
        due = ((share < self.quiet) | self.every_round) & (state.threshold < self.theta_end)
        # the last step may overshoot theta_end; below 1 no best candidate can be removed
        higher = (state.threshold * (1 + self.inc)).clamp_max(0.99)
        return _next(state, margin, torch.where(due, higher, state.threshold))


@dataclass(frozen=True)
class PopReleased(PopRatio):
    r"""Follow the authors' released code: the ratio rule with its numbers, which also resets the method's weights.

        w_ij <- q_ij / sum_{k in S_i} q_ik   for j left in S_i, else 0, at every event

    q: as in `PopRatio`. The next visit of a row renews its weights from the classifier, so the reset lasts for an epoch.
    Differs from the released code: a probability that underflows does not remove a label.
    """

    warm_up: int = 20
    every_round: bool = False
    theta: float = 1e-3
    inc: float = 1e-3

    resets: ClassVar[bool] = True


Purify = Pop | PopRatio
PURIFY: dict[str, type[Pop] | type[PopRatio]] = {
    "pop": Pop,
    "pop_printed": PopPrinted,
    "pop_ratio": PopRatio,
    "pop_released": PopReleased,
}


def stack_rules(rules: Sequence[Purify], device: torch.device) -> Purify:
    """Return one rule for a stack of trials: its numbers become tensors [t]; everything else must agree."""
    first = rules[0]
    for rule in rules:
        if type(rule) is not type(first) or not _agree(rule, first):
            raise ValueError(
                "trials of one stack must share the rule, warm_up, interval, window and every_round; fit them apart."
            )
    numbers: dict[str, Any] = {}
    for field in fields(first):
        if field.type == "float":
            values = [getattr(rule, field.name) for rule in rules]
            numbers[field.name] = torch.tensor(values, device=device)
    return replace(first, **numbers)


def _agree(rule: Purify, other: Purify) -> bool:
    """Return whether two rules of one class have the same settings but for numbers."""
    shared = [field.name for field in fields(rule) if field.type != "float"]
    return all(getattr(rule, name) == getattr(other, name) for name in shared)


def _begin(candidates: Tensor, threshold: float | Tensor) -> PopState:
    """Return the state before the first epoch: nothing observed, nothing removed."""
    posterior_sum = torch.zeros(candidates.shape, device=candidates.device)
    first_threshold = torch.as_tensor(threshold, dtype=posterior_sum.dtype, device=candidates.device)
    none = torch.empty(0, dtype=torch.int64, device=candidates.device)
    log = Removals(none, none, none, none, posterior_sum.new_empty(0))
    return PopState(posterior_sum, first_threshold.expand(candidates.shape[:-2]).clone(), 0, log)


def _margin_to_best(posterior_sum: Tensor, candidates: Tensor) -> Tensor:
    """Return by how much the best candidate leads each label in the window mean [..., c]; zero in rows not yet seen."""
    q = posterior_sum / posterior_sum.sum(-1, keepdim=True).clamp_min(1e-30)
    return masked(q, candidates).amax(-1, keepdim=True) - q


def _without(candidates: Tensor, margin: Tensor, is_removed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sets without some labels, and the margin at which each of these was removed: zero for the others."""
    removed = candidates & is_removed
    return candidates & ~removed, torch.where(removed, margin, 0.0)


def _next(state: PopState, margin: Tensor, threshold: Tensor) -> PopState:
    """Begin a new window, and enter this round's removals, of which `margin` [t, n, c] or [n, c] is not zero, in the log."""
    round = state.round + 1
    *trial, row, label = margin.nonzero(as_tuple=True)
    if not trial:
        trial = [torch.zeros_like(label)]
    new = Removals(trial[0], row, label, torch.full_like(label, round), margin[margin > 0])
    columns = [torch.cat(pair) for pair in zip(state.log, new, strict=True)]
    return PopState(torch.zeros_like(state.posterior_sum), threshold, round, Removals(*columns))


def _holds(condition: bool | Tensor) -> bool:
    return bool(torch.as_tensor(condition).all())
