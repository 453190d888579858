"""Candidate sets from true labels, to try methods on: each kind is a frozen dataclass, all draws come from a seed.

The true label is always in its set. Kinds that look at the example take the logits of a classifier trained on clean labels
(`oneof.training.teacher`), in evaluation mode.
"""

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Flip:
    """Every wrong label joins the set with probability `rate`, on its own.

    `at_least` = 2 tops singletons up with a random wrong label, as PRODEN does; 1 leaves them, as PiCO does.
    """

    rate: float = 0.3
    at_least: int = 1

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        mask = draw(np.full((len(labels), classes), self.rate), labels, rng)
        order = np.where(mask, -1.0, rng.random(mask.shape)).argsort(1)[:, ::-1]  # non-candidates first, shuffled
        for k in range(self.at_least - 1):
            short = mask.sum(1) < self.at_least
            mask[short, order[short, k]] = True
        return mask


@dataclass(frozen=True)
class UniformSet:
    """Uniform over all sets that hold the true label, the full set excepted: P(size k) ∝ C(c-1, k-1)."""

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        return _random_sets(labels, classes, [comb(classes - 1, k - 1) for k in range(1, classes)], rng)


@dataclass(frozen=True)
class UniformSetAsCoded:
    """What the code of RC, CC and CAVL draws instead: P(size k) ∝ C(c, k), k = 1 ... c-1, so smaller sets."""

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        return _random_sets(labels, classes, [comb(classes, k) for k in range(1, classes)], rng)


@dataclass(frozen=True)
class ClassDependent:
    """Label j joins the set of an example of class y with probability matrix[y, j]."""

    matrix: tuple[tuple[float, ...], ...]

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        matrix = np.asarray(self.matrix, dtype=float)
        if matrix.shape != (classes, classes) or not ((matrix >= 0) & (matrix <= 1)).all():
            got = f"shape {list(matrix.shape)} with entries from {matrix.min():g} to {matrix.max():g}"
            raise ValueError(f"matrix must be [{classes}, {classes}] with entries in [0, 1]; got {got}.")
        return draw(matrix[labels], labels, rng)


@dataclass(frozen=True)
class PairFlip:
    """The class after the true one (the first after the last) joins with probability `rate`."""

    rate: float = 0.5

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        return draw(self.rate * np.eye(classes)[(labels + 1) % classes], labels, rng)


@dataclass(frozen=True)
class InstancePaper:
    """As the paper prints it: xi_j = g_j / max over wrong labels of g, with g the classifier's posterior."""

    temperature: float = 1.0  # of g's softmax; higher gives larger sets

    def probabilities(self, logits: Floats, labels: Labels) -> Floats:
        """xi [n, c] from logits [n, c]."""
        return _with_truth(_likelihood(logits / self.temperature, labels), labels)


@dataclass(frozen=True)
class InstanceRate:
    """As the released code has it: xi_j = min(1, rate · c · share_j), share_j = g_j / sum over wrong labels of g.

    In logs, so that a saturated classifier gives shares and not NaN (there, the released code gives the singleton).
    """

    rate: float = 0.4
    temperature: float = 1.0  # of g's softmax; higher gives larger sets

    def probabilities(self, logits: Floats, labels: Labels) -> Floats:
        """xi [n, c] from logits [n, c]."""
        likelihood = _likelihood(logits / self.temperature, labels)
        share = likelihood / likelihood.sum(1, keepdims=True)
        return _with_truth(np.minimum(1.0, self.rate * logits.shape[1] * share), labels)


Instance = InstancePaper | InstanceRate
Kind = Flip | UniformSet | UniformSetAsCoded | ClassDependent | PairFlip | Instance
KINDS: dict[str, type[Kind]] = {
    "flip": Flip,
    "uniform_set": UniformSet,
    "uniform_set_as_coded": UniformSetAsCoded,
    "class": ClassDependent,
    "pair": PairFlip,
    "instance_paper": InstancePaper,
    "instance": InstanceRate,
}


