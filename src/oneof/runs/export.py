"""The whole model as one ONNX graph: columns in, probabilities and labels out; checked against the model by onnxruntime."""

import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.encode import Encoding
from oneof.data.ranks import FARTHEST, Ranks
from oneof.data.table import Columns
from oneof.runs.model import Member, Model, PictureMember
from oneof.runs.onnx_columns import CATEGORIES, FEATURES, NUMBERS, VECTORS, some_columns, takes_columns
from oneof.selection.learners import Forest, Learner, Regression
from oneof.storage.files import written_beside
from oneof.storage.packages import load_package

TOLERANCE = 1e-4  # the largest difference of a probability that is put down to rounding


class _Scores(nn.Module):
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
        return _normal_quantile(level.clamp(end, 1 - end))


def _normal_quantile(level: Tensor) -> Tensor:
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
        self.scores = None if member.ranks is None else _Scores(member.ranks)
        origin = torch.zeros(1) if member.origin is None else torch.from_numpy(member.origin).float()
        self.register_buffer("origin", origin)
        self.networks = nn.ModuleList(module.eval() for module in member.stack.modules())
        self.shift = [torch.zeros(1)] * member.stack.t if member.shift is None else list(member.shift)
        self.scale = [torch.ones(1)] * member.stack.t if member.scale is None else list(member.scale)

    def forward(self, x: Tensor) -> list[Tensor]:
        wide = (x if self.scores is None else torch.cat([x, self.scores(x)], dim=1)) - self.origin
        return [
            network((wide - shift) * scale).softmax(-1)
            for network, shift, scale in zip(self.networks, self.shift, self.scale, strict=True)
        ]


