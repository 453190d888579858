"""What a classifier is worth, as functions of arrays with any leading axes; only the first group needs true labels."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.candidates.mask import posterior


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of rows [..., n] whose largest logit [..., n, c] is at the label [..., n]."""
    return (logits.argmax(-1) == labels).to(logits.dtype).mean(-1)


def true_labels_removed(candidates: Tensor, labels: Tensor) -> Tensor:
    """Share of rows [..., n] whose true label is not among the candidates [..., n, c] (any more)."""
    kept = candidates.gather(-1, labels[..., None]).squeeze(-1)
    return (~kept).to(torch.get_default_dtype()).mean(-1)


def covering_rate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Share of rows whose predicted label lies in the set; needs no true label.

    >>> covering_rate(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([[True, True], [False, True]]))
    tensor(0.5000)
    """
    inside = candidates.gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1)
    return inside.to(logits.dtype).mean(-1)


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> Tensor:
    """Mean over rows of the posterior within the set at the predicted label, 0 where it lies outside; needs no true label.

    The posterior stands in for "which candidate is right" (as in PLENCH).
    """
    predicted = logits.argmax(-1, keepdim=True)
    return posterior(logits, candidates).gather(-1, predicted).squeeze(-1).mean(-1)


class Criterion(NamedTuple):
    """A score of logits [..., n, c] by candidate sets [..., n, c] alone; the larger, the better."""

    title: str  # in tables
    score: Callable[[Tensor, Tensor], Tensor]
    says: str  # in captions: what it measures, as a clause about the network and the row


CRITERIA: dict[str, Criterion] = {
    "covering": Criterion("covering rate", covering_rate, "its label lies in the row's set"),
    "approximated": Criterion(
        "approximated accuracy", approximated_accuracy, "how probable that label is within the set"
    ),
}
"""What needs no true label. Whatever chooses or reports reads this: an entry more is a column more in histories, rows and tables."""

MEANS: dict[str, tuple[str, ...]] = {"both": ("covering", "approximated")}
"""Rules of the search that go by the mean of several criteria."""


def criteria(logits: Tensor, candidates: Tensor) -> dict[str, Tensor]:
    """Every criterion of logits [..., n, c] on sets [..., n, c], by its name."""
    return {name: one.score(logits, candidates) for name, one in CRITERIA.items()}


def with_means(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores by every criterion, and by every mean of several.

    >>> with_means({"covering": 1.0, "approximated": 0.5})
    {'covering': 1.0, 'approximated': 0.5, 'both': 0.75}
    """
    return {**scores, **{name: sum(scores[one] for one in parts) / len(parts) for name, parts in MEANS.items()}}


def in_words(rule: str) -> str:
    """What a rule of the search goes by.

    >>> in_words("both"), in_words("gold")
    ('covering rate and approximated accuracy', 'gold labels')
    """
    titles = {name: one.title for name, one in CRITERIA.items()} | {"gold": "gold labels", "votes": "held-out votes"}
    return " and ".join(titles.get(name, name) for name in MEANS.get(rule, (rule,)))


def wilson(right: Any, n: Any) -> tuple[Any, Any]:
    """The ends of Wilson's 95 % interval of a share that was seen `right` times in n: numbers, or arrays of them.

    >>> tuple(round(end, 3) for end in wilson(8, 10))
    (0.49, 0.943)
    """
    share, spread = right / n, 1.959964**2 / n  # 95 % of a normal distribution
    middle = (share + spread / 2) / (1 + spread)
    reach = (spread * (share * (1 - share) + spread / 4)) ** 0.5 / (1 + spread)
    return middle - reach, middle + reach


def purified_region(logits: Tensor, posterior: Tensor, tolerance: float = 0.0) -> Tensor:
    """Share of rows in the largest pure level set L(e) = {x : p_1(x) - p_2(x) >= e} (definition 1 of the paper).

    A level set is pure when the classifier's logits [..., n, c] and the posterior [n, c] have the same largest label on all its
    rows; with a tolerance, on all but this share of them, since one mistaken row of an estimated posterior should not empty it.

    >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> purified_region(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), p)
    tensor(0.6667)
    """
    two = posterior.topk(2, -1).values
    surest_first = (two[..., 0] - two[..., 1]).argsort(descending=True, stable=True)
    wrong = (logits.argmax(-1) != posterior.argmax(-1))[..., surest_first]
    count = torch.arange(1, len(surest_first) + 1, device=wrong.device)
    pure = wrong.cumsum(-1) <= tolerance * count
    return torch.where(pure, count, 0).amax(-1) / len(surest_first)
