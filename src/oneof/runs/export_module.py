"""Express a whole model as one torch module, in operations that ONNX has too: columns in, probabilities out."""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.encode import Encoding
from oneof.data.patches import PatchParameters
from oneof.data.with_ranks import FARTHEST, QuantileNormalizer
from oneof.ensemble.model import Model
from oneof.learners.boosting import BoostedTrees
from oneof.learners.forest import Forest
from oneof.learners.kernel_ensemble import KernelEnsemble
from oneof.learners.network_models import ImageNetworks, TableNetworks

_NEWTON_STEPS = 10


def normal_scores(ranks: QuantileNormalizer, x: Tensor) -> Tensor:
    """Return the normal scores of `oneof.data.with_ranks` for x [n, d].

    The level of a value is the share of intervals between quantiles that lie below it; at an interval of zero width, half of the
    interval counts.
    """
    quantiles = torch.from_numpy(ranks.quantiles.T).float()  # [d, N_QUANTILES]
    distance = x[..., None] - quantiles[:, :-1]
    width = quantiles.diff(dim=1)
    part_below = (distance / width.clamp_min(1e-30)).clamp(0, 1)
    has_width = width > 0
    part_below_point = (distance.sign() + 1) / 2
    level = torch.where(has_width, part_below, part_below_point).mean(-1)
    lowest_level = 0.5 * math.erfc(FARTHEST / 2**0.5)
    return normal_quantile(level.clamp(lowest_level, 1 - lowest_level))


def normal_quantile(level: Tensor) -> Tensor:
    """Return the quantiles of the normal distribution by Newton's method, since ONNX has erf but not its inverse.

    Started at 0, the method approaches the root without overshooting.
    """
    score = torch.zeros_like(level)
    for _ in range(_NEWTON_STEPS):
        excess = 0.5 * (1 + torch.erf(score / 2**0.5)) - level
        score = score - excess * (score * score / 2).exp() * (2 * math.pi) ** 0.5
    return score


def _scaler(member: TableNetworks | ImageNetworks) -> Callable[[Tensor], list[Tensor]]:
    """Return a function from features to the scaled inputs of each network; features of pictures are levels 0 to 255."""
    if isinstance(member, ImageNetworks):
        return _picture_scaler(member)
    n_networks = member.stack.t
    shifts = [torch.zeros(1)] * n_networks
    if member.shift is not None:
        shifts = list(member.shift)
    scales = [torch.ones(1)] * n_networks
    if member.scale is not None:
        scales = list(member.scale)
    origin = torch.zeros(1)
    if member.origin is not None:
        origin = torch.from_numpy(member.origin).float()
    ranks = member.ranks

    def scale_features(x: Tensor) -> list[Tensor]:
        features = x
        if ranks is not None:
            features = torch.cat([x, normal_scores(ranks, x)], dim=1)
        centred = features - origin
        return [(centred - shift) * scale for shift, scale in zip(shifts, scales, strict=True)]

    return scale_features


def _picture_scaler(member: ImageNetworks) -> Callable[[Tensor], list[Tensor]]:
    """Return a function from pixel levels to the scaled pictures of each network."""
    n_networks = member.stack.t
    shape = member.pixels
    scale = member.scale.cpu()[:, None, None]
    offset = member.offset.cpu()[:, None, None]

    def scale_pictures(x: Tensor) -> list[Tensor]:
        pictures = x.view(-1, *shape) * scale + offset
        return [pictures] * n_networks

    return scale_pictures


class _Networks(nn.Module):
    """Average the probabilities of the networks of one architecture."""

    def __init__(self, member: TableNetworks | ImageNetworks) -> None:
        super().__init__()
        self.networks = nn.ModuleList(network.cpu().eval() for network in member.stack.modules())
        self.scaler = _scaler(member)

    def forward(self, x: Tensor) -> Tensor:
        probabilities = []
        for network, inputs in zip(self.networks, self.scaler(x), strict=True):
            probabilities.append(network(inputs).softmax(-1))
        return torch.stack(probabilities).mean(0)


