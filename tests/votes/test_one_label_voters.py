"""Rules, flags and detectors: annotators who name one label or abstain. No class is lost, and the majority is not beaten down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table
from stages import make_dataset

from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset, VoteEvidence
from oneof.data.encode import Encoding
from oneof.ensemble.resolve import ResolvedRows, resolve_labels
from oneof.ensemble.vote_prior import vote_prior
from oneof.ensemble.with_votes import dataset_with_votes
from oneof.learners.base import Predictions
from oneof.learners.config import EnsembleConfig
from oneof.votes import Annotators, Votes, fit_annotators, join, read_long, summarise
from oneof.votes.joint import MAJORITY, MODELS, TOLERANCE, choose, folds
from oneof.votes.policies import Sets, union

NAMES = ("ham", "spam")


def detectors(
    seed: int, n: int = 400, spam: float = 0.5, false_alarms: float = 0.02, each: int = 3, strays: float = 0.0
) -> tuple[Votes, NDArray[np.float64], NDArray[np.intp]]:
    """Return votes, four informative features and the true labels of the items with votes.

    Each detector of a class votes on half of its items, and on a share `false_alarms` of the others; a share `strays` of votes is for
    a random label.
    """
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < spam).astype(np.intp)
    x = 1.5 * truth[:, None] + rng.normal(size=(n, 4))
    rows = []
    for item in range(n):
        for number in range(2 * each):
            label = number // each
            rate = 0.5 if truth[item] == label else false_alarms
            if rng.random() < rate:
                named = rng.integers(2) if rng.random() < strays else label
                rows.append((item, f"rule {number}", NAMES[named]))
    item_column, annotator, label_column = zip(*rows, strict=True)
    votes = read_long(table({"item": item_column, "annotator": annotator, "label": label_column}))
    voted = np.array(votes.items.to_pylist())
    return votes, x[voted], truth[voted]


def majority(votes: Votes, seed: int) -> NDArray[np.intp]:
    """Return the label with most votes; ties fall at random."""
    counts = np.random.default_rng(seed).random((len(votes.items), len(votes.labels))) / 10
    np.add.at(counts, (votes.item, votes.label), 1)
    return counts.argmax(1)


def test_votes_and_features_together_do_not_collapse() -> None:
    votes, x, truth = detectors(seed=0)
    posterior = vote_prior(x, votes, np.arange(len(x))).joint.posterior
    assert (posterior.argmax(1) == truth).mean() >= 0.97


@pytest.mark.parametrize(
    "setting", [{}, {"spam": 0.1}, {"spam": 0.1, "strays": 0.02}, {"spam": 0.2, "false_alarms": 0.1}]
)
def test_votes_alone_are_no_worse_than_the_majority(setting: dict[str, float]) -> None:
    ours, simple = [], []
    for seed in range(3):
        votes, _, truth = detectors(seed, **setting)
        labels = join(votes).posterior.argmax(1)
        ours.append((labels == truth).mean())
        simple.append((majority(votes, seed) == truth).mean())
        assert set(labels) == {0, 1}
    assert np.mean(ours) >= np.mean(simple) - 0.005
    assert min(np.array(ours) - simple) > -0.02


def test_a_single_detector_for_each_class_is_believed() -> None:
    votes, _, truth = detectors(seed=0, each=1)
    assert (join(votes).posterior.argmax(1) == truth).mean() > 0.93


def test_the_majority_is_among_what_held_out_votes_choose_from() -> None:
    votes, _, _ = detectors(seed=0, n=60)
    assert MAJORITY in MODELS
    assert MAJORITY in {choice.model for choice in choose(votes, {})}
    joint = join(
        votes, scores={choice: score for choice, score in choose(votes, {}).items() if choice.model == MAJORITY}
    )
    counts = np.zeros((len(votes.items), 2))
    np.add.at(counts, (votes.item, votes.label), 1)
    clear = counts[:, 0] != counts[:, 1]
    assert (joint.posterior.argmax(1) == counts.argmax(1))[clear].all()


def test_abstention_of_rules_tells_of_items_on_which_nobody_votes() -> None:
    """Most items with a vote are spam; four detectors of spam find half of it each, so what none of them flags is ham."""
    rng = np.random.default_rng(0)
    truth = (rng.random(600) < 0.3).astype(np.intp)
    rows = []
    for item in range(600):
        for number in range(4):
            if rng.random() < (0.5 if truth[item] else 0.02):
                rows.append((item, f"spam {number}", "spam"))
        if rng.random() < (0.1 if truth[item] else 0.2):
            rows.append((item, "ham", "ham"))
    item_column, annotator, label_column = zip(*rows, strict=True)
    votes = read_long(table({"item": item_column, "annotator": annotator, "label": label_column}))
    n_silent = 600 - len(votes.items)
    fitted = fit_annotators(votes, n_silent=n_silent)
    assert fitted.posterior[:, 0].mean() < 0.4
    assert fitted.silent_posterior[0] > 0.7


def test_on_items_that_were_assigned_to_people_abstention_is_no_evidence() -> None:
    rows = [(item, f"p{item % 7}-{k}", NAMES[(item + k) % 2]) for item in range(70) for k in range(3)]
    item_column, annotator, label_column = zip(*rows, strict=True)
    one_label_each = [f"{who} {label}" for who, label in zip(annotator, label_column, strict=True)]
    votes = read_long(table({"item": item_column, "annotator": one_label_each, "label": label_column}))
    fitted = fit_annotators(votes)
    assert fitted.confusions.is_rule.all()
    assert not fitted.abstention.any()


def test_abstention_counts_in_a_file_without_the_items_on_which_nobody_votes() -> None:
    """Few rules vote on an item, so that many items are missing and the number of votes varies little on the others."""
    votes, _, _ = detectors(seed=0, n=600, false_alarms=0.05, each=2)
    count = np.bincount(votes.item)
    assert count.var() < 0.5 * count.mean()
    assert fit_annotators(votes).abstention.any()


def test_a_rule_whose_vote_is_held_out_did_not_abstain() -> None:
    """By hand: the probability of each held-out vote on its item, of which the rule's abstention is no part."""
    votes, _, _ = detectors(seed=0, n=60)
    model = Annotators()
    expected = []
    for kept, out in folds(votes):
        fitted = fit_annotators(kept, replace(model, tolerance=TOLERANCE))
        assert fitted.abstention.any()
        posteriors = {}
        for i in np.unique(out.item):
            posterior = fitted.posterior[i].copy()
            for a in out.annotator[out.item == i]:
                posterior /= 1 - fitted.confusions.vote_rates[a]
            posteriors[i] = posterior / posterior.sum()
        on_any_item = np.mean(list(posteriors.values()), axis=0)
        for i, a, label in zip(out.item, out.annotator, out.label, strict=True):
            pi = fitted.confusions.of(np.array([a]), np.array([label]))[0]
            expected.append(np.log(posteriors[i] @ pi) - np.log(on_any_item @ pi))
    (score,) = choose(votes, {}, models=[model]).values()
    assert score == pytest.approx(np.mean(expected))


