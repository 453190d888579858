r"""Test, without true labels, whether the sets look uniform, class-dependent or instance-dependent.

With y the true label and D = S \ {y} its distractors:

    uniform              given |S|, every set that holds y is equally likely, and |S| does not depend on y
    class-dependent      D depends on y, but not on x given y
    instance-dependent   D depends on x given y

The statistics. `guess` estimates weights over the set of each row, and so a label, out of fold. Up to a quarter of the rows, those with
the least certain labels, is excluded, but no more than half of the sets with several labels (singletons are certain by construction and
have no distractor). On the other rows, with r_ik = 1[k in S_i] minus its average over the rows with the same estimated label,

    by features   the share of the sum of r_ik^2 that an out-of-fold regression of r on x explains
    by classes    the mean over pairs j != k of (N_jk - m_j q)^2 / (m_j q (1 - q)): N_jk of the m_j rows with label j have k in
                  their set, q is one rate for all pairs

The null distribution. Neither statistic has a known one, since a wrong estimate makes the true label look like a distractor that x
explains. Both are therefore compared with their values on sets that obey the hypothesis: a label is drawn per row from its weights, and
whole sets are permuted between rows with the same drawn label (no dependence on x given y), or distractors are drawn again, equally
likely, with the observed set sizes (uniform). Everything is computed again on each such table, the estimated labels too.

Reliability. The p-values are right to the extent that the weights are calibrated. On Lost, MSRCv2 and BirdSong with the sets permuted
within *true* classes, where no dependence on x is left, the explained share exceeded its expectation by up to 0.015, often
significantly; on the original sets by 0.020 to 0.054 (seeds 0-5). The verdict therefore also requires `LEAST_SHARE` and `LEAST_RATIO`,
and names a close call. A weak classifier hides dependence on x: the verdict is then class-dependent or uniform, neither of which rules
out dependence on x.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Floats = NDArray[np.float32]

_FOLDS = 5
_ROUNDS = 6  # of estimating labels and fitting again; they change little after five
_MAX_COMPONENTS = 64  # principal components
_FOURIER_FEATURES = 128  # random features, for what is not linear in x
_RIDGE = 0.01  # penalty per row; with 0.0003 the tests on curved classes found dependence that was not there
_MIN_PROBABILITY = 1e-3  # least-squares estimates of a probability may fall below zero
MAX_ROWS = 4000  # larger tables are sampled: the test repeats a fit a hundred times
MIN_ROWS = 200
ROWS_PER_CLASS = 10
LEAST_SHARE = 0.02  # of the distractors' variance, explained beyond the expectation; see the module's docstring
LEAST_RATIO = 1.5  # of the chi-square to its expectation; see the module's docstring
_UNCERTAIN_SHARE = 0.25  # of the rows, excluded from the statistics
_RESAMPLES = 49
_MANY_CLASSES = 60
_RESAMPLES_MANY_CLASSES = 19  # fewer, since the time grows with the number of classes


class CrossFit(NamedTuple):
    """Ridge regression on fixed features, in which each row is predicted by a fit to the other folds.

    Only the targets change between calls, so everything that depends on x is computed once.
    """

    basis: Floats  # [n, features]: an intercept, the leading principal components, random Fourier features of these
    folds: list[slice]  # contiguous, since the rows are already in random order
    inverses: list[Floats]  # of each fold's normal equations, [features, features]

    def predict(self, targets: Floats) -> Floats:
        """Return out-of-fold predictions [n, k] of targets [n, k]."""
        moments = self.basis.T @ targets
        predictions = []
        for fold, inverse in zip(self.folds, self.inverses, strict=True):
            basis = self.basis[fold]
            coefficients = inverse @ (moments - basis.T @ targets[fold])
            predictions.append(basis @ coefficients)
        return np.concatenate(predictions)


def cross_fit(x: NDArray[np.floating], seed: int) -> CrossFit:
    """Prepare the regressions on x [n, d], finite and without constant columns; its rows must be in random order."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import RBFSampler

    n = len(x)
    scaled = np.asarray(x, dtype=np.float64)
    scaled = (scaled - scaled.mean(0)) / scaled.std(0)
    n_components = min(_MAX_COMPONENTS, *scaled.shape)
    components = PCA(n_components, random_state=seed).fit_transform(scaled)
    left, right = np.random.default_rng(seed).integers(n, size=(2, 500))
    squared_distances = ((components[left] - components[right]) ** 2).sum(1)
    typical = np.median(squared_distances) or 1.0
    sampler = RBFSampler(gamma=1 / typical, n_components=_FOURIER_FEATURES, random_state=seed)
    fourier = sampler.fit_transform(components)
    intercept = np.ones((n, 1))
    basis = np.hstack([intercept, components / np.sqrt(typical / 2), fourier - fourier.mean(0)])
    edges = np.linspace(0, n, _FOLDS + 1).astype(int).tolist()
    folds = [slice(start, end) for start, end in pairwise(edges)]
    gram = basis.T @ basis
    penalty = np.eye(basis.shape[1]) * (_RIDGE * n)
    penalty[0, 0] = 1e-6 * n  # the intercept is practically not penalised
    inverses = []
    for fold in folds:
        gram_of_others = gram - basis[fold].T @ basis[fold]
        inverses.append(np.linalg.inv(gram_of_others + penalty).astype(np.float32))
    return CrossFit(basis.astype(np.float32), folds, inverses)


