"""The model of annotators against plain loops, what it sees through, and its choice by held-out votes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import table

from oneof.votes import (
    Annotators,
    Spelling,
    Votes,
    dawid_skene,
    fit_annotators,
    join,
    read_long,
    summarise,
    union,
)
from oneof.votes.annotators import mistakes
from oneof.votes.joint import MAX_HELD_OUT, TOLERANCE, Choice, choose, folds, joint_posterior


def long(rows: list[tuple[int, str, str]], spelling: Spelling = Spelling(separator="|")) -> Votes:  # noqa: B008
    item, annotator, label = zip(*rows, strict=True)
    return read_long(table({"item": item, "annotator": annotator, "label": label}), spelling=spelling)


def simulated(
    frequencies: list[float], seed: int = 0, n: int = 500, people: int = 30, each: int = 3
) -> tuple[Votes, NDArray[np.intp]]:
    """Items with a few votes by people of unlike care, who say a favourite label when they do not know."""
    rng = np.random.default_rng(seed)
    c = len(frequencies)
    truth = rng.choice(c, n, p=frequencies)
    care, favourite = rng.beta(4, 2, people), rng.dirichlet(np.ones(c), people)
    rows = []
    for i in range(n):
        for a in rng.permutation(people)[:each]:
            label = truth[i] if rng.random() < care[a] else rng.choice(c, p=favourite[a])
            rows.append((i, f"{a:02d}", "abcdefgh"[label]))
    return long(rows), truth


def right(posterior: NDArray[np.float64], truth: NDArray[np.intp]) -> float:
    return float((posterior.argmax(1) == truth).mean())


# ------------------------------------------------------------------------------------------------- the formula, in loops


def confusion_loops(
    w: dict[tuple[int, str, str], float], T: list[list[float]], people: list[str], labels: list[str], k: float
) -> dict[tuple[str, int, int], float]:
    """pi_a(j -> l) as the docstring has it, one number at a time."""
    c = len(labels)
    N = {(a, j, m): 0.0 for a in people for j in range(c) for m in range(c)}
    for (i, a, label), x in w.items():
        for j in range(c):
            N[a, j, labels.index(label)] += x * T[i][j]

    def inside(rate: float) -> float:
        return min(max(rate, 1e-3), 1 - 1e-3)

    def odds(rate: float) -> float:
        return rate / (1 - rate)

    everything = sum(N.values())
    pool = inside(sum(N[a, j, j] for a in people for j in range(c)) / everything)
    wrong = {(a, m): sum(N[a, j, m] for j in range(c) if j != m) for a in people for m in range(c)}
    often = [(sum(wrong[a, m] for a in people) + 1) / (sum(wrong.values()) + c) for m in range(c)]
    pi = {}
    for a in people:
        mine = sum(N[a, j, m] for j in range(c) for m in range(c))
        own = inside((sum(N[a, j, j] for j in range(c)) + 5 * pool) / (mine + 5))
        bad = sum(wrong[a, m] for m in range(c))
        u = [(wrong[a, m] + c * often[m]) / (bad + c) for m in range(c)]
        for j in range(c):
            told = sum(N[b, j, m] for b in people for m in range(c))
            label = inside((sum(N[b, j, j] for b in people) + c * pool) / (told + c))
            chance = odds(label) * odds(own) / odds(pool)
            r = chance / (1 + chance)
            for m in range(c):
                shape = r if m == j else (1 - r) * u[m] / max(1 - u[j], 1e-12)
                pi[a, j, m] = (N[a, j, m] + k * shape) / (sum(N[a, j, o] for o in range(c)) + k)
    return pi


def abstention_is_informative(
    w: dict[tuple[int, str, str], float], rules: dict[str, str], n: int, n_silent: int
) -> bool:
    """Rules cast most votes, and their number, or that of all, varies over the items as if each voted independently, or more."""
    by_rules = sum(x for (_, a, _), x in w.items() if a in rules)
    if by_rules <= sum(w.values()) * (0.5 + 1e-9):
        return False
    if varies(w, set(rules), n + n_silent, 0.5):
        return True
    mean = len({(i, a) for i, a, _ in w}) / n
    if n_silent:
        return False
    if mean <= 1.01:
        return varies(w, {a for _, a, _ in w}, n, 0.5)
    low, high = 1e-6, mean  # the rate of a Poisson count that is not zero and has this mean
    for _ in range(100):
        rate = (low + high) / 2
        low, high = (rate, high) if rate / (1 - np.exp(-rate)) < mean else (low, rate)
    return varies(w, {a for _, a, _ in w}, n, 0.5 * (1 + rate - mean))


def varies(w: dict[tuple[int, str, str], float], who: set[str], n: int, least: float) -> bool:
    """The number of these annotators on an item has at least this variance, relative to independent ones."""
    pairs = {(i, a) for i, a, _ in w if a in who}
    count = [sum(1 for o, _ in pairs if o == i) for i in range(n)]
    rates = [sum(1 for _, b in pairs if b == a) / n for a in who]
    variance = sum(k * k for k in count) / n - (sum(count) / n) ** 2
    independent = sum(rate * (1 - rate) for rate in rates)
    return independent > 0 and variance >= least * independent


def vote_rates_loops(
    w: dict[tuple[int, str, str], float],
    T: list[list[float]],
    items: list[float],
    rules: dict[str, str],
    labels: list[str],
) -> dict[tuple[str, int], float]:
    """f_a(j): how often each rule votes on items of label j."""
    own_votes, other_votes, n_own, n_other = {}, {}, {}, {}
    for a, label in rules.items():
        own = labels.index(label)
        own_votes[a] = sum(x * T[i][own] for (i, who, _), x in w.items() if who == a)
        other_votes[a] = sum(x * (1 - T[i][own]) for (i, who, _), x in w.items() if who == a)
        n_own[a], n_other[a] = items[own], sum(items) - items[own]
    pooled_own = sum(own_votes.values()) / max(sum(n_own.values()), 1e-3)
    pooled_other = sum(other_votes.values()) / max(sum(n_other.values()), 1e-3)
    f = {}
    for a, label in rules.items():
        on_others = (other_votes[a] + 20 * pooled_other) / (n_other[a] + 20)
        on_own = max((own_votes[a] + 20 * pooled_own) / (n_own[a] + 20), on_others)
        for j in range(len(labels)):
            f[a, j] = min(max(on_own if labels[j] == label else on_others, 1e-6), 1 - 1e-3)
    return f


def em_loops(
    answers: dict[tuple[int, str], str], n: int, labels: list[str], rounds: int, k: float, rho: float, n_silent: int
) -> list[list[float]]:
    """The posterior after so many rounds."""
    w = {(i, a, label): 1 / len(text.split("|")) for (i, a), text in answers.items() for label in text.split("|")}
    people, c = sorted({a for _, a in answers}), len(labels)
    given = {a: {label for (_, who, label) in w if who == a} for a in people}
    rules = {a: next(iter(given[a])) for a in people if len(given[a]) == 1}
    informative = abstention_is_informative(w, rules, n, n_silent)
    T = [[0.1 + sum(x for (o, _, m), x in w.items() if o == i and m == label) for label in labels] for i in range(n)]
    T = [[x / sum(row) for x in row] for row in T]
    silent = [sum(T[i][j] for i in range(n)) / n for j in range(c)]
    final: list[list[float]] = []
    for number in range(rounds):
        pi = confusion_loops(w, T, people, labels, k)
        items = [sum(T[i][j] for i in range(n)) + n_silent * silent[j] for j in range(c)]
        m = [(items[j] + 1) / (n + n_silent + c) for j in range(c)]
        if number < 3:
            f = vote_rates_loops(w, T, items, rules, labels)
        abstention = [float(np.prod([1 - f[a, j] for a in rules])) if informative else 1.0 for j in range(c)]
        likelihood = [[1.0] * c for _ in range(n)]
        counted = [0.0] * n
        for (i, a, label), x in w.items():
            counted[i] += 0 if informative and a in rules else x
            for j in range(c):
                factor = pi[a, j, labels.index(label)]
                if a in rules:
                    factor = f[a, j] / (1 - f[a, j] if informative else 1)
                likelihood[i][j] *= factor**x
        T = [[m[j] * abstention[j] * likelihood[i][j] for j in range(c)] for i in range(n)]
        T = [[x / sum(row) for x in row] for row in T]
        silent = [m[j] * abstention[j] / sum(m[o] * abstention[o] for o in range(c)) for j in range(c)]
        final = []
        for i in range(n):
            correlation = rho * counted[i] / (counted[i] + 0.5)
            exponent = 1 / (1 + correlation * max(counted[i] - 1, 0))
            row = [(m[j] * likelihood[i][j]) ** exponent * abstention[j] for j in range(c)]
            final.append([x / sum(row) for x in row])
    return final


ANSWERS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.sampled_from("wxyz")),
    st.sets(st.sampled_from("abc"), min_size=1).map(lambda names: "|".join(sorted(names))),
    min_size=1,
    max_size=16,
)


HALF_BY_RULES = {(0, "w"): "a", (0, "x"): "a", (0, "y"): "a", (1, "w"): "a", (1, "x"): "a", (2, "w"): "a|b|c"}


@settings(max_examples=40, deadline=None)
@example(HALF_BY_RULES, 0.0, 0.5, 0)  # three votes of six, but for rounding
@given(ANSWERS, st.sampled_from([0.0, 0.4]), st.sampled_from([0.5, 10.0]), st.sampled_from([0, 4]))
def test_em_equals_plain_loops(
    answers: dict[tuple[int, str], str], correlation: float, strength: float, n_silent: int
) -> None:
    items = list(dict.fromkeys(i for i, _ in answers))
    numbered = {(items.index(i), a): text for (i, a), text in answers.items()}
    votes = long([(i, a, text) for (i, a), text in numbered.items()])
    fitted = fit_annotators(votes, Annotators(strength, correlation, tolerance=-1, rounds=5), n_silent)
    expected = em_loops(numbered, len(items), votes.labels, 5, strength, correlation, n_silent)
    np.testing.assert_allclose(fitted.posterior, expected, atol=1e-10)
    assert (fitted.rounds, fitted.converged) == (5, False)
    for a in np.flatnonzero(~fitted.confusions.is_rule):
        np.testing.assert_allclose(fitted.confusions.table(a).sum(1), 1, atol=1e-9)


# --------------------------------------------------------------------------------------------------------- what it can do


def test_the_order_of_people_and_labels_does_not_matter() -> None:
    votes, _ = simulated([0.4, 0.3, 0.3], n=60)
    rows = list(zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True))
    turned = long([(i, f"{99 - a:02d}", "cba"[j]) for i, a, j in rows])
    np.testing.assert_allclose(fit_annotators(turned).posterior, fit_annotators(votes).posterior[:, ::-1], atol=1e-9)


def test_it_sees_through_a_busy_person_with_a_favourite_label() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    rows = [
        (i, f"good {a}", "abc"[truth[i] if rng.random() < 0.7 else rng.integers(3)]) for i in range(300) for a in "xy"
    ]
    votes = long(rows + [(i, "always a", "a") for i in range(300)])
    fitted = fit_annotators(votes)
    vote = fitted.confusions.of(np.array([votes.annotators.index("always a")]), np.array([0]))
    assert vote.min() > 0.8 * vote.max()  # it hardly tells the true labels apart
    counts = np.zeros((300, 3))
    np.add.at(counts, (votes.item, votes.label), 1)
    assert right(fitted.posterior, truth) > right(counts, truth) + 0.04
    accuracy = {who: fitted.confusions.table(a).diagonal().mean() for a, who in enumerate(votes.annotators)}
    assert accuracy["always a"] < 0.5 < min(accuracy["good x"], accuracy["good y"])


def test_an_annotator_of_two_votes_is_near_the_pools_mean() -> None:
    votes, _ = simulated([0.5, 0.5], n=200)
    rows = list(
        zip(votes.item.tolist(), (f"{a}" for a in votes.annotator), ("ab"[j] for j in votes.label), strict=True)
    )
    more = long([*rows, (0, "twice", "a"), (1, "twice", "b")])
    confusions = fit_annotators(more).confusions
    newcomer = confusions.table(more.annotators.index("twice"))
    pool = np.mean([confusions.table(a) for a in range(len(more.annotators))], axis=0)
    assert np.abs(newcomer - pool).max() < 0.25


@pytest.mark.parametrize("frequencies", [[0.25] * 4, [0.7, 0.2, 0.05, 0.05]])
def test_the_chosen_model_beats_majority_and_dawid_skene(frequencies: list[float]) -> None:
    ours, rival, majority = [], [], []
    for seed in range(3):
        votes, truth = simulated(frequencies, seed)
        counts = np.random.default_rng(seed).random((len(truth), 4)) / 10  # ties fall at random
        np.add.at(counts, (votes.item, votes.label), 1)
        ours.append(right(join(votes).posterior, truth))
        rival.append(right(dawid_skene(votes).posterior, truth))
        majority.append(right(counts, truth))
    assert np.mean(ours) > max(np.mean(rival), np.mean(majority)) + 0.01


def test_a_rare_class_is_neither_inflated_nor_lost() -> None:
    votes, truth = simulated([0.9, 0.05, 0.05])
    labels = join(votes).posterior.argmax(1)
    assert (labels == truth).mean() > 0.9
    assert (labels > 0).mean() <= (truth > 0).mean()
    assert set(labels) == {0, 1, 2}


def test_many_votes_count_as_fewer() -> None:
    """A label that all of twelve people name is less certain than twelve independent votes would make it."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    rows = [(i, f"{a}", "ab"[truth[i] if rng.random() < 0.7 else 1 - truth[i]]) for i in range(200) for a in range(12)]
    independent = fit_annotators(long(rows), Annotators(correlation=0.0)).posterior
    correlated = fit_annotators(long(rows)).posterior
    assert (independent.argmax(1) == correlated.argmax(1)).all()
    assert (correlated.max(1) <= independent.max(1) + 1e-12).all()
    assert correlated.max() < 0.95 < independent.max()


