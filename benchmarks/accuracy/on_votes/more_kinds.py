"""More simulated votes for `votes_kinds.py`: kinds that were thought of after the models were chosen.

Each function draws (item, annotator, label) rows, the true labels [n], and features [n, d] or None.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
VoteRow = tuple[int, str, int]  # item, annotator, label
Drawn = tuple[list[VoteRow], Integers, Floats | None]


def pictures(rng: np.random.Generator) -> Drawn:
    """59 people on 600 pictures with embeddings, one to three votes each; three pairs of classes look alike to people and embedding."""
    n, c, d = 600, 8, 40
    truth = rng.integers(c, size=n)
    means = rng.normal(size=(c, d))
    for first, distance in ((0, 0.5), (2, 0.5), (4, 0.6)):
        means[first + 1] = means[first] + distance * rng.normal(size=d)
    x = means[truth] + 1.6 * rng.normal(size=(n, d))
    seen = means[truth] + 2.2 * rng.normal(size=(n, d))  # what people see, the same for all of them
    logits = -((seen[:, None] - means) ** 2).sum(2) / (2 * 2.2**2)
    care = rng.beta(6, 2, size=59)
    rows = []
    for item in range(n):
        for person in rng.permutation(59)[: rng.choice([1, 2, 3], p=[0.1, 0.3, 0.6])]:
            weights = np.exp((0.6 + 1.2 * care[person]) * (logits[item] - logits[item].max()))
            label = rng.choice(c, p=weights / weights.sum())
            if rng.random() > 0.55 + 0.5 * care[person]:
                label = rng.integers(c)
            rows.append((item, f"p{person}", int(label)))
    return rows, truth, x


def _keyword_rules(rng: np.random.Generator, c: int, n: int, n_rules: int, lift: float) -> Drawn:
    """Rules that fire on words, which are the features too; classes have very different numbers of rules, some rules name another class."""
    n_words = 250
    truth = rng.choice(c, size=n, p=rng.dirichlet(np.full(c, 4.0)))
    base = rng.beta(0.6, 14, size=n_words)
    rate = np.tile(base, (c, 1))
    words = np.arange(n_words)
    home = rng.integers(c, size=n_words)
    rate[home, words] = np.minimum(0.6, base * lift + 0.01)
    second = rng.integers(c, size=n_words)
    rate[second, words] = np.maximum(rate[second, words], np.minimum(0.3, base * lift / 3))
    has_word = rng.random((n, n_words)) < rate[truth]
    coverage = has_word.mean(0)
    share_of_rules = np.array([0.35, 0.25, 0.15, 0.12, 0.08, 0.05])[:c]
    rows: list[VoteRow] = []
    rules = 0
    for word in rng.permutation(np.flatnonzero((coverage > 0.005) & (coverage < 0.35))):
        label = int(home[word]) if rng.random() < 0.85 else int(rng.integers(c))
        if rng.random() > 3 * share_of_rules[label] or rules == n_rules:
            continue
        rules += 1
        for item in np.flatnonzero(has_word[:, word]):
            rows.append((int(item), f"word {word}", label))
    return rows, truth, has_word.astype(np.float64)


def keyword_rules(rng: np.random.Generator) -> Drawn:
    """40 rules on words, six classes."""
    return _keyword_rules(rng, c=6, n=800, n_rules=40, lift=9.0)


def flags(rng: np.random.Generator) -> Drawn:
    """Ten rules on words, two classes."""
    return _keyword_rules(rng, c=2, n=600, n_rules=10, lift=5.0)


def people_and_rules(rng: np.random.Generator) -> Drawn:
    """Twelve rules on words, and two people on half of the items."""
    rows, truth, x = _keyword_rules(rng, c=4, n=500, n_rules=12, lift=7.0)
    for item, true_label in enumerate(truth):
        if rng.random() < 0.5:
            for person in rng.permutation(8)[:2]:
                label = true_label if rng.random() < 0.8 else rng.integers(4)
                rows.append((item, f"p{person}", int(label)))
    return rows, truth, x


def birds(rng: np.random.Generator) -> Drawn:
    """39 people on all of 108 items with two classes; people are biased, items are hard."""
    n = 108
    truth = rng.integers(2, size=n)
    difficulty = 1.2 * rng.normal(size=n)
    rows = []
    for person in range(39):
        bias = 0.8 * rng.normal()
        skill = rng.normal(0.55, 0.5)
        for item in range(n):
            score = (2 * truth[item] - 1) * skill + 0.8 * difficulty[item] + bias + rng.logistic()
            rows.append((item, f"p{person}", int(score > 0)))
    return rows, truth, None


def entailment(rng: np.random.Generator) -> Drawn:
    """164 people, ten on each of 800 items in pages of 20; some items are hard, a tenth of the people answer at random."""
    truth = rng.integers(2, size=800)
    is_hard = rng.random(800) < 0.12
    accuracy = np.clip(rng.beta(7, 1.6, size=164), 0.45, 0.99)
    is_spammer = rng.random(164) < 0.1
    rows = []
    for page in range(40):
        for person in rng.permutation(164)[:10]:
            for item in range(20 * page, 20 * page + 20):
                is_right = rng.random() < (0.45 if is_hard[item] else accuracy[person])
                label = rng.integers(2) if is_spammer[person] else truth[item] if is_right else 1 - truth[item]
                rows.append((item, f"p{person}", int(label)))
    return rows, truth, None


def grades(rng: np.random.Generator) -> Drawn:
    """Five grades; neighbours are confused, people are strict or kind, and an item looks better or worse than it is to all."""
    truth = rng.choice(5, size=500, p=[0.05, 0.2, 0.4, 0.28, 0.07])
    shift = 0.35 * rng.normal(size=500)
    bias = 0.35 * rng.normal(size=25)
    noise = rng.uniform(0.4, 0.9, size=25)
    rows = []
    for item in range(500):
        for person in rng.permutation(25)[: rng.integers(3, 7)]:
            grade = truth[item] + shift[item] + bias[person] + noise[person] * rng.normal()
            rows.append((item, f"p{person}", int(np.clip(np.rint(grade), 0, 4))))
    return rows, truth, None


def tiny_class(rng: np.random.Generator) -> Drawn:
    """Eight votes on each of 400 items; a class has 2 % of them, and mistakes go to a neighbour."""
    truth = rng.choice(5, size=400, p=[0.6, 0.2, 0.1, 0.08, 0.02])
    accuracy = rng.beta(8, 3, size=60)
    neighbour = np.array([1, 0, 0, 1, 0])
    rows = []
    for item, true_label in enumerate(truth):
        is_hard = rng.random() < 0.1
        for person in rng.permutation(60)[:8]:
            label = neighbour[true_label] if rng.random() < 0.6 else rng.integers(5)
            if rng.random() < (0.4 if is_hard else accuracy[person]):
                label = true_label
            rows.append((item, f"p{person}", int(label)))
    return rows, truth, None


def two_versions(rng: np.random.Generator) -> Drawn:
    """Five language models on every item, two of which are versions of one; hard items draw the same mistake."""
    n, c = 400, 6
    truth = rng.integers(c, size=n)
    accuracy = rng.uniform(0.6, 0.85, size=5)
    ease = rng.normal(size=n)
    mistaken_for = (truth + rng.integers(1, c, size=n)) % c
    x = 0.8 * rng.normal(size=(c, 10))[truth] + rng.normal(size=(n, 10))
    rows = []
    for item in range(n):
        first_label = 0
        for model in range(5):
            log_odds = 1.3 * np.log(accuracy[model] / (1 - accuracy[model])) + 1.2 * ease[item]
            label = mistaken_for[item] if rng.random() < 0.5 else rng.integers(c)
            if rng.random() < 1 / (1 + np.exp(-log_odds)):
                label = truth[item]
            if model == 1 and rng.random() < 0.7:
                label = first_label
            if model == 0:
                first_label = label
            rows.append((item, f"m{model}", int(label)))
    return rows, truth, x


def swapped_classes(rng: np.random.Generator) -> Drawn:
    """People of mixed care, and three busy ones who swap two classes."""
    c = 4
    truth = rng.integers(c, size=500)
    accuracy = rng.uniform(0.6, 0.9, size=20)
    swapped = np.array([1, 0, 2, 3])
    rows = []
    for item, true_label in enumerate(truth):
        for person in rng.permutation(20)[:3]:
            label = true_label if rng.random() < accuracy[person] else (true_label + rng.integers(1, c)) % c
            rows.append((item, f"p{person}", int(label)))
        for person in range(3):
            if rng.random() < 0.5:
                label = swapped[true_label] if rng.random() < 0.85 else rng.integers(c)
                rows.append((item, f"swaps {person}", int(label)))
    return rows, truth, None


def one_vote_an_item(rng: np.random.Generator) -> Drawn:
    """Five people who are right in 50 to 90 %, one of them on each item, and good features."""
    n, c = 600, 5
    truth = rng.integers(c, size=n)
    accuracy = np.linspace(0.5, 0.9, 5)
    x = rng.normal(size=(c, 12))[truth] + rng.normal(size=(n, 12))
    rows = []
    for item in range(n):
        person = rng.integers(5)
        label = truth[item] if rng.random() < accuracy[person] else rng.integers(c)
        rows.append((item, f"p{person}", int(label)))
    return rows, truth, x


def busy_crowd(rng: np.random.Generator) -> Drawn:
    """59 people of very unequal accuracy and diligence, two or three on each of 1,000 pictures of eight classes.

    Embeddings are strong. A quarter of the pictures lie between two classes: their embeddings do, and people mostly make the same mistake.
    """
    n, c, d = 1000, 8, 64
    truth = rng.integers(c, size=n)
    means = 1.3 * rng.normal(size=(c, d)) / np.sqrt(2)
    neighbour = (truth + 1 + rng.integers(2, size=n)) % c
    is_between = rng.random(n) < 0.25
    share = np.where(is_between, rng.uniform(0.25, 0.55, size=n), 0.0)[:, None]
    x = (1 - share) * means[truth] + share * means[neighbour] + 1.2 * rng.normal(size=(n, d))
    looks_like = np.where(is_between & (rng.random(n) < 0.6), neighbour, truth)
    accuracy = rng.beta(3, 1.5, size=59)
    diligence = rng.pareto(1.2, size=59) + 0.2
    rows = []
    for item in range(n):
        for person in rng.choice(59, size=rng.integers(2, 4), replace=False, p=diligence / diligence.sum()):
            label = looks_like[item] if rng.random() < 0.6 else truth[item]
            if rng.random() > accuracy[person]:
                label = rng.integers(c)
            rows.append((item, f"p{person}", int(label)))
    return rows, truth, x


def herds_with_features(rng: np.random.Generator) -> Drawn:
    """Three who judge alone and five who mostly repeat a sixth, on 400 items with features of middling quality."""
    n, c = 400, 5
    truth = rng.integers(c, size=n)
    x = rng.normal(size=(c, 10))[truth] + 1.2 * rng.normal(size=(n, 10))
    rows = []
    for item, true_label in enumerate(truth):
        leader = true_label if rng.random() < 0.65 else rng.integers(c)
        for person in range(9):
            label = true_label if rng.random() < 0.65 else rng.integers(c)
            if person >= 3 and rng.random() < 0.8:
                label = leader
            rows.append((item, f"p{person}", int(label)))
    return rows, truth, x


def experts_and_learners(rng: np.random.Generator) -> Drawn:
    """Four experts on a fifth of 600 items, and 25 learners on all, who take two pairs of classes for each other; weak features."""
    n, c = 600, 6
    truth = rng.choice(c, size=n, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    x = 0.6 * rng.normal(size=(c, 15))[truth] + rng.normal(size=(n, 15))
    taken_for = np.array([1, 0, 3, 2, 4, 5])
    rows = []
    for item, true_label in enumerate(truth):
        for person in rng.permutation(25)[:3]:
            label = taken_for[true_label] if rng.random() < 0.35 else true_label
            rows.append((item, f"learner {person}", int(label if rng.random() < 0.8 else rng.integers(c))))
        if rng.random() < 0.2:
            label = true_label if rng.random() < 0.95 else rng.integers(c)
            rows.append((item, f"expert {rng.integers(4)}", int(label)))
    return rows, truth, x


MORE_KINDS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "pictures": pictures,
    "keyword rules": keyword_rules,
    "flags": flags,
    "people and rules": people_and_rules,
    "birds": birds,
    "entailment": entailment,
    "grades": grades,
    "tiny class": tiny_class,
    "two versions": two_versions,
    "swapped classes": swapped_classes,
    "one vote an item": one_vote_an_item,
    "busy crowd": busy_crowd,
    "herds with features": herds_with_features,
    "experts and learners": experts_and_learners,
}
