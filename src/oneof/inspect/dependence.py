r"""Do the sets look uniform, class-dependent or instance-dependent? A test without true labels.

With y the true label and D = S \ {y} its distractors:

    uniform              given |S|, every set that holds y is equally likely, and |S| does not depend on y
    class-dependent      D depends on y, but not on x given y
    instance-dependent   D depends on x given y

What is computed. `guess` gives each row weights over its set and so a guess of y, held out by folds. The quarter of rows with the
least sure guesses is left aside, but no more than half of the sets of several labels (sets of one are sure by themselves and have no distractor); on the others, with r_ik = 1[k in S_i] minus its average over the rows that have the same guess,

    by features   the share of the sum of r_ik^2 that a held-out regression of r on x explains
    by classes    the mean over pairs j != k of (N_jk - m_j q)^2 / (m_j q (1 - q)), N_jk of the m_j rows with guess j hold k, q one rate

Neither has a known distribution, since a wrong guess makes the true label look like a distractor that x explains. So both are compared with
what they are on sets that were made to obey the hypothesis: a label is drawn per row from its weights, and whole sets are
exchanged between rows with the same drawn label (nothing depends on x given y), or distractors are drawn anew, equally likely, with
the observed set sizes (uniform). Everything is computed again on each such table, the guesses too.

How sure. The p-values are right to the extent that the weights are right as probabilities. On Lost, MSRCv2 and BirdSong with the sets exchanged
within *true* classes, where no dependence on x is left, the explained share exceeded its comparison by up to 0.015, often significantly;
with the sets as they are, by 0.020 to 0.054 (seeds 0-5). Hence the verdict also asks for `LEAST_SHARE` and `LEAST_RATIO`, and says so when it is a close call. A weak classifier
hides dependence on x: then the verdict is class-dependent or uniform, which never means that dependence was ruled out.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Floats = NDArray[np.float32]

_FOLDS = 5
_ROUNDS = 6  # of guessing and fitting again; the guesses move little after five
_COMPONENTS = 64  # principal components kept
_WAVES = 128  # random Fourier features: what is not linear in x
_RIDGE = 0.01  # penalty per row; with 0.0003 the tests on curved classes found dependence that was not there
_FLOOR = 1e-3  # least-squares estimates of a probability may fall below zero
MAX_ROWS = 4000  # more are sampled down: the test repeats a fit a hundred times
MIN_ROWS = 200
ROWS_PER_CLASS = 10
LEAST_SHARE = 0.02  # of the distractors' variance, explained beyond what was expected; the module's docstring says why
LEAST_RATIO = 1.5  # of the chi-square to the one expected, for the same reason
_LEAST_SURE = 0.25  # share of rows left aside
_RESAMPLES = 49
_RESAMPLES_MANY = 19  # above _MANY classes: the time grows with their number
_MANY = 60


class CrossFit(NamedTuple):
    """Ridge regression on fixed features, each row predicted by a fit to the other folds.

    Only the targets change between calls, so everything that depends on x is solved once.
    """

    basis: Floats  # [n, features]: an intercept, the leading principal components, random Fourier features of these
    folds: list[slice]  # the rows are already in random order
    inverses: list[Floats]  # of each fold's normal equations, [features, features]

    def predict(self, targets: Floats) -> Floats:
        """Held-out predictions of targets [n, k]."""
        moments = self.basis.T @ targets
        parts = []
        for fold, inverse in zip(self.folds, self.inverses, strict=True):
            inside = self.basis[fold]
            parts.append(inside @ (inverse @ (moments - inside.T @ targets[fold])))
        return np.concatenate(parts)


def cross_fit(x: NDArray[np.floating], seed: int) -> CrossFit:
    """Prepare the regressions on x [n, d], finite and with no constant column, in the order of its rows."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import RBFSampler

    n = len(x)
    scaled = np.asarray(x, dtype=np.float64)
    scaled = (scaled - scaled.mean(0)) / scaled.std(0)
    scaled = PCA(min(_COMPONENTS, *scaled.shape), random_state=seed).fit_transform(scaled)
    left, right = np.random.default_rng(seed).integers(n, size=(2, 500))
    distance = np.median(((scaled[left] - scaled[right]) ** 2).sum(1)) or 1.0  # of a typical pair
    waves = RBFSampler(gamma=1 / distance, n_components=_WAVES, random_state=seed).fit_transform(scaled)
    basis = np.hstack([np.ones((n, 1)), scaled / np.sqrt(distance / 2), waves - waves.mean(0)])
    edges = np.linspace(0, n, _FOLDS + 1).astype(int).tolist()
    folds = [slice(start, end) for start, end in pairwise(edges)]
    normal = basis.T @ basis
    penalty = np.eye(basis.shape[1]) * (_RIDGE * n)
    penalty[0, 0] = 1e-6 * n  # the intercept is free
    inverses = [np.linalg.inv(normal - basis[f].T @ basis[f] + penalty).astype(np.float32) for f in folds]
    return CrossFit(basis.astype(np.float32), folds, inverses)