def coin_loops(answers: dict[tuple[int, str], str], n: int, labels: list[str], rounds: int) -> list[list[float]]:
    """The posterior of annotators who have an accuracy and no more, before several votes count as fewer."""
    people, c = sorted({a for _, a in answers}), len(labels)
    T = [[0.1 + sum(1 for (o, _), m in answers.items() if (o, m) == (i, label)) for label in labels] for i in range(n)]
    T = [[x / sum(row) for x in row] for row in T]
    for _ in range(rounds):
        correct = {a: sum(T[i][labels.index(m)] for (i, who), m in answers.items() if who == a) for a in people}
        total = {a: sum(1 for _, who in answers if who == a) for a in people}
        pool = sum(correct.values()) / len(answers)
        accuracy = {a: max(min((correct[a] + 5 * pool) / (total[a] + 5), 1 - 1e-3), 1 / c) for a in people}
        T = [[1.0] * c for _ in range(n)]
        for (i, a), m in answers.items():
            for j in range(c):
                T[i][j] *= accuracy[a] if labels[j] == m else (1 - accuracy[a]) / (c - 1)
        T = [[x / sum(row) for x in row] for row in T]
    return T


def test_one_coin_equals_plain_loops() -> None:
    rng = np.random.default_rng(0)
    answers = {(i, f"{a}"): "abc"[rng.integers(3)] for i in range(12) for a in range(4) if rng.random() < 0.7}
    votes = long([(i, a, label) for (i, a), label in answers.items()])
    model = Annotators(one_coin=True, correlation=0.0, tolerance=-1, rounds=4)
    expected = coin_loops(answers, 12, votes.labels, 4)
    np.testing.assert_allclose(fit_annotators(votes, model).posterior, expected, atol=1e-10)


