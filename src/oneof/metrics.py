"""Evaluate classifiers by functions of tensors with any leading axes; the criteria need no true labels."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.candidates.mask import posterior


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of rows whose largest logit [..., n, c] is at the label [..., n]."""
    return (logits.argmax(-1) == labels).to(logits.dtype).mean(-1)


def true_labels_removed(candidates: Tensor, labels: Tensor) -> Tensor:
    """Return the share of rows whose true label [..., n] is not, or no longer, among the candidates [..., n, c]."""
    is_candidate = candidates.gather(-1, labels[..., None]).squeeze(-1)
    return (~is_candidate).to(torch.get_default_dtype()).mean(-1)


def covering_rate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the share of rows whose predicted label, by logits [..., n, c], is among the candidates [..., n, c].

    >>> covering_rate(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([[True, True], [False, True]]))
    tensor(0.5000)
    """
    predicted = logits.argmax(-1, keepdim=True)
    is_covered = candidates.gather(-1, predicted).squeeze(-1)
    return is_covered.to(logits.dtype).mean(-1)


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean over rows of the posterior within the set at the predicted label, 0 if the label is outside the set.

    The posterior over the candidates replaces the unknown true label, as in PLENCH.
    """
    predicted = logits.argmax(-1, keepdim=True)
    within_set = posterior(logits, candidates)
    return within_set.gather(-1, predicted).squeeze(-1).mean(-1)


class Criterion(NamedTuple):
    """A score of logits [..., n, c] on candidate sets [..., n, c] that needs no true label; larger is better."""

    title: str  # in tables
    score: Callable[[Tensor, Tensor], Tensor]
    caption: str  # what it measures: a clause about the network and the row


CRITERIA: dict[str, Criterion] = {
    "covering": Criterion("covering rate", covering_rate, "its label lies in the row's set"),
    "approximated": Criterion(
        "approximated accuracy", approximated_accuracy, "how probable that label is within the set"
    ),
}
"""Scores for model selection and reports. Each entry adds a column to histories, rows and tables."""

MEANS: dict[str, tuple[str, ...]] = {"both": ("covering", "approximated")}
"""Selection rules that use the mean of several criteria."""


def criteria(logits: Tensor, candidates: Tensor) -> dict[str, Tensor]:
    """Return every criterion of logits [..., n, c] on sets [..., n, c], by name."""
    return {name: criterion.score(logits, candidates) for name, criterion in CRITERIA.items()}


def with_means(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores by each criterion, with the means of several criteria added.

    >>> with_means({"covering": 1.0, "approximated": 0.5})
    {'covering': 1.0, 'approximated': 0.5, 'both': 0.75}
    """
    extended = dict(scores)
    for rule, names in MEANS.items():
        extended[rule] = sum(scores[name] for name in names) / len(names)
    return extended


def in_words(rule: str) -> str:
    """Describe a selection rule.

    >>> in_words("both"), in_words("gold")
    ('covering rate and approximated accuracy', 'gold labels')
    """
    titles = {"gold": "gold labels", "votes": "held-out votes"}
    for name, criterion in CRITERIA.items():
        titles.setdefault(name, criterion.title)
    names = MEANS.get(rule, (rule,))
    return " and ".join(titles.get(name, name) for name in names)


def wilson(right: Any, n: Any) -> tuple[Any, Any]:
    """Return the ends of Wilson's 95 % interval for a share observed `right` times in n; both may be arrays.

    >>> tuple(round(end, 3) for end in wilson(8, 10))
    (0.49, 0.943)
    """
    share = right / n
    z_squared_over_n = 1.959964**2 / n  # z: the 97.5 % quantile of the normal distribution
    scale = 1 + z_squared_over_n
    center = (share + z_squared_over_n / 2) / scale
    half_width = (z_squared_over_n * (share * (1 - share) + z_squared_over_n / 4)) ** 0.5 / scale
    return center - half_width, center + half_width


def purified_region(logits: Tensor, posterior: Tensor, tolerance: float = 0.0) -> Tensor:
    """Return the share of rows in the largest pure level set L(e) = {x : p_1(x) - p_2(x) >= e} (definition 1 of the paper).

    A level set is pure if the classifier's logits [..., n, c] and the posterior [n, c] have the same largest label on all its rows or,
    with a tolerance, on all but this share of them: one wrong row of an estimated posterior should not make the set empty.

    >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> purified_region(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), p)
    tensor(0.6667)
    """
    top_two = posterior.topk(2, -1).values
    margin = top_two[..., 0] - top_two[..., 1]
    by_margin = margin.argsort(descending=True, stable=True)
    is_wrong = (logits.argmax(-1) != posterior.argmax(-1))[..., by_margin]
    n = len(by_margin)
    sizes = torch.arange(1, n + 1, device=is_wrong.device)
    is_pure = is_wrong.cumsum(-1) <= tolerance * sizes
    return torch.where(is_pure, sizes, 0).amax(-1) / n
