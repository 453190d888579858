"""The truth-free search: what other rows say, splits, choice by held-out sets, and what the ensemble leaves behind."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from stages import fit_stages, make_dataset

from oneof.candidates.generate import Flip, generate
from oneof.data.scaling import SCALINGS, RawAndRankScaling
from oneof.data.splits import split_rows
from oneof.data.with_ranks import fit_quantiles
from oneof.learners.config import SETTINGS, EnsembleConfig, FitConfig, NetworkConfig
from oneof.learners.kernel import KernelConfig, leave_one_out_scores
from oneof.learners.scaling import SCALINGS_WITH_RANKS
from oneof.methods import METHODS, BalancedProden, Proden
from oneof.purify import PURIFY
from oneof_paper.synthetic import mixture

DATA = mixture(n=400, d=3, c=4, separation=4.0, seed=0)
MASK = generate(DATA.labels, 4, Flip(0.4), seed=1)
SMALL = EnsembleConfig(
    scalings=("feature", "ranks"),
    lr=0.1,
    weight_decay=3e-4,
    epochs=8,
    n_networks=4,
    n_folds=None,
    learners=("networks",),
)
TABLE = make_dataset(DATA.x, MASK)


# ------------------------------------------------------------------------------------------------------ ranks and scaling


def test_ranks_are_monotone_and_do_not_care_for_the_unit():
    x = np.random.default_rng(0).lognormal(size=(300, 2)) * [1.0, 1e6]
    wide = fit_quantiles(x)(x)
    np.testing.assert_array_equal(wide[:, :2], x)
    assert (np.diff(wide[np.argsort(x[:, 0]), 2]) >= 0).all()
    np.testing.assert_allclose(fit_quantiles(1e3 * x)(1e3 * x)[:, 2:], wide[:, 2:], atol=1e-9)
    assert np.abs(wide[:, 2:]).max() <= 2.5
    assert wide[:, 2:].std(0) == pytest.approx(1, abs=0.05)


def test_ranks_of_shared_values_and_of_values_outside():
    x = np.array([[0.0]] * 6 + [[1.0]] * 4)
    ranks = fit_quantiles(x)
    scores = ranks(np.array([[-5.0], [0.0], [1.0], [9.0]]))[:, 1]
    assert scores[0] <= scores[1] < 0 < scores[2] <= scores[3]
    assert np.isfinite(fit_quantiles(np.ones((5, 2)))(np.ones((3, 2)))).all()


def test_root_lies_between_global_and_feature():
    x = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1.0, 100.0]
    )
    ratio = {
        name: float(SCALINGS[name](x).scale[0] / SCALINGS[name](x).scale[1]) for name in ("global", "root", "feature")
    }
    assert ratio["global"] == pytest.approx(1)
    assert ratio["root"] == pytest.approx(10, rel=0.1)
    assert ratio["feature"] == pytest.approx(100, rel=0.1)
    root = SCALINGS["root"](x)
    assert ((x - root.shift) * root.scale).square().mean() == pytest.approx(1)


@pytest.mark.parametrize("name", SCALINGS_WITH_RANKS)
def test_rows_seen_in_every_way_are_of_one_length(name):
    x = np.random.default_rng(0).normal(size=(400, 5)) * np.arange(1, 6)
    wide = torch.as_tensor(fit_quantiles(x)(x))
    shift, scale = SCALINGS_WITH_RANKS[name](wide)
    seen = (wide - shift) * scale
    if name in ("feature", "global", "root", "ranks", "both"):
        assert seen.square().sum(1).mean() == pytest.approx(5, rel=1e-6)
    assert (seen[:, :5] == 0).all() == (name == "ranks")
    assert (seen[:, 5:] == 0).all() == (name not in ("ranks", "both"))


# ------------------------------------------------------------------------------------------------------ what other rows say


def test_scores_are_those_of_a_regression_without_the_row():
    """Against the definition: fit again without row 7, in the features of the same landmarks."""
    x, mask = DATA.x[:60].astype(float), MASK[:60]
    kernel = KernelConfig(landmarks=60, rounds=1, ridge=0.3)
    scores = leave_one_out_scores(x, mask, kernel).scores[7]
    gamma = kernel.relative_gamma / (x * x).sum(1).mean()
    gram = np.exp(-gamma * ((x[:, None] - x[None]) ** 2).sum(-1))
    weights = mask / mask.sum(1, keepdims=True)
    others = np.arange(60) != 7
    centred = weights - weights.mean(0)
    direct = gram[7, others] @ np.linalg.solve(gram[np.ix_(others, others)] + 0.3 * np.eye(59), centred[others])
    np.testing.assert_allclose(scores, direct + weights.mean(0), atol=1e-3)


def test_other_rows_resolve_separable_data():
    opinion = leave_one_out_scores(DATA.x, MASK)
    assert (opinion.weights.argmax(1) == DATA.labels).mean() > 0.95
    assert (opinion.weights[~MASK] == 0).all()
    np.testing.assert_allclose(opinion.weights.sum(1), 1)


def test_a_sample_speaks_for_a_larger_table():
    some = leave_one_out_scores(DATA.x, MASK, max_rows=150)
    assert some.weights.shape == MASK.shape
    assert (some.weights.argmax(1) == DATA.labels).mean() > 0.93


def test_new_rows_are_scored_as_by_the_definition():
    x, mask, kernel = DATA.x[:60].astype(float), MASK[:60], KernelConfig(landmarks=60, rounds=1, ridge=0.3)
    gamma = kernel.relative_gamma / (x * x).sum(1).mean()
    between = lambda a, b: np.exp(-gamma * ((a[:, None] - b[None]) ** 2).sum(-1))  # noqa: E731
    weights = mask / mask.sum(1, keepdims=True)
    mean, new = weights.mean(0), DATA.x[60:70].astype(float)
    direct = between(new, x) @ np.linalg.solve(between(x, x) + 0.3 * np.eye(60), weights - mean) + mean
    np.testing.assert_allclose(leave_one_out_scores(x, mask, kernel).model(new), direct, atol=1e-4)


def test_scores_leave_out_whole_groups():
    """Rows 7 and 8 are one group: as if both were absent."""
    x, mask, kernel = DATA.x[:60].astype(float), MASK[:60], KernelConfig(landmarks=60, rounds=1, ridge=0.3)
    groups = np.where(np.arange(60) == 8, 7, np.arange(60))
    scores = leave_one_out_scores(x, mask, kernel, groups=groups).scores
    gram = np.exp(-kernel.relative_gamma / (x * x).sum(1).mean() * ((x[:, None] - x[None]) ** 2).sum(-1))
    weights, others = mask / mask.sum(1, keepdims=True), groups != 7
    centred = weights - weights.mean(0)
    direct = gram[:, others] @ np.linalg.solve(gram[np.ix_(others, others)] + 0.3 * np.eye(58), centred[others])
    np.testing.assert_allclose(scores[7:9], direct[7:9] + weights.mean(0), atol=1e-3)
    alone = leave_one_out_scores(x, mask, kernel).scores
    np.testing.assert_allclose(scores[9:], alone[9:], atol=1e-3)


def test_many_classes_cost_no_accuracy():
    """Classes that are in no set change the way it is computed, and nothing else."""
    wide = np.concatenate([MASK, np.zeros((400, 80), dtype=bool)], axis=1)
    np.testing.assert_allclose(
        leave_one_out_scores(DATA.x, wide).weights[:, :4], leave_one_out_scores(DATA.x, MASK).weights, atol=1e-6
    )


def test_balance_saves_a_class_that_always_comes_with_a_frequent_one():
    rng = np.random.default_rng(0)
    labels = rng.choice(3, size=600, p=[0.7, 0.2, 0.1])
    x = rng.normal(size=(600, 2)) + 1.6 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[labels]
    mask = np.eye(3, dtype=bool)[labels] | (rng.random((600, 3)) < [0.9, 0.1, 0.1])
    resolved = [
        (leave_one_out_scores(x, mask, KernelConfig(balance=b)).weights.argmax(1) == labels)[labels == 2].mean()
        for b in (0.0, 0.5)
    ]
    assert resolved[1] > resolved[0] + 0.1


def test_proden_balance():
    weights = torch.tensor([[[0.8, 0.2], [0.8, 0.2], [0.8, 0.2]]])
    balanced = BalancedProden(balance=1.0).on_epoch_start(weights, lambda rows: rows.mean(1, keepdim=True))
    torch.testing.assert_close(balanced, torch.full_like(weights, 0.5))
    assert Proden().on_epoch_start(weights, lambda rows: pytest.fail("not needed")) is weights
    with pytest.raises(ValueError, match=r"balance must lie in \[0, 1\]; got 2"):
        BalancedProden(balance=2)


# ------------------------------------------------------------------------------------------------------------------ splits


def test_splits_are_disjoint_and_of_one_size():
    splits = split_rows(np.arange(23), 4, seed=3)
    held = np.concatenate([part for _, part in splits])
    assert len(held) == len(set(held)) == 20
    assert len({len(rows) for rows, _ in splits}) == 1
    assert all(not set(rows) & set(part) for rows, part in splits)


def test_groups_are_on_one_side():
    groups = np.repeat(np.arange(20), 5)
    for rows, held in split_rows(np.arange(100), 4, groups, seed=0):
        assert not set(groups[rows]) & set(groups[held])


def test_too_few_rows_hold_none_out():
    assert split_rows(np.arange(1), 3)[0][1] is None
    assert split_rows(np.arange(6), 3, np.zeros(6))[0][1] is None
    assert len(split_rows(np.arange(3), 12)) == 12


# ------------------------------------------------------------------------------------------------------------------ search


@pytest.fixture(scope="module")
def stages():
    return fit_stages(TABLE, SMALL, seed=5)


@pytest.fixture(scope="module")
def trained(stages):
    """The training of the only stack of networks."""
    (learner,) = stages[1].learners
    return learner.training


def test_networks_learn(stages):
    (learner,) = stages[1].learners
    probabilities = learner.model.logits(DATA.x).softmax(-1).mean(0).numpy()
    assert probabilities.shape == (400, 4)
    assert (probabilities.argmax(1) == DATA.labels).mean() > 0.9
    assert (learner.oof.mean.argmax(1) == DATA.labels).mean() > 0.85
    assert learner.oof.held_out.all()


def test_scalings_are_ranked_and_the_best_are_trained_with(stages):
    kernels, networks = stages
    assert {row["stage"] for row in kernels.tried} == {"scalings"}
    assert {row["scaling"] for row in kernels.tried} == {"feature", "ranks"}
    assert [row["both"] for row in kernels.tried] == sorted((row["both"] for row in kernels.tried), reverse=True)
    assert networks.configs == [NetworkConfig((128, 128), row["scaling"], 0.1, 3e-4) for row in kernels.tried]


def test_sets_only_shrink_and_the_log_says_when(stages, trained):
    sets = stages[1].sets
    assert not (sets & ~MASK).any()
    assert sets.any(1).all()
    assert sets.sum() < MASK.sum()
    before = trained.removals.round == 0
    gone = (MASK & ~sets)[trained.rows.numpy()]
    assert int(before.sum()) == gone.sum()
    assert (trained.removals.margin[before] >= SMALL.margin - 1e-6).all()


def test_every_network_holds_out_other_rows(trained):
    held = [set(range(400)) - set(rows.tolist()) for rows in trained.rows]
    assert len(held) == 4
    assert all(len(part) == 100 for part in held)
    assert not set.intersection(*held[:2])


def test_same_seed_same_ensemble(stages, trained):
    kernels, networks = fit_stages(TABLE, SMALL, seed=5)
    assert kernels.tried == stages[0].tried
    again = networks.learners[0].training
    torch.testing.assert_close(again.logits(DATA.x), trained.logits(DATA.x), rtol=0, atol=0)


def test_without_purification_sets_stay():
    config = replace(SMALL, hidden=(8,), scalings=("feature",), kernel=None, purify=None)
    kernels, networks = fit_stages(TABLE, config)
    assert kernels.soft_labels is None
    assert (networks.sets == MASK).all()
    assert networks.learners[0].training.removals is None


def test_without_the_kernel_as_a_learner_it_still_ranks_the_scalings():
    """Features on very unequal scales: scalings that do not depend on the scale win, and they come late in the list."""
    skewed = make_dataset(np.exp(3 * DATA.x), MASK)
    scalings = ("global", "root", "feature", "ranks", "both")
    config = replace(SMALL, kernel=None, scalings=scalings, epochs=1, n_networks=1)
    kernels, networks = fit_stages(skewed, config, criterion="covering")
    ranked = sorted(kernels.tried, key=lambda row: -row["covering"])
    chosen = {network.scaling for network in networks.configs}
    assert chosen == {row["scaling"] for row in ranked[: config.n_scalings]} != {"global", "root"}
    assert kernels.soft_labels is None
    assert kernels.learner is None
    np.testing.assert_array_equal(networks.sets, MASK)


def test_killed_and_resumed(trained, tmp_path):
    fit_stages(TABLE, SMALL, seed=5, checkpoint=tmp_path)
    _, networks = fit_stages(TABLE, SMALL, seed=5, checkpoint=tmp_path)
    again = networks.learners[0].training
    torch.testing.assert_close(again.logits(DATA.x), trained.logits(DATA.x), rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_tiny_tables(n):
    _, networks = fit_stages(make_dataset(DATA.x[:n], MASK[:n]), replace(SMALL, epochs=2))
    assert torch.isfinite(networks.learners[0].model.logits(DATA.x[:n])).all()


def test_numbers_of_a_large_table():
    assert EnsembleConfig().for_size(1_000_000) == replace(EnsembleConfig(), batch_size=256, epochs=5)
    assert EnsembleConfig().for_size(900) == replace(EnsembleConfig(), batch_size=80, epochs=30)
    assert EnsembleConfig().for_size(5000) == replace(EnsembleConfig(), batch_size=80, epochs=30)
    assert EnsembleConfig().for_size(5000, 1000) == EnsembleConfig().for_size(5000)
    assert EnsembleConfig().for_size(5000, 5000) == replace(EnsembleConfig(), batch_size=80, epochs=6)
    assert EnsembleConfig().for_size(60) == replace(EnsembleConfig(), batch_size=16, epochs=30)
    assert EnsembleConfig(epochs=7, batch_size=9).for_size(900) == EnsembleConfig(epochs=7, batch_size=9)


def test_unknown_rule():
    with pytest.raises(ValueError, match="criterion must be one of both, covering, approximated; got 'oracle'"):
        fit_stages(TABLE, SMALL, criterion="oracle")


def test_raw_scaling_hides_the_ranks():
    scaling = RawAndRankScaling("feature", ranks=False)
    assert scaling(torch.randn(9, 4, dtype=torch.float64)).scale[2:].tolist() == [0, 0]


def classes_within(settings: object) -> set[type]:
    """Return the classes of settings, and of all that they hold."""
    classes = {type(settings)}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            classes |= classes_within(value)
    return classes


def test_all_settings_of_a_fit_can_be_read_back_from_a_run():
    assert classes_within(FitConfig()) <= {*SETTINGS, *METHODS.values(), *PURIFY.values()}