def guess(fit: CrossFit, sets: Floats) -> tuple[Floats, Floats]:
    """Posterior [n, c] of a held-out classifier from the features alone, and weights, the same on the sets [n, c]."""
    # Labels are identified by turns: fit the weights, restrict the held-out estimates to the sets, fit these. The turns are
    # PRODEN's, by least squares, because the test has to run them a hundred times.
    weights = sets / sets.sum(1, keepdims=True)
    for _ in range(_ROUNDS):
        posterior = np.maximum(fit.predict(weights), _FLOOR)
        posterior /= posterior.sum(1, keepdims=True)
        weights = posterior * sets
        weights /= weights.sum(1, keepdims=True)
    return posterior, weights


@dataclass(frozen=True)
class Comparison:
    """A statistic beside its values on resampled tables that obey the hypothesis."""

    statistic: float
    expected: float  # its mean under the hypothesis
    p_value: float  # (1 + how many resampled values reach it) / (1 + resamples)
    resamples: int

    @property
    def beyond_all(self) -> bool:
        """Is the p-value the smallest that so many resamples can give?"""
        return self.p_value <= 1 / (1 + self.resamples)


@dataclass(frozen=True)
class Dependence:
    """The verdict, why, and the figures it rests on (none where there was nothing to test with)."""

    verdict: str  # "uniform", "class-dependent", "instance-dependent" or "unknown"
    reason: str
    rows: int  # that the test used
    by_features: Comparison | None = None  # explained share of variance, against: x says nothing beyond the class
    by_classes: Comparison | None = None  # mean chi-square per pair, about 1 expected, against: uniform


def find_dependence(x: NDArray[np.floating] | None, mask: NDArray[np.bool_], seed: int = 0) -> Dependence:
    """Test sets mask [n, c] with features x [n, d]; rows with an empty or full set say nothing and are left out."""
    if x is None:
        return Dependence("unknown", "there are no features to guess classes from", 0)
    rows = np.flatnonzero(mask.any(1) & ~mask.all(1))
    several = int((mask[rows].sum(1) > 1).sum())
    needed = max(MIN_ROWS, ROWS_PER_CLASS * int(mask[rows].any(0).sum()))
    if len(rows) < needed or several < MIN_ROWS // 2:
        got = f"{len(rows)} rows have a set that is neither empty nor full, {needed} are needed"
        got = got if len(rows) < needed else f"{several} sets hold two labels or more, {MIN_ROWS // 2} are needed"
        return Dependence("unknown", f"not enough data: {got}", len(rows))
    rng, usable = np.random.default_rng(seed), len(rows)
    rows = rng.permutation(rows)[:MAX_ROWS]
    finite = x[rows][:, np.isfinite(x[rows]).all(0)].astype(np.float64)
    features = finite[:, finite.std(0) > 1e-12 * np.abs(finite).max(0, initial=0)]  # those that vary
    if features.shape[1] == 0:
        return Dependence("unknown", "no feature is finite and varies", len(rows))
    sets = mask[rows][:, mask[rows].any(0)].astype(np.float32)
    with threadpool_limits(1):  # hundreds of small products: threads cost more than they give
        found = _compare(cross_fit(features, seed), sets, rng)
    if usable == len(rows):
        return found
    return replace(found, reason=f"{found.reason}; from {len(rows):,} of {usable:,} rows, drawn at random")


def _compare(fit: CrossFit, sets: Floats, rng: np.random.Generator) -> Dependence:
    n, c = sets.shape
    posterior, weights = guess(fit, sets)
    # Is the held-out guess in its set more often, by three standard errors, than the most frequent label?
    hit = sets[np.arange(n), posterior.argmax(1)] - sets[:, sets.sum(0).argmax()]
    if not hit.mean() > 3 * hit.std() / np.sqrt(n):
        reason = "the features do not predict the sets better than the most frequent label does"
        return Dependence("unknown", reason, n)
    shares, squares = [], []
    for _ in range(_RESAMPLES if c <= _MANY else _RESAMPLES_MANY):
        edges = weights.cumsum(1)  # a label per row, by its weights
        drawn = (edges > rng.random((n, 1)) * edges[:, -1:]).argmax(1)
        exchanged = _exchange(sets, drawn, rng)
        shares.append(explained_share(fit, exchanged, guess(fit, exchanged)[1]))
        level = _redraw(sets, drawn, rng)
        squares.append(mean_square(level, guess(fit, level)[1]))
    by_features = _comparison(explained_share(fit, sets, weights), shares)
    by_classes = _comparison(mean_square(sets, weights), squares)
    return Dependence(*_verdict(by_features, by_classes), n, by_features, by_classes)