def guess(fit: CrossFit, sets: Floats) -> tuple[Floats, Floats]:
    """Estimate out-of-fold posteriors [n, c] from the features, and weights [n, c]: the posteriors restricted to the sets."""
    # Fit the weights, restrict the out-of-fold estimates to the sets, and repeat: PRODEN by least squares, since the test
    # has to run it a hundred times.
    weights = sets / sets.sum(1, keepdims=True)
    for _ in range(_ROUNDS):
        posterior = np.maximum(fit.predict(weights), _MIN_PROBABILITY)
        posterior /= posterior.sum(1, keepdims=True)
        weights = posterior * sets
        weights /= weights.sum(1, keepdims=True)
    return posterior, weights


@dataclass(frozen=True)
class Comparison:
    """A statistic and its values on resampled tables that obey the hypothesis."""

    statistic: float
    expected: float  # its mean under the hypothesis
    p_value: float  # (1 + how many resampled values reach it) / (1 + resamples)
    resamples: int

    @property
    def beyond_all(self) -> bool:
        """Return whether the p-value is the smallest that so many resamples can give."""
        return self.p_value <= 1 / (1 + self.resamples)


@dataclass(frozen=True)
class Dependence:
    """The verdict, the reason for it, and the comparisons behind it (None if the test could not be run)."""

    verdict: str  # "uniform", "class-dependent", "instance-dependent" or "unknown"
    reason: str
    rows: int  # used by the test
    by_features: Comparison | None = None  # explained share of variance; hypothesis: no dependence on x given the class
    by_classes: Comparison | None = None  # mean chi-square per pair, about 1 expected; hypothesis: uniform


def find_dependence(x: NDArray[np.floating] | None, mask: NDArray[np.bool_], seed: int = 0) -> Dependence:
    """Test what sets mask [n, c] depend on, given features x [n, d]; empty and full sets are excluded."""
    if x is None:
        return Dependence("unknown", "there are no features to guess classes from", 0)
    rows = np.flatnonzero(mask.any(1) & ~mask.all(1))
    shortage = _describe_shortage(mask[rows])
    if shortage is not None:
        return Dependence("unknown", f"not enough data: {shortage}", len(rows))
    n_usable = len(rows)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(rows)[:MAX_ROWS]
    features = _varying_columns(x[rows])
    if features.shape[1] == 0:
        return Dependence("unknown", "no feature is finite and varies", len(rows))
    sampled_mask = mask[rows]
    occurs = sampled_mask.any(0)
    sets = sampled_mask[:, occurs].astype(np.float32)
    with threadpool_limits(1):  # hundreds of small products: threads cost more than they give
        dependence = _test_dependence(cross_fit(features, seed), sets, rng)
    if n_usable == len(rows):
        return dependence
    reason = f"{dependence.reason}; from {len(rows):,} of {n_usable:,} rows, drawn at random"
    return replace(dependence, reason=reason)


