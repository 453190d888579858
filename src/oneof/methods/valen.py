"""VALEN: variational label enhancement for instance-dependent partial labels (Xu et al., NeurIPS 2021)."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from oneof.candidates.mask import masked, posterior, restrict, uniform
from oneof.methods.base import Batch, Method, Net, Step, first_output
from oneof.methods.proden import weighted_cross_entropy


class ValenMemory(NamedTuple):
    """Memory of VALEN, for every example."""

    o: Tensor  # [..., c] PRODEN's weights
    d: Tensor  # [..., c] the label distribution that teaches the classifier
    row: Tensor  # [..., 1] the number of the example
    neighbours: Tensor  # [..., k] the numbers of its neighbours


class Variational(nn.Module):
    """A classifier, an encoder of the same kind and a decoder of label distributions: logits [b, c] and a [b, c]."""

    def __init__(self, module: nn.Module, classes: int, size: int) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(module)
        self.body = module.body
        self.head = module.head
        self.width = module.width
        self.decoder = nn.Sequential(nn.Linear(classes, size), nn.ReLU(), nn.Linear(size, size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)  # type: ignore[operator]
        return self.outputs(x, features, self.head(features))  # type: ignore[operator]

    def outputs(self, x: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `forward` does, from features and logits that were computed elsewhere."""
        return logits, first_output(self.encoder(x))


def concentration(a: Tensor, candidates: Tensor, floor: float) -> Tensor:
    """Return the parameter of the Dirichlet: softmax(a) on S, over its sum there, plus a floor on every label. The sum is a constant."""
    log_p = masked(a.log_softmax(-1), candidates)
    return (log_p - log_p.detach().logsumexp(-1, keepdim=True)).exp() + floor


def draw(alpha: Tensor, generators: list[torch.Generator]) -> Tensor:
    """Return differentiable gamma draws [t, b, c], each trial's from its own generator; their `shares` are a draw of Dir(alpha)."""
    draws = []
    for alpha_of_trial, generator in zip(alpha, generators, strict=True):
        draws.append(torch._standard_gamma(alpha_of_trial, generator))
    return torch.stack(draws)


def shares(gamma: Tensor) -> Tensor:
    """Return numbers as parts of their sum over the labels."""
    return gamma / gamma.sum(-1, keepdim=True).clamp_min(1e-20)


def divergence_from_flat(alpha: Tensor) -> Tensor:
    """Return KL(Dir(alpha) || Dir(1, ..., 1)), [...]."""
    both = torch.cat([alpha, alpha.sum(-1, keepdim=True)], -1)  # the total last: each function is called once
    digamma = both.digamma()
    lgamma = both.lgamma()
    moment = ((alpha - 1) * (digamma[..., :-1] - digamma[..., -1:])).sum(-1)
    return lgamma[..., -1] - math.lgamma(alpha.shape[-1]) - lgamma[..., :-1].sum(-1) + moment


def adjacency(row: Tensor, neighbours: Tensor) -> Tensor:
    """Return the batch's part [t, b, b] of the row-normalised graph: 1 / (k + 1) at the row itself and at neighbours in the batch."""
    numbers = row.mT  # [t, 1, b]
    linked = row == numbers
    for column in neighbours.unbind(-1):  # one [b, b] at a time: a batch may be the whole data set
        linked = linked | (column[..., None] == numbers)
    return linked / (neighbours.shape[-1] + 1)


def graph_error(d: Tensor, graph: Tensor) -> Tensor:
    """Return the mean square, by row [t, b], of rowsoftmax(sigmoid(d d^T)) - A; its mean over rows is that over all pairs."""
    return ((d @ d.mT).sigmoid().softmax(-1) - graph).square().mean(-1)


def by_view(rows: Tensor, batch_size: int) -> Tensor:
    """Return rows [t, v b, ...] as [t, v, b, ...]."""
    return rows.reshape(len(rows), -1, batch_size, *rows.shape[2:])


def nearest(features: Tensor, k: int, block: int = 1024) -> Tensor:
    """Return the numbers [n, k] of the k nearest other rows by Euclidean distance, from `block` x n distances at a time.

    >>> nearest(torch.tensor([[0.0], [1.0], [5.0], [7.0]]), 1).squeeze(-1)
    tensor([1, 0, 3, 2])
    """
    centred = features - features.mean(0)  # the same distances, fewer digits lost
    half = centred.square().sum(-1) / 2
    neighbours = []
    for start in range(0, len(centred), block):
        rows = centred[start : start + block]
        closeness = rows @ centred.T - half  # x.y - |y|^2 / 2 falls as |x - y| grows
        closeness.diagonal(start).fill_(-torch.inf)
        neighbours.append(closeness.topk(k, -1).indices)
    return torch.cat(neighbours)


