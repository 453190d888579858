"""Images, views, networks and labels given wrongly: one line that says what and what to do, before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from oneof.data.augment import views
from oneof.data.scaling import SCALINGS
from oneof.data.with_ranks import fit_quantiles
from oneof.methods import RC, RCR, PiCO, Proden, Valen
from oneof.networks import MLP, Backbone, LeNet, WideResNet
from oneof.training.fit import fit
from oneof.training.training_data import images_per_forward, worth_compiling
from oneof.training.trials import Training, Trial

N, C, PLAIN = 24, 5, Proden()
RANDOM = np.random.default_rng(0)
SETS = RANDOM.random((N, C)) < 0.4
SETS[np.arange(N), np.arange(N) % C] = True


@cache
def pictures(channels=1, side=28, n=N):
    return np.random.default_rng(channels).integers(256, size=(n, channels, side, side), dtype=np.uint8)


def run(x=None, sets=SETS, **options):
    known = {"network": LeNet(), "training": Training(epochs=1, batch=12), "views": views("plain", "mnist")}
    return fit(pictures() if x is None else x, sets, **known | options)


# ------------------------------------------------------------------------------------------------------------ 1. images

FLOATS = [
    ((pictures() / 255).astype(np.float32), "float32"),
    (pictures() / 127.5 - 1, "float64"),
    (pictures().astype(np.int64) + 300, "int64"),
    (torch.rand(N, 1, 28, 28, dtype=torch.bfloat16), "bfloat16"),
]


@pytest.mark.parametrize(("x", "kind"), FLOATS)
def test_images_of_another_kind_than_uint8_are_refused(x, kind):
    message = rf"x must be uint8 images \[n, channels, height, width\] where views are given; got {kind}\. Bring"
    with pytest.raises(TypeError, match=message):
        run(x)


def test_so_are_those_to_predict():
    fitted = run()
    assert fitted.logits(pictures()).shape == (1, N, C)
    with pytest.raises(TypeError, match=r"x must be uint8 images .* got float32\. Bring the levels to 0 \.\.\. 255"):
        fitted.logits((pictures() / 255).astype(np.float32))


# ------------------------------------------------------------------------------------------------------------ 2. scaling


@pytest.mark.parametrize(("scaling", "given"), [("feature", "'feature'"), (SCALINGS["minmax"], "a function")])
def test_scaling_beside_views_is_refused(scaling, given):
    message = rf"scaling must be 'none' where views, which normalise, are given; got {given}\. Leave it out"
    with pytest.raises(ValueError, match=message):
        run(trials=[Trial(0), Trial(1, scaling=scaling)])


# ------------------------------------------------------------------------------------------------------------ 3. views

VIEWS = [
    (pictures(), "pop", TypeError, r"views must be made by oneof\.data\.augment\.views, .*; got str\."),
    (pictures(), views("plain", "mnist", device="meta"), ValueError, r"views must be on cpu, where training is; they are on meta\. Give views\(\.\.\., device='cpu'\)"),
    (pictures(), views("pop", "mnist", dtype=torch.bfloat16), ValueError, r"views must be torch\.float32 on cpu, as weights are; got torch\.bfloat16\. Give"),
    (pictures(), views("pop", "mnist", dtype=torch.float64), ValueError, r"got torch\.float64\. Give views\(\.\.\., dtype=torch\.float32\)"),
    (pictures()[:, 0], views("plain", "mnist"), ValueError, r"\[n, channels, height, width\] where views are given; got \[24, 28, 28\]\. For grey images .* give x\[:, None\]"),
    (pictures(3), views("pop", "mnist"), ValueError, r"as many channels as x has; they are for 1, x is \[24, 3, 28, 28\]"),
    (pictures(1, 32), views("plain", "cifar10"), ValueError, r"they are for 3, x is \[24, 1, 32, 32\]\. Put the channels first, or use the views of another data set"),
    (pictures(3, 32).transpose(0, 2, 3, 1), views("plain", "cifar10"), ValueError, r"they are for 3, x is \[24, 32, 32, 3\]\. Put the channels first"),
    (pictures(3, 64), views("pop", "cifar10"), ValueError, r"images as large as x; they move pixels of 32 x 32, x is \[24, 3, 64, 64\]\. Resize x"),
    (pictures(3, 28), views("pico", "cifar100"), ValueError, r"they move pixels of 32 x 32, x is \[24, 3, 28, 28\]\. .* use the views 'plain'"),
    (pictures(1, 4), views("pop", "mnist"), ValueError, r"at least 5 x 5 pixels for views that crop; got \[24, 1, 4, 4\]\. Use the views 'plain'"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "given", "error", "message"), VIEWS)
def test_views_that_do_not_go_with_the_images_are_refused(x, given, error, message):
    with pytest.raises(error, match=message):
        run(x, views=given)


@pytest.mark.parametrize("side", [5, 64])
@pytest.mark.parametrize("recipe", ["plain", "pop", "rcr", "pico"])
def test_views_without_maps_take_other_sizes(recipe, side):
    assert run(pictures(1, side), views=views(recipe, "kmnist")).logits(pictures(1, side)).isfinite().all()


@pytest.mark.usefixtures("double")
def test_double_precision_takes_views_of_double_precision():
    assert run(views=views("plain", "mnist", dtype=torch.float64)).logits(pictures()).dtype == torch.float64


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
def test_on_a_card_views_may_be_of_less_precision_and_must_lie_there():
    for dtype in (torch.float32, torch.bfloat16):
        assert (
            run(views=views("plain", "mnist", device="cuda", dtype=dtype), device="cuda")
            .history["loss"]
            .isfinite()
            .all()
        )
    with pytest.raises(ValueError, match=r"views must be torch\.float32 on cuda:0, as weights are; got torch\.float64"):
        run(views=views("plain", "mnist", device="cuda", dtype=torch.float64), device="cuda")
    with pytest.raises(
        ValueError, match=r"views must be on cuda:0, where training is; they are on cpu\. Give .* device='cuda'\)"
    ):
        run(device="cuda")


@pytest.mark.parametrize(
    ("method", "recipe", "message"),
    [
        (PiCO(queue=16), "pop", r"PiCO needs 2 views of every example; got 3\. Give views= for images"),
        (RCR(), "plain", r"RCR needs 3 views of every example; got 1\. Give views= for images; tables have one view"),
    ],
)
def test_a_method_gets_the_views_that_it_looks_at(method, recipe, message):
    with pytest.raises(ValueError, match=message):
        run(method=method, views=views(recipe, "mnist"))


# ------------------------------------------------------------------------------------------------------------ 4. networks


class InADict(nn.Linear):
    """A module that gives its logits by name."""

    def forward(self, x):
        return {"logits": super().forward(x.flatten(1))}


def flat(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width))


NEEDED = "network must be a function of an example's shape and the number of classes that builds a module; got"
NETWORKS = [
    (flat(C), TypeError, NEEDED + r" a module, Sequential\. Give Backbone\(lambda: \.\.\.\)"),
    (LeNet, TypeError, NEEDED + r" the class LeNet\. Give LeNet\(\)\."),
    (WideResNet, TypeError, NEEDED + r" the class WideResNet\. Give WideResNet\(\)\."),
    ("lenet", TypeError, NEEDED + r" str\."),
    (lambda shape: flat(C), TypeError, NEEDED + r" one of other arguments: too many positional arguments\."),
    (lambda shape, classes: None, TypeError, r"network must build a torch module; it built NoneType\."),
    (lambda shape, classes: flat(7), ValueError, r"must give logits \[b, 5\], one for each class; got \[2, 7\] for two examples\. Build it for the number"),
    (lambda shape, classes: flat(1), ValueError, r"must give logits \[b, 5\], one for each class; got \[2, 1\] for two examples"),
    (lambda shape, classes: nn.Conv2d(1, 5, 3), ValueError, r"must give logits \[b, 5\], one for each class; got \[2, 5, 26, 26\]"),
    (lambda shape, classes: InADict(784, C), TypeError, r"network must give logits, a tensor \[b, 5\], alone or first in a tuple; got dict\."),
    (lambda shape, classes: nn.Linear(784, C), ValueError, r"must take examples \[b, 1, 28, 28\]; two blank ones gave: RuntimeError: mat1 .* multiplied .*\. Build it for the shape"),
    (Backbone(lambda: nn.Conv2d(3, 8, 3)), ValueError, r"must take examples \[b, 1, 28, 28\]; building it gave: RuntimeError: .* expected .* 3 channels"),
]  # fmt: skip


@pytest.mark.parametrize(("network", "error", "message"), NETWORKS)
def test_networks_that_cannot_be_trained_are_refused(network, error, message):
    with pytest.raises(error, match=message) as caught:
        run(network=network)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("method", "recipe"), [(PiCO(queue=16), "pico"), (Valen(warm_up=1), "plain")])
def test_methods_with_heads_of_their_own_need_a_body(method, recipe):
    message = rf"{type(method).__name__} needs a network with body, width and head; Sequential has no body\. Give Backb"
    with pytest.raises(ValueError, match=message):
        run(network=lambda shape, classes: flat(classes), method=method, views=views(recipe, "mnist"))


def test_the_look_leaves_no_trace():
    """Neither the global generator nor a statistic nor the mode of a part moves, even where the look fails."""
    module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.BatchNorm1d(784).eval(), nn.Linear(784, 7))
    before = torch.get_rng_state(), {name: value.clone() for name, value in module.state_dict().items()}
    for network in (lambda shape, classes: module, lambda shape, classes: nn.Sequential(module, nn.Linear(8, classes))):
        with pytest.raises(ValueError, match=r"must give logits|two blank ones gave"):
            run(network=network)
    assert torch.equal(before[0], torch.get_rng_state())
    assert all(torch.equal(before[1][name], value) for name, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == [True, True, True, False, True]


# ------------------------------------------------------------------------------------------------------------ 5. prediction


def test_images_of_another_size_than_trained_on_are_refused():
    fitted = run(trials=[Trial(0), Trial(1)], memory=1)  # in two stacks, which are joined
    with pytest.raises(
        ValueError, match=r"x must be \[n, 1, 28, 28\] as in training; got \[24, 1, 32, 32\]\. Reshape it"
    ):
        fitted.logits(pictures(1, 32))


@pytest.mark.parametrize("ranked", [False, True])
def test_so_are_rows_of_other_features(ranked):
    x = RANDOM.random((N, 3))
    ranks = fit_quantiles(x) if ranked else None
    fitted = fit(ranks(x) if ranks else x, SETS, trials=[Trial(scaling="feature")], training=Training(epochs=1))
    fitted = replace(fitted, ranks=ranks)
    assert fitted.logits(x.tolist()).shape == (1, N, C)
    for wrong in (x[:, :2], x[0]):
        with pytest.raises(ValueError, match=r"x must be \[n, 3\] as in training; got \[(24, 2|3)\]\. Reshape it"):
            fitted.logits(wrong)


# ------------------------------------------------------------------------------------------------------------ 6. the last batch


def left_over(n, batch, method=PLAIN, recipe="plain", **options):
    sets = np.resize(SETS, (n, C))
    return run(pictures(n=n), sets, method=method, views=views(recipe, "mnist"), training=Training(1, batch), **options)


@pytest.mark.parametrize(
    ("method", "recipe"),
    [(PLAIN, "plain"), (RC(), "pop"), (PiCO(queue=16), "pico"), (Valen(warm_up=1), "plain")],
)
def test_a_single_row_left_over_is_refused_with_batch_normalisation(method, recipe):
    message = r"batch must not leave a single row over .* normalisation; 25 rows in batches of 12 do\. Use batch=13\."
    with pytest.raises(ValueError, match=message):
        left_over(25, 12, method, recipe)
    assert left_over(25, 13, method, recipe).history["loss"].isfinite().all()


def test_the_batch_that_is_proposed_leaves_none_over():
    with pytest.raises(ValueError, match=r"13 rows in batches of 2 do\. Use batch=5\."):  # as 3 and 4 would
        left_over(13, 2)
    with pytest.raises(ValueError, match=r"4 rows in batches of 1 do\. Use batch=2\."):
        left_over(4, 1)
    with pytest.raises(ValueError, match=r"1 rows in batches of 9 do\. Give more rows\."):
        left_over(4, 9, trials=[Trial(rows=np.array([2]))])


@pytest.mark.parametrize("method", [PLAIN, RCR()])
def test_views_that_go_together_are_more_than_one(method):
    assert left_over(25, 12, method, "pop").history["loss"].isfinite().all()


def test_a_single_row_is_enough_for_other_networks():
    """Without batch normalisation, or with one over the pixels of an image."""
    maps = Backbone(lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))
    for network in (MLP(), maps):
        assert left_over(25, 12, network=network).history["loss"].isfinite().all()


# ------------------------------------------------------------------------------------------------------------ 7. labels


def test_labels_beyond_the_classes_are_refused():
    labels = np.arange(N) % C
    labels[[3, 7]] = 9, -1
    message = r"class numbers from 0 to 4, as candidates have 5 columns; row 3 has 9\. Use -1 where"
    with pytest.raises(ValueError, match=message):
        run(labels=labels)
    labels[3] = -1
    assert run(labels=labels, trials=[Trial(test=np.array([3, 7]))]).history["accuracy"].item() == 0


def test_a_compiled_network_is_made_for_the_images_that_it_sees_together():
    three = views("pop", "mnist")
    assert images_per_forward(three, 256, Proden()) == 768
    assert images_per_forward(three, 256, RCR()) == 768
    assert images_per_forward(views("pico", "mnist"), 256, PiCO()) == 256  # query and key go apart


def test_only_long_runs_are_worth_compiling():
    assert worth_compiling(Training(500, 256), 54_000)
    assert not worth_compiling(Training(12, 256), 54_000)
    assert worth_compiling(Training(20_000, 256), 1)
    assert worth_compiling(Training(10_000, 256), 257)  # the last batch may be small
