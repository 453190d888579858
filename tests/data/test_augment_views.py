"""The draws of the views against the policies' tables, and the views against the operations they are made of."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._pytree import tree_map_only

from oneof.data.augment import DATASETS, RECIPES, autoaugment, draws, randaugment, views
from oneof.data.augment.geometry import crop, erase
from oneof.data.augment.policies import AUTOAUGMENT, IDENTITY, OPERATIONS, RANDAUGMENT, STRENGTHS, magnitude, table

torch.set_num_threads(1)

SIDE = 32


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(dataset: str, n: int) -> torch.Tensor:
    shape = (n, len(DATASETS[dataset].mean), *2 * (DATASETS[dataset].size,))
    return torch.randint(256, shape, generator=generator(n), dtype=torch.uint8)


# ------------------------------------------------------------------------------------------------------------- the draws


def test_autoaugment_draws_follow_its_table():
    n = 60_000
    policy = autoaugment(SIDE)
    drawn = policy.draw(n, generator())
    for slot in range(2):
        counts = np.bincount(drawn[slot].numpy(), minlength=150).reshape(25, 2, 3)
        assert counts[:, 1 - slot].sum() == 0
        p = np.array([sub[slot][1] for sub in AUTOAUGMENT])
        expected = n / 25 * np.stack((1 - p, p / 2, p / 2), 1)
        assert counts[:, slot][expected == 0].sum() == 0
        possible = expected > 0
        assert stats.chisquare(counts[:, slot][possible], expected[possible]).pvalue > 0.01
    both = np.array([[AUTOAUGMENT[i][0][1], AUTOAUGMENT[i][1][1]] for i in range(25)])
    applied = (drawn % 3 > 0).numpy()  # the two operations of a sub-policy are applied independently of each other
    expected = both.prod(1).mean()
    assert (applied[0] & applied[1]).mean() == pytest.approx(expected, abs=4 * math.sqrt(expected / n))


def test_autoaugment_rows_are_the_operations_of_its_table():
    rows = autoaugment(SIDE).rows.view(25, 2, 3, -1)
    names = Counter()
    for i, sub in enumerate(AUTOAUGMENT):
        for slot, (name, _, level) in enumerate(sub):
            names[name] += 1
            made = [IDENTITY] + [OPERATIONS[name](magnitude(name, level, sign), SIDE) for sign in (1, -1)]
            assert rows[i, slot].equal(table(made))
    assert sum(names.values()) == 50
    assert set(OPERATIONS) - set(names) == {"identity", "shear x"}  # the policy never shears along x


def test_magnitudes_are_those_of_the_paper():
    assert [magnitude("posterize", level, 1) for level in range(10)] == [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]
    assert [magnitude(name, 9, -1) for name in ("shear x", "translate y", "rotate")] == [-0.3, -150 / 331, -30]
    assert [round(magnitude(name, 9, -1), 9) for name in ("brightness", "colour", "sharpness")] == [0.1] * 3
    assert (magnitude("solarize", 0, 1), magnitude("solarize", 9, 1)) == (256, 0)


def test_randaugment_draws_operations_and_magnitudes_uniformly():
    n = 40_000
    policy = randaugment(SIDE)
    drawn = policy.draw(n, generator()).numpy()
    assert drawn.shape == (3, n)
    for slot in drawn:
        assert stats.chisquare(np.bincount(slot // STRENGTHS, minlength=len(RANDAUGMENT))).pvalue > 0.01
        assert stats.chisquare(np.bincount(slot % STRENGTHS, minlength=STRENGTHS)).pvalue > 0.01
    assert stats.chi2_contingency(np.histogram2d(*(drawn[:2] // STRENGTHS), bins=14)[0]).pvalue > 0.01
    bits = 8 - policy.rows.view(len(RANDAUGMENT), STRENGTHS, -1)[list(RANDAUGMENT).index("posterize"), :, 9].log2()
    assert bits.unique(return_counts=True)[1].tolist() == [64] * 4  # 4, 5, 6 and 7 bits


def test_boxes_fit_and_have_the_areas_and_ratios_asked_for():
    n = 20_000
    top, left, height, width = draws.box(n, 320, 320, generator())
    assert bool(((top >= 0) & (left >= 0)).all())
    assert bool(((top + height <= 320) & (left + width <= 320)).all())
    area, ratio = (height * width).numpy() / 320**2, (width / height).numpy()
    rng = np.random.default_rng(0)
    a, r = rng.uniform(0.2, 1, 10 * n), np.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3), 10 * n))
    fits = (a * r <= 1) & (a / r <= 1)
    assert stats.ks_2samp(area, a[fits]).pvalue > 0.01
    assert stats.ks_2samp(ratio, r[fits]).pvalue > 0.01
    room = (320 - height).numpy()
    assert stats.kstest(top.numpy()[room > 100] / room[room > 100], "uniform").statistic < 0.02


def test_jitter_is_drawn_with_its_probability_order_and_ranges():
    n = 30_000
    drawn, kinds, every, hue = draws.jitter(n, generator())
    on = drawn.numpy()
    assert on.mean() == pytest.approx(0.8, abs=0.01)
    assert bool((kinds.sort(0).values == torch.arange(3)[:, None]).all())
    orders = (kinds * torch.tensor([[9], [3], [1]])).sum(0).unique(return_counts=True)[1]
    assert len(orders) == 6
    assert stats.chisquare(orders.numpy()).pvalue > 0.01
    for factors in every.numpy():
        assert stats.kstest(factors[on], stats.uniform(0.6, 0.8).cdf).pvalue > 0.01
        assert (factors[~on] == 1).all()
    turns = (hue + 128) % 256 - 128
    assert (turns.min(), turns.max()) == (-25, 25)
    assert not hue[~drawn].any()


# ------------------------------------------------------------------------------------------------------------- the views


EVERY = [(recipe, dataset) for recipe in RECIPES for dataset in DATASETS]


@pytest.mark.parametrize(("recipe", "dataset"), EVERY)
def test_views_have_shape_layout_and_type_and_leave_the_images(recipe, dataset):
    images = batch(dataset, 6)
    before = images.clone()
    make = views(recipe, dataset, dtype=torch.bfloat16)
    seen = make(images, generator())
    assert seen.shape == ({"plain": 1, "pico": 2}.get(recipe, 3), *images.shape)
    assert seen.dtype == torch.bfloat16
    assert seen.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    assert images.equal(before)
    assert seen.equal(make(images, generator()))
    assert recipe == "plain" or not seen.equal(make(images, generator(1)))


@pytest.mark.parametrize(
    ("recipe", "dataset"), [("pop", "mnist"), ("pop", "cifar10"), ("pop", "cifar100"), ("plain", "kmnist")]
)
def test_view_0_is_the_normalised_image(recipe, dataset):
    images = batch(dataset, 4)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in DATASETS[dataset][1:3])
    torch.testing.assert_close(views(recipe, dataset)(images, generator())[0], (images / 255 - mean) / std)


@pytest.mark.parametrize(
    ("recipe", "dataset"), [("pop", "kmnist"), ("pop", "fashion-mnist"), ("rcr", "mnist"), ("rcr", "cifar10")]
)
def test_view_0_is_flipped_and_cropped_where_the_recipe_says(recipe, dataset):
    images = batch(dataset, 8)
    make = views(recipe, dataset)
    (flip, top, left), _ = draw = make.draw(images, generator())
    plain = views("plain", dataset)(crop(images, flip, top, left, 4), generator())
    assert make.apply(images, draw)[0].equal(plain[0])


def test_strong_views_are_flip_crop_cutout_policy_in_this_order():
    images = batch("cifar10", 8)
    make = views("pop", "cifar10")
    _, (shift, hole, rows) = draw = make.draw(images, generator())
    cropped = crop(images.repeat(2, 1, 1, 1), *shift, 4)
    holed = erase(cropped, *hole, torch.zeros(1, dtype=torch.uint8))
    expected = views("plain", "cifar10")(autoaugment(32).apply(holed, rows), generator())[0]
    assert make.apply(images, draw)[1:].flatten(0, 1).equal(expected)


@pytest.mark.parametrize("dataset", ["mnist", "kmnist"])
def test_upright_views_are_those_of_pop_but_for_the_flips(dataset):
    images = batch(dataset, 50)
    usual, upright = views("pop", dataset), views("upright", dataset)
    *_, ((flip, *corner), hole, _) = draw = upright.draw(images, generator())
    *_, ((flipped, *same_corner), same_hole, _) = usual.draw(images, generator())
    assert not flip.any()
    assert 30 < flipped.sum() < 70
    assert all(map(torch.equal, (*corner, *hole[0], *hole[1]), (*same_corner, *same_hole[0], *same_hole[1])))  # fmt: skip
    shown = erase(crop(images.repeat(2, 1, 1, 1), torch.zeros(100, dtype=torch.bool), *corner, 4), *hole, torch.zeros(1, dtype=torch.uint8))  # fmt: skip
    seen = upright.apply(images, draw)
    assert seen[1:].flatten(0, 1).equal(views("plain", dataset)(shown, generator())[0])
    first = draw[0]
    still = images if first is None else crop(images, torch.zeros(50, dtype=torch.bool), *first[1:], 4)
    assert seen[0].equal(views("plain", dataset)(still, generator())[0])
    assert upright.names != usual.names  # a checkpoint tells them apart


@pytest.mark.parametrize("recipe", ["pop", "pico"])
def test_images_and_views_are_drawn_independently(recipe):
    seen = views(recipe, "cifar10")(batch("cifar10", 1).expand(64, -1, -1, -1), generator())
    random = seen[-2:].flatten(0, 1).flatten(1)
    assert len(random.unique(dim=0)) > 0.95 * len(random)


@pytest.mark.parametrize(("recipe", "dataset"), EVERY)
def test_apply_needs_no_values_on_the_host(recipe, dataset):
    """Tensors on "meta" have no values: reading one, a shape that depends on one, or one made on the CPU would raise."""
    images = batch(dataset, 2)
    draw = tree_map_only(torch.Tensor, lambda value: value.to("meta"), views(recipe, dataset).draw(images, generator()))
    assert views(recipe, dataset, device="meta").apply(images.to("meta"), draw).shape[1:] == images.shape


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["rcr", "pico"])
def test_apply_is_one_graph_without_breaks(recipe):
    make = views(recipe, "cifar10")
    images = batch("cifar10", 2)
    draw = make.draw(images, generator())
    torch.compiler.reset()
    compiled = torch.compile(make.apply, backend="eager", fullgraph=True)
    assert compiled(images, draw).equal(make.apply(images, draw))


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match=r"^recipe must be one of plain, pop, upright, rcr, pico; got 'popp'\.$"):
        views("popp", "mnist")
    with pytest.raises(ValueError, match=r"^dataset must be one of mnist, .*, cifar100 to have views; got 'lost'\.$"):
        views("pop", "lost")
