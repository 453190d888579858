"""Leave rows whose set holds every label out of the training of tables, and predict them as new rows.

Such a row is unlabelled: its set says nothing. Learners that weigh candidates would still give it a label in every round, and balance between
labels would spread these labels evenly over the classes. With a few labelled rows and one large class that ruins the result.
"""

from dataclasses import replace

import numpy as np
import torch

from oneof.data.dataset import UNKNOWN, Dataset, IntArray
from oneof.ensemble.model import Model
from oneof.learners.base import Context, FittedLearner, Predictions
from oneof.learners.network_models import predict_held_out
from oneof.training.parallel import Map

MIN_INFORMATIVE = 20  # rows below which all rows are learned from


def informative_rows(data: Dataset, train_on_gold: bool = False) -> IntArray:
    """Return the rows to learn from, in ascending order: those whose set leaves a label out, and with train_on_gold those with a gold label.

    All rows are returned of pictures, and with votes, counts or probabilities, which tell more than sets do.

    Examples
    --------
    >>> from oneof.candidates.mask import Candidates
    >>> from oneof.data.encode import Encoding
    >>> mask = np.ones((50, 3), dtype=bool)
    >>> mask[:30, 0] = False
    >>> data = Dataset.build(np.zeros((50, 1)), Candidates(mask, np.array(list("abc"))), Encoding(("x",), (0.0,), (), {}, ()))
    >>> informative_rows(data).tolist() == list(range(30))
    True
    """
    n = len(data)
    if data.are_pictures or data.has_prior:
        return np.arange(n)
    is_informative = ~data.reviewed_sets.all(axis=1)
    if train_on_gold:
        is_informative |= data.gold != UNKNOWN
    rows = np.flatnonzero(is_informative)
    if len(rows) < MIN_INFORMATIVE:
        return np.arange(n)
    return rows


def take_context(context: Context, rows: IntArray) -> Context:
    """Return the context of a fit of some rows."""
    warm_start = context.warm_start
    if warm_start.noisy_sets is not None:
        warm_start = replace(warm_start, noisy_sets=warm_start.noisy_sets[rows])
    return context._replace(
        warm_start=warm_start,
        selection_gold=context.selection_gold[rows],
        evaluation_sets=context.evaluation_sets[rows],
    )


def extend_to_all_rows(learner: FittedLearner, rows: IntArray, data: Dataset, map_blocks: Map) -> FittedLearner:
    """Return a learner that was fitted on some rows [m] with predictions for all rows [n] of the data; the other rows are held out."""
    if learner.training is None:
        return learner._replace(oof=_predict_other_rows(learner, rows, data))
    trained_rows = torch.as_tensor(rows, device=learner.training.rows.device)[learner.training.rows]
    oof = predict_held_out(learner.model, data.features, data.candidates.mask, trained_rows, map_blocks)
    return learner._replace(oof=oof, training=replace(learner.training, rows=trained_rows))


def _predict_other_rows(learner: FittedLearner, rows: IntArray, data: Dataset) -> Predictions:
    """Return the out-of-fold predictions of a learner, with the predictions of its model for all other rows."""
    is_other = np.ones(len(data), dtype=bool)
    is_other[rows] = False
    model = Model(data.classes, data.encoding, members=(), calibration={}).with_fitted([learner], np.ones(1))
    predicted = model.probabilities(data.features[is_other])
    of_others = Predictions.from_single_model(predicted, data.candidates.mask[is_other])

    mean = np.empty(data.candidates.mask.shape, dtype=np.float32)
    top_share = np.empty_like(mean)
    held_out = np.ones(len(data), dtype=bool)
    mean[rows] = learner.oof.mean
    mean[is_other] = of_others.mean
    top_share[rows] = learner.oof.top_share
    top_share[is_other] = of_others.top_share
    held_out[rows] = learner.oof.held_out
    return Predictions(mean, held_out, top_share)
