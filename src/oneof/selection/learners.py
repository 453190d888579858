"""Learners beside the networks: trees, the kernel regression, a classifier of the user's own; and how all are weighed together.

Each gives what it says of every training row without having learned from it, and what it says of new rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from torch import Tensor

from oneof.data.ranks import Ranks
from oneof.selection.leave_one_out import Machine

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
LEARNERS = ("networks", "linear", "trees", "kernel")
LEAST = 0.1  # share below which a learner is left out
PSEUDO = 100  # rows for which all learners speak alike: so few rows say little about learners
ANEW = 3  # learning again, one tree in so many is grown anew
FEW = 10  # the same, where a learner may be left out
SAMPLE = 50_000  # rows of a large table that say how much each learner counts
_CELLS = 2**18  # (row, tree) pairs at a time; on a GPU 16 times as many


@dataclass(frozen=True)
class Trees:
    """Extremely randomised trees on resolved labels."""

    count: int = 150  # fewer above 50 classes, down to a third: the cost grows as their number
    parts: int = 10  # of the rows, each held out by a tenth of the trees
    first: int = 3  # parts that say whether trees are of any use
    rows: int = 20_000  # a tree learns from at most
    cells: int = 2_000_000  # rows x classes above which trees are left out: their cost grows as both

    def each(self, c: int) -> int:
        """Trees that hold out a part."""
        return max(1, round(self.count / self.parts * min(1, max(50 / c, 1 / 3))))

    def affordable(self, n: int, c: int) -> bool:
        return min(n, self.rows) * c <= self.cells


@dataclass(frozen=True, eq=False)
class Lesson:
    """What learners beside the networks are taught."""

    x: NDArray[Any]  # [n, d]
    beliefs: Floats  # [n, c] share of each candidate
    groups: Any = None
    seed: int = 0

    @property
    def label(self) -> NDArray[np.intp]:
        return np.asarray(self.beliefs.argmax(1))

    @property
    def sure(self) -> Floats:
        """The label's share, rounded: a tree would tell the last bits of a sum apart."""
        return np.asarray(self.beliefs.max(1).round(3))

    def folds(self, k: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows to learn from, in random order, and rows held out, each once; groups together. One group alone is not held out."""
        rng = np.random.default_rng(self.seed)
        names = np.arange(len(self.x)) if self.groups is None else np.asarray(self.groups)
        _, group = np.unique(names, return_inverse=True)
        order = rng.permutation(group.max() + 1)
        fold = (order * min(k, len(order)) // len(order))[group]
        for number in range(fold.max() + 1):
            train, held = fold != number, fold == number
            yield rng.permutation(np.flatnonzero(train if train.any() else held)), np.flatnonzero(held)


# -------------------------------------------------------------------------------------------------------------------- trees


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays, one after the other, each in depth-first order: the left child of node i is i + 1."""

    right: NDArray[np.int32]  # [nodes] the other child; 0: a leaf
    feature: NDArray[np.int32]  # [nodes] that is compared; at a leaf, its label
    threshold: NDArray[np.float32]  # [nodes] up to which rows go left
    root: NDArray[np.int32]  # [trees]
    origin: NDArray[np.float64]  # [d], subtracted in double precision
    classes: int

    kind: ClassVar = "trees"

    def __call__(self, x: NDArray[Any], device: Any = "cpu") -> NDArray[np.float32]:
        """Share of trees that name each label, [n, c]."""
        seen = torch.from_numpy((x - self.origin).astype(np.float32))
        arrays = (self.right, self.feature, self.threshold, self.root)
        right, feature, threshold, root = (torch.as_tensor(one, device=device) for one in arrays)
        votes = np.empty((len(x), self.classes), dtype=np.float32)
        size = max(1, (_CELLS if right.device.type == "cpu" else 16 * _CELLS) // len(root))
        for start in range(0, len(x), size):
            part = seen[start : start + size].to(device)
            row = torch.arange(len(part), device=device).repeat_interleave(len(root))
            label = feature[_leaves(right, feature, threshold, root.long().repeat(len(part)), part, row)]
            counts = torch.bincount(row * self.classes + label, minlength=len(part) * self.classes)
            votes[start : start + size] = counts.view(len(part), -1).cpu().numpy() / len(root)
        return votes

    def some(self, first: int, last: int) -> Forest:
        """The trees from the first to before the last."""
        start, end = (int(np.append(self.root, len(self.right))[at]) for at in (first, last))
        nodes = {name: getattr(self, name)[start:end] for name in ("right", "feature", "threshold")}
        nodes |= {"right": np.maximum(nodes["right"] - start, 0), "root": self.root[first:last] - start}
        return replace(self, **nodes)

    def misfit(self, d: int, c: int) -> bool:
        """Are these arrays no trees over d features and c classes? A step leads on in the arrays, so that every walk ends."""
        n, inner = len(self.right), self.right > 0
        ahead = np.arange(n)
        alike = len(self.feature) == len(self.threshold) == n > 0 and self.origin.shape == (d,) and len(self.root) > 0
        if not alike or inner[-1] or (self.right[inner] <= ahead[inner] + 1).any():
            return True
        ends = ((self.right, n), (self.feature, np.where(inner, d, c)), (self.root, n))
        return any(bool(((one < 0) | (one >= end)).any()) for one, end in ends)


def _leaves(right: Tensor, feature: Tensor, threshold: Tensor, node: Tensor, x: Tensor, row: Tensor) -> Tensor:
    """The leaf that each of the rows [k] of x [n, d] reaches from a root [k]."""
    first, cells, moving = row * x.shape[1], x.flatten(), torch.arange(len(node), device=node.device)
    while len(moving):
        at = node.index_select(0, moving)
        other = right.index_select(0, at)
        inner = (other > 0).nonzero().squeeze(1)
        moving, at, other = (one.index_select(0, inner) for one in (moving, at, other))
        cell = first.index_select(0, moving) + feature.index_select(0, at)
        left = cells.index_select(0, cell) <= threshold.index_select(0, at)
        node.index_copy_(0, moving, torch.where(left, at + 1, other))
    return node


def grow_trees(
    lesson: Lesson,
    classes: int,
    trees: Trees = Trees(),  # noqa: B008 - frozen
    before: Forest | None = None,
    device: Any = "cpu",
    useful: Callable[[Floats], bool] = lambda left_out: True,
) -> Taught:
    """Grow trees on the rows' most probable labels, sure ones weighing more; every row is held out by a part of them.

    Of a forest that was grown before on the same rows and parts, the oldest third of each part is grown anew.
    If what the first trees say of rows left out, zero elsewhere, is of no use, no more are grown.
    """
    each = trees.each(classes)
    if before is not None and len(before.root) != each * trees.parts:  # of a version that grew other numbers
        before = None
    fresh, turn = (each, 0) if before is None else (-(-each // ANEW), len(before.right))
    origin = lesson.x.mean(0, dtype=np.float64) if lesson.x.dtype == np.float64 else np.zeros(lesson.x.shape[1])
    x, label, sure = (lesson.x - origin).astype(np.float32), lesson.label, lesson.sure
    d, jobs = x.shape[1], None if torch.device(device).type == "cpu" else -1  # beside a GPU all cores
    left_out = np.zeros(lesson.beliefs.shape, dtype=np.float32)
    forests = []
    for number, (train, held) in enumerate(lesson.folds(trees.parts)):
        seed, most = (lesson.seed + turn) % 2**20 * trees.parts + number, max(isqrt(d), min(-(-d // 2), 32))
        grown = ExtraTreesClassifier(fresh, max_features=most, random_state=seed, n_jobs=jobs)
        rows = train[: trees.rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of many classes, which may be all that there is
            grown.fit(x[rows], label[rows], sure[rows])
        kept = [] if before is None else [before.some(number * each + fresh, (number + 1) * each)]
        new = [_flat(one.tree_, grown.classes_, origin, classes) for one in grown.estimators_]
        forests.append(_joined([*kept, *new]))
        left_out[held] = forests[-1](lesson.x[held], device)
        if number + 1 == trees.first and not useful(left_out):
            break
    return Taught(_joined(forests), left_out)


def _flat(tree: Any, names: NDArray[Any], origin: NDArray[np.float64], classes: int) -> Forest:
    """A tree of scikit-learn, whose labels have these names, as a forest of one."""
    leaf, single = tree.children_left < 0, tree.threshold.astype(np.float32)
    below = np.nextafter(single, np.float32(-np.inf))  # so no row changes sides
    threshold = np.where(leaf, np.float32(0), np.where(single > tree.threshold, below, single))
    right = np.where(leaf, 0, tree.children_right).astype(np.int32)
    feature = np.where(leaf, names[tree.value[:, 0].argmax(1)], tree.feature).astype(np.int32)
    return Forest(right, feature, threshold, np.zeros(1, np.int32), origin, classes)


def _joined(forests: Sequence[Forest]) -> Forest:
    start = np.cumsum([0, *(len(one.right) for one in forests)]).astype(np.int32)
    right = [np.where(one.right > 0, one.right + first, 0) for one, first in zip(forests, start, strict=False)]
    root = np.concatenate([one.root + first for one, first in zip(forests, start, strict=False)])
    feature, threshold = (np.concatenate([getattr(one, name) for one in forests]) for name in ("feature", "threshold"))
    return replace(forests[0], right=np.concatenate(right), feature=feature, threshold=threshold, root=root)


# --------------------------------------------------------------------------------------------------------------- the kernel


class Seen(NamedTuple):
    """A kernel machine, and how it sees features that stand beside their ranks."""

    shift: NDArray[np.float64]  # [2d]
    scale: NDArray[np.float64]  # [2d]; 0: not seen
    machine: Machine

    def __call__(self, wide: NDArray[np.float64]) -> Floats:
        return self.machine(((wide - self.shift) * self.scale)[:, self.scale != 0])


@dataclass(frozen=True, eq=False)
class Regression:
    """Kernel regressions for several ways to see the features; their mean probability."""

    ranks: Ranks
    ways: tuple[Seen, ...]
    sharpness: float

    kind: ClassVar = "kernel"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities [n, c] of features x [n, d]."""
        wide = self.ranks(x)
        return sharpened([way(wide) for way in self.ways], self.sharpness)


def sharpened(scores: Sequence[Floats], sharpness: float) -> NDArray[np.float32]:
    """Scores [n, c] of several regressions as one distribution per row."""
    return np.asarray(np.mean([softmax(sharpness * one, axis=1) for one in scores], axis=0), dtype=np.float32)


# ------------------------------------------------------------------------------------------------------------ the user's own


@dataclass(frozen=True, eq=False)
class Own:
    """Fitted classifiers of the user's own kind, one per fold; their mean probability."""

    fitted: tuple[Any, ...]
    classes: int

    kind: ClassVar = "own"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities [n, c] of features x [n, d]."""
        return np.asarray(np.mean([_of_all(one, x, self.classes) for one in self.fitted], axis=0), dtype=np.float32)


def teach_own(lesson: Lesson, classifier: Any, classes: int, parts: int = 5) -> Taught:
    """Fit clones of a scikit-learn classifier on the rows' most probable labels, weighed by how probable they are."""
    left_out, fitted = np.zeros(lesson.beliefs.shape, dtype=np.float32), []
    for train, held in lesson.folds(parts):
        own = clone(classifier).fit(lesson.x[train], lesson.label[train], sample_weight=lesson.sure[train])
        left_out[held] = _of_all(own, lesson.x[held], classes)
        fitted.append(own)
    return Taught(Own(tuple(fitted), classes), left_out)


def _of_all(fitted: Any, x: NDArray[Any], classes: int) -> Floats:
    whole = np.zeros((len(x), classes))
    whole[:, fitted.classes_] = fitted.predict_proba(x)
    return whole


Learner = Forest | Regression | Own


class Taught(NamedTuple):
    """A learner, and what it says of each training row without having learned from it."""

    learner: Learner
    left_out: NDArray[np.float32]  # [n, c]


# ----------------------------------------------------------------------------------------------------------------- together


def believed(mask: Mask, said: Sequence[Floats], prior: Floats | None = None) -> Floats:
    """Share of each candidate [n, c]: the mean over opinions [n, c] of what they give within the set, weighed by the prior."""
    weights = mask * (1.0 if prior is None else prior)
    parts = [weights * (one + 1e-9) for one in said] or [weights]
    return np.asarray(np.mean([part / part.sum(1, keepdims=True) for part in parts], axis=0))


def shares(left_out: Sequence[Floats], mask: Mask, prior: Floats | None = None) -> Floats:
    r"""How much each learner counts: what makes the sets of left-out rows most likely, drawn half way to equal shares.

        maximise  sum_i log sum_k w_k P_k(S_i | x_i),     P_k(S_i | x_i) = sum_{j in S_i} prior_ij p_ij

    by EM, of a large table on SAMPLE rows. A learner whose share would be below LEAST is left out: it says nothing that others do not say better.

    >>> good, poor = np.array([[0.9, 0.1], [0.1, 0.9]] * 300), np.full((600, 2), 0.5)
    >>> shares([good, poor], good > 0.5).tolist()
    [1.0, 0.0]
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(mask))[:SAMPLE])
    weights = mask[rows] * (1.0 if prior is None else prior[rows])
    inside = np.stack([(weights * one[rows]).sum(1) for one in left_out], axis=1) + 1e-6  # [n, k]
    share = _mixed(inside, FEW)
    kept = share >= min(LEAST, share.max())
    found = np.zeros(len(kept))
    found[kept] = (_mixed(inside[:, kept], PSEUDO) + 1 / kept.sum()) / 2
    return found


def _mixed(inside: Floats, alike: int) -> Floats:
    """Shares by EM, beside so many rows for which all learners speak alike."""
    n, k = inside.shape
    share = np.full(k, 1 / k)
    for _ in range(200):
        responsible = inside * share
        responsible /= responsible.sum(1, keepdims=True)
        share = (responsible.sum(0) + alike / k) / (n + alike)
    return share
