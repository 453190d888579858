"""POP's rules against the reference, and their laws as properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

from oneof.methods import CC, LWS, Proden, Valen
from oneof.purify import Pop, PopPrinted, PopRatio, PopReleased, PopState, PurificationSchedule, stack_rules
from oneof.training.events import begin_purifying, run_event
from oneof.training.fit import fit
from oneof.training.processes import ProcessGroup

RULES = [Pop(), PopPrinted(), PopRatio(), PopReleased(), Pop(every_round=False), PopRatio(every_round=False)]
CPU = torch.device("cpu")


def situation(seed, t=2, n=15, c=5):
    """Sets and logits [t, n, c] of a stack."""
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.rand(t, n, c, generator=generator) < 0.5
    candidates.scatter_(-1, torch.randint(c, (t, n, 1), generator=generator), True)
    return candidates, 4 * torch.randn(3, t, n, c, generator=generator)


def observed(rule, candidates, logits):
    state = rule.init(candidates)
    seen = state.posterior_sum
    for z in logits:
        seen = rule.observe(seen, z, candidates)
    return state._replace(posterior_sum=seen)


seeds = st.integers(0, 2**31)
rules = st.sampled_from(RULES)
thresholds = st.floats(1e-3, 0.98)


@given(seeds, thresholds)
def test_margin_rule_agrees_with_the_reference(seed, e):
    candidates, logits = situation(seed)
    state = observed(Pop(), candidates, logits.double())._replace(threshold=torch.full((2,), e))
    kept, _ = Pop().remove(candidates, state)
    for t in range(2):
        q = np.mean([[reference.softmax(row) for row in z[t].double().numpy()] for z in logits], axis=0)
        np.testing.assert_array_equal(kept[t], reference.pop_margin_remove(q, candidates[t].numpy(), e))


@given(seeds, thresholds)
def test_ratio_rule_agrees_with_the_reference(seed, theta):
    candidates, logits = situation(seed)
    state = observed(PopRatio(), candidates, logits.double())._replace(threshold=torch.full((2,), theta))
    kept, _ = PopRatio().remove(candidates, state)
    for t in range(2):
        S = candidates[t].numpy()
        q = np.mean([reference.posterior(z[t].double().numpy(), S) for z in logits], axis=0)
        np.testing.assert_array_equal(kept[t], reference.pop_ratio_remove(q, S, theta))


@given(seeds, rules, thresholds)
def test_sets_only_shrink_never_empty_and_keep_the_best(seed, rule, threshold):
    candidates, logits = situation(seed)
    state = observed(rule, candidates, logits)._replace(threshold=torch.full((2,), threshold))
    kept, fallen = rule.remove(candidates, state)
    assert not (kept & ~candidates).any()
    assert kept.any(-1).all()
    best = torch.where(candidates, state.posterior_sum, -1.0).argmax(-1, keepdim=True)
    assert kept.gather(-1, best).all()
    assert torch.equal(fallen > 0, candidates & ~kept)


@given(seeds, rules, thresholds, thresholds)
def test_a_stricter_threshold_keeps_no_fewer_labels(seed, rule, one, other):
    candidates, logits = situation(seed)
    state = observed(rule, candidates, logits)
    strict, loose = (max(one, other), min(one, other)) if isinstance(rule, Pop) else (min(one, other), max(one, other))
    kept = [rule.remove(candidates, state._replace(threshold=torch.full((2,), e)))[0] for e in (strict, loose)]
    assert not (kept[1] & ~kept[0]).any()


@given(seeds, rules)
def test_any_block_of_rows_by_itself(seed, rule):
    candidates, logits = situation(seed)
    state = observed(rule, candidates, logits)._replace(threshold=torch.full((2,), 0.3))
    whole, _ = rule.remove(candidates, state)
    block, _ = rule.remove(candidates[:, 4:9], state._replace(posterior_sum=state.posterior_sum[:, 4:9]))
    assert torch.equal(block, whole[:, 4:9])


def test_ratio_removes_what_a_margin_of_its_own_per_row_removes():
    candidates, logits = situation(0, t=1)
    state = observed(PopRatio(), candidates, logits)._replace(threshold=torch.tensor([0.2]))
    kept, _ = PopRatio().remove(candidates, state)
    q = state.posterior_sum / state.posterior_sum.sum(-1, keepdim=True)
    best = torch.where(candidates, q, -1.0).amax(-1, keepdim=True)
    assert torch.equal(kept, candidates & ~(best - q > (1 - 0.2) * best))


def test_a_row_whose_mass_lies_outside_its_set_is_left_alone_by_the_margin():
    candidates = torch.tensor([[[True, True, False]]])
    logits = torch.tensor([[[[0.0, -3.0, 20.0]]]])
    assert Pop().remove(candidates, observed(Pop(e0=0.3), candidates, logits))[0].equal(candidates)
    kept, _ = PopRatio().remove(candidates, observed(PopRatio(theta=0.3), candidates, logits))
    assert kept.tolist() == [[[True, False, False]]]


@pytest.mark.parametrize("every_round", [True, False])
@pytest.mark.parametrize("share", [0.0, 5e-5, 0.01])
def test_thresholds_move_as_the_reference_says(every_round, share):
    """n·c = 10,000 entries: 0, half an entry too few to be noisy, and 100."""
    margin, ratio = Pop(every_round=every_round), PopRatio(every_round=every_round)
    fallen, shares = torch.zeros(1, 3, 4), torch.tensor([share])
    for e in (0.9, 0.12, 0.1):
        state = margin.init(torch.ones(1, 3, 4, dtype=torch.bool))._replace(threshold=torch.tensor([e]))
        wished = reference.pop_margin_schedule(e, int(np.ceil(share * 1e4)), margin.e_end, margin.e_s, every_round)
        assert margin.advance(state, fallen, shares).threshold.item() == pytest.approx(wished, abs=1e-6)
    for theta in (1e-3, 0.39, 0.4, 0.5):
        state = ratio.init(torch.ones(1, 3, 4, dtype=torch.bool))._replace(threshold=torch.tensor([theta]).double())
        wished = reference.pop_ratio_schedule(
            theta, share * 1e4, 1000, 10, 1e-4, ratio.inc, ratio.theta_end, every_round
        )
        assert ratio.advance(state, fallen, shares).threshold.item() == pytest.approx(wished, rel=1e-6)


@pytest.mark.parametrize("rule", [PopReleased(theta=0.1, window=3), PopRatio(theta=0.1, window=3)])
def test_the_released_code_resets_weights_to_the_window_mean(rule):
    candidates, logits = situation(4, t=1)
    sets = candidates.clone()
    method = Proden()
    memory = method.init(sets)
    state = begin_purifying(rule, sets)
    for z in logits:
        state.posterior_sum.copy_(rule.observe(state.posterior_sum, z, candidates))
    before = method.loss(logits[0], candidates, memory)
    run_event(rule, sets, state, ProcessGroup(), 75, memory)
    S = candidates[0].numpy()
    q = np.mean([reference.posterior(z[0].double().numpy(), S) for z in logits], axis=0)
    left = reference.pop_ratio_remove(q, S, 0.1)
    np.testing.assert_array_equal(sets[0], left)
    assert left.sum() < S.sum()
    loss = method.loss(logits[0], sets, memory)
    if not rule.resets:
        assert not torch.allclose(loss, before)  # the sets shrank
        q = reference.uniform(left)
    wished = reference.proden_loss(logits[0, 0].double().numpy(), left, q)
    np.testing.assert_allclose(loss[0], wished, rtol=1e-5)


def test_the_released_numbers():
    rule = PopReleased()
    assert [epoch for epoch in range(31) if rule.event(epoch)] == [20, 25, 30]
    assert (rule.theta, rule.theta_end, rule.inc, rule.quiet, rule.window) == (1e-3, 0.4, 1e-3, 1e-4, 5)


@pytest.mark.parametrize("method", [CC(), LWS(), Valen()])
def test_a_reset_needs_weights_of_the_candidates_alone(method):
    with pytest.raises(ValueError, match=rf"PopReleased resets .* Proden; got {type(method).__name__}\. Use PopRatio"):
        fit(np.eye(6), np.ones((6, 3), dtype=bool), method=method, purify=PopReleased())


def test_log_keeps_round_and_margin_of_every_removal():
    rule = Pop(e0=0.5, e_end=0.1, e_s=0.2)
    candidates = torch.tensor([[[True, True, True]], [[True, False, True]]])
    state = rule.init(candidates)
    for logits in ([[[3.0, 0.0, -9.0]], [[0.0, 0.0, 0.0]]], [[[3.0, 0.0, 0.0]], [[2.0, 0.0, 0.0]]]):
        state = state._replace(posterior_sum=rule.observe(state.posterior_sum, torch.tensor(logits), candidates))
        candidates, fallen = rule.remove(candidates, state)
        state = rule.advance(state, fallen, (fallen > 0).sum((1, 2)) / 3)
    log = state.log
    assert [column.tolist() for column in log[:4]] == [[0, 0, 1], [0, 0, 0], [1, 2, 2], [1, 1, 2]]
    p = reference.softmax(np.array([3.0, 0.0, -9.0]))
    assert log.margin[:2].tolist() == pytest.approx([p[0] - p[1], p[0] - p[2]], abs=1e-6)
    assert (state.posterior_sum == 0).all()


def test_rows_not_seen_are_left_alone():
    candidates = torch.ones(1, 2, 3, dtype=torch.bool)
    for rule in RULES:
        assert rule.remove(candidates, rule.init(candidates))[0].equal(candidates)


def test_stacked_numbers_act_per_trial():
    rules = [Pop(e0=0.9), Pop(e0=0.2, e_end=0.1)]
    candidates, logits = situation(3)
    together = stack_rules(rules, CPU)
    kept, _ = together.remove(candidates, observed(together, candidates, logits))
    for t, rule in enumerate(rules):
        alone = rule.remove(candidates[t : t + 1], observed(rule, candidates[t : t + 1], logits[:, t : t + 1]))[0]
        assert torch.equal(kept[t : t + 1], alone)


def test_state_is_not_written_to():
    candidates, logits = situation(1)
    for rule in RULES:
        state = observed(rule, candidates, logits)
        copy = PopState(state.posterior_sum.clone(), state.threshold.clone(), state.round, state.log)
        _, fallen = rule.remove(candidates, state)
        rule.advance(state, fallen, torch.zeros(2))
        assert torch.equal(state.posterior_sum, copy.posterior_sum)
        assert torch.equal(state.threshold, copy.threshold)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PurificationSchedule(interval=3, window=5), r"window must lie between 1 and interval \(3\).*got 5"),
        (lambda: PurificationSchedule(window=0), r"window must lie between 1 and interval"),
        (lambda: PurificationSchedule(warm_up=-1), r"warm_up must not be negative; got -1"),
        (lambda: Pop(e_end=0.0), r"e_end must be positive and at most e0 \(0\.9\).*got 0\.0"),
        (lambda: Pop(e0=0.2, e_end=0.3), r"e_end must be positive and at most e0 \(0\.2\)"),
        (lambda: Pop(e_s=-0.1), r"e_s must not be negative; got -0\.1"),
        (lambda: PopRatio(theta=0.0), r"0 < theta <= theta_end < 1; got 0\.0 and 0\.4"),
        (lambda: PopRatio(theta_end=1.0), r"0 < theta <= theta_end < 1; got 0\.01 and 1\.0"),
        (lambda: PopRatio(inc=-1.0), r"inc must not be negative; got -1\.0"),
        (
            lambda: stack_rules([Pop(), PopRatio()], CPU),
            r"must share the rule, warm_up, interval, window and every_round; fit them apart",
        ),
        (lambda: stack_rules([Pop(), replace(Pop(), warm_up=3)], CPU), r"fit them apart"),
    ],
)
def test_messages(make, message):
    with pytest.raises(ValueError, match=message):
        make()
