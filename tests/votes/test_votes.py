"""Policies and agreement against answers worked out by hand, and against plain loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneof.votes import (
    Sets,
    Spelling,
    Votes,
    alpha,
    annotator_agreement,
    at_least,
    dawid_skene,
    read_long,
    summarise,
    top_p,
    union,
    vaguest,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"


def long(rows: list[tuple[object, str, str]], spelling: Spelling = Spelling(separator="|")) -> Votes:  # noqa: B008
    item, annotator, label = zip(*rows, strict=True)
    return read_long(pa.table({"item": item, "annotator": annotator, "label": label}), spelling=spelling)


def named(votes: Votes, sets: Sets) -> list[str]:
    """Each item's candidates, as text."""
    return ["|".join(name for name, kept in zip(votes.labels, row, strict=True) if kept) for row in sets.mask]


# -------------------------------------------------------------------------------------------------------------- policies


def test_policies_agree_with_answers_worked_out_by_hand() -> None:
    votes = read_long(FIXTURES / "long.csv")
    # img-0003: ann cat, bob cat|dog, eve fox.  img-0001: ann dog, bob dog.
    # img-0007: ann cat, bob fox.               img-0002: ann cat|dog, bob dog|fox.
    assert named(votes, union(votes)) == ["cat|dog|fox", "dog", "cat|fox", "cat|dog|fox"]
    assert named(votes, at_least(votes, 1)) == named(votes, union(votes))
    assert named(votes, at_least(votes, 2)) == ["cat", "dog", "cat|fox", "dog"]
    assert at_least(votes, 2).fallback == 1
    assert named(votes, at_least(votes, 3)) == ["cat", "dog", "cat|fox", "dog"]
    assert at_least(votes, 3).note == "Items without a label of 3 votes: 4; their labels with most votes were kept."
    assert named(votes, vaguest(votes)) == ["cat|dog", "dog", "cat|fox", "cat|dog|fox"]


def test_a_vote_counts_what_its_confidence_says() -> None:
    votes = read_long(FIXTURES / "long.csv", confidence="confidence")
    # img-0003: cat 0.9 + 0.5.  img-0001: dog 1.8.  img-0007: cat 0.6, fox 0.6.  img-0002: cat 0.4, dog 0.4 + 0.7, fox 0.7.
    sets = at_least(votes, 1)
    assert named(votes, sets) == ["cat", "dog", "cat|fox", "dog"]
    assert sets.fallback == 1


def test_top_p_of_one_vote_is_a_line_of_arithmetic() -> None:
    votes = long([(1, "ann", "a")], Spelling(classes=["a", "b"]))
    s = 0.01
    share = np.array([1 + s, s]) / (1 + 2 * s)
    expected = (share + s) / (1 + 2 * s) * (share + s) / (share + 2 * s)  # prior times pi
    posterior = dawid_skene(votes, rounds=1).posterior[0]
    np.testing.assert_allclose(posterior, expected / expected.sum(), rtol=1e-12)


def test_top_p_keeps_all_tied_labels_and_reaches_p() -> None:
    votes = long([(1, "ann", "a"), (1, "bob", "b"), (2, "ann", "b"), (2, "bob", "a")])
    np.testing.assert_allclose(dawid_skene(votes).posterior, 0.5)
    assert named(votes, top_p(votes, 0.2)) == ["a|b", "a|b"]
    fixture = read_long(FIXTURES / "long.csv")
    posterior = dawid_skene(fixture).posterior
    for p in (0.3, 0.9, 1.0):
        mask = top_p(fixture, p).mask
        assert ((posterior * mask).sum(1) >= p - 1e-6).all()
        last = np.where(mask, posterior, 2).min(1)
        assert (
            (posterior * (mask & (posterior > last[:, None]))).sum(1) < p
        ).all()  # without its last labels it falls short


def test_bad_k_and_p_are_refused() -> None:
    votes = read_long(FIXTURES / "long.csv")
    with pytest.raises(ValueError, match="k must be at least 1; got 0"):
        at_least(votes, 0)
    for p in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"p must lie in \(0, 1\]; got"):
            top_p(votes, p)


ANSWERS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.sampled_from("wxyz")),
    st.sets(st.sampled_from("abc"), min_size=1).map(lambda names: "|".join(sorted(names))),
    min_size=1,
    max_size=16,
)


@settings(max_examples=50, deadline=None)
@given(ANSWERS)
def test_policies_nest_and_leave_no_item_empty(answers: dict[tuple[int, str], str]) -> None:
    votes = long([(i, a, text) for (i, a), text in answers.items()])
    every = union(votes).mask
    for sets in (at_least(votes, 1), at_least(votes, 2), vaguest(votes)):
        assert (sets.mask <= every).all()
        assert sets.mask.any(1).all()
    assert (at_least(votes, 3).mask <= at_least(votes, 2).mask).all()
    assert (top_p(votes, 0.5).mask <= top_p(votes, 0.9).mask).all()


# ----------------------------------------------------------------------------------------------------------- Dawid-Skene


def loops(answers: dict[tuple[int, str], str], n: int, labels: list[str], rounds: int, s: float) -> list[list[float]]:
    """Dawid-Skene as the formula says it, one number at a time."""
    w = {(i, a, label): 1 / len(text.split("|")) for (i, a), text in answers.items() for label in text.split("|")}
    c = len(labels)
    T = [[s + sum(x for (k, _, m), x in w.items() if k == i and m == label) for label in labels] for i in range(n)]
    T = [[x / sum(row) for x in row] for row in T]
    for _ in range(rounds):
        prior = [(sum(T[i][j] for i in range(n)) + s) / (n + c * s) for j in range(c)]
        new = [list(prior) for _ in range(n)]
        for (i, a, label), x in w.items():
            for j in range(c):
                mine = {key: y * T[key[0]][j] for key, y in w.items() if key[1] == a}
                of_label = sum(y for key, y in mine.items() if key[2] == label)
                new[i][j] *= ((of_label + s) / (sum(mine.values()) + c * s)) ** x
        T = [[x / sum(row) for x in row] for row in new]
    return T


