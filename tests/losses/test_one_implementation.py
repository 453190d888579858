"""A loop of one's own with the losses ends with the weights of `oneof.fit`: the same network, batches and numbers, in float64."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from oneof import CandidateLoss, Purifier
from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views as make_views
from oneof.data.augment.views import Pictures
from oneof.losses import frozen_statistics
from oneof.methods import METHODS, RCR, PiCO, Valen
from oneof.networks import MLP, Classifier
from oneof.purify import Pop, PopPrinted, PopRatio
from oneof.training.fit import fit
from oneof.training.optimize import cosine
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

N, C, EPOCHS, BATCH, LR, DECAY, SEED = 70, 4, 6, 16, 0.1, 1e-3, 3  # the last batch is a short one
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
SETS = generate(DATA.labels, C, Flip(rate=0.4), seed=0)
COUNTS = SETS * np.random.default_rng(4).integers(1, 4, SETS.shape)
IMAGES = (DATA.labels[:, None, None] * 20 + np.random.default_rng(5).integers(0, 30, (N, 8, 8))).astype(np.uint8)
PICTURES = Pictures(8, (0.2,), (0.2,))
RULES = {
    "none": None,
    "pop": Pop(warm_up=1, interval=2, window=2, e0=0.3, e_end=0.05, e_s=0.1),
    "printed": PopPrinted(warm_up=2, e0=0.3, e_end=0.1),
    "ratio": PopRatio(warm_up=1, interval=2, window=1, theta=0.2, theta_end=0.8),
}
ON_TABLES = {name: kind() for name, kind in METHODS.items() if kind.views == 1}
ON_TABLES["valen"] = Valen(warm_up=2, neighbours=2, kappa=0.7)

pytestmark = pytest.mark.usefixtures("double")


def convolutions(shape, classes):
    """A small network with batch normalisation."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return Classifier(body, 4 * 6 * 6, classes)


def engine(x, method, rule, network, start, views=None, prior=None):
    """Train by `oneof.fit` and return the weights and the sets."""
    trial = Trial(seed=SEED, lr=LR, weight_decay=DECAY, start=start)
    fitted = fit(
        x, SETS, trials=[trial], method=method, purify=rule, network=network, views=views, prior=prior,
        training=Training(epochs=EPOCHS, batch=BATCH),
    )  # fmt: skip
    (module,) = fitted.stack.modules()
    return module.state_dict(), fitted.candidates[0], fitted.removals


def several(net, views):
    """Logits [v, b, c] of views [v, b, ...], in one forward."""
    return net(views.flatten(0, 1)).unflatten(0, views.shape[:2])


class Loop:
    """A loop as a user writes it, in which rows are drawn as the engine draws them."""

    def __init__(self, net, criterion, rule):
        self.net = net
        self.criterion = criterion
        self.purifier = None if rule is None else Purifier(rule, criterion)
        weights = [*net.parameters(), *criterion.parameters()]
        self.optimizer = torch.optim.SGD(weights, lr=LR, momentum=0.9, weight_decay=DECAY)

    def run(self, batch_loss, see, before_epoch=lambda: None):
        """Train; `batch_loss(x, index)` is the loss of a batch, `see(index)` what the network sees of rows."""
        torch.manual_seed(SEED)
        for epoch in range(EPOCHS):
            self.optimizer.param_groups[0]["lr"] = LR * cosine(epoch, EPOCHS)
            for index in torch.randperm(N).split(BATCH):
                x = see(index)
                batch_loss(x, index).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                if self.criterion.after_step:
                    with torch.no_grad(), frozen_statistics(self.net):
                        logits = several(self.net, x) if x.dim() == 5 else self.net(x)
                    self.criterion.update(logits, index)
            before_epoch()
            if self.purifier is None:
                self.criterion.next_epoch()
                continue
            if self.purifier.rule.current and self.purifier.is_due():
                for index in torch.arange(N).split(BATCH):
                    self.purifier.observe(self.net(see(index)), index)
            self.purifier.step()


def assert_same(ours, theirs, atol=1e-6):
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=atol)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [name for name in ON_TABLES if name != "valen"])
def test_methods_of_one_view(name, rule):
    x = torch.tensor(DATA.x)
    net = MLP(hidden=(8,))((3,), C)
    start = copy.deepcopy(net.state_dict())
    prior = COUNTS if ON_TABLES[name].uses_prior else None
    weights, sets, removals = engine(x, ON_TABLES[name], RULES[rule], MLP(hidden=(8,)), start, prior=prior)
    criterion = CandidateLoss(ON_TABLES[name], SETS, prior)
    loop = Loop(net, criterion, RULES[rule])
    loop.run(lambda x, index: criterion(net(x), index), lambda index: x[index])
    assert_same(net.state_dict(), weights)
    assert torch.equal(criterion.candidates, sets)
    assert any((net.state_dict()[key] - start[key]).abs().max() > 0.01 for key in start)
    if loop.purifier is not None:
        assert len(loop.purifier.removals.row) > 0
        for ours, theirs in zip(loop.purifier.removals, removals, strict=True):
            torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", ["none", "pop"])