class _OnPictures(nn.Module):
    """Networks on pictures, whose features are levels 0 to 255."""

    def __init__(self, member: PictureMember) -> None:
        super().__init__()
        self.networks = nn.ModuleList(module.cpu().eval() for module in member.stack.modules())
        self.pixels, self.scale, self.offset = (
            member.pixels,
            *(one.cpu()[:, None, None] for one in (member.scale, member.offset)),
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        seen = x.view(-1, *self.pixels) * self.scale + self.offset
        return [network(seen).softmax(-1) for network in self.networks]


class _Trees(nn.Module):
    """Trees as gathers: as many steps as the deepest one has levels; a leaf leads to itself."""

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        here, inner = np.arange(len(forest.right)), forest.right > 0
        self.left, self.right = (
            torch.from_numpy(np.where(inner, to, here)) for to in (here + 1, forest.right.astype(np.int64))
        )
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
        self.scores, self.sharpness = _Scores(regression.ranks), regression.sharpness
        self.ways = regression.ways

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.cat([x, self.scores(x)], dim=1)
        said = []
        for way in self.ways:
            shift, scale, marks, coefficients, mean = (
                torch.from_numpy(part).float() for part in (way.shift, way.scale, *way.machine[:3])
            )
            seen = ((wide - shift) * scale)[:, np.flatnonzero(way.scale)]
            squares = (seen * seen).sum(1, keepdim=True) + (marks * marks).sum(1) - 2 * seen @ marks.T
            scores = (-way.machine.gamma * squares.clamp_min(0)).exp() @ coefficients + mean
            said.append((self.sharpness * scores).softmax(-1))
        return torch.stack(said).mean(0)


def _module(learner: Learner) -> nn.Module:
    return _Trees(learner) if isinstance(learner, Forest) else _Kernels(learner)  # type: ignore[arg-type]


class _Ensemble(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            _OnPictures(one) if isinstance(one, PictureMember) else _Member(one) for one in model.members
        )
        self.others = nn.ModuleList(map(_module, model.others))
        self.shares = model.shares or [member.stack.t / model.t for member in model.members]

    def forward(self, x: Tensor) -> Tensor:
        said = [torch.stack(member(x)).mean(0) for member in self.members] + [other(x) for other in self.others]
        return torch.stack([share * one for share, one in zip(self.shares, said, strict=True)]).sum(0)


def export_onnx(model: Model, path: Path) -> float:
    """Write the model as ONNX, if onnxruntime finds the same probabilities; the largest difference that it found.

    The graph takes columns as they stand in a table: `numbers` with NaN where missing (dates are days since 1970), `categories` as text ("" where missing),
    and `vectors`, which are made from texts and pictures: the metadata of these names list the columns, and `made` says how vectors are made. It gives
    `probabilities`, whose columns the metadata `classes` names, and `label`.
    """
    model.check_portable()
    onnx, runtime = (load_package(name, "export") for name in ("onnx", "onnxruntime"))
    encoding, x = model.encoding, _rows(model)
    graph = onnx.load_from_string(_exported(_Ensemble(model), x))
    takes_columns(onnx, graph, encoding, model.classes)
    told = {
        "classes": model.classes,
        NUMBERS: list(encoding.numbers),
        CATEGORIES: list(encoding.categories),
        VECTORS: encoding.names[len(encoding.plain.names) :],
        "made": encoding.made,
    }
    onnx.helper.set_model_props(graph, {name: "\n".join(lines) for name, lines in told.items() if lines})
    content = graph.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    columns = some_columns(encoding, x)
    found, _ = session.run(None, columns)
    difference = float(np.abs(found - model.probabilities(_features(encoding, columns))).max())
    if not difference <= TOLERANCE:
        raise ValueError(
            f"the exported model must give the model's probabilities to {TOLERANCE}; it differs by {difference:.2g}. Nothing was written."
        )
    with written_beside(path) as file:
        file.write(content)
    return difference


def _features(encoding: Encoding, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """What predicting makes of such columns."""
    n = len(next(iter(columns.values())))
    words = dict(zip(encoding.categories, columns.get(CATEGORIES, np.empty((n, 0))).T.tolist(), strict=True))
    numbers = columns.get(NUMBERS, np.empty((n, 0), dtype=np.float32))
    made = encoding.plain.transform(Columns("the check", numbers, list(encoding.numbers), words))
    vectors = columns.get(VECTORS)
    return made if vectors is None else vectors if not made.size else np.hstack([made, vectors], dtype=np.float32)


def _exported(module: nn.Module, x: NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter, which needs no further package, announces its age
        torch.onnx.export(
            module.eval(),
            (torch.from_numpy(x),),
            buffer,  # type: ignore[arg-type]  # the older exporter takes any file
            input_names=[FEATURES],
            output_names=["probabilities"],
            dynamic_axes={FEATURES: {0: "n"}, "probabilities": {0: "n"}},
            dynamo=False,
        )
    return buffer.getvalue()


def _rows(model: Model, n: int = 64) -> NDArray[np.float32]:
    """Rows like those of training: drawn between knots or thresholds, or normal where the first network expects it."""
    d, rng = len(model.encoding.names), np.random.default_rng(0)
    member = model.members[0] if model.members else None
    ranks = [
        one.ranks for one in (*model.members, *model.others) if isinstance(one, (Member, Regression)) and one.ranks
    ]
    if isinstance(member, PictureMember):
        x = rng.integers(0, 256, (n, d)).astype(np.float64)
    elif ranks:
        knots = ranks[0].knots
        x = knots[rng.integers(len(knots), size=(n, d)), np.arange(d)] + (knots[-1] - knots[0]) * rng.normal(
            0, 0.05, (n, d)
        )
    elif member is None:
        (forest,) = (one for one in model.others if isinstance(one, Forest))
        inner = forest.right > 0
        levels = [forest.threshold[inner & (forest.feature == j)] for j in range(d)]
        x = np.stack([rng.choice(one if len(one) else np.zeros(1), n) for one in levels], axis=1) + forest.origin
    else:
        shift, scale = (np.zeros(d) if part is None else part[0, 0].numpy() for part in (member.shift, member.scale))
        x = rng.normal(size=(n, d)) / np.where(scale == 0, 1, scale) + shift
        x = x if member.origin is None else x + member.origin
    return np.asarray(x, dtype=np.float32)
