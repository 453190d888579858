"""What evaluation and the modules' own draws do to training: nothing, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from oneof.data.augment import views
from oneof.methods import PiCO
from oneof.methods.pico import Contrastive
from oneof.networks import Backbone, LeNet
from oneof.networks.cuda.accelerate import Accelerator, accelerate
from oneof.training.fit import fit
from oneof.training.loop import begin, steps
from oneof.training.stack import build
from oneof.training.state import join_fits
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial

N, C = 24, 5
RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, size=(N, 1, 28, 28), dtype=np.uint8)
SETS = RNG.random((N, C)) < 0.4
SETS[np.arange(N), np.arange(N) % C] = True
TRAINING = Training(epochs=3, batch=12)
PLAIN = views("plain", "mnist")


def test_evaluation_uses_running_statistics():
    """A row's logits do not depend on the rows beside it."""
    fitted = fit(X, SETS, network=LeNet(), training=TRAINING, views=PLAIN)
    torch.testing.assert_close(fitted.logits(X[:2]), fitted.logits(X)[:, :2])


def frozen() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6).eval(), nn.ReLU())


def test_a_part_that_was_frozen_stays_frozen_when_held_out_rows_are_looked_at():
    alone, looked_at = (
        fit(X, SETS, trials=[Trial(held_out=held)], network=Backbone(frozen), training=TRAINING, views=PLAIN)
        for held in (None, np.arange(6))
    )
    assert not looked_at.stack.buffers["body.0.1.running_mean"].any()
    assert torch.equal(alone.history["loss"], looked_at.history["loss"])


def test_what_is_frozen_is_frozen_in_a_copy_too():
    def made() -> nn.Module:
        part = frozen()
        part[0].requires_grad_(False)
        return part

    fitted = fit(X, SETS, network=Backbone(made), training=TRAINING, views=PLAIN)
    (copied,) = fitted.stack.modules()
    learned = {name for name, weight in copied.named_parameters() if weight.requires_grad}
    assert learned == set(fitted.stack.weights)
    assert "body.0.0.weight" in fitted.stack.fixed


def test_prototypes_queue_and_its_labels_move_with_a_step_of_pico():
    method = PiCO(queue=48, start=0)
    problem = make_training_data(X, SETS, [Trial()], method, None, TRAINING, views("pico", "mnist"))
    make = lambda: method.network(LeNet()((1, 28, 28), SETS.shape[1]), SETS.shape[1], (1, 28, 28))  # noqa: E731
    state = begin(problem, build(make, [0], torch.device("cpu")), [0])
    before = [one.clone() for one in state.shared[:4]]
    next(steps(problem, state))
    assert not any(torch.equal(one, old) for one, old in zip(state.shared, before, strict=False))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Dropout(0.5))


def weights(fitted) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in fitted.stack.weights.values()])


def trained(seed: int = 0, epochs: int = 3, checkpoint=None):
    return fit(
        X, SETS, trials=[Trial(seed)], network=Backbone(dropping), training=Training(epochs, 12), views=PLAIN,
        checkpoint=checkpoint,
    )  # fmt: skip


def test_dropout_follows_the_seed_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = trained()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert torch.equal(weights(trained()), weights(first))
    assert not torch.equal(weights(trained(seed=1)), weights(first))


def test_dropout_goes_on_where_it_stood(tmp_path, monkeypatch):
    whole = trained()

    class Killed(Exception):
        pass

    import oneof.training.fit

    real, count = oneof.training.fit.steps, 0

    def cut_short(problem, state):
        nonlocal count
        for record in real(problem, state):
            yield record
            count += 1
            if count == 4:  # in the second epoch
                raise Killed

    monkeypatch.setattr(oneof.training.fit, "steps", cut_short)
    with pytest.raises(Killed):
        fit(X, SETS, network=Backbone(dropping), training=TRAINING, views=PLAIN, checkpoint=tmp_path, every=0)
    monkeypatch.setattr(oneof.training.fit, "steps", real)
    torch.manual_seed(9)
    assert torch.equal(weights(trained(checkpoint=tmp_path)), weights(whole))


def test_a_checkpoint_knows_how_images_were_seen(tmp_path):
    once = Training(epochs=1, batch=12)
    fit(X, SETS, network=LeNet(), training=once, views=views("pop", "kmnist"), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"holds a checkpoint of another run: .*views"):
        fit(X, SETS, network=LeNet(), training=once, views=views("pop", "fashion-mnist"), checkpoint=tmp_path)


def test_fits_that_are_joined_run_as_they_did():
    fits = [fit(X, SETS, trials=[Trial(seed)], network=LeNet(), training=TRAINING, views=PLAIN) for seed in (0, 1)]
    for one in fits:
        one.stack.compile_batch = 12  # as on a card, where the module runs in bfloat16
    assert join_fits(fits).stack.compile_batch == 12


def test_a_stack_trained_on_a_card_runs_on_a_cpu_without_autocast(monkeypatch):
    """A CPU may announce bfloat16 and not run it: what comes to one computes in the weights' own precision."""
    fitted = fit(X, SETS, network=LeNet(), training=TRAINING, views=PLAIN)
    plain = fitted.logits(X)

    def refused(*_, **__):
        raise AssertionError("autocast on a CPU")

    monkeypatch.setattr(torch, "autocast", refused)
    monkeypatch.setattr(torch, "compile", refused)
    fitted.stack.compile_batch = 12
    fitted.stack._accelerator = accelerate(fitted.stack.module, 12)
    assert torch.equal(fitted.logits(X), plain)


def test_a_second_network_gives_what_the_first_would_with_other_weights():
    """What PiCO's key network is on a card: a second module, in place of a call with other weights."""
    stack = build(lambda: Contrastive(LeNet()((1, 8, 8), 3), 4), [0], torch.device("cpu"))
    others = {name: weight + 0.1 for name, weight in stack.weights.items()}
    x = torch.rand(1, 6, 1, 8, 8)
    with torch.no_grad():
        plain = stack(x, weights=others)
        for _ in range(2):  # made once, filled every time
            found = stack._second_network()(one_trial(others), x[0])
            torch.testing.assert_close(found, (plain[0][0], plain[1][0]))
            stack._second_network()(one_trial(stack.weights), x[0])


def one_trial(weights):
    return {name: weight[0] for name, weight in weights.items()}


def test_a_function_is_compiled_once_and_for_full_batches_alone(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: made.append(function) or function)
    stack = build(lambda: LeNet()((1, 8, 8), 3), [0], torch.device("cpu"), compile_batch=6)
    full = torch.ones(1, 6, 3)
    assert torch.equal(stack.fused(torch.neg, full), -full)
    assert not made  # on a CPU
    monkeypatch.setattr(Accelerator, "_is_full_batch", lambda self, x: x.shape[1] == self.batch)
    for rows in (6, 5, 6):
        stack.fused(torch.neg, full[:, :rows])
    assert made == [torch.neg]