def shared_loops(answers: dict[tuple[int, str], str], n: int, labels: list[str], rounds: int) -> list[list[float]]:
    """One confusion matrix of all annotators, one number at a time."""
    c = len(labels)
    T = [[0.1 + sum(label == m for (i, _), m in answers.items() if i == item) for label in labels] for item in range(n)]
    T = [[x / sum(row) for x in row] for row in T]
    for _ in range(rounds):
        N = [[sum(T[i][j] for (i, _), m in answers.items() if m == labels[k]) for k in range(c)] for j in range(c)]
        wrong = [sum(N[j][k] for j in range(c) if j != k) + 1 for k in range(c)]
        pi = [[0.0] * c for _ in range(c)]
        for j in range(c):
            pi[j][j] = (N[j][j] + 1) / (sum(N[j]) + 2)
            prior = [0.0 if k == j else wrong[k] / (sum(wrong) - wrong[j]) for k in range(c)]
            total = sum(N[j]) - N[j][j] + 1
            for k in range(c):
                if k != j:
                    pi[j][k] = (1 - pi[j][j]) * (N[j][k] + prior[k]) / total
        m = [(sum(row[j] for row in T) + 1) / (n + c) for j in range(c)]
        T = [list(m) for _ in range(n)]
        for (i, _), label in answers.items():
            for j in range(c):
                T[i][j] *= pi[j][labels.index(label)]
        T = [[x / sum(row) for x in row] for row in T]
    return T