def _describe_shortage(mask: NDArray[np.bool_]) -> str | None:
    """Return what is missing for the test in sets mask [n, c] that are neither empty nor full; None if nothing is."""
    n = len(mask)
    n_classes = int(mask.any(0).sum())
    rows_needed = max(MIN_ROWS, ROWS_PER_CLASS * n_classes)
    if n < rows_needed:
        return f"{n} rows have a set that is neither empty nor full, {rows_needed} are needed"
    n_several = int((mask.sum(1) > 1).sum())
    several_needed = MIN_ROWS // 2
    if n_several < several_needed:
        return f"{n_several} sets hold two labels or more, {several_needed} are needed"
    return None


def _varying_columns(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the columns of x [n, d] that are finite and not constant."""
    is_finite = np.isfinite(x).all(0)
    finite = x[:, is_finite].astype(np.float64)
    rounding = 1e-12 * np.abs(finite).max(0, initial=0)
    return finite[:, finite.std(0) > rounding]


def _test_dependence(fit: CrossFit, sets: Floats, rng: np.random.Generator) -> Dependence:
    """Compare both statistics of the sets [n, c] with their values on resampled sets."""
    n, c = sets.shape
    posterior, weights = guess(fit, sets)
    if not _beats_most_frequent_label(posterior, sets):
        reason = "the features do not predict the sets better than the most frequent label does"
        return Dependence("unknown", reason, n)
    n_resamples = _RESAMPLES
    if c > _MANY_CLASSES:
        n_resamples = _RESAMPLES_MANY_CLASSES
    resampled_shares = []
    resampled_squares = []
    for _ in range(n_resamples):
        labels = _draw_labels(weights, rng)
        permuted = _permute_within_labels(sets, labels, rng)
        _, permuted_weights = guess(fit, permuted)
        resampled_shares.append(variance_explained_by_features(fit, permuted, permuted_weights))
        uniform = _draw_uniform_sets(sets, labels, rng)
        _, uniform_weights = guess(fit, uniform)
        resampled_squares.append(mean_square(uniform, uniform_weights))
    by_features = _compare(variance_explained_by_features(fit, sets, weights), resampled_shares)
    by_classes = _compare(mean_square(sets, weights), resampled_squares)
    verdict, reason = _decide(by_features, by_classes)
    return Dependence(verdict, reason, n, by_features, by_classes)


def _beats_most_frequent_label(posterior: Floats, sets: Floats) -> bool:
    """Return whether the predicted label is in its set more often than the most frequent one, by three standard errors."""
    n = len(sets)
    predicted_in_set = sets[np.arange(n), posterior.argmax(1)]
    most_frequent_in_set = sets[:, sets.sum(0).argmax()]
    gain = predicted_in_set - most_frequent_in_set
    return bool(gain.mean() > 3 * gain.std() / np.sqrt(n))


def _draw_labels(weights: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw a label per row [n] with probabilities in proportion to its weights [n, c]."""
    cumulative = weights.cumsum(1)
    thresholds = rng.random((len(weights), 1)) * cumulative[:, -1:]
    return np.asarray((cumulative > thresholds).argmax(1))


def _compare(statistic: float, resampled: list[float]) -> Comparison:
    """Compare a statistic with its resampled values."""
    n_reached = sum(value >= statistic for value in resampled)
    n_resamples = len(resampled)
    p_value = (1 + n_reached) / (1 + n_resamples)
    return Comparison(statistic, float(np.mean(resampled)), p_value, n_resamples)


def _decide(by_features: Comparison, by_classes: Comparison) -> tuple[str, str]:
    """Return the verdict and the reason for it."""
    excess = by_features.statistic - by_features.expected
    # If hardly any set has a second label, no distractor is expected of any class, and there are no rates to compare.
    ratio = 1.0
    if by_classes.expected > 0:
        ratio = by_classes.statistic / by_classes.expected
    reason = (
        f"beyond the guessed class the features explain {max(excess, 0):.1%} of the distractors' variance (p = "
        f"{by_features.p_value:.2g}); distractor rates differ between classes {ratio:.3g} times as much as in "
        f"uniform sets (p = {by_classes.p_value:.2g})"
    )
    if by_features.beyond_all and LEAST_SHARE / 2 <= excess < LEAST_SHARE * 3 / 2:
        reason += f"; a close call, since {LEAST_SHARE:.0%} is the least that counts as dependence on the features"
    if by_features.beyond_all and excess >= LEAST_SHARE:
        return "instance-dependent", reason
    if by_classes.beyond_all and ratio >= LEAST_RATIO:
        return "class-dependent", reason
    return "uniform", reason


def _certain_rows(weights: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return the rows without the least certain ones, their estimated labels, and these one-hot."""
    confidence = weights.max(1)
    has_several = (weights > 0).sum(1) > 1
    median_of_several = 1.0
    if has_several.any():
        median_of_several = float(np.median(confidence[has_several]))
    threshold = min(np.quantile(confidence, _UNCERTAIN_SHARE), median_of_several)
    rows = np.flatnonzero(confidence >= threshold)
    labels = weights[rows].argmax(1)
    one_hot = np.eye(weights.shape[1], dtype=np.float32)[labels]
    return rows, labels, one_hot


def variance_explained_by_features(fit: CrossFit, sets: Floats, weights: Floats) -> float:
    """Return the share of the distractors' variance, given the estimated label, that an out-of-fold regression explains."""
    rows, labels, one_hot = _certain_rows(weights)
    # The overall rate, weighted as one row, stabilises the rates given rare labels.
    smoothed_counts = one_hot.T @ sets[rows] + sets.mean(0)
    rates = smoothed_counts / (one_hot.sum(0) + 1)[:, None]
    residual = np.where(one_hot > 0, 0, sets[rows] - rates[labels])
    targets = np.zeros_like(sets)
    targets[rows] = residual
    predicted = np.where(one_hot > 0, 0, fit.predict(targets)[rows])
    unexplained = ((residual - predicted) ** 2).sum()
    total = max(float((residual**2).sum()), 1e-9)
    return float(1 - unexplained / total)


def mean_square(sets: Floats, weights: Floats) -> float:
    """Return the mean chi-square, over pairs of different labels, of distractor counts against one rate for all pairs."""
    rows, _, one_hot = _certain_rows(weights)
    c = sets.shape[1]
    is_pair = ~np.eye(c, dtype=bool)
    counts = (one_hot.T @ sets[rows])[is_pair]
    label_counts = np.repeat(one_hot.sum(0), c - 1)
    rate = counts.sum() / label_counts.sum()
    expected = label_counts * rate
    # A rarely estimated label expects less than one distractor of a kind: without the bound its square would dominate.
    variance = np.maximum(expected * (1 - rate), 1)
    return float(((counts - expected) ** 2 / variance).mean())


def _permute_within_labels(sets: Floats, labels: NDArray[np.intp], rng: np.random.Generator) -> Floats:
    """Permute the sets at random between rows with the same label."""
    shuffled = rng.permutation(len(sets))
    rows_by_label = np.argsort(labels, kind="stable")
    shuffled_by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    source = np.empty(len(sets), dtype=np.intp)
    source[rows_by_label] = shuffled_by_label
    return sets[source]


def _draw_uniform_sets(sets: Floats, labels: NDArray[np.intp], rng: np.random.Generator) -> Floats:
    """Draw sets that contain the row's label and random others, with the observed sizes in random order."""
    n = len(sets)
    scores = rng.random(sets.shape)
    scores[np.arange(n), labels] = -1  # the label ranks first
    ranks = scores.argsort(1).argsort(1)
    sizes = rng.permutation(sets.sum(1))
    return (ranks < sizes[:, None]).astype(np.float32)