def _leaf_finder(forest: Forest) -> Callable[[Tensor], Tensor]:
    """Return a function from features [n, d] to the label of the leaf that each row reaches in each tree, [n, trees].

    It takes one step of gathers per level of the deepest tree; a leaf leads to itself.
    """
    node_index = np.arange(len(forest.right))
    is_split = forest.right > 0
    left = torch.from_numpy(np.where(is_split, node_index + 1, node_index))
    right = torch.from_numpy(np.where(is_split, forest.right.astype(np.int64), node_index))
    feature = torch.from_numpy(np.where(is_split, forest.feature, 0).astype(np.int64))
    label = torch.from_numpy(forest.feature.astype(np.int64))  # at leaves
    root = torch.from_numpy(forest.root.astype(np.int64))
    threshold = torch.from_numpy(forest.threshold)
    origin = torch.from_numpy(forest.origin).float()
    depth = _depth(forest)

    def find(x: Tensor) -> Tensor:
        centred = x - origin
        node = root.expand(x.shape[0], -1)
        for _ in range(depth):
            goes_left = centred.gather(1, feature[node]) <= threshold[node]
            node = torch.where(goes_left, left[node], right[node])
        return torch.where(right[node] == node, label[node], 0)

    return find


def _forest_predictor(forest: Forest) -> Callable[[Tensor], Tensor]:
    """Return a function from features [n, d] to the share of trees that predict each label, [n, c]."""
    find_labels = _leaf_finder(forest)
    one_hot = torch.eye(forest.classes)

    def predict(x: Tensor) -> Tensor:
        return one_hot[find_labels(x)].mean(1)

    return predict


def _boosting_predictor(boosted: BoostedTrees) -> Callable[[Tensor], Tensor]:
    """Return a function from features [n, d] to the mean over folds of the softmax of start and summed steps, [n, c]."""
    find_leaves = _leaf_finder(boosted.trees)
    steps = torch.from_numpy(boosted.steps)
    start = torch.from_numpy(boosted.start)
    n_folds = len(start)

    def predict(x: Tensor) -> Tensor:
        leaves = find_leaves(x)
        probabilities = []
        for fold, leaves_of_fold in enumerate(leaves.chunk(n_folds, dim=1)):
            logits = start[fold] + steps[leaves_of_fold].sum(1)
            probabilities.append(logits.softmax(-1))
        return torch.stack(probabilities).mean(0)

    return predict


def _depth(forest: Forest) -> int:
    """Return the number of splits on the longest path of any tree."""
    is_split = forest.right > 0
    depth = 0
    level = forest.root.astype(np.int64)
    splits = level[is_split[level]]
    while splits.size:
        depth += 1
        level = np.concatenate([splits + 1, forest.right[splits]])
        splits = level[is_split[level]]
    return depth


def _kernel_predictor(regression: KernelEnsemble) -> Callable[[Tensor], Tensor]:
    """Return a function from features [n, d] to the mean prediction of kernel regressions over their scalings, [n, c]."""
    kernels: list[tuple[Any, ...]] = []
    for scaled_kernel in regression.kernels:
        landmarks, coefficients, mean = scaled_kernel.model[:3]
        tensors = []
        for array in (scaled_kernel.shift, scaled_kernel.scale, landmarks, coefficients, mean):
            tensors.append(torch.from_numpy(array).float())
        used_features = torch.from_numpy(np.flatnonzero(scaled_kernel.scale))
        kernels.append((*tensors, used_features, scaled_kernel.model.gamma))

    def predict(x: Tensor) -> Tensor:
        features = torch.cat([x, normal_scores(regression.ranks, x)], dim=1)
        probabilities = []
        for shift, scale, landmarks, coefficients, mean, used_features, gamma in kernels:
            scaled = ((features - shift) * scale)[:, used_features]
            norms = (scaled * scaled).sum(1, keepdim=True)
            landmark_norms = (landmarks * landmarks).sum(1)
            squared_distance = norms + landmark_norms - 2 * scaled @ landmarks.T
            scores = (-gamma * squared_distance.clamp_min(0)).exp() @ coefficients + mean
            probabilities.append((regression.inverse_temperature * scores).softmax(-1))
        return torch.stack(probabilities).mean(0)

    return predict


