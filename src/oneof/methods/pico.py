"""PiCO: contrastive label disambiguation (Wang et al., ICLR 2022)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from oneof.candidates.mask import masked, restrict, uniform
from oneof.methods.base import Batch, Method, Net, Step
from oneof.methods.proden import weighted_cross_entropy


class Contrastive(nn.Module):
    """A classifier with a second head: logits [b, c] and an embedding of length one [b, e]."""

    def __init__(self, module: nn.Module, embedding: int) -> None:
        super().__init__()
        self.body = module.body
        self.head = module.head
        self.width = module.width
        width = int(self.width)  # type: ignore[arg-type]
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, embedding))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)  # type: ignore[operator]
        return self.outputs(x, features, self.head(features))  # type: ignore[operator]

    def outputs(self, x: Tensor, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `forward` does, from features and logits that were computed elsewhere."""
        return logits, normalize(self.projection(features), dim=-1)


def move_prototypes(prototypes: Tensor, embeddings: Tensor, labels: Tensor, momentum: float) -> Tensor:
    """Return prototypes [t, c, e] after mu_y <- m mu_y + (1 - m) q for every row of the batch, one after the other; then of length one.

    The i-th of the K rows of a class has weight (1 - m) m^(K - i) in the end, and the old prototype m^K.
    """
    classes = torch.arange(prototypes.shape[1], device=labels.device)
    member = labels[:, None] == classes[:, None]  # [t, c, b]
    count_so_far = member.cumsum(-1)  # of integers, along the rows as they lie: fast on a GPU, and the same each time
    total = count_so_far[..., -1:]
    weight = member * (1 - momentum) * momentum ** (total - count_so_far)
    return normalize(momentum**total * prototypes + weight @ embeddings, dim=-1)


