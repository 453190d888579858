r"""Find sets that miss the true label, without knowing true labels.

A set S of s labels holds the truth with probability 1 - e and misses it with probability e. All sets of one size are equally likely:

    P(S, j) proportional to  (1 - e_s) p_j / C(c-1, s-1)   for j in S,       e_s p_j / C(c-1, s)   for j outside,

where p [n, c] are out-of-fold predictions. They may be over- or underconfident, so p is raised to a power; the power and the error rates
e are those under which all sets together are most probable. Each size has an error rate of its own: where a label was lost, the
remaining set is smaller, so that most sets of one label may be wrong where few sets are.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.learners.kernel import KernelScores, leave_one_out_scores, with_best_gamma
from oneof.learners.scaling import append_ranks, scale

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

POWERS = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
EM_ROUNDS = 30
PSEUDO_ROWS = 2  # rows assumed to have a set with the truth, beside those that are there
PSEUDO_ROWS_PER_SIZE = 10  # rows assumed to have the error rate of all sizes, beside those of a size
MAX_SAMPLED_SETS = 50_000  # sets of a large table from which power and error rates are estimated
NOISE_THRESHOLD = 0.3  # a set that misses the truth with this probability is not trained on
# Below this mean probability the flagged sets are those of any hard table, and all are trained on.
MIN_NOISE_RATE = 0.02
MAX_ROUNDS = 3  # of search for noisy sets: without some, others stand out


def probability_of_missing(predictions: FloatArray, candidates: BoolArray) -> FloatArray:
    """Return the probability that each row's set misses its true label [n]; a full set cannot.

    >>> sets = np.repeat([[1, 1, 0, 0], [0, 0, 1, 0]], 20, axis=0).astype(bool)
    >>> p = np.where(sets, 0.9 / sets.sum(1, keepdims=True), 0.1 / (~sets).sum(1, keepdims=True))
    >>> p[0] = [0.01, 0.01, 0.97, 0.01]
    >>> probability_of_missing(p, sets)[[0, 1, 30]].round(1)
    array([1., 0., 0.])
    """
    classes = candidates.shape[1]
    sizes = candidates.sum(1)
    informative = sizes < classes
    missing = np.zeros(len(predictions))
    if not informative.any():
        return missing
    sizes = sizes[informative]
    sets = candidates[informative]
    p = predictions[informative]
    odds = sizes / (classes - sizes)
    sample = np.sort(np.random.default_rng(0).permutation(len(sizes))[:MAX_SAMPLED_SETS])
    best = None
    for power in POWERS:
        inside = _mass_inside(p[sample], sets[sample], power)
        fit = _fit_error_rates(inside, (1 - inside) * odds[sample], sizes[sample], power)
        if best is None or fit.log_likelihood > best.log_likelihood:
            best = fit
    assert best is not None
    inside = _mass_inside(p, sets, best.power)
    missing[informative] = _posterior_missing(inside, (1 - inside) * odds, best.error_rates[sizes])
    return missing


def find_noisy_sets(
    features: NDArray[Any], candidates: BoolArray, *, max_rows: int = 5000, seed: int = 0, device: Any = "cpu"
) -> tuple[BoolArray, KernelScores | None]:
    """Return which rows have a set that is not to be trained on [n], by leave-one-out kernel scores of the other rows.

    The second value are these scores with the noisy sets replaced by full ones, if they were computed.
    """
    ranked = append_ranks(features, torch.device(device))
    scaled, _ = scale(ranked.values, "both")
    kernel = with_best_gamma(scaled, candidates)
    noisy = np.zeros(len(features), dtype=bool)
    for _ in range(MAX_ROUNDS):
        training_sets = candidates | noisy[:, None]
        scores = leave_one_out_scores(scaled, training_sets, kernel, max_rows=max_rows, seed=seed)
        predictions = softmax(kernel.inverse_temperature * scores.scores, axis=1)
        missing = probability_of_missing(predictions, candidates)
        previous = noisy
        noisy = (missing >= NOISE_THRESHOLD) & (missing.mean() >= MIN_NOISE_RATE)
        if (noisy == previous).all():
            return noisy, scores
    return noisy, None


class _NoiseFit(NamedTuple):
    log_likelihood: float
    error_rates: FloatArray  # [largest size + 1]
    power: float


def _mass_inside(predictions: FloatArray, sets: BoolArray, power: float) -> FloatArray:
    """Return the share of each set [n] in predictions raised to a power."""
    raised = np.maximum(predictions.astype(np.float64), 1e-9) ** power
    return np.asarray((raised * sets).sum(1) / raised.sum(1))


def _posterior_missing(inside: FloatArray, outside: FloatArray, error_rate: FloatArray) -> FloatArray:
    evidence = (1 - error_rate) * inside + error_rate * outside
    return np.asarray(error_rate * outside / np.maximum(evidence, 1e-12))


def _fit_error_rates(inside: FloatArray, outside: FloatArray, sizes: NDArray[np.intp], power: float) -> _NoiseFit:
    """Estimate the error rate of each size by EM."""
    rows_of_size = np.bincount(sizes)
    rates = np.full(sizes.max() + 1, 0.05)
    previous = rates
    for _ in range(EM_ROUNDS):
        previous = rates
        missing = _posterior_missing(inside, outside, rates[sizes])
        pooled = missing.sum() / (len(missing) + PSEUDO_ROWS)
        rates = (np.bincount(sizes, missing) + PSEUDO_ROWS_PER_SIZE * pooled) / (rows_of_size + PSEUDO_ROWS_PER_SIZE)
    error_rate = rates[sizes]
    likelihood = np.maximum((1 - error_rate) * inside + error_rate * outside, 1e-12)
    return _NoiseFit(float(np.log(likelihood).sum()), previous, power)