class ExportModule(nn.Module):
    """Predict probabilities [n, c] from columns as they stand in a table.

    numbers [n, k], NaN where missing    ->  imputed, with an indicator for each column that had missing values in training;
                                             principal components of very many columns
    categories [n, q], as from `codes`   ->  one-hot; rare values share a feature, unknown ones have none
    vectors [n, w]                       ->  unchanged: embeddings of texts or pictures
    pictures [n, p], levels 0 to 255     ->  features by patches; p = channels x side x side, for each column of pictures in turn
    """

    fills: Tensor
    axes: Tensor  # of components, if there are any
    offset: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        encoding = model.encoding
        self.members = nn.ModuleList(_Networks(member) for member in model.members)
        self.others: list[Callable[[Tensor], Tensor]] = []
        for learner in model.others:
            if isinstance(learner, Forest):
                self.others.append(_forest_predictor(learner))
            elif isinstance(learner, BoostedTrees):
                self.others.append(_boosting_predictor(learner))
            else:
                self.others.append(_kernel_predictor(cast(KernelEnsemble, learner)))
        self.shares = model.weights
        self.chance = model.chance
        self.register_buffer("fills", torch.tensor(encoding.fills))
        self.gaps = [encoding.numbers.index(name) for name in encoding.gaps]
        self.components = encoding.components is not None
        if encoding.components is not None:
            self.register_buffer("axes", torch.from_numpy(encoding.components.axes))
            self.register_buffer("offset", torch.from_numpy(encoding.components.offset))
        self.values = [torch.arange(encoding.category_width(column)) for column in encoding.categories]
        self.patches = [PatchParameters.of(part) for part in encoding.patches]
        self.shapes = [part.pixels.shape for part in encoding.patches]

    def forward(
        self,
        numbers: Tensor | None = None,
        categories: Tensor | None = None,
        vectors: Tensor | None = None,
        pictures: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted mean of the learners' probabilities [n, c]."""
        features = []
        if numbers is not None:
            missing = numbers.isnan()
            features.append(torch.where(missing, self.fills, numbers))
            if self.gaps:
                features.append(missing[:, self.gaps].float())
            if self.components:
                features = [torch.cat(features, 1) @ self.axes - self.offset]
        if categories is not None:
            for q, values in enumerate(self.values):
                features.append((categories[:, q, None] == values).float())
        if vectors is not None:
            features.append(vectors)
        if pictures is not None:
            start = 0
            for patches, shape in zip(self.patches, self.shapes, strict=True):
                end = start + math.prod(shape)
                features.append(patches.features(pictures[:, start:end].reshape(-1, *shape) / 255))
                start = end
        x = torch.cat(features, 1)
        probabilities = [learner(x) for learner in (*self.members, *self.others)]
        weighted = []
        for share, learner_probabilities in zip(self.shares, probabilities, strict=True):
            weighted.append(share * learner_probabilities)
        return torch.stack(weighted).sum(0) + self.chance


def codes(encoding: Encoding, words: NDArray[Any]) -> NDArray[np.int64]:
    """Return categories [n, q] of text as integer codes; -1 for a value not seen in training.

    A code is the index of the value among the one-hot features of its column.
    """
    encoded = np.full(words.shape, -1)
    for q, column in enumerate(encoding.categories):
        code_of = encoding.category_codes(column)
        encoded[:, q] = [code_of.get(word, -1) for word in words[:, q]]
    return encoded