def test_a_label_in_no_set_is_told() -> None:
    votes, _, _ = detectors(seed=0, n=60)
    only_ham = np.tile([True, False], (len(votes.items), 1))
    assert any("'spam'" in remark for remark in summarise(votes, Sets(only_ham)).remarks)
    assert not any("no set" in remark for remark in summarise(votes, union(votes)).remarks)


# --------------------------------------------------------------------------------------------------------- unanimous votes


def resolved_against_votes(counts: NDArray[np.float64], accuracy: float) -> ResolvedRows:
    """Resolve rows of three labels on which networks and votes' prior are certain of the last, whatever was voted."""
    n = len(counts)
    certain = np.tile(np.array([1e-9, 1e-9, 1.0], dtype=np.float32), (n, 1))
    predictions = Predictions(certain, np.ones(n, dtype=bool), certain)
    sets = np.ones((n, 3), dtype=bool)
    evidence = VoteEvidence(certain, counts=counts, vote_accuracy=accuracy)
    data = replace(make_dataset(np.zeros((n, 1)), sets), votes=evidence)
    return resolve_labels(data, predictions, sets)


def test_a_label_against_all_votes_is_no_surer_than_votes_are() -> None:
    counts = np.array([[1.0, 0, 0], [0, 1.0, 0], [5.0, 0, 0], [1.0, 1.0, 0], [0, 0, 2.0]])
    found = resolved_against_votes(counts, accuracy=0.9)
    assert found.label[[0, 1, 3]].tolist() == [2, 2, 2]
    np.testing.assert_allclose(found.probability[:2], 0.9, atol=1e-4)
    np.testing.assert_allclose(found.distribution.sum(1), 1, atol=1e-5)
    assert found.probability[3] > 0.999  # the votes are divided, and nothing is held back
    assert found.probability[4] > 0.999
    assert found.probability[2] < 0.9**4


