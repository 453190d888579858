"""Choose the rows on which the accuracy is estimated, and score them without any influence of their own sets."""

from collections.abc import Sequence

import numpy as np

from oneof.data.dataset import Dataset, FloatArray, IntArray
from oneof.ensemble.accuracy import GOLD_SAMPLE_ROWS, sample_order
from oneof.learners.base import Context, FittedLearner
from oneof.learners.kernel import CrossFitScores, cross_fit_scores, with_best_gamma

MAX_EVAL_ROWS = 4000  # rows used to estimate the accuracy
MAX_EVAL_CELLS = 2**21  # rows x classes used to estimate it


def choose_eval_rows(n: int, c: int) -> IntArray:
    """Return the rows on which the accuracy is estimated: all, or a random sample of a large table."""
    n_rows = max(min(MAX_EVAL_ROWS, MAX_EVAL_CELLS // c), GOLD_SAMPLE_ROWS)
    return np.sort(sample_order(n)[:n_rows])


def cross_fit_eval_rows(
    data: Dataset, representation: FloatArray, eval_rows: IntArray, context: Context
) -> CrossFitScores:
    """Return scores of the evaluated rows on which a row's own set had no influence."""
    features = representation[eval_rows]
    if data.are_pictures:
        features = data.plain_features(eval_rows)
    sets = data.candidates.mask[eval_rows]
    kernel = with_best_gamma(features, sets)
    return cross_fit_scores(features, sets, kernel, map_folds=context.resources.map)


def choose_independent_scores(
    learners: Sequence[FittedLearner], weights: FloatArray, cross_fitted: CrossFitScores, eval_rows: IntArray
) -> FloatArray:
    """Return scores of the evaluated rows [m, c] on which a row's own set had no influence.

    They are the predictions of the learner with the largest weight, if it is nested, else the kernel's. Where only trees can learn from
    the features, the kernel's scores alone would suggest that nothing was learned.
    """
    heaviest = learners[int(weights.argmax())]
    if heaviest.is_nested:
        return heaviest.oof.mean[eval_rows]
    return cross_fitted.from_resolved