def test_valen(rule):
    x = torch.tensor(DATA.x)
    method = ON_TABLES["valen"]
    net = MLP(hidden=(8,))((3,), C)
    whole = method.network(copy.deepcopy(net), C, (3,))
    criterion = CandidateLoss(method, SETS, network=net, input_shape=(3,))
    criterion.encoder.load_state_dict(whole.encoder.state_dict())
    criterion.decoder.load_state_dict(whole.decoder.state_dict())
    weights, sets, _ = engine(x, method, RULES[rule], MLP(hidden=(8,)), whole.state_dict())

    def batch_loss(x, index):
        features = net.body(x)
        return criterion(net.head(features), index, features=features, views=x)

    loop = Loop(net, criterion, RULES[rule])
    loop.run(batch_loss, lambda index: x[index], lambda: criterion.set_features(net.body(x), torch.arange(N)))
    parts = {
        f"{part}.{name}": value
        for part in ("encoder", "decoder")
        for name, value in getattr(criterion, part).state_dict().items()
    }
    assert_same({**net.state_dict(), **parts}, weights)
    assert torch.equal(criterion.candidates, sets)


@pytest.mark.parametrize("rule", ["none", "pop"])
@pytest.mark.parametrize(
    "method", [RCR(ramp=3), METHODS["proden"](), METHODS["rc"]()], ids=lambda method: type(method).__name__
)
def test_methods_of_several_views_of_logits(method, rule):
    look = make_views("rcr" if method.views > 1 else "pop", PICTURES, dtype=torch.float64)
    net = convolutions((1, 8, 8), C)
    weights, sets, _ = engine(IMAGES[:, None], method, RULES[rule], convolutions, copy.deepcopy(net.state_dict()), look)
    criterion = CandidateLoss(method, SETS)

    def views_of(index):
        return look(torch.tensor(IMAGES[:, None])[index], torch.default_generator)

    loop = Loop(net, criterion, RULES[rule])
    loop.run(lambda x, index: criterion(several(net, x), index), views_of)
    assert_same(net.state_dict(), weights)
    assert torch.equal(criterion.candidates, sets)


def test_valen_of_several_views():
    method = replace(ON_TABLES["valen"], warm_up=4)  # its draws magnify rounding from step to step
    look = make_views("pop", PICTURES, dtype=torch.float64)
    net = convolutions((1, 8, 8), C)
    whole = method.network(copy.deepcopy(net), C, (1, 8, 8))
    criterion = CandidateLoss(method, SETS, network=net, input_shape=(1, 8, 8))
    criterion.encoder.load_state_dict(whole.encoder.state_dict())
    criterion.decoder.load_state_dict(whole.decoder.state_dict())
    weights, sets, _ = engine(IMAGES[:, None], method, RULES["pop"], convolutions, whole.state_dict(), look)
    plain = make_views("plain", PICTURES, dtype=torch.float64)(torch.tensor(IMAGES[:, None]), torch.Generator())[0]

    def batch_loss(views, index):
        features = net.body(views.flatten(0, 1))
        logits = net.head(features).unflatten(0, views.shape[:2])
        return criterion(logits, index, features=features.unflatten(0, views.shape[:2]), views=views)

    def set_features():
        net.eval()
        criterion.set_features(net.body(plain), torch.arange(N))
        net.train()

    loop = Loop(net, criterion, RULES["pop"])
    loop.run(
        batch_loss, lambda index: look(torch.tensor(IMAGES[:, None])[index], torch.default_generator), set_features
    )
    assert_same(net.state_dict(), {name: weights[name] for name in net.state_dict()})
    assert torch.equal(criterion.candidates, sets)


@pytest.mark.parametrize("rule", ["none", "pop"])
def test_pico(rule):
    method = PiCO(queue=24, embedding=5, epochs=EPOCHS)
    look = make_views("pico", PICTURES, dtype=torch.float64)
    net = convolutions((1, 8, 8), C)
    criterion = CandidateLoss(method, SETS, network=net, input_shape=(1, 8, 8))
    whole = method.network(net, C, (1, 8, 8))
    whole.projection = criterion.projection
    start = copy.deepcopy(whole.state_dict())
    weights, sets, _ = engine(IMAGES[:, None], method, RULES[rule], convolutions, start, look)

    def batch_loss(views, index):
        features = net.body(views[0])
        return criterion(net.head(features), index, features=features, views=views)

    loop = Loop(net, criterion, RULES[rule])
    loop.run(batch_loss, lambda index: look(torch.tensor(IMAGES[:, None])[index], torch.default_generator))
    assert_same(whole.state_dict(), weights)
    assert torch.equal(criterion.candidates, sets)