def test_one_matrix_for_all_annotators_equals_plain_loops() -> None:
    rng = np.random.default_rng(0)
    answers = {(i, f"{a}"): "abc"[rng.integers(3)] for i in range(12) for a in range(4) if rng.random() < 0.7}
    votes = long([(i, a, label) for (i, a), label in answers.items()])
    model = Annotators(shared=True, correlation=0.0, tolerance=-1, rounds=4)
    expected = shared_loops(answers, 12, votes.labels, 4)
    np.testing.assert_allclose(fit_annotators(votes, model).posterior, expected, atol=1e-10)


def test_with_two_votes_an_item_careful_people_still_count_more() -> None:
    ours, majority = [], []
    for seed in range(4):
        votes, truth = simulated([0.25] * 4, seed, n=300, people=20, each=2)
        counts = np.random.default_rng(seed).random((len(truth), 4)) / 10
        np.add.at(counts, (votes.item, votes.label), 1)
        ours.append(right(join(votes).posterior, truth))
        majority.append(right(counts, truth))
    assert np.mean(ours) > np.mean(majority) + 0.02


def test_with_few_annotators_the_majority_is_all_that_is_tried() -> None:
    """Of two people nobody can say who errs more: where they differ, neither wins."""
    votes = long([(i, a, "ab"[i % 2] if a == "x" else "abb"[i % 3]) for i in range(30) for a in "xy"])
    joint = join(votes)
    assert joint.choice.model.pooled
    counts = np.zeros((30, 2))
    np.add.at(counts, (votes.item, votes.label), 1)
    np.testing.assert_allclose(joint.posterior[counts[:, 0] == 1], 0.5)


