"""DivideMix (Li, Socher and Hoi, ICLR 2020): two networks learn from one label per image, some of which are wrong.

After a warm-up on all labels, in every epoch and for each network:

    w_i = P(label i is right)             a Gaussian mixture of two components on the *other* network's losses
    labelled: w_i > 0.5;  unlabelled: the others
    labelled    t_i = sharpen(w_i y_i + (1 - w_i) p_i)        p: mean over two views (co-refinement)
    unlabelled  t_i = sharpen(p_i)                            p: mean over two views and both networks (co-guessing)
    MixMatch    cross-entropy of labelled views, each mixed with another view of either kind, plus a penalty on uneven classes

Numbers are the paper's: sharpening by temperature 0.5, mixing weights from Beta(4, 4), no loss on the unlabelled views themselves, which is
what it chose on CIFAR-10 for 20 % of random and 40 % of asymmetric noise, and a penalty on sure predictions in the warm-up of 10 epochs. The
networks' mean predicts.

Differs from the paper: network, epochs, batch, learning rate and weight decay are those of our own runs (the paper has PreAct ResNet-18, 300 epochs,
batches of 64, 0.02 cut once, 5e-4); labels are guessed in evaluation mode, as the paper does not say; a batch that is not full is left out. With
`strong`, networks are trained on strong views, and labels guessed from weak ones (Nishi et al., CVPR 2021, which improved DivideMix so).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional as F

from oneof.data.augment.views import Augment, Plain, Strong, Views, Weak
from oneof.networks import Network
from oneof.networks.cuda.accelerate import accelerate_views
from oneof.training.device import CudaGraphRunner
from oneof.training.optimize import SGD, cosine
from oneof.training.stack import Stack, build
from oneof.training.training_data import block_size

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DivideMix:
    """Settings of a run."""

    epochs: int
    warm_up: int = 10  # epochs on all labels
    batch: int = 256  # labelled images, and as many unlabelled ones
    lr: float = 0.05  # falls by a cosine
    weight_decay: float = 1e-3
    threshold: float = 0.5  # of the probability that a label is right
    temperature: float = 0.5
    alpha: float = 4.0  # of the Beta distribution of mixing weights
    strong: bool = False  # train on strong views

    @property
    def warm_up_epochs(self) -> int:
        """Return the epochs of the warm-up, at most half of all."""
        return max(1, min(self.warm_up, self.epochs // 2))


class Predicted(NamedTuple):
    """What the two networks predict."""

    train: Floats  # [n, c] refined labels: w y + (1 - w) p
    test: Floats  # [m, c]


@dataclass(eq=False)
class Member:
    """One of the two networks, and what its training changes."""

    stack: Stack
    momentum: list[list[Tensor]]
    clean: Tensor  # [n] probability that a label is right, by the other network's losses


@dataclass(eq=False)
class Training:
    """The state of a run on n training images."""

    setting: DivideMix
    images: Tensor  # uint8 [n + m, 3, h, w]: those to train on, then those to test on
    targets: Tensor  # [n, c] given labels, one-hot
    augment: Augment  # gives weak views 0 and 1 and, with `strong`, strong views 2 and 3
    normalise: Views
    members: list[Member]
    generator: torch.Generator
    runner: CudaGraphRunner

    @property
    def n_rows(self) -> int:
        """Return the number of training images."""
        return len(self.targets)


def train_dividemix(
    setting: DivideMix, images: Tensor, labels: Tensor, n_classes: int, network: Network, views: Views, seed: int,
    capture: bool = True,
) -> Predicted:  # fmt: skip
    """Train two networks on the given labels of the first images; return what they predict.

    Parameters
    ----------
    setting
        The numbers.
    images
        uint8 [n + m, channels, h, w], on the device to train on: n to train on, m to test on.
    labels
        Given labels [n].
    n_classes, network
        Number of classes, and what builds a network.
    views
        Views of these images, one of which is strong; see `oneof.data.augment.views`.
    seed
        Of networks, orders, views and mixing weights.
    capture
        On CUDA: run steps as graphs.
    """
    training = _begin(setting, images, F.one_hot(labels, n_classes).float(), network, views, seed, capture)
    rng = np.random.default_rng(seed)
    for epoch in range(setting.epochs):
        lr = torch.full((1,), setting.lr * cosine(epoch, setting.epochs), device=images.device)
        if epoch < setting.warm_up_epochs:
            for k in range(2):
                _warm_up_epoch(training, k, lr)
            continue
        _divide(training, seed)
        for k in range(2):
            _mixed_epoch(training, k, lr, rng)
    _divide(training, seed)
    return _predict(training)


def _begin(
    setting: DivideMix, images: Tensor, targets: Tensor, network: Network, views: Views, seed: int, capture: bool
) -> Training:
    device = images.device
    (strong,) = [view for view, _ in views.kinds if isinstance(view, Strong)]
    kinds: tuple[tuple[Weak | Strong, int], ...] = ((Weak(strong.flipped, strong.pad), 2),)
    if setting.strong:
        kinds = (*kinds, (strong, 2))
    batch = max(1, min(setting.batch, len(targets) // 4))
    shape = tuple(images.shape[1:])
    members = []
    for k in range(2):
        compile_batch = 2 * batch if device.type == "cuda" else 0
        stack = build(lambda: network(shape, targets.shape[1]), [2 * seed + k], device, compile_batch)
        momentum = SGD().init(stack.weights.values())
        members.append(Member(stack, momentum, torch.zeros(len(targets), device=device)))
    generator = torch.Generator(device).manual_seed(seed)
    training_views = replace(views, kinds=kinds)
    return Training(
        setting=replace(setting, batch=batch),
        images=images,
        targets=targets,
        augment=accelerate_views(training_views, batch) if device.type == "cuda" else training_views,
        normalise=replace(views, kinds=((Plain(), 1),)),
        members=members,
        generator=generator,
        runner=CudaGraphRunner(capture and device.type == "cuda", [generator]),
    )


# ------------------------------------------------------------------------------------------------------------------- epochs


def _warm_up_epoch(training: Training, k: int, lr: Tensor) -> None:
    """Train a network on all labels."""
    batch = training.setting.batch
    order = _shuffled(training, torch.arange(training.n_rows, device=lr.device))
    step = partial(_warm_up_step, training, training.members[k])
    for start in range(0, training.n_rows - batch + 1, batch):
        training.runner(("warm-up", k), step, order[start : start + batch], lr)


def _mixed_epoch(training: Training, k: int, lr: Tensor, rng: np.random.Generator) -> None:
    """Train a network on labelled images, mixed with unlabelled ones."""
    setting = training.setting
    batch = setting.batch
    member = training.members[k]
    is_labelled = member.clean > setting.threshold
    labelled = is_labelled.nonzero()[:, 0]
    unlabelled = (~is_labelled).nonzero()[:, 0]
    if not len(labelled) or not len(unlabelled):  # then neither kind can be told
        labelled = unlabelled = torch.arange(training.n_rows, device=lr.device)
    n_steps = max(1, len(labelled) // batch)
    labelled_rows = _cycled(training, labelled, n_steps * batch).view(n_steps, batch)
    unlabelled_rows = _cycled(training, unlabelled, n_steps * batch).view(n_steps, batch)
    draws = torch.rand(n_steps, 4 * batch, generator=training.generator, device=lr.device)
    partners = draws.argsort(1)[:, : 2 * batch]
    weights = rng.beta(setting.alpha, setting.alpha, n_steps)
    mixing = torch.as_tensor(np.maximum(weights, 1 - weights), dtype=torch.float32, device=lr.device)
    step = partial(_mixed_step, training, member, training.members[1 - k])
    for i in range(n_steps):
        training.runner(("mixed", k), step, labelled_rows[i], unlabelled_rows[i], partners[i], mixing[i], lr)


def _shuffled(training: Training, rows: Tensor) -> Tensor:
    """Return rows in random order."""
    order = torch.randperm(len(rows), generator=training.generator, device=rows.device)
    return rows[order]


def _cycled(training: Training, rows: Tensor, count: int) -> Tensor:
    """Return so many of the rows in random order; all of them again and again where there are fewer."""
    rounds = [_shuffled(training, rows) for _ in range(-(-count // len(rows)))]
    return torch.cat(rounds)[:count]


# -------------------------------------------------------------------------------------------------------------------- steps


def _warm_up_step(training: Training, member: Member, rows: Tensor, lr: Tensor) -> None:
    """Take a step on given labels, with the penalty on sure predictions that the paper has for asymmetric noise."""
    views = training.augment(training.images[rows], training.generator)
    logits = member.stack(views[:1].flatten(0, 1)[None])[0]
    log_p = logits.log_softmax(-1)
    cross_entropy = -(training.targets[rows] * log_p).sum(-1).mean()
    negative_entropy = (log_p.exp() * log_p).sum(-1).mean()
    _descend(training, member, cross_entropy + negative_entropy, lr)


def _mixed_step(
    training: Training, member: Member, other: Member,
    labelled: Tensor, unlabelled: Tensor, partners: Tensor, mixing: Tensor, lr: Tensor,
) -> None:  # fmt: skip
    """Take a step on the views of labelled rows [b], mixed with views [2 b] of labelled and unlabelled rows."""
    b = len(labelled)
    images = training.images[torch.cat([labelled, unlabelled])]
    views = training.augment(images, training.generator)  # [v, 2 b, ...]
    with torch.no_grad():
        p_own = _mean_over_views(member, views[:2])
        p_other = _mean_over_views(other, views[:2, b:])
        clean = member.clean[labelled][:, None]
        refined = clean * training.targets[labelled] + (1 - clean) * p_own[:b]
        guessed = (p_own[b:] + p_other) / 2
        targets = _sharpen(torch.cat([refined, guessed]), training.setting.temperature)
    trained_views = views[-2:]
    inputs = torch.cat([trained_views[:, :b].flatten(0, 1), trained_views[:, b:].flatten(0, 1)])
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    all_targets = torch.cat([targets[:b], targets[:b], targets[b:], targets[b:]])
    mixed_inputs = torch.lerp(inputs[partners], inputs[: 2 * b], mixing.to(inputs.dtype))
    mixed_targets = torch.lerp(all_targets[partners], all_targets[: 2 * b], mixing)
    log_p = member.stack(mixed_inputs[None])[0].log_softmax(-1)
    cross_entropy = -(mixed_targets * log_p).sum(-1).mean()
    share = 1 / log_p.shape[-1]
    class_shares = log_p.exp().mean(0)
    penalty = (share * (share / class_shares).log()).sum()
    _descend(training, member, cross_entropy + penalty, lr)


def _mean_over_views(member: Member, views: Tensor) -> Tensor:
    """Return a network's mean probabilities [b, c] over views [v, b, ...], in evaluation mode."""
    with member.stack.eval_mode():
        logits = member.stack(views.flatten(0, 1)[None])[0]
    return logits.softmax(-1).view(*views.shape[:2], -1).mean(0)


