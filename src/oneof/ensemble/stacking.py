"""Weight the learners of an ensemble by the candidate sets of rows that they did not train on, and combine their predictions."""

from collections.abc import Sequence

import numpy as np
import torch

from oneof.data.dataset import BoolArray, Dataset, FloatArray
from oneof.ensemble.set_likelihood import likelihood_given_label
from oneof.learners.base import Context, FittedLearner, Predictions
from oneof.metrics import MEANS, criteria

MIN_WEIGHT = 0.1  # a learner with less is left out
PSEUDO_ROWS = 100  # with the same prediction by all learners, so that weights from few rows are nearly equal
PSEUDO_ROWS_SELECTION = 10  # the same while deciding which learners are left out
EM_ROUNDS = 200
MAX_WEIGHING_ROWS = 50_000  # of a large table, from which weights are estimated


def weigh_learners(learners: Sequence[FittedLearner], data: Dataset, context: Context) -> FloatArray:
    """Return the weight of each learner [k], estimated on the rows that all of them held out."""
    held_out = np.all([learner.oof.held_out for learner in learners], axis=0)
    predictions = [learner.oof.mean[held_out] for learner in learners]
    prior = None
    if data.has_prior:
        prior = data.prior[held_out]
    return learner_weights(predictions, context.evaluation_sets[held_out], prior)


def combine_predictions(learners: Sequence[FittedLearner], weights: FloatArray) -> Predictions:
    """Return the weighted mean of the learners' predictions; in the top shares each model of each learner counts once."""
    weighted_means = []
    top_counts = []
    held_out = []
    n_models = 0
    for learner, weight in zip(learners, weights.tolist(), strict=True):
        if weight == 0:
            continue
        weighted_means.append(np.float32(weight) * learner.oof.mean)
        top_counts.append(learner.n_models * learner.oof.top_share)
        held_out.append(learner.oof.held_out)
        n_models += learner.n_models
    top_share = np.sum(top_counts, axis=0) / n_models
    return Predictions(np.stack(weighted_means).sum(0), np.all(held_out, axis=0), top_share.astype(np.float32))


def learner_weights(
    predictions: Sequence[FloatArray], candidates: BoolArray, prior: FloatArray | None = None
) -> FloatArray:
    r"""Return the weight of each learner [k]: the mean of equal weights and those that make the held-out sets most likely.

        maximise  sum_i log sum_k w_k P_k(S_i | x_i),     P_k(S_i | x_i) = sum_{j in S_i} p_kij P(S_i | j)

    by EM. P(S | j) is the prior where there is one. Else it is estimated from how often labels occur together in sets: without it, a learner
    that always predicts the most frequent candidate would seem to be right. A learner whose weight would be below MIN_WEIGHT gets 0.

    >>> good, poor = np.array([[0.9, 0.1], [0.1, 0.9]] * 300), np.full((600, 2), 0.5)
    >>> learner_weights([good, poor], good > 0.5).tolist()
    [1.0, 0.0]
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(candidates))[:MAX_WEIGHING_ROWS])
    if prior is None:
        soft_labels = combine_within_sets(candidates[rows], [p[rows] for p in predictions])
        label_weights = likelihood_given_label(soft_labels, candidates[rows])
    else:
        label_weights = candidates[rows] * prior[rows]
    masses = [(label_weights * p[rows]).sum(1) for p in predictions]
    set_mass = np.stack(masses, axis=1) + 1e-6  # [n, k]
    weights = _mixture_weights(set_mass, PSEUDO_ROWS_SELECTION)
    selected = weights >= min(MIN_WEIGHT, weights.max())
    best_weights = _mixture_weights(set_mass[:, selected], PSEUDO_ROWS)
    equal_weight = 1 / selected.sum()
    result = np.zeros(len(selected))
    result[selected] = (best_weights + equal_weight) / 2
    return result


def combine_within_sets(
    candidates: BoolArray, predictions: Sequence[FloatArray], prior: FloatArray | None = None
) -> FloatArray:
    """Return soft labels [n, c]: the mean over predictions of their shares within the set, weighted by the prior.

    Without predictions they are the prior's shares within the set.
    """
    weights = candidates * 1.0
    if prior is not None:
        weights = candidates * prior
    shares = []
    for probabilities in predictions:
        mass = weights * (probabilities + 1e-9)
        shares.append(mass / mass.sum(1, keepdims=True))
    if not predictions:
        shares.append(weights / weights.sum(1, keepdims=True))
    return np.asarray(np.mean(shares, axis=0))


def significantly_better(first: FloatArray, second: FloatArray, candidates: BoolArray, criterion: str) -> bool:
    """Return whether the first predictions [n, c] fit the sets better than the second, by more than the difference's standard error."""
    logits = torch.from_numpy(np.log(np.stack([first, second]) + 1e-9))
    sets = torch.from_numpy(candidates).expand(2, -1, -1)
    by_row = criteria(logits[:, :, None], sets[:, :, None])  # each [2, n]
    names = MEANS.get(criterion, (criterion,))
    first_score, second_score = np.mean([by_row[name].numpy() for name in names], axis=0)
    difference = first_score - second_score
    return bool(difference.mean() > difference.std() / len(difference) ** 0.5)


def _mixture_weights(set_mass: FloatArray, pseudo_rows: int) -> FloatArray:
    """Estimate the weights of a mixture by EM, with pseudo rows on which all components are equal."""
    n, k = set_mass.shape
    weights = np.full(k, 1 / k)
    for _ in range(EM_ROUNDS):
        responsibility = set_mass * weights
        responsibility /= responsibility.sum(1, keepdims=True)
        weights = (responsibility.sum(0) + pseudo_rows / k) / (n + pseudo_rows)
    return weights
