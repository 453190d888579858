"""The engine: a trial in a stack equals the same trial alone, sets only shrink, and what was removed has no say."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from oneof.candidates.generate import Flip, generate
from oneof.methods import METHODS, Proden
from oneof.networks import MLP, Linear
from oneof.purify import Pop, PopPrinted, PopRatio
from oneof.training.fit import fit
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

ON_TABLES = [name for name, method in METHODS.items() if method.views == 1]  # the others compare views of an image
N, C = 90, 4
DATA = mixture(n=N, d=3, c=C, separation=3.0, seed=1)
SETS = generate(DATA.labels, C, Flip(rate=0.4), seed=2)
PURIFY = {
    "plain": None,
    "pop": Pop(warm_up=1, interval=2, window=2, e0=0.8, e_s=0.2),
    "ratio": PopRatio(1, 2, 1, True, 0.05),
    "printed": PopPrinted(warm_up=1, e0=0.8, e_s=0.2),
}


def split(seed):
    order = np.random.default_rng(seed).permutation(N)
    return {"rows": order[:60], "held_out": order[60:75], "test": order[75:]}


def trial(seed, **changes):
    kinds = ["feature", "global", "minmax", "none"]
    return Trial(
        seed=seed, lr=0.05 * (seed + 1), weight_decay=10.0 ** -(seed + 2), scaling=kinds[seed], **split(seed), **changes
    )


def run(trials, sets=SETS, method="proden", purify=None, training=Training(epochs=5, batch=16), **options):  # noqa: B008
    options = {"network": MLP((8,)), "labels": DATA.labels} | options
    return fit(DATA.x, sets, trials=trials, method=METHODS[method](), purify=purify, training=training, **options)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("purify", PURIFY)
@pytest.mark.parametrize("method", ON_TABLES)
def test_a_trial_in_a_stack_equals_the_same_trial_alone(method, purify):
    trials = [trial(seed) for seed in range(3)]
    own_sets = np.stack([generate(DATA.labels, C, Flip(rate=0.4), seed=seed) for seed in range(3)])
    options = {"method": method, "purify": PURIFY[purify], "choose": "approximated"}
    together = run(trials, own_sets, **options)
    for t, one in enumerate(trials):
        alone = run([one], own_sets[t : t + 1], **options)
        assert_same_trial(together, t, alone)


def assert_same_trial(together, t, alone):
    np.testing.assert_allclose(together.logits(DATA.x)[t], alone.logits(DATA.x)[0], atol=1e-9)
    assert torch.equal(together.candidates[t], alone.candidates[0])
    assert together.epoch[t] == alone.epoch[0]
    for name, column in together.history.items():
        np.testing.assert_allclose(column[:, t], alone.history[name][:, 0], atol=1e-9, err_msg=name)


def fallen(epoch, epochs):
    return 1.0 if epoch < 2 else 0.1


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "training",
    [
        Training(epochs=4, batch=16, mixup=1.0),
        Training(epochs=4, batch=16, noise=0.3),
        Training(epochs=4, batch=16, mixup=0.5, noise=0.1, schedule=fallen),
        Training(epochs=4, batch=16, average=0.9),
        Training(epochs=4, batch=16, average=0.9, mixup=0.5),
    ],
    ids=["mixup", "noise", "both, another schedule", "average", "average, mixup"],
)
def test_so_it_does_however_it_is_trained(training):
    trials = [replace(trial(seed), purify=Pop(0, 1, 1, True, e0)) for seed, e0 in enumerate((0.9, 0.6, 0.4))]
    together = run(trials, training=training)
    for t, one in enumerate(trials):
        assert_same_trial(together, t, run([one], training=training))


@pytest.mark.usefixtures("double")
def test_stacks_cut_by_memory_give_the_same_trials():
    trials = [trial(seed) for seed in range(3)]
    own_sets = np.stack([generate(DATA.labels, C, Flip(rate=0.4), seed=seed) for seed in range(3)])
    whole, cut_up = (run(trials, own_sets, purify=PURIFY["pop"], memory=memory) for memory in (None, 1))
    for t in range(3):
        alone = run([trials[t]], own_sets[t : t + 1], purify=PURIFY["pop"])
        assert_same_trial(whole, t, alone)
        assert_same_trial(cut_up, t, alone)
    for one, other in zip(whole.removals, cut_up.removals, strict=True):
        np.testing.assert_allclose(np.sort(one), np.sort(other), atol=1e-9)


class Normed(nn.Module):
    """A user's own module, with batch normalisation."""

    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("method", ["proden", "rc"])