def _comparison(statistic: float, resampled: list[float]) -> Comparison:
    reached = sum(value >= statistic for value in resampled)
    return Comparison(statistic, float(np.mean(resampled)), (1 + reached) / (1 + len(resampled)), len(resampled))


def _verdict(by_features: Comparison, by_classes: Comparison) -> tuple[str, str]:
    excess = by_features.statistic - by_features.expected
    # Where next to no set holds a second label, no distractor is expected of any class: then there is nothing to differ.
    ratio = by_classes.statistic / by_classes.expected if by_classes.expected > 0 else 1.0
    figures = (
        f"beyond the guessed class the features explain {max(excess, 0):.1%} of the distractors' variance (p = "
        f"{by_features.p_value:.2g}); distractor rates differ between classes {ratio:.3g} times as much as in "
        f"uniform sets (p = {by_classes.p_value:.2g})"
    )
    if by_features.beyond_all and LEAST_SHARE / 2 <= excess < LEAST_SHARE * 3 / 2:
        figures += f"; a close call, since {LEAST_SHARE:.0%} is the least that counts as dependence on the features"
    if by_features.beyond_all and excess >= LEAST_SHARE:
        return "instance-dependent", figures
    return ("class-dependent" if by_classes.beyond_all and ratio >= LEAST_RATIO else "uniform"), figures


def _sure(weights: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """All rows but the least sure, their guesses, and these one-hot."""
    top = weights.max(1)
    several = (weights > 0).sum(1) > 1
    least = min(np.quantile(top, _LEAST_SURE), np.median(top[several]) if several.any() else 1.0)
    rows = np.flatnonzero(top >= least)
    labels = weights[rows].argmax(1)
    return rows, labels, np.eye(weights.shape[1], dtype=np.float32)[labels]


def explained_share(fit: CrossFit, sets: Floats, weights: Floats) -> float:
    """Share of the variance of distractors, given the guessed label, that a held-out regression on the features explains."""
    rows, labels, one_hot = _sure(weights)
    held = one_hot.T @ sets[rows] + sets.mean(0)  # one row's worth of the overall rate steadies rare labels
    rate = held / (one_hot.sum(0) + 1)[:, None]
    residual = np.zeros_like(sets)
    residual[rows] = actual = np.where(one_hot > 0, 0, sets[rows] - rate[labels])
    predicted = np.where(one_hot > 0, 0, fit.predict(residual)[rows])
    return float(1 - ((actual - predicted) ** 2).sum() / max(float((actual**2).sum()), 1e-9))


def mean_square(sets: Floats, weights: Floats) -> float:
    """Mean chi-square, over pairs of different labels, of distractor counts given the guess against one rate for all."""
    rows, _, one_hot = _sure(weights)
    c = sets.shape[1]
    counts = (one_hot.T @ sets[rows])[~np.eye(c, dtype=bool)]
    guessed = np.repeat(one_hot.sum(0), c - 1)
    rate = counts.sum() / guessed.sum()
    # A label that is hardly ever guessed expects less than one distractor of a kind: its square must not dominate.
    return float(((counts - guessed * rate) ** 2 / np.maximum(guessed * rate * (1 - rate), 1)).mean())


def _exchange(sets: Floats, labels: NDArray[np.intp], rng: np.random.Generator) -> Floats:
    """Sets exchanged at random between rows of the same label."""
    shuffled = rng.permutation(len(sets))
    source = np.empty(len(sets), dtype=np.intp)
    source[np.argsort(labels, kind="stable")] = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return sets[source]


def _redraw(sets: Floats, labels: NDArray[np.intp], rng: np.random.Generator) -> Floats:
    """Sets that hold the row's label and others at random, with the observed sizes in random order."""
    n = len(sets)
    order = rng.random(sets.shape)
    order[np.arange(n), labels] = -1
    rank = order.argsort(1).argsort(1)
    return (rank < rng.permutation(sets.sum(1))[:, None]).astype(np.float32)