def test_one_item_one_vote_one_label() -> None:
    assert fit_annotators(long([(0, "x", "a")])).posterior.tolist() == [[1.0]]
    alone = join(long([(0, "x", "a")]))
    assert (alone.posterior.tolist(), alone.tried) == ([[1.0]], [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strength": 0.0}, r"strength must be positive; got 0.0\."),
        ({"correlation": 1.5}, r"correlation must lie in \[0, 1\]; got 1.5\."),
    ],
)
def test_settings_are_checked(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Annotators(**wrong)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- held-out votes


def test_every_vote_is_held_out_once_and_answers_stay_whole() -> None:
    votes = long([(i, a, "a|b" if a == "x" else "b") for i in range(10) for a in "xyz"])
    held = [set(zip(out.item.tolist(), out.annotator.tolist(), strict=True)) for _, out in folds(votes)]
    assert sum(map(len, held)) == len(set.union(*held)) == 30
    for kept, out in folds(votes):
        others = set(zip(kept.item.tolist(), kept.annotator.tolist(), strict=True))
        assert not others & set(zip(out.item.tolist(), out.annotator.tolist(), strict=True))


def test_the_score_is_what_is_known_of_held_out_votes_beyond_what_is_known_of_any_item() -> None:
    votes, _ = simulated([0.5, 0.5], n=30, people=8)  # nobody gives only one label
    means = []
    for kept, out in folds(votes):
        fitted, logs = fit_annotators(kept, Annotators(tolerance=TOLERANCE)), []
        posterior = joint_posterior(fitted, None, Choice(Annotators(), None, 0.0))
        mean = posterior[np.unique(out.item)].mean(0)
        for i, a, label in zip(out.item, out.annotator, out.label, strict=True):
            pi = fitted.confusions.of(np.array([a]), np.array([label]))[0]
            on_item = sum(posterior[i, j] * pi[j] for j in range(2))
            on_any_item = sum(mean[j] * pi[j] for j in range(2))
            logs.append(np.log(on_item / on_any_item))
        means += logs
    (score,) = choose(votes, {}, models=[Annotators()]).values()
    assert score == pytest.approx(np.mean(means))


def test_of_many_votes_two_fifths_are_held_out() -> None:
    votes = long([(i, f"{a}", "ab"[i % 2]) for i in range(MAX_HELD_OUT // 5 + 1) for a in range(5)])
    one, other = folds(votes)
    for _, out in (one, other):
        assert len(out.item) == pytest.approx(len(votes.item) / 5, abs=1)


def test_votes_of_some_items_are_theirs_alone_and_numbered_anew() -> None:
    votes = long([(i, a, "ab"[i % 2]) for i in range(6) for a in "xy"])
    some = votes.of_items(np.array([4, 1]))
    assert some.items.to_pylist() == [4, 1]
    assert some.item.tolist() == [0, 0, 1, 1]
    assert some.label.tolist() == [0, 0, 1, 1]
    assert len(set(zip(some.item.tolist(), some.annotator.tolist(), strict=True))) == 4


def test_what_is_taken_for_what_is_counted() -> None:
    """Twenty items are a: four people of five say so, one says b."""
    rows = [(i, f"{k}", "b" if k == 4 and i < 20 else "a" if i < 20 else "b") for i in range(40) for k in range(5)]
    votes = long(rows)
    (found,) = mistakes(votes, np.eye(2)[[0] * 20 + [1] * 20])
    assert found == ("a", "b", 20.0, 0.2)
    assert summarise(votes, union(votes)).mistakes[0][:2] == ("a", "b")
