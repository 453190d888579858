"""What a GPU works out is what the CPU does, up to rounding: here both on the CPU, the one with arrays, the other with tensors."""

import numpy as np
import pytest
import torch
from stages import fit_stages, make_dataset

from oneof.data.with_ranks import fit_quantiles, fit_quantiles_on_device
from oneof.ensemble import learner_stages, noisy_sets
from oneof.learners import kernel_ensemble
from oneof.learners.config import EnsembleConfig
from oneof.learners.kernel import leave_one_out_scores
from oneof.learners.scaling import RankedFeatures, append_ranks, scale
from oneof.training import device
from oneof.training.device import device_for
from oneof_paper.synthetic import mixture

DATA = mixture(n=400, d=3, c=4, seed=0)
MASK = (np.random.default_rng(0).random((400, 4)) < 0.3) | np.eye(4, dtype=bool)[DATA.labels]
CPU = torch.device("cpu")


def test_ranks():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=500), rng.integers(3, size=500), np.ones(500), rng.exponential(size=500)], axis=1)
    new = np.concatenate([x, 3 * x[:50] - 1, x[:5] + 1e3, x[:5] - 1e3])
    learned = fit_quantiles(x)
    np.testing.assert_allclose(fit_quantiles_on_device(torch.as_tensor(x)).quantiles, learned.quantiles, atol=1e-12)
    np.testing.assert_allclose(learned.on_device(torch.as_tensor(new)).numpy(), learned(new), atol=1e-12)


@pytest.mark.parametrize("rows", [150, 400])
@pytest.mark.parametrize("votes", [False, True])
def test_leave_one_out_regression(rows, votes):
    seen, _ = scale(append_ranks(DATA.x, CPU).values, "both")
    prior = np.log(np.random.default_rng(1).random(MASK.shape)) if votes else None
    ours, theirs = (
        leave_one_out_scores(x, MASK, log_prior=prior, max_rows=rows) for x in (seen, torch.as_tensor(seen))
    )
    np.testing.assert_allclose(theirs.scores, ours.scores, atol=1e-10)
    np.testing.assert_allclose(theirs.weights, ours.weights, atol=1e-10)


def test_stages_with_tensors(monkeypatch):
    config = EnsembleConfig(scalings=("feature", "ranks"), epochs=3, n_networks=2, max_kernel_rows=300, n_folds=None)
    data = make_dataset(DATA.x, MASK)
    kernels, networks = fit_stages(data, config, seed=3)
    noisy, _ = noisy_sets.find_noisy_sets(DATA.x, MASK, max_rows=300)
    for module in (learner_stages, kernel_ensemble, noisy_sets):
        monkeypatch.setattr(module, "append_ranks", _append_ranks_as_on_a_gpu)
    gpu_kernels, gpu_networks = fit_stages(data, config, seed=3)
    assert gpu_kernels.best_scalings == kernels.best_scalings
    assert (noisy_sets.find_noisy_sets(DATA.x, MASK, max_rows=300)[0] == noisy).all()
    np.testing.assert_allclose(gpu_kernels.soft_labels, kernels.soft_labels, atol=1e-10)
    for ours, theirs in zip(networks.models, gpu_networks.models, strict=True):
        np.testing.assert_allclose(ours.logits(DATA.x), theirs.logits(DATA.x), atol=1e-3)


def _append_ranks_as_on_a_gpu(x, device):
    tensor = torch.as_tensor(x)
    ranks = fit_quantiles_on_device(tensor)
    return RankedFeatures(ranks, ranks.on_device(tensor))


def test_auto_takes_the_gpu_for_large_tables_that_fit(monkeypatch):
    card = torch.device("cuda")
    monkeypatch.setattr(device, "best_device", lambda: card)
    monkeypatch.setattr(device, "free_memory", lambda place: 2**30)
    assert device_for("auto", 20_000, 20) == card
    assert device_for("auto", 19_999, 20) == device_for("auto", 10_000_000, 20) == device_for("cpu", 20_000, 20) == CPU


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match=r"device must be one that torch knows, such as 'cpu' or 'cuda'; got 'gpu'\."):
        device_for("gpu", 10, 1)


def test_large_tables_are_weighed_by_a_sample(monkeypatch):
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=400)
    whole = noisy_sets.probability_of_missing(p, MASK)
    monkeypatch.setattr(noisy_sets, "MAX_SAMPLED_SETS", 200)
    assert np.abs(noisy_sets.probability_of_missing(p, MASK) - whole).mean() < 0.05