def _sharpen(p: Tensor, temperature: float) -> Tensor:
    """Return probabilities [b, c] to the power 1 / T, which sum to one again."""
    powers = p ** (1 / temperature)
    return powers / powers.sum(-1, keepdim=True)


def _descend(training: Training, member: Member, loss: Tensor, lr: Tensor) -> None:
    gradients = member.stack.gradients(loss)
    with torch.no_grad():
        SGD().step(member.stack.weights.values(), gradients, member.momentum, lr, (training.setting.weight_decay,))


# --------------------------------------------------------------------------------------------------------------- evaluation


def _divide(training: Training, seed: int) -> None:
    """Let each network's losses say how probably each label is right, for the other network."""
    for k, member in enumerate(training.members):
        logits = _logits(training, member, training.images[: training.n_rows])
        losses = -(training.targets * logits.log_softmax(-1)).sum(-1)
        clean = clean_probability(losses.double().cpu().numpy(), seed)
        training.members[1 - k].clean.copy_(torch.as_tensor(clean))


def clean_probability(losses: Floats, seed: int) -> Floats:
    """Return the probability [n] that a loss belongs to the lower of two Gaussian components."""
    span = max(float(np.ptp(losses)), 1e-12)
    scaled = ((losses - losses.min()) / span)[:, None]
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed).fit(scaled)
    return np.asarray(mixture.predict_proba(scaled)[:, mixture.means_.argmin()])


@torch.no_grad()
def _logits(training: Training, member: Member, images: Tensor) -> Tensor:
    """Return logits [n, c] of images as they are, in evaluation mode."""
    blocks = []
    with member.stack.eval_mode():
        for block in images.split(block_size(images, 1, images.device)):  # type: ignore[no-untyped-call]
            inputs = training.normalise.apply(block, (None,))
            blocks.append(member.stack(inputs)[0])
    return torch.cat(blocks)


def _predict(training: Training) -> Predicted:
    """Return refined labels of the training images, and the networks' mean on the test images."""
    p = torch.zeros(len(training.images), training.targets.shape[1], device=training.images.device)
    clean = torch.zeros(training.n_rows, device=p.device)
    for member in training.members:
        p += _logits(training, member, training.images).softmax(-1) / 2
        clean += member.clean / 2
    refined = torch.lerp(p[: training.n_rows], training.targets, clean[:, None])
    return Predicted(refined.double().cpu().numpy(), p[training.n_rows :].double().cpu().numpy())
