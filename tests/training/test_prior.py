"""Votes as weights: prior x posterior wherever a method weighs, the same stacked, resumed and purified."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from oneof import Pop, Training, Trial, fit
from oneof.candidates.mask import posterior, restrict
from oneof.methods import CAVL, CC, METHODS, Batch, Proden
from oneof.networks import Linear
from oneof.training.loop import begin, epochs
from oneof.training.prior import Prior
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof_paper.synthetic import mixture

N, C = 60, 4
DATA = mixture(n=N, d=3, c=C, separation=2.0, seed=0)
RNG = np.random.default_rng(1)
VOTES = RNG.multinomial(3, 0.6 * np.eye(C)[DATA.labels] + 0.1)
SETS = VOTES > 0
TRAINING = Training(epochs=4, batch=10)
WEIGHING = [name for name, kind in METHODS.items() if kind.uses_prior]
pytestmark = pytest.mark.usefixtures("double")


def trained(candidates=SETS, prior=VOTES, **changes):
    return fit(DATA.x, candidates, prior=prior, network=Linear(), training=TRAINING, **changes)


def assert_same(one, other):
    assert torch.equal(one.candidates, other.candidates)
    for name, weight in other.stack.weights.items():
        torch.testing.assert_close(one.stack.weights[name], weight, rtol=0, atol=1e-12)


def test_the_weights_are_prior_times_posterior():
    """After one epoch of one batch PRODEN remembers v_ij p_ij over its sum on the set, p of the network before the step."""
    problem = make_training_data(
        DATA.x, SETS, [Trial()], Proden(), None, Training(epochs=1, batch=N), prior=Prior(VOTES)
    )
    state = begin(problem, build(lambda: Linear()((3,), C), [0], torch.device("cpu")), [0])
    np.testing.assert_allclose(state.memory[0], VOTES / VOTES.sum(1, keepdims=True))
    with torch.no_grad():
        p = state.stack(torch.as_tensor(DATA.x)[None]).softmax(-1)[0].numpy()
    list(epochs(problem, state))
    for i in range(N):
        for j in range(C):
            expected = VOTES[i, j] * p[i, j] / sum(VOTES[i, k] * p[i, k] for k in range(C) if SETS[i, k])
            assert float(state.memory[0, i, j]) == pytest.approx(expected, abs=1e-12)


def test_equal_votes_say_nothing():
    assert_same(trained(prior=5 * SETS), trained(prior=None))


def test_votes_are_used():
    assert not torch.equal(trained().stack.weights["head.weight"], trained(prior=None).stack.weights["head.weight"])


@pytest.mark.parametrize(
    "method", [METHODS[name]() for name in WEIGHING if METHODS[name]().views == 1], ids=lambda m: type(m).__name__
)
def test_every_method_that_weighs_uses_them(method):
    with_votes, without = trained(method=method), trained(prior=None, method=method)
    pairs = zip(with_votes.stack.weights.values(), without.stack.weights.values(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs)


def test_a_method_without_weights_says_so(caplog):
    ours = trained(method=CC())
    assert caplog.messages == ["CC has no weights that follow the classifier: it does not use the prior."]
    assert_same(ours, trained(prior=None, method=CC()))
    assert not CAVL.uses_prior


@pytest.mark.parametrize("name", ["rcr", "pico", "valen"])
def test_methods_that_write_steps_weigh_by_the_batch(name):
    assert METHODS[name].uses_prior
    logits, prior = torch.randn(1, 5, C), torch.randn(1, 5, C)
    batch = Batch(torch.ones(1, 5, C, dtype=torch.bool), (), torch.zeros(()), [], prior)
    expected = restrict(logits.softmax(-1) * prior.exp(), batch.candidates)
    torch.testing.assert_close(posterior(batch.weighed(logits), batch.candidates), expected)


# -------------------------------------------------------------------------------------------------------------- the same run


def test_a_trial_in_a_stack_equals_the_same_trial_alone():
    both = trained(
        trials=[Trial(0, lr=0.1), Trial(1)],
        purify=Pop(warm_up=1, interval=1, window=1),
    )
    alone = trained(trials=[Trial(1)], purify=Pop(warm_up=1, interval=1, window=1))
    assert torch.equal(both.candidates[1], alone.candidates[0])
    for name, weight in alone.stack.weights.items():
        torch.testing.assert_close(both.stack.weights[name][1], weight[0], rtol=0, atol=1e-10)


def test_a_sparse_prior_gives_what_a_dense_one_gives():
    rows = np.sort(RNG.permutation(N)[:40])
    dense = trained(trials=[Trial(0, rows)])
    sparse = trained(trials=[Trial(0, rows)], prior=csr_array(VOTES), candidates=csr_array(SETS))
    assert_same(sparse, dense)


def test_a_checkpoint_knows_the_votes(tmp_path):
    whole = trained(checkpoint=tmp_path)
    assert_same(trained(checkpoint=tmp_path), whole)
    with pytest.raises(ValueError, match="holds a checkpoint of another run: data"):
        trained(checkpoint=tmp_path, prior=VOTES[::-1].copy())
    with pytest.raises(ValueError, match="holds a checkpoint of another run"):
        trained(checkpoint=tmp_path, slack=0.5)


# --------------------------------------------------------------------------------------------------------------------- slack


def test_slack_is_a_vote_for_every_label():
    assert_same_weights = [
        trained(slack=0.2).stack.weights["head.weight"],
        trained(candidates=np.ones_like(SETS), prior=VOTES + 0.2).stack.weights["head.weight"],
    ]
    torch.testing.assert_close(*assert_same_weights, rtol=0, atol=1e-12)


def test_a_label_that_fell_gets_no_slack():
    """Where sets are open, methods see every label but those that POP removed."""
    problem = make_training_data(DATA.x, SETS, [Trial()], Proden(), None, TRAINING, prior=Prior(VOTES, 0.2))
    left = torch.as_tensor(SETS)[None].clone()
    row = int(SETS.sum(1).argmax())
    fallen = int(SETS[row].argmax())
    left[0, row, fallen] = False
    seen = problem.visible_candidates(left, problem.rows)
    assert not seen[0, row, fallen]
    assert seen.sum() == N * C - 1


def test_slack_finds_labels_that_nobody_named():
    """A tenth of the rows names a wrong label alone; with slack the classifier outweighs them."""
    data = mixture(n=400, d=3, c=C, separation=5.0, seed=0)
    named = np.where(np.arange(400) % 10 == 0, (data.labels + 1) % C, data.labels)
    votes = 2.0 * np.eye(C)[named]
    closed, opened = (
        fit(data.x, votes > 0, prior=votes, slack=s, network=Linear(), training=Training(epochs=20)) for s in (0.0, 0.2)
    )
    p = opened.logits(data.x)[0] + torch.as_tensor(np.log(votes + 0.2))
    assert (p.argmax(-1).numpy() == data.labels).mean() > 0.97
    assert (p.argmax(-1).numpy() == named).mean() < 0.93
    assert torch.equal(closed.candidates, opened.candidates)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"prior": VOTES[:5]},
            ValueError,
            r"prior must be weights \[60, 4\] to match the candidates; got shape \[5, 4\]",
        ),
        ({"prior": -VOTES}, ValueError, r"prior must hold numbers from 0 on; got -"),
        ({"prior": VOTES.astype(str)}, TypeError, r"prior must be numbers \[n, c\], such as counts of votes"),
        ({"slack": -1.0}, ValueError, r"slack must be a number from 0 on; got -1\.0"),
        ({"prior": None, "slack": 0.1}, ValueError, r"slack needs a prior, against which it counts"),
    ],
)
def test_messages(changes, error, message):
    with pytest.raises(error, match=message):
        trained(**changes)
