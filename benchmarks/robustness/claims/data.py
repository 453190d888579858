"""Tables whose truth is known, with sets of many makes: what `accuracy_claims.py` judges the stated accuracy by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_blobs, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from oneof.candidates.generate import Flip, InstancePaper, InstanceRate, PairFlip, UniformSet, generate
from oneof_paper.synthetic import mixture

Floats = NDArray[np.floating]
Mask = NDArray[np.bool_]
Labels = NDArray[np.intp]
Rng = np.random.Generator
NEW = 2000  # rows at most to measure the accuracy on new rows with
MISSING = 0.1  # share of sets that do not hold the truth


class World(NamedTuple):
    """Rows to learn from, and new ones."""

    x: Floats
    sets: Mask
    truth: Labels
    new_x: Floats
    new_truth: Labels


# ------------------------------------------------------------------------------------------------------------- base tables


def _mixture(n: int, rng: Rng) -> tuple[Floats, Labels]:
    c = int(rng.integers(3, 13))
    data = mixture(
        n=n, d=int(rng.integers(2, 12)), c=c, separation=rng.uniform(0.6, 2.5), seed=int(rng.integers(2**31))
    )
    return data.x, data.labels


def _blobs(n: int, rng: Rng) -> tuple[Floats, Labels]:
    c = int(rng.integers(4, 16))
    spread = rng.uniform(2.5, 7.0)
    x, y = make_blobs(n, int(rng.integers(3, 15)), centers=c, cluster_std=spread, random_state=int(rng.integers(2**31)))
    return x, y


def _clusters(n: int, rng: Rng) -> tuple[Floats, Labels]:
    x, y = make_classification(
        n,
        20,
        n_informative=10,
        n_classes=int(rng.integers(3, 11)),
        n_clusters_per_class=int(rng.integers(1, 4)),
        class_sep=rng.uniform(0.6, 2.0),
        flip_y=0.01,
        random_state=int(rng.integers(2**31)),
    )
    return x, y


def _drawn(load: Callable[..., tuple[Floats, Labels]]) -> Callable[[int, Rng], tuple[Floats, Labels]]:
    def draw(n: int, rng: Rng) -> tuple[Floats, Labels]:
        x, y = load(return_X_y=True)
        rows = rng.permutation(len(x))[:n]
        return x[rows] + rng.uniform(0, 2.0) * x.std(0) * rng.standard_normal(x[rows].shape), y[rows]

    return draw


TABLES = {
    "mixture": _mixture,
    "blobs": _blobs,
    "clusters": _clusters,
    "digits": _drawn(load_digits),
    "cancer": _drawn(load_breast_cancer),
}


# -------------------------------------------------------------------------------------------------------------- kinds of sets


def _uniform(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    make = int(rng.integers(3))
    if make == 0 or c == 2:
        return generate(y, c, Flip(rng.uniform(0.1, 0.6)), seed=int(rng.integers(2**31)))
    if make == 1:
        return generate(y, c, UniformSet(), seed=int(rng.integers(2**31)))
    order = rng.random((len(y), c))
    order[np.arange(len(y)), y] = -1
    return np.asarray(order.argsort(1).argsort(1) <= int(rng.integers(1, max(2, c // 2))))


def _pairs(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    """A fixed partner of the class joins: the next one, or the one that lies nearest."""
    rate = rng.uniform(0.3, 0.9)
    if rng.random() < 0.5:
        return generate(y, c, PairFlip(rate), seed=int(rng.integers(2**31)))
    scaled = StandardScaler().fit_transform(x)
    centre = np.stack([scaled[y == k].mean(0) for k in range(c)])
    far = ((centre[:, None] - centre) ** 2).sum(-1) + np.diag(np.full(c, np.inf))
    sets = np.eye(c, dtype=bool)[y]
    joins = rng.random(len(y)) < rate
    sets[joins, far.argmin(1)[y[joins]]] = True
    return sets


def _doubts(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    """What a weak classifier, taught by few true labels, takes to be possible; in a third of tables only for some rows."""
    if rng.random() < 1 / 3:
        some = rng.random((len(y), 1)) < rng.uniform(0.3, 0.7)
        return np.asarray(np.where(some, _doubted(x, y, c, rng), _uniform(x, y, c, rng)))
    return _doubted(x, y, c, rng)


def _doubted(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    scaled = StandardScaler().fit_transform(x)
    few = rng.permutation(len(y))[: int(rng.integers(8 * c, 25 * c))]
    model = [LogisticRegression(max_iter=300), GaussianNB(var_smoothing=0.05), KNeighborsClassifier(10)][
        rng.integers(3)
    ]
    model.fit(scaled[few], y[few])
    found = np.full((len(y), c), 1e-6)
    found[:, model.classes_] += model.predict_proba(scaled)
    logits, seed = np.log(found / found.sum(1, keepdims=True)), int(rng.integers(2**31))
    make = int(rng.integers(3))
    if make == 0:
        return generate(y, c, InstancePaper(rng.uniform(0.7, 2)), seed=seed, logits=logits)
    if make == 1:
        return generate(y, c, InstanceRate(rng.uniform(0.15, 0.5), rng.uniform(0.7, 2)), seed=seed, logits=logits)
    return np.asarray((found >= rng.uniform(0.1, 0.5) * found.max(1, keepdims=True)) | np.eye(c, dtype=bool)[y])


def _people(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    """What three to six people say who err alike: by class, and in the same rows; the truth may be named by none."""
    n, voters = len(y), int(rng.integers(3, 7))
    scaled = StandardScaler().fit_transform(x)
    hard = scaled @ rng.standard_normal(x.shape[1])
    hard = (hard > np.quantile(hard, rng.uniform(0.6, 0.9))) if rng.random() < 0.5 else np.zeros(n, dtype=bool)
    likely = rng.dirichlet(np.full(c, 0.3), size=c) * (1 - np.eye(c)) + 1e-3
    likely /= likely.sum(1, keepdims=True)
    wrong = np.stack([rng.choice(c, size=voters, p=likely[k]) for k in y])  # [n, voters]
    shared = rng.choice(c, size=c)[y]  # what the class is mistaken for by all
    errs = rng.random((n, voters)) < rng.uniform(0.1, 0.4)
    led = (rng.random((n, 1)) < rng.uniform(0.1, 0.3)) | hard[:, None]
    follows = led & (rng.random((n, voters)) < rng.uniform(0.5, 0.9))
    votes = np.where(follows, shared[:, None], np.where(errs, wrong, y[:, None]))
    sets = np.zeros((n, c), dtype=bool)
    sets[np.arange(n)[:, None], votes] = True
    return sets


def _shuffled(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    make = list(KINDS.values())[rng.integers(4)]
    return make(x, y, c, rng)[rng.permutation(len(y))]


def _missing(x: Floats, y: Labels, c: int, rng: Rng) -> Mask:
    """Uniform sets, a tenth of which lost the truth; one that would be empty has a wrong label."""
    sets = _uniform(x, y, c, rng)
    lost = rng.permutation(len(y))[: round(MISSING * len(y))]
    sets[lost, y[lost]] = False
    empty = lost[~sets[lost].any(1)]
    sets[empty, (y[empty] + rng.integers(1, c, size=len(empty))) % c] = True
    return sets


KINDS = {
    "uniform": _uniform,
    "pairs": _pairs,
    "doubts": _doubts,
    "people": _people,
    "shuffled": _shuffled,
    "missing": _missing,
}


def world(kind: str, seed: int) -> World:
    """Rows of a table and sets of a kind; everything about them is drawn anew for every seed."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    table = list(TABLES)[seed % len(TABLES)]
    n = int(rng.integers(500, 2001))
    x, y = TABLES[table](n + NEW, rng)
    n = min(n, 2 * len(x) // 3)
    y = np.unique(y, return_inverse=True)[1]
    sets = KINDS[kind](x[:n], y[:n], int(y.max()) + 1, rng)
    return World(x[:n], sets, y[:n], x[n:], y[n:])