def test_so_it_does_with_batch_norm_of_the_users_own(method):
    trials = [trial(seed) for seed in range(3)]
    together = run(trials, network=Normed, method=method)
    for t, one in enumerate(trials):
        assert_same_trial(together, t, run([one], network=Normed, method=method))


@pytest.mark.usefixtures("double")
def test_a_second_forward_does_not_move_batch_norm_statistics():
    """RC looks twice, PRODEN once: after one step from the same start their statistics agree."""
    moved = [
        run([trial(0)], network=Normed, method=name, training=Training(epochs=1, batch=60)).stack.buffers
        for name in ("rc", "proden")
    ]
    for name, statistics in moved[0].items():
        np.testing.assert_allclose(statistics, moved[1][name], err_msg=name)


@pytest.mark.parametrize("purify", PURIFY)
@pytest.mark.parametrize("method", ON_TABLES)
def test_same_seed_same_result_and_accuracy_rises(method, purify):
    easy = mixture(n=200, d=3, c=C, separation=6.0, seed=3)
    sets = generate(easy.labels, C, Flip(rate=0.3), seed=4)
    rule = PURIFY[purify] and replace(PURIFY[purify], warm_up=6)
    trials = [
        Trial(seed=seed, lr=0.1, scaling="feature", rows=np.arange(100), test=np.arange(100, 200)) for seed in range(2)
    ]
    once, again = (
        fit(
            easy.x,
            sets,
            trials=trials,
            method=METHODS[method](),
            purify=rule,
            labels=easy.labels,
            training=Training(12, 20),
        )
        for _ in range(2)
    )
    assert torch.equal(once.logits(easy.x), again.logits(easy.x))
    assert torch.equal(once.candidates, again.candidates)
    bayes = (easy.posterior.argmax(1) == easy.labels)[100:].mean()
    assert once.history["accuracy"][-1].min() > bayes - 0.05


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    run([trial(0), trial(1)], training=Training(epochs=1, noise=0.1, mixup=1.0))
    assert torch.equal(before, torch.random.get_rng_state())


def watched(method, purify, epochs_run=8):
    """Train while noting, at every step, the weight that the loss puts on removed labels."""
    seen = []

    @dataclass(frozen=True)
    class Watch(METHODS[method]):
        def loss(self, logits, candidates, memory):
            z = logits.detach().requires_grad_()
            value = super().loss(z, candidates, memory)
            seen.append((candidates.clone(), torch.autograd.grad(value.sum(), z)[0]))
            return super().loss(logits, candidates, memory)

    problem = make_training_data(
        DATA.x, SETS, trials=[trial(0)], method=Watch(), purify=purify, training=Training(epochs_run, 60)
    )
    state = begin(problem, build(lambda: Linear()((3,), C), [0], torch.device("cpu")), [0])
    masks = [state.candidates.clone()]
    for _ in epochs(problem, state):
        masks.append(state.candidates.clone())
    return seen, masks


@pytest.mark.parametrize("purify", ["pop", "ratio"])
@pytest.mark.parametrize("method", [name for name in ON_TABLES if name != "valen"])  # it has no loss to watch
def test_sets_only_shrink_and_a_removed_label_has_no_weight_later(method, purify):
    """A removed label is never pulled up again: the gradient of the loss at its logit never asks for more of it."""
    seen, masks = watched(method, PURIFY[purify])
    for before, after in pairwise(masks):
        assert not (after & ~before).any()
    assert masks[-1].sum() < masks[0].sum()
    assert masks[-1].any(-1).all()
    for candidates, gradient in seen:
        assert (gradient[~candidates] >= -1e-6).all()


