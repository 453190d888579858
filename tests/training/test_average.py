"""The average of the networks: it follows them step by step, predicts in their place, and weighs the candidates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.methods import CC, Proden
from oneof.networks import MLP, GeneratorMLP, LeNet
from oneof.training.fit import fit
from oneof.training.loop import begin, steps
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

DATA = mixture(n=60, d=3, c=4, separation=3.0, seed=1)
SETS = generate(DATA.labels, 4, Flip(rate=0.4), seed=2)
TRIALS = [Trial(seed=seed, test=np.arange(60)) for seed in range(2)]


def begun(method, training, network=GeneratorMLP((8,))):  # noqa: B008 - frozen
    data = make_training_data(DATA.x, SETS, TRIALS, method, None, training, labels=DATA.labels)
    stack = build(lambda: network((3,), 4), [0, 1], torch.device("cpu"))
    return data, begin(data, stack, [0, 1])


def test_it_follows_weights_and_statistics():
    """Three steps an epoch: the decay is that of the steps before the epoch, until it reaches the one that was set."""
    data, state = begun(CC(), Training(epochs=4, batch=20, average=0.5))
    expected = {name: tensor.clone() for name, tensor in state.stack.tensors.items()}
    n_steps = 0
    for record in steps(data, state):
        if record is not None:
            continue
        before_epoch = n_steps // 3 * 3
        decay = min(0.5, (1 + before_epoch) / (10 + before_epoch))
        for name, tensor in state.stack.tensors.items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * tensor
            else:
                expected[name] = tensor.clone()
        n_steps += 1
        for name, tensor in state.average.tensors.items():
            torch.testing.assert_close(tensor, expected[name])
    assert n_steps == 12


def test_networks_whose_method_remembers_nothing_learn_as_without():
    weights = []
    for average in (0.0, 0.9):
        data, state = begun(CC(), Training(epochs=3, batch=20, average=average))
        for _ in steps(data, state):
            pass
        weights.append(state.stack.tensors)
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name])


def test_it_weighs_the_candidates():
    """After an epoch of one step, a row's weights are the posterior of the average on its candidates."""
    data, state = begun(Proden(), Training(epochs=1, batch=60, average=0.9))
    next(steps(data, state))
    with torch.no_grad(), state.average.eval_mode():
        logits = state.average(data.features(data.rows))
    allowed = logits.masked_fill(~state.candidates, -torch.inf).softmax(-1)
    torch.testing.assert_close(state.memory, allowed)


def test_it_is_what_is_evaluated_and_kept():
    training = Training(epochs=3, batch=20, average=0.9)
    fitted = fit(DATA.x, SETS, trials=TRIALS, network=MLP((8,)), training=training, labels=DATA.labels)
    data, state = begun(Proden(), training, MLP((8,)))
    records = [record for record in steps(data, state) if record is not None]
    for name, tensor in state.average.weights.items():
        assert torch.equal(fitted.stack.weights[name], tensor)
        assert not torch.equal(fitted.stack.weights[name], state.stack.weights[name])
    predicted = fitted.logits(DATA.x).argmax(-1)
    accuracy = (predicted == torch.as_tensor(DATA.labels)).float().mean(1)
    torch.testing.assert_close(records[-1]["accuracy"], accuracy)


@pytest.mark.parametrize("recipe", ["pop", "rcr"])
def test_it_learns_from_images(recipe):
    """It predicts images as they are in the first view; bars in two directions are told apart."""
    images = np.zeros((80, 1, 28, 28), dtype=np.uint8)
    labels = np.arange(80) % 2
    images[labels == 0, :, 10:14] = 200
    images[labels == 1, :, :, 10:14] = 200
    fitted = fit(
        images, np.ones((80, 2), dtype=bool), prior=np.eye(2)[labels] + 0.5, network=LeNet(), trials=[Trial(lr=0.02)],
        training=Training(8, 20, average=0.9), views=views(recipe, "mnist"),
    )  # fmt: skip
    assert (fitted.logits(images)[0].argmax(-1).numpy() == labels).mean() > 0.9
