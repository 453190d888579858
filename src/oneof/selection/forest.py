"""Trees as arrays: what they say of rows, on a CPU or a GPU, and how those of scikit-learn become such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.storage.files import written_beside

_ARRAYS = ("right", "feature", "threshold", "root", "origin")
_CELLS = 2**18  # (row, tree) pairs at a time; on a GPU 16 times as many


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


def flat(tree: Any, names: NDArray[Any], origin: NDArray[np.float64], classes: int) -> Forest:
    """A tree of scikit-learn, whose labels have these names, as a forest of one."""
    leaf, single = tree.children_left < 0, tree.threshold.astype(np.float32)
    below = np.nextafter(single, np.float32(-np.inf))  # so no row changes sides
    threshold = np.where(leaf, np.float32(0), np.where(single > tree.threshold, below, single))
    right = np.where(leaf, 0, tree.children_right).astype(np.int32)
    feature = np.where(leaf, names[tree.value[:, 0].argmax(1)], tree.feature).astype(np.int32)
    return Forest(right, feature, threshold, np.zeros(1, np.int32), origin, classes)


def save_forest(forest: Forest, path: Path) -> None:
    """Write a forest as an npz file, which is whole or not there."""
    arrays = {name: getattr(forest, name) for name in _ARRAYS}
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(path) as file:
        np.savez(file, **arrays)


def load_forest(path: Path, d: int, c: int) -> Forest | None:
    """Read trees over d features and c classes that `save_forest` wrote; None where the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in _ARRAYS}
    except (OSError, ValueError, LookupError, BadZipFile, EOFError):
        return None
    forest = Forest(**arrays, classes=c)
    return None if forest.misfit(d, c) else forest


def joined(forests: Sequence[Forest]) -> Forest:
    start = np.cumsum([0, *(len(one.right) for one in forests)]).astype(np.int32)
    right = [np.where(one.right > 0, one.right + first, 0) for one, first in zip(forests, start, strict=False)]
    root = np.concatenate([one.root + first for one, first in zip(forests, start, strict=False)])
    feature, threshold = (np.concatenate([getattr(one, name) for one in forests]) for name in ("feature", "threshold"))
    return replace(forests[0], right=np.concatenate(right), feature=feature, threshold=threshold, root=root)