def similarities(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return q . a / T of every query [t, b, e] with all of {queries, keys, queue}, [t, b, 2b + q]."""
    scaled = query / temperature
    constant = torch.cat([key, queue], 1)  # apart, so that no gradient of these is computed
    return torch.cat([scaled @ query.mT, scaled @ constant.mT], -1)


def choose_pairs(labels: Tensor, pool_labels: Tensor, by_label: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of {queries, keys, queue} attract a query, and which others it is compared with, [t, b, 2b + q].

    Not by label: only its own key attracts, as in MoCo.
    """
    b = labels.shape[-1]
    row = torch.arange(b, device=labels.device)[:, None]
    column = torch.arange(pool_labels.shape[-1], device=labels.device)
    is_other = column != row
    is_key = column == row + b
    in_queue = column >= 2 * b
    same_label = (labels[..., None] == pool_labels[:, None]) & is_other
    positive = torch.where(by_label, same_label, is_key)
    others = torch.where(by_label, is_other, is_key | in_queue)
    return positive, others


def contrast(similarity: Tensor, positive: Tensor, others: Tensor) -> Tensor:
    """Return the mean over the positive of - log softmax(q . a / T) among the others, [t, b]."""
    surprise = -similarity.masked_fill(~others, -torch.inf).log_softmax(-1)
    return torch.where(positive, surprise, 0.0).sum(-1) / positive.sum(-1)


@dataclass(frozen=True)
class PiCO(Method):
    r"""Embeddings of one pseudo-label attract each other; weights move to the candidate whose prototype is nearest.

        loss_i = - sum_j w_ij log p_ij + weight L_i
        w_i   <- phi w_i + (1 - phi) onehot(argmax_{j in S_i} q_i . mu_j),   before the loss, from epoch `start` on
        mu_y  <- normalise(.99 mu_y + .01 q_i),   y = argmax_{j in S_i} p_ij
        L_i    = mean over the others a of label y in {queries, keys, queue} of - log softmax(q_i . a / T)

    View 0 gives the query q, view 1 the key, embedded by a network whose weights trail behind (key <- .999 key + .001 query).
    Before `start`, L is MoCo's contrast of the two views. Prototypes choose before they are moved by the batch.
    Memory: w [n, c], uniform over S at first. Shared: prototypes [t, c, e], queue [t, q, e], its labels [t, q], where it is
    written next [t], and the key network's weights in the order of the network's own.
    Differs from the authors' code: the queue starts with rows of length one (theirs are normalised along the wrong axis) and
    label -1, which matches nothing (theirs: random floats), the same in every trial; any batch size goes with any queue; w is
    restricted to the set of the moment; batches are not shuffled between devices, so keys share the batch statistics of BN.
    The key network keeps no running statistics, as nothing reads them: in training it normalises by its batch.
    """

    weight: float = 0.5  # of the contrastive loss
    temperature: float = 0.07
    queue: int = 8192  # keys remembered
    embedding: int = 128  # its dimension e
    momentum: float = 0.999  # of the key network
    prototype_momentum: float = 0.99
    phi_start: float = 0.95  # momentum of the weights, in epoch 1; it is .99 in epoch 0
    phi_end: float = 0.8  # ... after `epochs`
    epochs: int = 800
    start: int = 1  # epoch from which on prototypes choose and labels attract

    views: ClassVar[int] = 2
    uses_prior: ClassVar[bool] = True  # the first weights and the pseudo-labels; prototypes choose by themselves
    resettable: ClassVar[bool] = True
    joint_forward: ClassVar[bool] = False  # query and key have networks of their own

    def __post_init__(self) -> None:
        for name in ("temperature", "queue", "epochs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}.")

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Tensor:
        return uniform(candidates, prior)

    def network(self, module: nn.Module, classes: int, shape: tuple[int, ...]) -> nn.Module:
        return Contrastive(module, self.embedding)

    def shared(self, net: Net) -> tuple[Tensor, ...]:
        head = net.weights["head.weight"]  # [t, c, width]
        t, c = head.shape[:2]
        draws = torch.randn(self.queue, self.embedding, generator=torch.Generator().manual_seed(0), dtype=head.dtype)
        queue = normalize(draws, dim=-1).to(head.device).repeat(t, 1, 1)
        labels = torch.full((t, self.queue), -1, device=head.device)
        at = torch.zeros(t, dtype=torch.int64, device=head.device)
        keys = [weight.clone() for weight in net.weights.values()]
        return head.new_zeros(t, c, self.embedding), queue, labels, at, *keys

    def step(self, net: Net, views: Tensor, batch: Batch, shared: tuple[Tensor, ...]) -> Step:
        logits, query = net(views[0])
        with torch.no_grad():
            keys = torch._foreach_lerp(shared[4:], tuple(net.weights.values()), 1 - self.momentum)
            key = net(views[1], weights=dict(zip(net.weights, keys, strict=True)))[1]
        loss, weights, *after = net.fused(self._compare, logits, query, key, batch.to_compute(), shared[:4])
        return Step(loss, logits.detach(), weights, (*after, *keys))

    def _compare(self, logits: Tensor, query: Tensor, key: Tensor, batch: Batch, shared: Any) -> tuple[Tensor, ...]:
        """Return loss [t, b] and weights of the batch; then prototypes, queue, its labels and where it is written next, after it."""
        prototypes, queue, queue_labels, at = shared
        labels = masked(batch.weighed(logits.detach()), batch.candidates).argmax(-1)
        weights = self._weights(batch, query.detach(), prototypes)
        pool_labels = torch.cat([labels, labels, queue_labels], 1)
        positive, others = choose_pairs(labels, pool_labels, batch.epoch >= self.start)
        similarity = similarities(query, key, queue, self.temperature)
        attraction = contrast(similarity, positive, others)
        loss = weighted_cross_entropy(logits, weights) + self.weight * attraction
        after = move_prototypes(prototypes, query.detach(), labels, self.prototype_momentum)
        return loss, weights, after, *_enqueue(queue, queue_labels, at, key, labels)

    def _weights(self, batch: Batch, query: Tensor, prototypes: Tensor) -> Tensor:
        """Return the targets of the classifier: the remembered weights, moved towards the nearest candidate prototype."""
        weights = restrict(batch.memory, batch.candidates)
        nearest = masked(query @ prototypes.mT, batch.candidates).argmax(-1, keepdim=True)
        chosen = torch.zeros_like(weights).scatter(-1, nearest, 1.0)
        # the authors set phi at the end of an epoch by that epoch's number, hence the lag of one
        progress = ((batch.epoch - 1) / self.epochs).clamp(max=1)
        phi = torch.where(batch.epoch == 0, 0.99, self.phi_start + progress * (self.phi_end - self.phi_start))
        return torch.where(batch.epoch >= self.start, phi * weights + (1 - phi) * chosen, weights)


def _enqueue(queue: Tensor, queue_labels: Tensor, at: Tensor, key: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Return the queue with the newest keys over the oldest, its labels, and where it is written next."""
    q = queue.shape[1]
    key = key[:, -q:].to(queue.dtype)
    labels = labels[:, -q:]
    where = (at[:, None] + torch.arange(key.shape[1], device=at.device)) % q
    rows = where[..., None].expand_as(key)
    return queue.scatter(1, rows, key), queue_labels.scatter(1, where, labels), (at + key.shape[1]) % q
