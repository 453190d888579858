"""Which setting to take: by what held-out *sets* say; by held-out true labels only where a table asks for the paper's oracle.

A truth-free rule takes the last epoch of every setting: the best of two hundred epochs on ninety held-out rows is mostly luck. The
oracle takes its best epoch, as the paper does.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from oneof.metrics import CRITERIA
from oneof.training.state import Record


def rules() -> tuple[str, ...]:
    """What a setting may be chosen by: the criteria, which need no true label, or accuracy on held-out rows."""
    return (*CRITERIA, "oracle")


class Scored(NamedTuple):
    """The epoch that a rule takes of each trial, counted from 1, and how the rule scores it [t]."""

    epoch: Tensor
    score: Tensor


def score(history: Record, rule: str) -> Scored:
    """Which epoch the rule takes of every trial of a history [epochs, t], and its score there."""
    column = history.get(rule)
    if column is None:
        raise ValueError(f"rule {rule!r} needs held-out rows (and for 'oracle' their labels); the history has none.")
    epochs, t = column.shape
    epoch = latest_best(column) if rule == "oracle" else torch.full((t,), epochs - 1, device=column.device)
    return Scored(epoch + 1, column.gather(0, epoch[None])[0])


def latest_best(column: Tensor) -> Tensor:
    """The row of the largest value of each column [epochs, t]; of equals the latest, of NaN none.

    >>> latest_best(torch.tensor([[1.0, 3.0], [2.0, 3.0], [2.0, 1.0]])).tolist()
    [2, 1]
    """
    clean = column.nan_to_num(nan=-torch.inf)
    return len(column) - 1 - clean.flip(0).argmax(0)


def best(scores: Tensor) -> Tensor:
    """The best of the settings [..., g]; of equals the first.

    >>> best(torch.tensor([[0.5, 0.75, 0.75], [0.9, 0.1, float("nan")]])).tolist()
    [1, 0]
    """
    return scores.nan_to_num(nan=-torch.inf).argmax(-1)