def test_removals_explain_the_difference_between_the_sets():
    result = run([trial(0), trial(1)], purify=PURIFY["pop"], training=Training(epochs=12, batch=16))
    original = torch.as_tensor(SETS)[result.rows]
    rebuilt = original.clone()
    log = result.removals
    rebuilt[log.trial, log.row, log.label] = False
    assert torch.equal(rebuilt, result.candidates)
    assert len(log.round) == int(result.history["removed"].sum())
    assert (log.margin > 0).all()


def test_history_says_what_the_trained_networks_do():
    result = run([trial(0)], purify=PURIFY["pop"])
    logits = result.logits(DATA.x)[0].numpy()
    held_out, test = trial(0).held_out, trial(0).test
    predicted = logits.argmax(1)
    assert result.history["accuracy"][-1, 0] == pytest.approx((predicted == DATA.labels)[test].mean(), abs=1e-6)
    assert result.history["oracle"][-1, 0] == pytest.approx((predicted == DATA.labels)[held_out].mean(), abs=1e-6)
    assert result.history["covering"][-1, 0] == pytest.approx(SETS[held_out, predicted[held_out]].mean(), abs=1e-6)
    assert result.history["set_size"][-1, 0] == pytest.approx(
        result.candidates[0].sum(-1).float().mean().item(), abs=1e-6
    )


@pytest.mark.parametrize("choose", ["covering", "approximated", "oracle"])
def test_the_chosen_epoch_is_the_latest_best(choose):
    result = run([trial(seed) for seed in range(3)], choose=choose, training=Training(epochs=12, batch=16))
    scores = result.history[choose]
    for t in range(3):
        assert result.epoch[t] == 1 + (scores[:, t] == scores[:, t].max()).nonzero().max()
    logits = result.logits(DATA.x)
    for t in range(3):
        accuracy = (logits[t].argmax(-1).numpy() == DATA.labels)[trial(t).test].mean()
        assert result.history["accuracy"][result.epoch[t] - 1, t] == pytest.approx(accuracy, abs=1e-6)


def test_scaling_is_fitted_on_training_rows_only():
    x = DATA.x.copy()
    x[trial(0).test] += 1e6
    fitted = fit(x, SETS, trials=[trial(0)], training=Training(epochs=1))
    np.testing.assert_allclose(fitted.origin + fitted.shift[0, 0].numpy(), x[trial(0).rows].mean(0), rtol=1e-5)


@pytest.mark.usefixtures("double")
def test_a_solo_run_equals_plain_pytorch():
    """The whole loop for singletons, written with torch.optim and torch's own loss."""
    training = Training(epochs=3, batch=16)
    singletons = np.eye(C, dtype=bool)[DATA.labels]
    got = fit(
        DATA.x, singletons, trials=[Trial(seed=3, lr=0.05, weight_decay=1e-2)], network=Linear(), training=training
    )
    torch.manual_seed(3)
    net = Linear()((3,), C)
    step = torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=1e-2, momentum=0.9)
    x, y, g = torch.tensor(DATA.x), torch.tensor(DATA.labels), torch.Generator().manual_seed(3)
    for epoch in range(3):
        step.param_groups[0]["lr"] = 0.05 * 0.5 * (1 + np.cos(np.pi * epoch / 3))
        for at in torch.randperm(N, generator=g).split(16):
            step.zero_grad()
            nn.functional.cross_entropy(net(x[at]), y[at]).backward()
            step.step()
    np.testing.assert_allclose(got.logits(DATA.x)[0], net(x).detach(), atol=1e-10)


