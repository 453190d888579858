"""Add the votes of annotators to a data set, as `oneof fit --votes` and the estimators do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.dataset import UNNAMED_PRIOR, Dataset, scatter_columns
from oneof.ensemble.vote_prior import VotePrior, config_for_votes, vote_prior
from oneof.learners.config import EnsembleConfig
from oneof.metrics import wilson
from oneof.votes.agreement import alpha, annotator_agreement
from oneof.votes.annotators import mistakes
from oneof.votes.attach import count_votes_by_row
from oneof.votes.ballots import Votes

_MAX_CONFUSIONS = 100  # annotators whose most frequent confusion is described, those with the most votes first


def dataset_with_votes(
    data: Dataset,
    votes: Votes,
    item: NDArray[np.intp],
    config: EnsembleConfig,
    seed: int,
    ground_truth: Mapping[int, str] | None = None,
) -> tuple[Dataset, EnsembleConfig, dict[str, Any]]:
    """Return the data set with the evidence of the votes, the config adapted to it, and a description of the annotators.

    Parameters
    ----------
    data
        n rows, whose classes include all labels of the votes.
    votes
        Votes on items.
    item
        The index of each row's item in the votes [n], -1 where nobody voted.
    config
        What to learn, before it is adapted to votes.
    seed
        Seed of the folds of held-out votes.
    ground_truth
        True labels by row, which count as gold.
    """
    observed = data.observed & ~data.encoding.empty_rows(data.features)
    fitted = vote_prior(data.plain_features(), votes, item, seed, observed)
    class_index = {name: j for j, name in enumerate(data.classes)}
    columns = [class_index[name] for name in votes.labels]
    c = len(class_index)
    gold = data.gold
    if ground_truth:
        gold = gold.copy()
        gold[list(ground_truth)] = [class_index[label] for label in ground_truth.values()]
    mask = scatter_columns(fitted.candidates, columns, c, False)
    data = replace(
        data,
        candidates=Candidates(mask, data.candidates.classes),
        reviewed_sets=mask,
        gold=gold,
        observed=observed,
        prior=scatter_columns(fitted.prior, columns, c, UNNAMED_PRIOR),
        votes=fitted.evidence.with_classes(columns, c),
        ballots=count_votes_by_row(votes, item),
    )
    config = config_for_votes(
        config, fitted, on_pictures=data.are_pictures, has_embeddings=data.encoding.has_embeddings
    )
    return data, config, describe_annotators(votes, fitted)


def describe_annotators(votes: Votes, fitted: VotePrior) -> dict[str, Any]:
    """Return how many votes each annotator gave and how accurate they seem, and the model that held-out votes chose.

    The accuracy is the expected one under the posterior of votes and features, `low` and `high` are its 95 % interval. `agreement` compares
    an annotator with the most frequent label of the others; `mistake` is the annotator's most frequent confusion.
    """
    posterior = fitted.joint.posterior
    n_votes = np.bincount(votes.annotator, minlength=len(votes.annotators))
    weight = np.bincount(votes.annotator, votes.share, minlength=len(n_votes))
    n_right = np.bincount(votes.annotator, votes.share * posterior[votes.item, votes.label], minlength=len(n_votes))
    accuracy = (n_right / np.maximum(weight, 1e-12)).round(4).tolist()
    low, high = wilson(n_right, np.maximum(weight, 1e-12))
    agreement = annotator_agreement(votes)
    annotators = []
    for position, a in enumerate(np.argsort(-n_votes, kind="stable").tolist()):
        described: dict[str, Any] = {
            "annotator": votes.annotators[a],
            "votes": int(n_votes[a]),
            "accuracy": accuracy[a],
            "low": round(float(low[a]), 4),
            "high": round(float(high[a]), 4),
            "agreement": agreement[a].rate,
            "compared": agreement[a].compared,
        }
        if position < _MAX_CONFUSIONS:
            confusions = mistakes(votes.only(votes.annotator == a), posterior, most=1)
            described["mistake"] = confusions[0]._asdict() if confusions else None
        annotators.append(described)
    return {
        "items": len(votes.items),
        "votes": len(votes.item),
        "alpha": alpha(votes),
        "annotators": annotators,
        "mistakes": [mistake._asdict() for mistake in mistakes(votes, posterior)],
        "chosen": fitted.joint.tried[0] if fitted.joint.tried else {},
    }