def generate(labels: Any, classes: int, kind: Kind, *, seed: int, logits: Any = None) -> Mask:
    """Draw candidate sets for true labels.

    Parameters
    ----------
    labels
        True labels [n], from 0 to classes - 1.
    kind
        An instance of one of KINDS.
    seed
        The same seed gives the same sets.
    logits
        [n, c] of a classifier trained on clean labels; for the instance-dependent kinds.

    >>> generate([0, 1, 2], 3, PairFlip(rate=1.0), seed=0).astype(int)
    array([[1, 1, 0],
           [0, 1, 1],
           [1, 0, 1]])
    """
    truth = np.asarray(labels)
    if truth.ndim != 1 or not np.issubdtype(truth.dtype, np.integer):
        raise TypeError(f"labels must be integers [n]; got {truth.dtype} of shape {list(truth.shape)}.")
    outside = (truth < 0) | (truth >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"labels must lie between 0 and {classes - 1}; row {row} has {truth[row]}.")
    rate = getattr(kind, "rate", 0.0)
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie between 0 and 1; got {rate}.")
    rng = np.random.default_rng(seed)
    if not isinstance(kind, Instance):
        return kind(truth, classes, rng)
    if logits is None:
        remedy = "Give logits=, e.g. from oneof.training.teacher."
        raise ValueError(f"instance-dependent sets need the logits of a classifier. {remedy}")
    scores = np.asarray(logits, dtype=float)
    if scores.shape != (len(truth), classes):
        raise ValueError(f"logits must be [{len(truth)}, {classes}] to match the labels; got {list(scores.shape)}.")
    if not np.isfinite(scores).all():
        raise ValueError(f"logits must be finite; row {int(np.argwhere(~np.isfinite(scores))[0, 0])} is not.")
    return draw(kind.probabilities(scores, truth), truth, rng)


def reach(kind: Instance, wished: float, logits: Any, labels: Any) -> Instance:
    """The same kind at the temperature at which the average set size is as wished, in expectation."""
    scores, truth = np.asarray(logits, dtype=float), np.asarray(labels)

    def average(log_temperature: float) -> float:
        return float(replace(kind, temperature=np.exp(log_temperature)).probabilities(scores, truth).sum(1).mean())

    low, high = -6.0, 12.0
    if not average(low) <= wished <= average(high):
        reached = f"between {average(low):.2f} and {average(high):.2f} for these posteriors and this kind"
        raise ValueError(f"average set size must lie {reached}; got {wished}.")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if average(middle) < wished else (low, middle)
    return replace(kind, temperature=float(np.exp(high)))


def draw(probabilities: Floats, labels: Labels, rng: np.random.Generator) -> Mask:
    """Each label on its own with its probability [n, c], the true one always."""
    mask = rng.random(probabilities.shape) < probabilities
    mask[np.arange(len(labels)), labels] = True
    return mask


def _random_sets(labels: Labels, classes: int, weights: list[int], rng: np.random.Generator) -> Mask:
    """The true label and k-1 random others, P(k) ∝ weights[k-1]."""
    share = np.asarray(weights, dtype=float)
    extra = rng.choice(len(weights), size=len(labels), p=share / share.sum())
    score = rng.random((len(labels), classes))
    score[np.arange(len(labels)), labels] = 2.0  # the true label ranks first
    return np.asarray((-score).argsort(1).argsort(1) <= extra[:, None])


def _likelihood(logits: Floats, labels: Labels) -> Floats:
    """e^logits of the wrong labels, the largest 1, and 0 for the true one."""
    wrong = logits.copy()
    wrong[np.arange(len(labels)), labels] = -np.inf
    return np.asarray(np.exp(wrong - wrong.max(1, keepdims=True)))


def _with_truth(probabilities: Floats, labels: Labels) -> Floats:
    probabilities[np.arange(len(labels)), labels] = 1.0
    return probabilities
