"""The ensemble as one ONNX graph: features [n, d] in, mean probabilities [n, c] out; checked against the networks by onnxruntime."""

import io
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.ranks import FARTHEST, Ranks
from oneof.runs.model import Member, Model
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


class _Ensemble(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.members = nn.ModuleList(map(_Member, model.members))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([each for member in self.members for each in member(x)]).mean(0)


def export_onnx(model: Model, path: Path) -> float:
    """Write the model as ONNX, if onnxruntime finds the same probabilities; the largest difference that it found.

    The graph takes the features as `oneof.data.encode` makes them, in the order of its metadata `features`; `classes` names
    the columns of its output. A text or an image enters as the numbers that are made from it: the metadata `made` says how.
    """
    onnx, runtime = (load_package(name, "export") for name in ("onnx", "onnxruntime"))
    x = _rows(model)
    graph = onnx.load_from_string(_exported(_Ensemble(model), x))
    told = {"classes": model.classes, "features": model.encoding.names, "made": model.encoding.made}
    onnx.helper.set_model_props(graph, {name: "\n".join(lines) for name, lines in told.items() if lines})
    content = graph.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"features": x})
    difference = float(np.abs(found - model.probabilities(x)).max())
    if not difference <= TOLERANCE:
        raise ValueError(
            f"the exported model must give the networks' probabilities to {TOLERANCE}; it differs by {difference:.2g}. Nothing was written."
        )
    with written_beside(path) as file:
        file.write(content)
    return difference


def _exported(module: nn.Module, x: NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter, which needs no further package, announces its age
        torch.onnx.export(
            module.eval(),
            (torch.from_numpy(x),),
            buffer,  # type: ignore[arg-type]  # the older exporter takes any file
            input_names=["features"],
            output_names=["probabilities"],
            dynamic_axes={"features": {0: "n"}, "probabilities": {0: "n"}},
            dynamo=False,
        )
    return buffer.getvalue()


def _rows(model: Model, n: int = 64) -> NDArray[np.float32]:
    """Rows like those of training: normal where the first network expects it, or drawn between knots."""
    member, d, rng = model.members[0], len(model.encoding.names), np.random.default_rng(0)
    if member.ranks is not None:
        knots = member.ranks.knots
        x = knots[rng.integers(len(knots), size=(n, d)), np.arange(d)]
        x = x + (knots[-1] - knots[0]) * rng.normal(0, 0.05, (n, d))
    else:
        shift, scale = (np.zeros(d) if part is None else part[0, 0].numpy() for part in (member.shift, member.scale))
        x = rng.normal(size=(n, d)) / np.where(scale == 0, 1, scale) + shift
        x = x if member.origin is None else x + member.origin
    return np.asarray(x, dtype=np.float32)