@dataclass(frozen=True)
class Valen(Method):
    r"""A variational posterior over label distributions, from features, sets and a graph of neighbours, teaches the classifier.

        s_i = softmax(a_i) on S_i, normalised, + floor;   d_i ~ Dir(s_i);   x^_i = decoder(d_i);   a = encoder(x), z the logits
        loss = alpha [reconstruction MSE(x^, x) + membership BCE(sigmoid(d), S) + MSE(rowsoftmax(sigmoid(d d^T)), A)]
             + beta KL(Dir(clip(e^(a/4), .01, 30)) || Dir(1)) + gamma CE(a; o) + theta CE(z; d_before)
        d_i <- kappa d_i on S_i, normalised, + (1 - kappa) o_i;   o_i <- p_ij / sum_{k in S_i} p_ik

    In the first `warm_up` epochs PRODEN trains the classifier (and d follows o). Then A, once: each row's k nearest others by the
    Euclidean distance of the features, and itself, each 1 / (k + 1). A step sees A's rows and columns of its batch: what lies
    outside it is left out, and rows are not normalised again. Means over pairs are divided among the rows, so that the mean of
    loss_i is the formula. Memory: `ValenMemory`. x is reconstructed flattened, as the network sees it.
    Of several views, which go through the networks in one forward, the loss is the mean; each view has its own draw d, and memory
    is renewed from view 0.
    Differs from the authors' code: S is an argument, not the support of o; there is no n x n matrix and no file of it; one
    optimizer has the three networks from the start, so weight decay acts on encoder and decoder in the warm-up, where their
    gradient is zero; the encoder starts as a copy of the untrained classifier (theirs, on KMNIST and CIFAR-10, of the trained
    one); networks are evaluated in evaluation mode. As in their code, and unlike the paper, no graph convolution is used.
    """

    alpha: float = 1.0  # weight of what is rebuilt
    beta: float = 0.1  # of the prior
    gamma: float = 5.0  # of the encoder's agreement with o
    theta: float = 1.0  # of the classifier's with d
    kappa: float = 1.0  # share of the draw in d, that of o being the rest
    floor: float = 1e-2  # of the Dirichlet's parameter
    reconstruction: float = 0.01  # within alpha, of x
    membership: float = 0.01  # within alpha, of the set
    neighbours: int = 3
    warm_up: int = 10  # epochs

    uses_prior: ClassVar[bool] = True  # o; the draw d follows the encoder, which o teaches

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> ValenMemory:
        n = candidates.shape[-2]
        if not 1 <= self.neighbours < n:
            raise ValueError(
                f"neighbours must lie between 1 and the training rows less one ({n - 1}); got {self.neighbours}."
            )
        row = torch.arange(n, device=candidates.device).expand(candidates.shape[:-1])[..., None]
        alone = row.expand(*row.shape[:-1], self.neighbours)
        return ValenMemory(uniform(candidates, prior), uniform(candidates, prior), row.clone(), alone.clone())

    def network(self, module: nn.Module, classes: int, shape: tuple[int, ...]) -> nn.Module:
        return Variational(module, classes, math.prod(shape))

    def refresh(
        self, net: Net, features: Callable[[], Tensor], memory: ValenMemory, shared: Any, epoch: int
    ) -> tuple[ValenMemory, Any]:
        if epoch != self.warm_up:
            return memory, shared
        graph = torch.stack([nearest(features_of_trial, self.neighbours) for features_of_trial in features()])
        return ValenMemory(*memory)._replace(neighbours=graph), shared

    def step(self, net: Net, views: Tensor, batch: Batch, shared: Any) -> Step:
        x = views.movedim(0, 1).flatten(1, 2)  # [t, v b, ...]
        batch_size = batch.candidates.shape[1]
        computed = batch.to_compute()._replace(memory=ValenMemory(*batch.memory))
        logits, a = net(x)
        s = net.fused(concentration, a, computed.candidates.repeat(1, len(views), 1), self.floor)
        d = net.fused(shares, draw(s, batch.generators))
        rebuilt = net(d, part="decoder")
        loss, o, d_after = net.fused(self._learn, logits, a, d, rebuilt, x, computed)
        return Step(loss, logits[:, :batch_size].detach(), computed.memory._replace(o=o, d=d_after), shared)

    def _learn(
        self, logits: Tensor, a: Tensor, d: Tensor, rebuilt: Tensor, x: Tensor, batch: Batch
    ) -> tuple[Tensor, ...]:
        """Compute the loss [t, b] of outputs [t, v b, ...] as the mean over views, and o and d after it from view 0."""
        batch_size = batch.candidates.shape[1]
        logits = by_view(logits, batch_size)
        a = by_view(a, batch_size)
        d = by_view(d, batch_size)
        error = by_view((rebuilt - x.flatten(2)).square().mean(-1), batch_size)
        candidates = batch.candidates
        memory = batch.memory
        o = restrict(memory.o, candidates)
        d_before = restrict(memory.d, candidates)
        encoder_loss = weighted_cross_entropy(a, o[:, None])
        classifier_loss = weighted_cross_entropy(logits, d_before[:, None])
        loss = self._evidence(a, d, error, batch) + self.gamma * encoder_loss + self.theta * classifier_loss
        warm = batch.epoch < self.warm_up
        o_after = posterior(batch.weighed(logits[:, 0].detach()), candidates)
        d_after = self.kappa * restrict(d[:, 0].detach(), candidates) + (1 - self.kappa) * o
        loss = torch.where(warm, weighted_cross_entropy(logits, o[:, None]), loss)
        return loss.mean(1), o_after, torch.where(warm, o_after, d_after)

    def _evidence(self, a: Tensor, d: Tensor, error: Tensor, batch: Batch) -> Tensor:
        """Compute the terms [t, v, b] of the draw (features, sets and graph) and of the encoder's distance from the prior."""
        sets = batch.candidates[:, None].to(d.dtype).expand_as(d)
        member = binary_cross_entropy_with_logits(d, sets, reduction="none").mean(-1)
        graph = graph_error(d, adjacency(batch.memory.row, batch.memory.neighbours)[:, None])
        prior = divergence_from_flat((a / 4).clamp(math.log(0.01), math.log(30)).exp())
        return self.alpha * (self.reconstruction * error + self.membership * member + graph) + self.beta * prior
