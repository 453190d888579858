"""Paired tests and ranks against what SciPy and textbooks give."""

from __future__ import annotations

import numpy as np
import pytest
from drawing import ranks
from scipy import stats

from oneof_paper.paired_tests import holm, paired, signed_rank_p


def test_paired_is_scipys_tests():
    rng = np.random.default_rng(0)
    other = rng.normal(size=10)
    ours = other + rng.normal(0.5, 1, 10)
    found = paired(ours, other)
    assert found.gain == pytest.approx((ours - other).mean())
    assert found.t_p == pytest.approx(stats.ttest_rel(ours, other).pvalue)
    assert found.wilcoxon_p == pytest.approx(stats.wilcoxon(ours, other).pvalue)
    assert found.effect == pytest.approx(stats.ttest_rel(ours, other).statistic / np.sqrt(10))


@pytest.mark.parametrize("seed", range(6))
def test_signed_ranks_with_ties_and_zeros_are_scipys(seed):
    tied = np.random.default_rng(seed).integers(-3, 5, 9).astype(float)
    assert signed_rank_p(tied) == pytest.approx(stats.wilcoxon(tied, zero_method="zsplit").pvalue)


def test_what_is_the_same_is_not_better():
    assert paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == (0.0, 1.0, 1.0, 0.0, 3)
    assert paired([1.0], [0.5]).t_p == 1.0


def test_holm_by_hand():
    assert holm([0.005, 0.04, 0.01]) == pytest.approx([0.015, 0.04, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_ranks_and_their_critical_difference():
    accuracies = np.random.default_rng(0).normal(size=(14, 4)) + np.arange(4)
    found = ranks(accuracies)
    assert found.mean.sum() == pytest.approx(10)
    assert found.mean.argmin() == 3
    assert found.p == pytest.approx(stats.friedmanchisquare(*accuracies.T).pvalue)
    assert found.critical == pytest.approx(
        2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=2e-3
    )  # Demsar's table for four systems