@settings(max_examples=25, deadline=None)
@given(ANSWERS)
def test_dawid_skene_equals_plain_loops(answers: dict[tuple[int, str], str]) -> None:
    items = list(dict.fromkeys(i for i, _ in answers))
    numbered = {(items.index(i), a): text for (i, a), text in answers.items()}
    votes = long([(i, a, text) for (i, a), text in numbered.items()])
    fitted = dawid_skene(votes, tolerance=-1, rounds=4)
    np.testing.assert_allclose(fitted.posterior, loops(numbered, len(items), votes.labels, 4, 0.01), atol=1e-10)
    assert (fitted.rounds, fitted.converged) == (4, False)


def test_dawid_skene_sees_through_an_annotator_who_swaps_labels() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=300)
    right = {f"good {a}": rng.random(300) < 0.8 for a in range(3)} | {
        f"swap {a}": rng.random(300) < 0.05 for a in range(2)
    }
    votes = long([(i, a, "ab"[truth[i] if hit[i] else 1 - truth[i]]) for a, hit in right.items() for i in range(300)])
    fitted = dawid_skene(votes)
    assert fitted.converged
    majority = at_least(votes, 3).mask.argmax(1)
    assert (majority == truth).mean() < 0.75
    assert (fitted.posterior.argmax(1) == truth).mean() > 0.95


# ------------------------------------------------------------------------------------------------------------- agreement

# Krippendorff's data of four observers and twelve units, with gaps (Computing Krippendorff's Alpha-Reliability, section C).
UNITS = ["11.1", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", ".555", "..11", "..3."]


def test_alpha_is_krippendorffs() -> None:
    textbook = long([(u, f"observer {a}", v) for u, unit in enumerate(UNITS) for a, v in enumerate(unit) if v != "."])
    assert alpha(textbook) == pytest.approx(0.743, abs=5e-4)
    by_hand = long(
        [(i, a, label) for i, pair in enumerate(["aa", "ab", "bb"]) for a, label in zip("xy", pair, strict=True)]
    )
    assert alpha(by_hand) == pytest.approx(1 - 5 * 2 / 18)  # N = 6, one of three pairs differs, 36 - 9 - 9 expected


def test_alpha_is_not_defined_without_pairs_or_variety() -> None:
    assert alpha(long([(1, "x", "a"), (2, "x", "b")])) is None
    assert alpha(long([(1, "x", "a"), (1, "y", "a")])) is None
    assert alpha(long([(1, "x", "a|b"), (1, "y", "a|b")])) is None  # vague answers are left out


@settings(max_examples=60, deadline=None)
@given(ANSWERS)
def test_agreement_with_the_others_equals_plain_loops(answers: dict[tuple[int, str], str]) -> None:
    plain = {key: text for key, text in answers.items() if "|" not in text}
    expected: dict[str, list[bool]] = {a: [] for _, a in answers}
    for (i, a), own in plain.items():
        others = Counter(text for (k, b), text in plain.items() if k == i and b != a).most_common()
        if others and (len(others) == 1 or others[0][1] > others[1][1]):
            expected[a].append(own == others[0][0])
    for who in annotator_agreement(long([(i, a, text) for (i, a), text in answers.items()])):
        hits = expected[who.annotator]
        assert who.compared == len(hits)
        assert who.rate == (sum(hits) / len(hits) if hits else None)


def test_an_annotator_far_from_the_rest_is_named_and_one_with_few_answers_is_not() -> None:
    rows = [(i, a, "ab"[i % 2]) for i in range(40) for a in ("ann", "bob", "cid")]
    rows += [(i, "random", "a") for i in range(40)] + [(1, "new", "a")]
    who = {one.annotator: one for one in annotator_agreement(long(rows))}
    assert [name for name, one in who.items() if one.far] == ["random"]
    assert (who["random"].rate, who["random"].compared) == (0.5, 40)
    assert (who["new"].rate, who["new"].compared) == (0.0, 1)
    # Wilson's interval of 20 of 40: 0.5 -+ 1.96 / (1 + 1.96^2 / 40) * sqrt(0.25 / 40 + 1.96^2 / 6400)
    assert who["random"].low == pytest.approx(0.3520, abs=1e-4)
    assert who["random"].high == pytest.approx(0.6480, abs=1e-4)


def test_the_summary_counts_what_was_read() -> None:
    votes = read_long(FIXTURES / "long.csv")
    summary = summarise(votes, at_least(votes, 2))
    assert (summary.items, summary.annotators, summary.labels, summary.answers, summary.votes) == (4, 3, 3, 9, 12)
    assert (summary.vague, summary.repeated, summary.ties, summary.fallback) == (3, 1, 1, 1)
    assert summary.answers_per_item == {2: 3, 3: 1}
    assert (summary.sets.average, summary.sets.singletons) == (1.25, 3)
    alike = long([(1, "x", "Cat"), (1, "y", "cat "), (1, "z", "dog")], Spelling())
    assert summarise(alike, union(alike)).near_duplicate_labels == [["Cat", "cat "]]
