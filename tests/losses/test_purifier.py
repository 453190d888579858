"""Purifier: what falls when, what it says of it, and what it needs."""

from __future__ import annotations

import pytest
import torch

from oneof import CandidateLoss, Pop, PopPrinted, PopRatio, Purifier

MASK = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
SURE = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.2, 0.0]])
EVERY_EPOCH = Pop(warm_up=0, interval=1, window=1)


def epoch(criterion, purifier, logits=SURE):
    criterion(logits.clone().requires_grad_(), torch.arange(3))
    return purifier.step()


def test_labels_fall_by_the_rule_and_stay_away():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(EVERY_EPOCH, criterion)
    assert epoch(criterion, purifier) == 3
    assert criterion.candidates.tolist() == [[True, False, False], [False, True, False], [False, True, True]]
    epoch(criterion, purifier, logits=-SURE)
    assert criterion.candidates[0].tolist() == [True, False, False]
    assert criterion.memory[0].tolist() == [1, 0, 0]


def test_removals_say_what_fell_when():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(EVERY_EPOCH, criterion)
    epoch(criterion, purifier)
    epoch(criterion, purifier, logits=torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 9.0, 0.0]]))
    removals = purifier.removals
    fell = list(zip(removals.row.tolist(), removals.label.tolist(), removals.round.tolist(), strict=True))
    assert fell == [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 2, 2)]
    assert removals.margin.min() > 0.9
    assert purifier.threshold == pytest.approx(0.7)


def test_events_and_windows_are_those_of_the_rule():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(Pop(warm_up=3, interval=2, window=1), criterion)
    history = []
    for _ in range(6):
        history.append((purifier.is_observing(), purifier.is_due()))
        epoch(criterion, purifier)
    assert history == [(False, False)] * 3 + [(True, True), (False, False), (True, True)]
    assert set(purifier.removals.round.tolist()) == {1}


def test_logits_of_an_epoch_outside_the_window_do_not_count():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(Pop(warm_up=1, interval=2, window=1), criterion)
    epoch(criterion, purifier, logits=-SURE)
    epoch(criterion, purifier)
    assert criterion.candidates[0].tolist() == [True, False, False]


@pytest.mark.parametrize("rule", [Pop(1, 1, 1), PopRatio(1, 1, 1)], ids=["pop", "ratio"])
def test_rows_that_no_batch_showed_keep_their_sets(rule):
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(rule, criterion)
    for _ in range(2):
        criterion(SURE[:1].clone().requires_grad_(), torch.tensor([0]))
        purifier.step()
    assert torch.equal(criterion.candidates[1:], MASK[1:])
    assert not torch.equal(criterion.candidates[:1], MASK[:1])


def test_algorithm_1_needs_a_look_at_every_row():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(PopPrinted(warm_up=0), criterion)
    with pytest.raises(RuntimeError, match=r"purifier\.observe"):
        epoch(criterion, purifier)
    criterion.eval()
    purifier.observe(SURE[:2], torch.tensor([0, 1]))
    purifier.observe(SURE[2:].to(torch.bfloat16), torch.tensor([2]))
    assert purifier.step() == 3


def test_memory_after_the_step_is_what_is_observed():
    criterion = CandidateLoss("rc", MASK)
    purifier = Purifier(EVERY_EPOCH, criterion)
    index = torch.arange(3)
    criterion(-SURE.clone().requires_grad_(), index)
    criterion.update(SURE, index)
    purifier.step()
    assert criterion.candidates[0].tolist() == [True, False, False]


def test_a_prior_weighs_what_is_observed():
    counts = torch.tensor([[1, 50, 0], [1, 1, 1], [0, 1, 1]])
    criterion = CandidateLoss("cc", MASK)
    criterion.tables["log_prior"] = CandidateLoss("proden", MASK, counts).tables["log_prior"]
    purifier = Purifier(Pop(0, 1, 1, e0=0.5), criterion)
    epoch(criterion, purifier, logits=torch.tensor([[2.0, 0, -9], [0, 0, 0], [0, 0, 0]]))
    assert criterion.candidates[0].tolist() == [False, True, False]


def test_state_can_be_restored_only_for_the_same_data():
    criterion = CandidateLoss("proden", MASK)
    purifier = Purifier(EVERY_EPOCH, criterion)
    epoch(criterion, purifier)
    other = Purifier(EVERY_EPOCH, CandidateLoss("proden", MASK))
    other.load_state_dict(purifier.state_dict())
    assert other.threshold == purifier.threshold
    assert other.removals.row.tolist() == purifier.removals.row.tolist()
    with pytest.raises(ValueError, match=r"\[2, 3\].*\[3, 3\]"):
        Purifier(EVERY_EPOCH, CandidateLoss("proden", MASK[:2])).load_state_dict(purifier.state_dict())


@pytest.mark.parametrize(
    ("rule", "words"), [(Pop, r"Pop\(\)"), ("popp", "Did you mean 'pop'"), (0.9, "oneof.Pop")], ids=str
)
def test_what_is_no_rule_is_refused(rule, words):
    with pytest.raises((TypeError, ValueError), match=words):
        Purifier(rule, CandidateLoss("cc", MASK))


def test_a_rule_by_name():
    assert Purifier("pop_ratio", CandidateLoss("cc", MASK)).rule == PopRatio()


def test_a_missing_step_is_said_once(caplog):
    criterion = CandidateLoss("cc", MASK)
    Purifier(Pop(), criterion)
    for _ in range(9):
        criterion(SURE.clone().requires_grad_(), torch.arange(3))
    assert caplog.text.count("purifier.step()") == 1
