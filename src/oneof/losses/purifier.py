"""POP in a training loop of your own, stepped at the end of every epoch as a scheduler is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oneof.losses.criterion import CandidateLoss
from oneof.losses.tables import WriteLog, put_rows
from oneof.purify import PURIFY, PopState, PurificationSchedule, Purify, Removals
from oneof.storage.did_you_mean import did_you_mean


class Purifier:
    """Removes labels from the candidate sets of a criterion, by a rule of POP.

        criterion = oneof.CandidateLoss("proden", candidates)
        purifier = oneof.Purifier(oneof.Pop(warm_up=5), criterion)
        for epoch in range(30):
            for index, x in loader:
                loss = criterion(net(x), index)
                ...
            purifier.step()

    The purifier reads the logits that the criterion is given in the rule's window; at the end of an epoch with an event, labels are
    removed from `criterion.candidates`, where the method finds its sets. Algorithm 1 (`oneof.PopPrinted`) looks at every row anew at an event:
    before `step`, call `observe` for all rows in evaluation mode.

    Parameters
    ----------
    rule
        `oneof.Pop`, `oneof.PopPrinted` or `oneof.PopRatio`, or one of their names "pop", "pop_printed", "pop_ratio".
    criterion
        The criterion of the loop. It has one purifier at a time.

    >>> criterion = CandidateLoss("proden", torch.tensor([[True, True, False]]))
    >>> rule = PURIFY["pop"](warm_up=0, interval=1, window=1)
    >>> purifier = Purifier(rule, criterion)
    >>> loss = criterion(torch.tensor([[9.0, 0.0, 0.0]], requires_grad=True), torch.tensor([0]))
    >>> purifier.step()
    1
    >>> criterion.candidates
    tensor([[ True, False, False]])
    >>> purifier.removals.label
    tensor([1])
    """

    def __init__(self, rule: Purify | str, criterion: CandidateLoss) -> None:
        self.rule = as_rule(rule)
        self.criterion = criterion
        self.state: PopState = self.rule.init(criterion.candidates)
        self._log = WriteLog(len(criterion.candidates))
        criterion.observer = self

    @property
    def removals(self) -> Removals:
        """Return the labels that were removed so far, one entry each, in order: row, label, round and margin [m]; trial is always 0."""
        return self.state.log

    @property
    def threshold(self) -> float:
        """Return the threshold of the next event."""
        return float(self.state.threshold)

    def is_due(self) -> bool:
        """Return whether `step` will remove labels at the end of this epoch."""
        return self.rule.event(self.criterion.epoch)

    def is_observing(self) -> bool:
        """Return whether the logits of this epoch count at the next event."""
        return self.rule.observing(self.criterion.epoch)

    @torch.no_grad()
    def observe(self, logits: Tensor, index: Any) -> None:
        """Let the next event use the logits [b, c] of rows, besides or in place of those of training."""
        self.criterion.observe(logits, index)

    def add(self, logits: Tensor, candidates: Tensor, at: Tensor, last: Tensor | None) -> None:
        """Add the logits of a batch of rows; `CandidateLoss` calls this."""
        posterior_sum = self._posterior_sum()
        self._log.mark(at)
        observed = self.rule.observe(posterior_sum.index_select(0, at), logits, candidates)
        put_rows(posterior_sum, at, observed, last)

    def step(self) -> int:
        """End an epoch: remove labels if an event is due, begin the criterion's next epoch, and return how many were removed."""
        self._log.merge([self._posterior_sum()])
        removed = 0
        if self.is_due():
            removed = self._purify()
        self.criterion.next_epoch()
        return removed

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on; the sets and the epoch are in that of the criterion."""
        state = self.state
        return {
            "seen": state.posterior_sum,
            "threshold": state.threshold,
            "round": state.round,
            "removals": state.log._asdict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Restore the criterion, too."""
        posterior_sum = state_dict["seen"]
        if posterior_sum.shape != self.state.posterior_sum.shape:
            expected = list(self.state.posterior_sum.shape)
            raise ValueError(
                f"state must be of as many rows and classes as the criterion has, {expected}; got {list(posterior_sum.shape)}."
            )
        log = Removals(**{name: column.clone() for name, column in state_dict["removals"].items()})
        saved = PopState(posterior_sum.clone(), state_dict["threshold"].clone(), int(state_dict["round"]), log)
        self.state = _moved(saved, self.criterion.candidates.device)

    def _posterior_sum(self) -> Tensor:
        """Return what was observed since the last event [n, c], on the device where the criterion is."""
        self.state = _moved(self.state, self.criterion.candidates.device)
        return self.state.posterior_sum

    @torch.no_grad()
    def _purify(self) -> int:
        posterior_sum = self._posterior_sum()
        if self.rule.current and not posterior_sum.any():
            raise RuntimeError(
                f"{type(self.rule).__name__} looks at every row at an event. Before purifier.step(), call "
                "purifier.observe(net(x), index) for all rows, in evaluation mode."
            )
        candidates = self.criterion.candidates
        left, margin = self.rule.remove(candidates, self.state)
        removed = candidates & ~left
        share = removed.to(posterior_sum.dtype).mean()
        self.state = self.rule.advance(self.state, margin, share)
        candidates.copy_(left)
        return int(removed.sum())


def as_rule(rule: Any) -> Purify:
    """Return a rule of POP given by its name, or as an instance."""
    if isinstance(rule, PurificationSchedule):
        return rule  # type: ignore[return-value]
    if isinstance(rule, type) and issubclass(rule, PurificationSchedule):
        raise TypeError(f"rule must be a name or an instance; got the class {rule.__name__}. Give {rule.__name__}().")
    if not isinstance(rule, str):
        raise TypeError(
            f"rule must be one of oneof.Pop, oneof.PopPrinted and oneof.PopRatio; got {type(rule).__name__}."
        )
    if rule not in PURIFY:
        raise ValueError(f"rule must be one of {', '.join(PURIFY)}; got {rule!r}.{did_you_mean(rule, PURIFY)}")
    return PURIFY[rule]()


def _moved(state: PopState, device: torch.device) -> PopState:
    """Return the state on the device where the criterion is."""
    if state.posterior_sum.device == device:
        return state
    columns = [column.to(device) for column in state.log]
    log = Removals(*columns)
    return PopState(state.posterior_sum.to(device), state.threshold.to(device), state.round, log)