def test_a_class_that_unanimous_votes_name_is_not_lost() -> None:
    counts = np.array([[3.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 0, 2.0]])
    found = resolved_against_votes(counts, accuracy=0.9)
    assert found.label.tolist() == [0, 2, 2, 2]  # a single vote does not save a class
    assert found.probability[0] >= 0.5
    assert found.ask[0]


# ------------------------------------------------------------------------------------------------- rows that show nothing


def test_rows_without_votes_and_words_get_the_prior_of_silent_rows_and_are_asked_about() -> None:
    """Ten rows of a table of words are empty, and no rule applies to them."""
    rng = np.random.default_rng(0)
    n, n_words = 300, 40
    truth = (rng.random(n) < 0.4).astype(np.intp)
    rate = np.where(np.arange(n_words) % 2 == truth[:, None], 0.15, 0.02)
    words = (rng.random((n, n_words)) < rate).astype(np.float32)
    words[:10] = 0
    rows = [(item, f"word {word}", NAMES[word % 2]) for item, word in zip(*np.nonzero(words[:, :6]), strict=True)]
    items, rules, labels = zip(*rows, strict=True)
    votes = read_long(table({"item": [int(item) for item in items], "annotator": rules, "label": labels}))
    item = np.full(n, -1)
    item[votes.items.to_pylist()] = np.arange(len(votes.items))

    data, _, _ = dataset_with_votes(make_named_dataset(words), votes, item, EnsembleConfig(), 0)
    assert not data.observed[:10].any()
    assert data.observed[item >= 0].all()
    surely_spam = np.tile(np.array([0.02, 0.98], dtype=np.float32), (n, 1))  # what learners make of an empty row
    learned = np.where(np.arange(2) == truth[:, None], 0.9, 0.1).astype(np.float32)
    learned[:10] = surely_spam[:10]
    predictions = Predictions.from_single_model(learned, data.candidates.mask).mask_unobserved(data.observed)
    resolved = resolve_labels(data, predictions, data.candidates.mask)
    assert data.votes is not None
    np.testing.assert_allclose(resolved.distribution[:10], data.votes.posterior[:10], rtol=1e-4)
    assert resolved.ask[:10].all()
    assert not resolved.ask[10:].all()

    # The more frequent label where features speak for the other one, though not enough.
    silent = np.flatnonzero((item < 0) & data.observed)
    prior = np.asarray(data.votes.posterior)[silent[0]]
    frequent = int(prior.argmax())
    learned[silent] = np.where(np.arange(2) == frequent, 0.45, 0.55)
    predictions = Predictions.from_single_model(learned, data.candidates.mask).mask_unobserved(data.observed)
    resolved = resolve_labels(data, predictions, data.candidates.mask)
    is_frequent = resolved.label[silent] == frequent
    assert resolved.ask[silent[is_frequent]].all()
    assert resolved.probability[silent[is_frequent]].max(initial=0) <= prior.max()


def make_named_dataset(x: NDArray[np.float32]) -> Dataset:
    sets = Candidates(np.ones((len(x), 2), dtype=bool), np.array(NAMES))
    d = x.shape[1]
    return Dataset.build(x, sets, Encoding(tuple(f"x{j}" for j in range(d)), (0.0,) * d, (), {}, ()))
