"""Generators: the true label is always in, rates are as asked, the same seed gives the same sets."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from oneof.candidates.generate import (
    KINDS,
    ClassDependent,
    Flip,
    InstancePaper,
    InstanceRate,
    PairFlip,
    UniformSet,
    UniformSetAsCoded,
    calibrate_temperature,
    generate,
)

RING = tuple(tuple(0.5 if (j - i) % 5 in (1, 4) else 0.0 for j in range(5)) for i in range(5))
ANY_KIND = [
    Flip(),
    Flip(0.0, at_least=2),
    UniformSet(),
    UniformSetAsCoded(),
    ClassDependent(RING),
    PairFlip(),
    InstancePaper(),
    InstanceRate(),
]


def situation(seed, n=40, c=5, scale=4.0):
    rng = np.random.default_rng(seed)
    return rng.integers(c, size=n), scale * rng.standard_normal((n, c))


@given(st.integers(0, 2**31), st.sampled_from(ANY_KIND))
def test_the_true_label_is_in_and_the_seed_decides(seed, kind):
    labels, logits = situation(seed)
    sets = generate(labels, 5, kind, seed=seed, logits=logits)
    assert sets.shape == (40, 5)
    assert sets[np.arange(40), labels].all()
    np.testing.assert_array_equal(sets, generate(labels, 5, kind, seed=seed, logits=logits))


def test_another_seed_gives_other_sets():
    labels, logits = situation(0)
    for kind in ANY_KIND:
        one, other = (generate(labels, 5, kind, seed=seed, logits=logits) for seed in (1, 2))
        assert (one != other).any()


def many(kind, c=10, n=40_000):
    labels = np.random.default_rng(0).integers(c, size=n)
    return labels, generate(labels, c, kind, seed=1)


def test_flip_has_the_rate_asked_for():
    labels, sets = many(Flip(rate=0.3))
    wrong = sets.copy()
    wrong[np.arange(len(labels)), labels] = False
    assert wrong.sum() / (9 * len(labels)) == pytest.approx(0.3, abs=0.005)


def test_flip_tops_singletons_up():
    assert many(Flip(rate=0.02, at_least=2))[1].sum(1).min() == 2
    assert many(Flip(rate=0.02))[1].sum(1).min() == 1


def test_uniform_sets_have_the_sizes_of_theory_and_of_code():
    """Means over 10 classes: 5.49 in the theory, 5.00 in the code of RC, CC and CAVL; never the full set."""
    for kind, mean in ((UniformSet(), 5.49), (UniformSetAsCoded(), 5.00)):
        sizes = many(kind)[1].sum(1)
        assert sizes.mean() == pytest.approx(mean, abs=0.02)
        assert (sizes.min(), sizes.max()) == (1, 9)


def test_uniform_set_is_uniform_over_sets():
    """Four classes, label 0: the seven sets that hold it and are not full are equally likely."""
    sets = generate(np.zeros(70_000, dtype=int), 4, UniformSet(), seed=0)
    counts = np.bincount(sets[:, 1:] @ np.array([1, 2, 4]), minlength=8)
    assert counts[7] == 0
    assert np.abs(counts[:7] / 70_000 - 1 / 7).max() < 0.006


def test_class_dependent_follows_its_matrix():
    labels = np.random.default_rng(0).integers(5, size=50_000)
    sets = generate(labels, 5, ClassDependent(RING), seed=0)
    found = np.stack([sets[labels == y].mean(0) for y in range(5)])
    np.testing.assert_allclose(found, np.array(RING) + np.eye(5), atol=0.02)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_instance_probabilities_agree_with_the_reference(seed, temperature):
    labels, logits = situation(seed)
    tempered = logits / temperature
    as_printed = InstancePaper(temperature).probabilities(logits, labels)
    np.testing.assert_allclose(as_printed, reference.xi_paper(tempered, labels), atol=1e-12)
    as_released = InstanceRate(0.4, temperature).probabilities(logits, labels)
    np.testing.assert_allclose(as_released, reference.xi_rate(tempered, labels, 0.4), atol=1e-12)


TRUE = 2  # the label of every row below; six labels
LOGITS = np.array([1.0, -0.5, 3.0, 0.2, 0.9, -2.0])
MATRIX = np.random.default_rng(5).random((6, 6))
BY_SETS = [float(math.comb(5, k - 1)) for k in range(1, 6)]  # how many sets of k labels hold the true one
AS_CODED = [float(math.comb(6, k)) for k in range(1, 6)]
XI_PAPER = reference.xi_paper(LOGITS[None] / 2, np.array([TRUE]))[0]
XI_RATE = reference.xi_rate(LOGITS[None] / 2, np.array([TRUE]), 0.3)[0]
LAWS = [
    (Flip(0.3), reference.independent_law([0.3] * 6, TRUE)),
    (Flip(0.1, at_least=2), reference.topped_up_law(reference.independent_law([0.1] * 6, TRUE), TRUE)),
    (UniformSet(), reference.law_by_size(6, TRUE, BY_SETS)),
    (UniformSetAsCoded(), reference.law_by_size(6, TRUE, AS_CODED)),
    (ClassDependent(tuple(map(tuple, MATRIX))), reference.independent_law(list(MATRIX[TRUE]), TRUE)),
    (PairFlip(0.7), reference.independent_law([0, 0, 0, 0.7, 0, 0], TRUE)),
    (InstancePaper(temperature=2.0), reference.independent_law(list(XI_PAPER), TRUE)),
    (InstanceRate(0.3, temperature=2.0), reference.independent_law(list(XI_RATE), TRUE)),
]


@pytest.mark.parametrize(("kind", "law"), LAWS)
def test_every_set_is_as_frequent_as_the_law_written_out(kind, law):
    n = 100_000
    labels = np.full(n, TRUE)
    sets = generate(labels, 6, kind, seed=3, logits=np.tile(LOGITS, (n, 1)))
    assert sum(law.values()) == pytest.approx(1)
    drawn = Counter(map(tuple, sets.tolist()))
    assert all(law.get(members, 0) > 0 for members in drawn)
    for members, probability in law.items():
        deviation = np.sqrt(probability * (1 - probability) / n)
        assert abs(drawn[members] / n - probability) <= 4.5 * deviation


def test_every_generator_has_its_law():
    assert {type(kind) for kind, _ in LAWS} == set(KINDS.values())


def test_a_saturated_classifier_still_gives_shares():
    logits = np.array([[2000.0, 3.0, 2.0, 1.0]])
    xi = InstanceRate(rate=0.4).probabilities(logits, np.array([0]))
    assert np.isfinite(xi).all()
    assert xi[0, 1] == 1.0
    assert 0 < xi[0, 3] < 1


def test_the_rate_form_stays_within_its_bounds():
    """Between 2 (all wrong mass on one label) and 1 + rate·c (spread evenly)."""
    labels, logits = situation(0, n=2000, c=10)
    for temperature in (0.01, 1.0, 1e6):
        size = InstanceRate(0.4, temperature).probabilities(logits, labels).sum(1)
        assert 2 - 1e-9 <= size.min() <= size.max() <= 5 + 1e-9


@pytest.mark.parametrize("kind", [InstanceRate(), InstancePaper()])
def test_reach_finds_the_temperature(kind):
    labels, logits = situation(0, n=3000, c=10)
    sets = generate(labels, 10, calibrate_temperature(kind, 3.7, logits, labels), seed=0, logits=logits)
    assert sets.sum(1).mean() == pytest.approx(3.7, abs=0.05)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: generate([0.5], 3, Flip(), seed=0), TypeError, r"labels must be integers \[n\]; got float64"),
        (lambda: generate([0, 3], 3, Flip(), seed=0), ValueError, r"between 0 and 2; row 1 has 3"),
        (lambda: generate([0], 3, Flip(rate=1.5), seed=0), ValueError, r"rate must lie between 0 and 1; got 1\.5"),
        (lambda: generate([0], 3, ClassDependent(RING), seed=0), ValueError, r"matrix must be \[3, 3\].*got shape \[5, 5\]"),
        (lambda: generate([0], 3, InstanceRate(), seed=0), ValueError, r"need the logits of a classifier\. Give logits="),
        (lambda: generate([0], 3, InstanceRate(), seed=0, logits=np.ones((1, 2))), ValueError, r"logits must be \[1, 3\]"),
        (lambda: generate([0], 2, InstanceRate(), seed=0, logits=[[1, np.nan]]), ValueError, r"logits must be finite; row 0"),
        (lambda: calibrate_temperature(InstanceRate(), 7.0, np.random.default_rng(0).random((9, 10)), np.zeros(9, int)), ValueError, r"between .* and 5\.00 .*got 7\.0"),
    ],
)  # fmt: skip
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()
