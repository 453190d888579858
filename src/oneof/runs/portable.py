"""The whole model as one torch module, in operations that other programs have too: columns in, probabilities out."""

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.encode import Encoding
from oneof.data.ranks import FARTHEST, Ranks
from oneof.runs.model import Member, Model, PictureMember
from oneof.selection.forest import Forest
from oneof.selection.learners import Regression


class Scores(nn.Module):
    """The normal scores of `oneof.data.ranks`, in operations that ONNX has."""

    low: Tensor
    width: Tensor

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        knots = torch.from_numpy(ranks.knots.T).float()  # [d, knots]
        self.register_buffer("low", knots[:, :-1])
        self.register_buffer("width", knots.diff(dim=1))

    def forward(self, x: Tensor) -> Tensor:
        """The share of segments between knots that a value has passed is its level; a segment without width is half passed at it."""
        ahead = x[..., None] - self.low
        within = (ahead / self.width.clamp_min(1e-30)).clamp(0, 1)
        level = torch.where(self.width > 0, within, (ahead.sign() + 1) / 2).mean(-1)
        end = 0.5 * math.erfc(FARTHEST / 2**0.5)
        return normal_quantile(level.clamp(end, 1 - end))


def normal_quantile(level: Tensor) -> Tensor:
    """By Newton's method, which from 0 goes to the root without passing it; ONNX has erf, but not its inverse."""
    score = torch.zeros_like(level)
    for _ in range(10):
        excess = 0.5 * (1 + torch.erf(score / 2**0.5)) - level
        score = score - excess * (score * score / 2).exp() * (2 * math.pi) ** 0.5
    return score


class _Member(nn.Module):
    """The networks of one architecture, with how they see features."""

    origin: Tensor

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.scores = None if member.ranks is None else Scores(member.ranks)
        origin = torch.zeros(1) if member.origin is None else torch.from_numpy(member.origin).float()
        self.register_buffer("origin", origin)
        self.networks = nn.ModuleList(module.eval() for module in member.stack.modules())
        self.shift = [torch.zeros(1)] * member.stack.t if member.shift is None else list(member.shift)
        self.scale = [torch.ones(1)] * member.stack.t if member.scale is None else list(member.scale)

    def forward(self, x: Tensor) -> list[Tensor]:
        wide = (x if self.scores is None else torch.cat([x, self.scores(x)], dim=1)) - self.origin
        own = zip(self.networks, self.shift, self.scale, strict=True)
        return [network((wide - shift) * scale).softmax(-1) for network, shift, scale in own]


class _OnPictures(nn.Module):
    """Networks on pictures, whose features are levels 0 to 255."""

    def __init__(self, member: PictureMember) -> None:
        super().__init__()
        self.networks, self.pixels = nn.ModuleList(one.cpu().eval() for one in member.stack.modules()), member.pixels
        self.scale, self.offset = (one.cpu()[:, None, None] for one in (member.scale, member.offset))

    def forward(self, x: Tensor) -> list[Tensor]:
        seen = x.view(-1, *self.pixels) * self.scale + self.offset
        return [network(seen).softmax(-1) for network in self.networks]


class _Trees(nn.Module):
    """Trees as gathers: as many steps as the deepest one has levels; a leaf leads to itself."""

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        here, inner = np.arange(len(forest.right)), forest.right > 0
        children = here + 1, forest.right.astype(np.int64)
        self.left, self.right = (torch.from_numpy(np.where(inner, to, here)) for to in children)
        self.feature = torch.from_numpy(np.where(inner, forest.feature, 0).astype(np.int64))
        self.label = torch.from_numpy(forest.feature.astype(np.int64))
        self.threshold, self.origin = torch.from_numpy(forest.threshold), torch.from_numpy(forest.origin).float()
        self.root, self.one_hot = torch.from_numpy(forest.root.astype(np.int64)), torch.eye(forest.classes)
        self.depth = 0
        level = forest.root.astype(np.int64)
        while (level := level[inner[level]]).size:
            level, self.depth = np.concatenate([level + 1, forest.right[level]]), self.depth + 1

    def forward(self, x: Tensor) -> Tensor:
        seen = x - self.origin
        node = self.root.expand(x.shape[0], -1)
        for _ in range(self.depth):
            goes_left = seen.gather(1, self.feature[node]) <= self.threshold[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        return self.one_hot[torch.where(self.right[node] == node, self.label[node], 0)].mean(1)


class _Kernels(nn.Module):
    """Kernel regressions, each with how it sees features."""

    def __init__(self, regression: Regression) -> None:
        super().__init__()
        self.scores, self.sharpness = Scores(regression.ranks), regression.sharpness
        self.ways: list[tuple[Any, ...]] = []
        for way in regression.ways:
            parts = [torch.from_numpy(part).float() for part in (way.shift, way.scale, *way.machine[:3])]
            self.ways.append((*parts, torch.from_numpy(np.flatnonzero(way.scale)), way.machine.gamma))

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.cat([x, self.scores(x)], dim=1)
        said = []
        for shift, scale, marks, coefficients, mean, used, gamma in self.ways:
            seen = ((wide - shift) * scale)[:, used]
            squares = (seen * seen).sum(1, keepdim=True) + (marks * marks).sum(1) - 2 * seen @ marks.T
            scores = (-gamma * squares.clamp_min(0)).exp() @ coefficients + mean
            said.append((self.sharpness * scores).softmax(-1))
        return torch.stack(said).mean(0)


class Portable(nn.Module):
    """A model that takes columns as they stand in a table, and gives probabilities [n, c].

    numbers [n, k], NaN where missing  ->  gaps filled, and a feature for each column that had gaps in training
    categories [n, q], as `codes` has  ->  one-hot; a value that training had not is no category at all
    vectors [n, w]                     ->  as they are: what was made from texts or pictures
    """

    fills: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        encoding, members = model.encoding, model.members
        self.members = nn.ModuleList(_OnPictures(m) if isinstance(m, PictureMember) else _Member(m) for m in members)
        others = [_Trees(one) if isinstance(one, Forest) else _Kernels(cast(Regression, one)) for one in model.others]
        self.others = nn.ModuleList(others)
        self.shares = model.parts
        self.register_buffer("fills", torch.tensor(encoding.fills))
        self.gaps = [encoding.numbers.index(name) for name in encoding.gaps]
        self.values = [torch.arange(len(values)) for values in encoding.categories.values()]

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
        said = [torch.stack(member(x)).mean(0) for member in self.members] + [other(x) for other in self.others]
        return torch.stack([share * one for share, one in zip(self.shares, said, strict=True)]).sum(0)


def codes(encoding: Encoding, words: NDArray[Any]) -> NDArray[np.int64]:
    """Categories [n, q] of text as numbers: which value of its column in training a cell is, -1 where it is none."""
    found = np.full(words.shape, -1)
    for q, values in enumerate(encoding.categories.values()):
        for number, value in enumerate(values):
            found[words[:, q] == value, q] = number
    return found
