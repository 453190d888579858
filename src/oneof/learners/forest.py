"""Trees stored as arrays: prediction on a CPU or a GPU, and conversion from scikit-learn's trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.storage.files import atomic_write

ARRAYS = ("right", "feature", "threshold", "root", "origin")
CPU_BLOCK = 2**18  # (row, tree) pairs processed at a time
GPU_BLOCK = 16 * CPU_BLOCK
ROWS_BLOCK = 2**13  # rows that scikit-learn's trees process at a time: they fit in a processor's cache
TREES_BLOCK = 16  # trees whose labels are counted at a time


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays, one after the other, each in depth-first order: the left child of node i is i + 1."""

    right: NDArray[np.int32]  # [nodes] right child; 0 at a leaf
    feature: NDArray[np.int32]  # [nodes] feature that is compared; at a leaf, its label
    threshold: NDArray[np.float32]  # [nodes] rows with a value up to this go left
    root: NDArray[np.int32]  # [trees]
    origin: NDArray[np.float64]  # [d] subtracted from features in double precision
    classes: int
    kind: str = "trees"  # name of the learner that grew them

    def __call__(self, x: NDArray[Any], device: Any = "cpu") -> NDArray[np.float32]:
        """Return the share of trees that predict each label, [n, c]."""
        centred = (x - self.origin).astype(np.float32)
        if device == "cpu" and len(x) * len(self.root) > CPU_BLOCK:
            return self._shares_by_sklearn(centred)
        features = torch.from_numpy(centred)
        right = torch.as_tensor(self.right, device=device)
        feature = torch.as_tensor(self.feature, device=device)
        threshold = torch.as_tensor(self.threshold, device=device)
        root = torch.as_tensor(self.root, device=device)
        trees = len(root)
        pairs = CPU_BLOCK if right.device.type == "cpu" else GPU_BLOCK
        block_size = max(1, pairs // trees)
        shares = np.empty((len(x), self.classes), dtype=np.float32)
        for start in range(0, len(x), block_size):
            block = features[start : start + block_size].to(device)
            row = torch.arange(len(block), device=device).repeat_interleave(trees)
            first_node = root.long().repeat(len(block))
            label = feature[_find_leaves(right, feature, threshold, first_node, block, row)]
            counts = torch.bincount(row * self.classes + label, minlength=len(block) * self.classes)
            shares[start : start + block_size] = counts.view(len(block), -1).cpu().numpy() / trees
        return shares

    def find_leaf_labels(self, x: NDArray[Any], device: Any = "cpu") -> NDArray[np.intp]:
        """Return the label of the leaf that each row reaches in each tree, [n, trees]."""
        centred = (x - self.origin).astype(np.float32)
        n_trees = len(self.root)
        if device == "cpu" and len(x) * n_trees > CPU_BLOCK:
            labels = np.empty((len(x), n_trees), dtype=np.intp)
            for i, (tree, label_of_node) in enumerate(self._compiled):
                labels[:, i] = label_of_node[tree.apply(centred)]
            return labels
        right = torch.as_tensor(self.right, device=device)
        feature = torch.as_tensor(self.feature, device=device)
        threshold = torch.as_tensor(self.threshold, device=device)
        row = torch.arange(len(x), device=device).repeat_interleave(n_trees)
        first_node = torch.as_tensor(self.root, device=device).long().repeat(len(x))
        features = torch.from_numpy(centred).to(device)
        leaf = _find_leaves(right, feature, threshold, first_node, features, row)
        return np.asarray(feature[leaf].view(len(x), n_trees).cpu().numpy(), dtype=np.intp)

    def _shares_by_sklearn(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the same by scikit-learn's compiled trees, which are several times as fast for many rows."""
        shares = np.empty((len(x), self.classes), dtype=np.float32)
        for start in range(0, len(x), ROWS_BLOCK):
            block = x[start : start + ROWS_BLOCK]
            shares[start : start + ROWS_BLOCK] = self._count_labels(block) / len(self.root)
        return shares

    def _count_labels(self, x: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return how many trees predict each label, [n, c]."""
        first_cell = np.arange(len(x)) * self.classes
        counts = np.zeros(len(x) * self.classes, dtype=np.intp)
        for start in range(0, len(self._compiled), TREES_BLOCK):
            trees = self._compiled[start : start + TREES_BLOCK]
            cells = np.empty((len(trees), len(x)), dtype=np.intp)  # of `counts`
            for i, (tree, label_of_node) in enumerate(trees):
                np.take(label_of_node, tree.apply(x), out=cells[i])
            cells += first_cell
            counts += np.bincount(cells.ravel(), minlength=len(counts))
        return counts.reshape(len(x), self.classes)

    @cached_property
    def _compiled(self) -> list[tuple[Any, NDArray[np.intp]]]:
        """Return each tree as one of scikit-learn, and the label of each of its leaves, by node."""
        labels = np.split(self.feature.astype(np.intp), self.root[1:])
        return list(zip(to_sklearn(self), labels, strict=True))

    def take(self, first: int, last: int) -> Forest:
        """Return the trees from `first` to before `last`."""
        ends = np.append(self.root, len(self.right))
        start = int(ends[first])
        end = int(ends[last])
        return replace(
            self,
            right=np.maximum(self.right[start:end] - start, 0),
            feature=self.feature[start:end],
            threshold=self.threshold[start:end],
            root=self.root[first:last] - start,
        )

    def with_labels_from(self, first: int, classes: int) -> Forest:
        """Return the trees with `first` added to the label of every leaf."""
        is_leaf = self.right == 0
        return replace(self, feature=self.feature + np.where(is_leaf, np.int32(first), np.int32(0)), classes=classes)

    def is_malformed(self, d: int, c: int) -> bool:
        """Return whether the arrays are not trees over d features and c classes in which every path ends within its tree."""
        if any(array.ndim != 1 for array in (self.right, self.feature, self.threshold, self.root)):
            return True
        nodes = len(self.right)
        same_length = len(self.feature) == len(self.threshold) == nodes > 0
        if not same_length or self.origin.shape != (d,) or len(self.root) == 0:
            return True
        tree_sizes = np.diff(self.root, append=nodes)
        if self.root[0] != 0 or (tree_sizes <= 0).any():
            return True
        inner = self.right > 0
        positions = np.arange(nodes)
        leads_ahead = self.right[inner] > positions[inner] + 1
        last_of_tree = np.repeat(self.root + tree_sizes - 1, tree_sizes)  # by node
        if inner[last_of_tree].any() or not leads_ahead.all() or (self.right > last_of_tree).any():
            return True
        for values, limit in ((self.right, nodes), (self.feature, np.where(inner, d, c))):
            if ((values < 0) | (values >= limit)).any():
                return True
        return False


def _find_leaves(right: Tensor, feature: Tensor, threshold: Tensor, node: Tensor, x: Tensor, row: Tensor) -> Tensor:
    """Return the leaf [k] that each of the rows [k] of x [n, d] reaches from its first node [k]."""
    first_cell = row * x.shape[1]
    cells = x.flatten()
    moving = torch.arange(len(node), device=node.device)
    while len(moving):
        current = node.index_select(0, moving)
        right_child = right.index_select(0, current)
        inner = (right_child > 0).nonzero().squeeze(1)
        moving = moving.index_select(0, inner)
        current = current.index_select(0, inner)
        right_child = right_child.index_select(0, inner)
        cell = first_cell.index_select(0, moving) + feature.index_select(0, current)
        goes_left = cells.index_select(0, cell) <= threshold.index_select(0, current)
        node.index_copy_(0, moving, torch.where(goes_left, current + 1, right_child))
    return node


def to_sklearn(forest: Forest) -> list[Any]:
    """Return the trees as compiled trees of scikit-learn that find leaves; they know nothing of labels."""
    from sklearn.tree._tree import NODE_DTYPE, TREE_LEAF, Tree

    d = len(forest.origin)
    trees = []
    ends = np.append(forest.root, len(forest.right))
    for start, end in pairwise(ends):
        right = forest.right[start:end]
        is_leaf = right == 0
        nodes = np.zeros(end - start, dtype=NODE_DTYPE)
        nodes["left_child"] = np.where(is_leaf, TREE_LEAF, np.arange(1, end - start + 1))
        nodes["right_child"] = np.where(is_leaf, TREE_LEAF, right - start)
        nodes["feature"] = np.where(is_leaf, 0, forest.feature[start:end])
        nodes["threshold"] = forest.threshold[start:end]
        tree = Tree(d, np.ones(1, dtype=np.intp), 1)
        values = np.zeros((len(nodes), 1, 1))
        tree.__setstate__({"max_depth": len(nodes), "node_count": len(nodes), "nodes": nodes, "values": values})
        trees.append(tree)
    return trees


def from_sklearn(tree: Any, labels: NDArray[Any], origin: NDArray[np.float64], classes: int) -> Forest:
    """Return a fitted tree of scikit-learn, whose classes are these labels, as a forest of one.

    A subtree whose leaves all have one label becomes a leaf. That changes no prediction, and leaves a hundredth of a regression tree that
    was grown to single rows.
    """
    leaf = tree.children_left < 0
    threshold = _round_down(tree.threshold)
    outputs = tree.value.reshape(len(tree.value), -1)  # of classifiers [nodes, 1, k], of regressors [nodes, k, 1]
    right = np.where(leaf, 0, tree.children_right)
    label, kept = _merge_leaves(right, labels[outputs.argmax(1)])
    new_number = np.cumsum(kept) - 1  # depth-first order stays: whole subtrees are left out
    is_leaf = label >= 0
    return Forest(
        right=np.where(is_leaf, 0, new_number[right])[kept].astype(np.int32),
        feature=np.where(is_leaf, label, tree.feature)[kept].astype(np.int32),
        threshold=np.where(is_leaf, np.float32(0), threshold)[kept],
        root=np.zeros(1, np.int32),
        origin=origin,
        classes=classes,
    )


def with_numbered_leaves(tree: Any, origin: NDArray[np.float64], first: int) -> tuple[Forest, NDArray[np.intp]]:
    """Return a fitted tree of scikit-learn as a forest of one whose leaves have the labels `first`, `first` + 1, ...

    Also return the label of each of its nodes as scikit-learn numbers them; inner nodes have -1.
    """
    order = _depth_first(tree.children_left, tree.children_right)
    new_number = np.empty(len(order), dtype=np.int32)
    new_number[order] = np.arange(len(order))
    is_leaf = tree.children_left < 0
    label = np.where(is_leaf, first + np.cumsum(is_leaf) - 1, -1)
    right = np.where(is_leaf, 0, new_number[tree.children_right])
    forest = Forest(
        right=right[order].astype(np.int32),
        feature=np.where(is_leaf, label, tree.feature)[order].astype(np.int32),
        threshold=np.where(is_leaf, np.float32(0), _round_down(tree.threshold))[order],
        root=np.zeros(1, np.int32),
        origin=origin,
        classes=first + int(is_leaf.sum()),
    )
    return forest, label


def _depth_first(left: NDArray[Any], right: NDArray[Any]) -> list[int]:
    """Return the nodes of a tree in depth-first order; leaves have the left child -1.

    >>> _depth_first(np.array([1, 3, -1, -1, -1]), np.array([2, 4, -1, -1, -1]))
    [0, 1, 3, 4, 2]
    """
    order = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if left[node] >= 0:
            waiting += [int(right[node]), int(left[node])]
    return order


def _round_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return thresholds in single precision, none larger than before: rounding up could move a row to the other side."""
    rounded = threshold.astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _merge_leaves(right: NDArray[Any], leaf_label: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the label of each node below which there is only one, -1 elsewhere, and which nodes are not below such a node.

    >>> right = np.array([4, 3, 0, 0, 0])  # node 0 has the children 1 and 4, node 1 the leaves 2 and 3
    >>> label, kept = _merge_leaves(right, np.array([9, 9, 7, 7, 5]))
    >>> label.tolist(), kept.tolist()
    ([-1, 7, 7, 7, 5], [True, True, False, False, True])
    """
    inner = np.flatnonzero(right)
    parent = np.zeros(len(right), dtype=np.intp)
    parent[inner + 1] = inner
    parent[right[inner]] = inner
    label = np.where(right > 0, -1, leaf_label)
    undecided = inner
    while len(undecided):
        left_label = label[undecided + 1]
        is_merged = (left_label >= 0) & (left_label == label[right[undecided]])
        merged = undecided[is_merged]
        label[merged] = left_label[is_merged]
        parents = np.unique(parent[merged])
        undecided = parents[label[parents] < 0]
    kept = label[parent] < 0
    kept[0] = True
    return label, kept


def concatenate(forests: Sequence[Forest]) -> Forest:
    """Return the trees of several forests as one."""
    right = []
    root = []
    offset = np.int32(0)
    for forest in forests:
        right.append(np.where(forest.right > 0, forest.right + offset, 0))
        root.append(forest.root + offset)
        offset += np.int32(len(forest.right))
    return replace(
        forests[0],
        right=np.concatenate(right),
        feature=np.concatenate([forest.feature for forest in forests]),
        threshold=np.concatenate([forest.threshold for forest in forests]),
        root=np.concatenate(root),
        classes=max(forest.classes for forest in forests),
    )


def save_forest(forest: Forest, path: Path) -> None:
    """Write a forest as an npz file, which is complete or not there."""
    arrays = {name: getattr(forest, name) for name in ARRAYS}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        np.savez(file, **arrays)


def load_forest(path: Path, d: int, c: int) -> Forest | None:
    """Read trees over d features and c classes that `save_forest` wrote; return None if the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ARRAYS}
    except (OSError, ValueError, LookupError, BadZipFile, EOFError):
        return None
    forest = Forest(**arrays, classes=c)
    return None if forest.is_malformed(d, c) else forest
