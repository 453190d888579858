"""Generate candidate sets from true labels, to evaluate methods on. Each kind is a frozen dataclass; all draws come from a seed.

The true label is always in its set. Instance-dependent kinds take the logits, in evaluation mode, of a classifier trained on clean
labels.
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
    """Add every wrong label to the set independently with probability `rate`.

    With `at_least` = 2 singletons get a random wrong label, as in PRODEN; with 1 they stay, as in PiCO.
    """

    rate: float = 0.3
    at_least: int = 1

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        """Draw a mask [n, c] for true labels [n]."""
        rates = np.full((len(labels), classes), self.rate)
        mask = draw(rates, labels, rng)
        scores = np.where(mask, -1.0, rng.random(mask.shape))
        order = scores.argsort(1)[:, ::-1]  # labels outside the set first, in random order
        for k in range(self.at_least - 1):
            too_small = mask.sum(1) < self.at_least
            mask[too_small, order[too_small, k]] = True
        return mask


@dataclass(frozen=True)
class UniformSet:
    """Draw uniformly from all sets that contain the true label, except the full set: P(size k) ∝ C(c-1, k-1)."""

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        """Draw a mask [n, c] for true labels [n]."""
        size_weights = [comb(classes - 1, k - 1) for k in range(1, classes)]
        return _draw_sets_by_size(labels, classes, size_weights, rng)


@dataclass(frozen=True)
class UniformSetAsCoded:
    """Draw as the published code of RC, CC and CAVL does: P(size k) ∝ C(c, k), k = 1 ... c-1, which gives smaller sets."""

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        """Draw a mask [n, c] for true labels [n]."""
        size_weights = [comb(classes, k) for k in range(1, classes)]
        return _draw_sets_by_size(labels, classes, size_weights, rng)


@dataclass(frozen=True)
class ClassDependent:
    """Add label j to the set of an example of class y with probability matrix[y, j]."""

    matrix: tuple[tuple[float, ...], ...]

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        """Draw a mask [n, c] for true labels [n]."""
        matrix = np.asarray(self.matrix, dtype=float)
        in_range = ((matrix >= 0) & (matrix <= 1)).all()
        if matrix.shape != (classes, classes) or not in_range:
            raise ValueError(
                f"matrix must be [{classes}, {classes}] with entries in [0, 1]; got shape {list(matrix.shape)} "
                f"with entries from {matrix.min():g} to {matrix.max():g}."
            )
        return draw(matrix[labels], labels, rng)


@dataclass(frozen=True)
class PairFlip:
    """Add the class after the true one (the first after the last) with probability `rate`."""

    rate: float = 0.5

    def __call__(self, labels: Labels, classes: int, rng: np.random.Generator) -> Mask:
        """Draw a mask [n, c] for true labels [n]."""
        next_class = (labels + 1) % classes
        return draw(self.rate * np.eye(classes)[next_class], labels, rng)


@dataclass(frozen=True)
class InstancePaper:
    """Add label j with the probability xi_j printed in the paper, where g is the classifier's posterior.

    xi_j = g_j / max over wrong labels of g
    """

    temperature: float = 1.0  # of g's softmax; higher gives larger sets

    def probabilities(self, logits: Floats, labels: Labels) -> Floats:
        """Return xi [n, c] for logits [n, c] and true labels [n]."""
        likelihood = _wrong_label_likelihood(logits / self.temperature, labels)
        return _set_true_label(likelihood, labels)


@dataclass(frozen=True)
class InstanceRate:
    """Add label j with the probability xi_j of the paper's released code.

        xi_j = min(1, rate · c · share_j),   share_j = g_j / sum over wrong labels of g

    Computed in logs, so that a saturated classifier gives shares and not NaN (for which the released code gives the singleton).
    """

    rate: float = 0.4
    temperature: float = 1.0  # of g's softmax; higher gives larger sets

    def probabilities(self, logits: Floats, labels: Labels) -> Floats:
        """Return xi [n, c] for logits [n, c] and true labels [n]."""
        c = logits.shape[1]
        likelihood = _wrong_label_likelihood(logits / self.temperature, labels)
        share = likelihood / likelihood.sum(1, keepdims=True)
        probabilities = np.minimum(1.0, self.rate * c * share)
        return _set_true_label(probabilities, labels)


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
    classes
        Number of classes c.
    kind
        An instance of one of KINDS.
    seed
        The same seed gives the same sets.
    logits
        Logits [n, c] of a classifier trained on clean labels; required by the instance-dependent kinds.

    Returns
    -------
    Mask
        Boolean mask [n, c] that contains the true label of every row.

    Examples
    --------
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
        raise ValueError(
            "instance-dependent sets need the logits of a classifier. Give logits=, of one trained on true labels."
        )
    scores = np.asarray(logits, dtype=float)
    if scores.shape != (len(truth), classes):
        raise ValueError(f"logits must be [{len(truth)}, {classes}] to match the labels; got {list(scores.shape)}.")
    is_finite = np.isfinite(scores).all(1)
    if not is_finite.all():
        raise ValueError(f"logits must be finite; row {int(is_finite.argmin())} is not.")
    return draw(kind.probabilities(scores, truth), truth, rng)


def calibrate_temperature(kind: Instance, wished: float, logits: Any, labels: Any) -> Instance:
    """Return the kind with the temperature at which the expected average set size is `wished`."""
    scores = np.asarray(logits, dtype=float)
    truth = np.asarray(labels)

    def average_size(log_temperature: float) -> float:
        heated = replace(kind, temperature=np.exp(log_temperature))
        return float(heated.probabilities(scores, truth).sum(1).mean())

    low = -6.0
    high = 12.0
    smallest = average_size(low)
    largest = average_size(high)
    if not smallest <= wished <= largest:
        raise ValueError(
            f"average set size must lie between {smallest:.2f} and {largest:.2f} for these posteriors and this kind; "
            f"got {wished}."
        )
    for _ in range(60):
        middle = (low + high) / 2
        if average_size(middle) < wished:
            low = middle
        else:
            high = middle
    return replace(kind, temperature=float(np.exp(high)))


def draw(probabilities: Floats, labels: Labels, rng: np.random.Generator) -> Mask:
    """Draw a mask [n, c]: each label independently with its probability [n, c], the true one always."""
    mask = rng.random(probabilities.shape) < probabilities
    mask[np.arange(len(labels)), labels] = True
    return mask


def _draw_sets_by_size(labels: Labels, classes: int, size_weights: list[int], rng: np.random.Generator) -> Mask:
    """Draw sets of the true label and k-1 random others, P(k) ∝ size_weights[k-1]."""
    n = len(labels)
    weights = np.asarray(size_weights, dtype=float)
    n_distractors = rng.choice(len(size_weights), size=n, p=weights / weights.sum())
    scores = rng.random((n, classes))
    scores[np.arange(n), labels] = 2.0  # the true label ranks first
    ranks = (-scores).argsort(1).argsort(1)
    return np.asarray(ranks <= n_distractors[:, None])


def _wrong_label_likelihood(logits: Floats, labels: Labels) -> Floats:
    """Return e^logits [n, c] of the wrong labels, scaled so that the largest is 1; 0 for the true label."""
    wrong = logits.copy()
    wrong[np.arange(len(labels)), labels] = -np.inf
    return np.asarray(np.exp(wrong - wrong.max(1, keepdims=True)))


def _set_true_label(probabilities: Floats, labels: Labels) -> Floats:
    """Set the probability of the true label to 1, in place."""
    probabilities[np.arange(len(labels)), labels] = 1.0
    return probabilities
