"""The most probable label of each candidate set, by a classifier's probabilities."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.candidates.read import read

MIN_CHECKED_ROWS = 50  # fewer do not show whether predictions are out of sample
TOO_GOOD = 0.99  # share of the rows whose predicted label lies in their own set


class Resolved(NamedTuple):
    """The label of every row, and how probable it is."""

    labels: NDArray[Any]  # [n] names of classes, or column numbers of a mask
    probabilities: NDArray[np.float64]  # [n] the label's share of the probability within the set


def resolve(candidates: Any, pred_probs: Any) -> Resolved:
    """Return the most probable candidate of every row, and its share of the probability within the set.

    Use probabilities of a model that did not train on the row, such as out-of-fold ones (`cross_val_predict` of scikit-learn): a network is sure of
    what it was trained on. A warning says so where the predicted label, among all classes, lies in the row's own set in 99 % of the rows or more.

    Parameters
    ----------
    candidates
        The sets as they were given, before any label was removed: what `oneof.read` returned, or anything that it reads, such as
        a mask [n, c].
    pred_probs
        Probabilities [n, c] of the classes in the order of the mask's columns.

    Returns
    -------
    Resolved
        `labels` [n] and `probabilities` [n]. A row whose probability lies wholly outside its set gets its first candidate, and one
        over the size of the set.

    >>> sets = read([["cat", "dog"], ["dog", "fox"]])
    >>> labels, probabilities = resolve(sets, [[0.6, 0.2, 0.2], [0.8, 0.05, 0.15]])
    >>> labels.tolist(), probabilities.round(2).tolist()
    (['cat', 'fox'], [0.75, 0.75])
    """
    sets = candidates if isinstance(candidates, Candidates) else read(candidates)
    probabilities = _checked(pred_probs, sets.mask.shape)
    _warn_if_in_sample(sets.mask, probabilities)
    inside = np.where(sets.mask, probabilities, 0.0)
    mass = inside.sum(1, keepdims=True)
    uniform = sets.mask / sets.mask.sum(1, keepdims=True)
    share = np.where(mass > 0, inside / np.where(mass > 0, mass, 1.0), uniform)
    best = share.argmax(1)
    return Resolved(sets.classes[best], share[np.arange(len(best)), best])


def _checked(pred_probs: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    if isinstance(pred_probs, torch.Tensor):
        pred_probs = pred_probs.detach().double().cpu().numpy()
    probabilities = np.asarray(pred_probs, dtype=np.float64)
    if probabilities.shape != shape:
        raise ValueError(f"pred_probs must be {list(shape)} to match the candidates; got {list(probabilities.shape)}.")
    wrong = ~((probabilities >= 0) & (probabilities <= 1 + 1e-6))
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"pred_probs must be probabilities from 0 to 1; got {probabilities[row, column]} in row {row}, column {column}. "
            "Apply softmax to logits first."
        )
    return probabilities


def _warn_if_in_sample(mask: NDArray[np.bool_], probabilities: NDArray[np.float64]) -> None:
    """Warn where predictions [n, c] lie in the sets [n, c] nearly always; rows whose set holds every label show nothing."""
    checked = ~mask.all(1)
    n_checked = int(checked.sum())
    if n_checked < MIN_CHECKED_ROWS:
        return
    predicted = probabilities[checked].argmax(1)
    n_inside = int(mask[checked][np.arange(n_checked), predicted].sum())
    if n_inside >= TOO_GOOD * n_checked:
        warnings.warn(
            f"pred_probs name a candidate in {n_inside:,} of {n_checked:,} rows, among all classes. Few models do so on rows that they were not trained "
            "on. If this one was trained on these rows, labels repeat what it memorised and probabilities are too high: use out-of-fold predictions.",
            stacklevel=3,
        )