BAD = [
    ({"sets": SETS.astype(int)}, TypeError, r"candidates must be a bool mask; got torch\.int64\. oneof\.read"),
    ({"sets": SETS[:-1]}, ValueError, r"mask \[90, c\] or \[1, 90, c\] to match x and trials; got \[89, 4\]"),
    ({"sets": SETS & (np.arange(N) != 7)[:, None]}, ValueError, r"at least one label per row; row 7 is empty"),
    ({"sets": SETS[:, :0]}, ValueError, r"^candidates must hold at least one label per row; row 0 is empty\. Drop it\."),
    ({"labels": DATA.labels[:5]}, ValueError, r"labels must have one entry per row of x \(90\); got shape \(5,\)"),
    ({"trials": [trial(0, purify=Pop()), trial(1)]}, ValueError, r"must all purify or none; fit them apart"),
    ({"trials": [trial(0), replace(trial(1), rows=np.arange(5))]}, ValueError, r"same number of rows; trim them"),
    ({"trials": [replace(trial(0), test=np.array([90]))]}, ValueError, r"test must be row numbers from 0 to 89"),
    ({"trials": [replace(trial(0), lr=-0.1)]}, ValueError, r"lr must be positive; got -0\.1"),
    ({"trials": [replace(trial(0), scaling="zscore")]}, ValueError, r"scaling must be one of none, global, feature, root, minmax; got 'zscore'"),
    ({"trials": [replace(trial(0), weight_decay=-1.0)]}, ValueError, r"weight_decay must not be negative; got -1\.0"),
    ({"trials": []}, ValueError, r"trials must hold at least one trial; got none"),
    ({"sets": np.stack([SETS] * 3), "trials": [trial(seed) for seed in range(2)], "memory": 1}, ValueError, r"sets for every trial \(2\); got 3"),
    ({"device": "abacus"}, ValueError, r"device must be one that torch knows.*got 'abacus'"),
    ({"method": "valen", "training": Training(epochs=1, noise=0.1)}, ValueError, r"mixup and noise need a method whose loss is one of logits; Valen is not"),
    ({"method": "valen", "training": Training(epochs=1, average=0.9)}, ValueError, r"average needs a method whose loss is one of logits; Valen is not"),
    ({"method": "rcr"}, ValueError, r"RCR needs 3 views of every example; got 1"),
    ({"choose": "test"}, ValueError, r"choose must be one of last, covering, approximated, oracle; got 'test'"),
    ({"trials": [Trial()], "choose": "covering"}, ValueError, r"choose='covering' needs held_out rows"),
    ({"choose": "oracle", "labels": None}, ValueError, r"choose='oracle' needs labels"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_messages(changes, error, message):
    with pytest.raises(error, match=message):
        run(**({"trials": [trial(0)]} | changes))


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("batch", 0), ("mixup", -1.0), ("noise", -0.1), ("average", 1.0)]
)
def test_training_is_checked(name, value):
    with pytest.raises(ValueError, match=rf"{name} must .*; got {value}"):
        Training(**{name: value})


def test_digits_of_large_numbers_are_not_lost():
    """A time stamp in double precision: float32 alone would round 1.7e9 to steps of 128."""
    late = DATA.x + 1.7e9
    trials = [Trial(scaling="feature")]
    near, far = (fit(x, SETS, trials=trials, training=Training(epochs=3)).logits(x) for x in (DATA.x, late))
    np.testing.assert_allclose(near, far, atol=0.01)


class Odd(nn.Module):
    """A buffer that is not saved, weights that are shared, and weights that do not learn."""

    def __init__(self, shape, classes):
        super().__init__()
        self.one, self.two = nn.Linear(shape[0], 8), nn.Linear(8, classes)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.register_buffer("scale", torch.ones(8), persistent=False)

    def forward(self, x):
        return self.two(self.frozen(self.one(x)) * self.scale)


def test_odd_modules_stack_pickle_and_join():
    trials = [trial(seed) for seed in range(2)]
    whole, cut_up = (run(trials, network=Odd, memory=memory) for memory in (None, 1))
    again = pickle.loads(pickle.dumps(whole))
    for other in (cut_up, again):
        np.testing.assert_allclose(whole.logits(DATA.x), other.logits(DATA.x), atol=1e-5)


def test_proden_is_the_default():
    assert torch.equal(run([trial(0)]).logits(DATA.x), run([trial(0)], method="proden").logits(DATA.x))
    assert METHODS["proden"] is Proden


@pytest.mark.usefixtures("double")
def test_the_printed_rule_asks_the_network_as_it_is():
    rule = PopPrinted(warm_up=4, e0=0.3)
    result = run([trial(0)], purify=rule)  # one event, after the last epoch
    rows = result.rows[0]
    q = result.logits(DATA.x)[0, rows].softmax(-1)
    sets = torch.as_tensor(SETS)[rows]
    best = q.masked_fill(~sets, -1).amax(-1, keepdim=True)
    assert torch.equal(result.candidates[0], sets & (best - q < 0.3))
    assert result.candidates.sum() < sets.sum()
