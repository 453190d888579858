"""The whole model as one torch module, in operations that other programs have too: columns in, probabilities out."""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.encode import Encoding
from oneof.data.with_ranks import FARTHEST, Ranks
from oneof.ensemble.model import Member, Model, PictureMember
from oneof.learners.fitted import Regression
from oneof.learners.forest import Forest


def normal_scores(ranks: Ranks, x: Tensor) -> Tensor:
    """The scores of `oneof.data.with_ranks`, in operations that ONNX has.

    The share of segments between knots that a value has passed is its level; a segment without width is half passed at it.
    """
    knots = torch.from_numpy(ranks.knots.T).float()  # [d, knots]
    ahead, width = x[..., None] - knots[:, :-1], knots.diff(dim=1)
    within = (ahead / width.clamp_min(1e-30)).clamp(0, 1)
    level = torch.where(width > 0, within, (ahead.sign() + 1) / 2).mean(-1)
    end = 0.5 * math.erfc(FARTHEST / 2**0.5)
    return normal_quantile(level.clamp(end, 1 - end))


def normal_quantile(level: Tensor) -> Tensor:
    """By Newton's method, which from 0 goes to the root without passing it; ONNX has erf, but not its inverse."""
    score = torch.zeros_like(level)
    for _ in range(10):
        excess = 0.5 * (1 + torch.erf(score / 2**0.5)) - level
        score = score - excess * (score * score / 2).exp() * (2 * math.pi) ** 0.5
    return score


def _seen(member: Member | PictureMember) -> Callable[[Tensor], list[Tensor]]:
    """How each network of a member sees features; those of pictures are levels 0 to 255."""
    t = member.stack.t
    if isinstance(member, PictureMember):
        pixels, scale, offset = member.pixels, *(one.cpu()[:, None, None] for one in (member.scale, member.offset))
        return lambda x: [x.view(-1, *pixels) * scale + offset] * t
    shifts = [torch.zeros(1)] * t if member.shift is None else list(member.shift)
    scales = [torch.ones(1)] * t if member.scale is None else list(member.scale)
    origin = torch.zeros(1) if member.origin is None else torch.from_numpy(member.origin).float()
    ranks = member.ranks

    def seen(x: Tensor) -> list[Tensor]:
        wide = (x if ranks is None else torch.cat([x, normal_scores(ranks, x)], dim=1)) - origin
        return [(wide - shift) * scale for shift, scale in zip(shifts, scales, strict=True)]

    return seen


class _Networks(nn.Module):
    """The networks of one architecture, with how they see features."""

    def __init__(self, member: Member | PictureMember) -> None:
        super().__init__()
        self.networks = nn.ModuleList(one.cpu().eval() for one in member.stack.modules())
        self.seen = _seen(member)

    def forward(self, x: Tensor) -> Tensor:
        each = zip(self.networks, self.seen(x), strict=True)
        return torch.stack([network(seen).softmax(-1) for network, seen in each]).mean(0)


def _trees(forest: Forest) -> Callable[[Tensor], Tensor]:
    """Trees as gathers: as many steps as the deepest one has levels; a leaf leads to itself."""
    here, inner = np.arange(len(forest.right)), forest.right > 0
    children = here + 1, forest.right.astype(np.int64)
    left, right = (torch.from_numpy(np.where(inner, to, here)) for to in children)
    feature = torch.from_numpy(np.where(inner, forest.feature, 0).astype(np.int64))
    label, root = (torch.from_numpy(one.astype(np.int64)) for one in (forest.feature, forest.root))
    threshold, origin = torch.from_numpy(forest.threshold), torch.from_numpy(forest.origin).float()
    one_hot, depth, level = torch.eye(forest.classes), 0, forest.root.astype(np.int64)
    while (level := level[inner[level]]).size:
        level, depth = np.concatenate([level + 1, forest.right[level]]), depth + 1

    def say(x: Tensor) -> Tensor:
        seen, node = x - origin, root.expand(x.shape[0], -1)
        for _ in range(depth):
            goes_left = seen.gather(1, feature[node]) <= threshold[node]
            node = torch.where(goes_left, left[node], right[node])
        return one_hot[torch.where(right[node] == node, label[node], 0)].mean(1)

    return say


def _kernels(regression: Regression) -> Callable[[Tensor], Tensor]:
    """Kernel regressions, each with how it sees features."""
    ways: list[tuple[Any, ...]] = []
    for way in regression.ways:
        parts = [torch.from_numpy(part).float() for part in (way.shift, way.scale, *way.machine[:3])]
        ways.append((*parts, torch.from_numpy(np.flatnonzero(way.scale)), way.machine.gamma))

    def say(x: Tensor) -> Tensor:
        wide, said = torch.cat([x, normal_scores(regression.ranks, x)], dim=1), []
        for shift, scale, marks, coefficients, mean, used, gamma in ways:
            seen = ((wide - shift) * scale)[:, used]
            squares = (seen * seen).sum(1, keepdim=True) + (marks * marks).sum(1) - 2 * seen @ marks.T
            scores = (-gamma * squares.clamp_min(0)).exp() @ coefficients + mean
            said.append((regression.sharpness * scores).softmax(-1))
        return torch.stack(said).mean(0)

    return say


class Portable(nn.Module):
    """A model that takes columns as they stand in a table, and gives probabilities [n, c].

    numbers [n, k], NaN where missing  ->  gaps filled, and a feature for each column that had gaps in training
    categories [n, q], as `codes` has  ->  one-hot; rare values share a feature, unknown ones have none
    vectors [n, w]                     ->  as they are: what was made from texts or pictures
    """

    fills: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        encoding = model.encoding
        self.members = nn.ModuleList(map(_Networks, model.members))
        others = model.others
        self.others = [_trees(one) if isinstance(one, Forest) else _kernels(cast(Regression, one)) for one in others]
        self.shares = model.parts
        self.register_buffer("fills", torch.tensor(encoding.fills))
        self.gaps = [encoding.numbers.index(name) for name in encoding.gaps]
        self.values = [torch.arange(encoding.category_width(column)) for column in encoding.categories]

    def forward(
        self, numbers: Tensor | None = None, categories: Tensor | None = None, vectors: Tensor | None = None
    ) -> Tensor:
        parts = []
        if numbers is not None:
            missing = numbers.isnan()
            parts.append(torch.where(missing, self.fills, numbers))
            parts += [missing[:, self.gaps].float()] if self.gaps else []
        if categories is not None:
            parts += [(categories[:, q, None] == values).float() for q, values in enumerate(self.values)]
        if vectors is not None:
            parts.append(vectors)
        x = torch.cat(parts, 1)
        said = [learner(x) for learner in (*self.members, *self.others)]
        return torch.stack([share * one for share, one in zip(self.shares, said, strict=True)]).sum(0)


def codes(encoding: Encoding, words: NDArray[Any]) -> NDArray[np.int64]:
    """Return categories [n, q] of text as numbers: which feature of its column a cell is, -1 for a value not seen in training."""
    found = np.full(words.shape, -1)
    for q, column in enumerate(encoding.categories):
        known = encoding.category_codes(column)
        found[:, q] = [known.get(word, -1) for word in words[:, q]]
    return found
