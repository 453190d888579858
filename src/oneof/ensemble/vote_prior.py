"""From votes to what training is given: a prior over labels, by people and features together, chosen by held-out votes.

`oneof.votes.joint` weighs people against each other and votes against features. Here it gets its predictions: kernel regressions that
leave each row out, for a few ways to see the features. What it hands on is what the *votes* say, flattened as held-out votes advise;
networks then add what the features say, so that nothing is counted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.data.with_ranks import learn_ranks
from oneof.learners.config import Space, see
from oneof.learners.kernel import leave_one_out_regression
from oneof.methods import BalancedProden
from oneof.votes.annotators import SHARE
from oneof.votes.ballots import Votes
from oneof.votes.dawid_skene import shares, vote_counts
from oneof.votes.joint import HeldOutVotes, Joint, Predict, choose, join, leave_answers_out

Floats = NDArray[np.float64]
RIDGES = (0.1, 1.0)
WAYS = ("feature", "ranks", "both", "none")  # to see features; few, since each is tried with every account of the votes
LEAST = 0.01  # of a row's largest prior: labels that nobody named and votes find less likely are no candidates
SAMPLE = 5000  # items by which everything is chosen
MOST = 50_000  # rows that say what rows like them were called
HIDDEN = ((256,),)  # layers of networks that learn from votes; a second one was not tried there


class VotePrior(NamedTuple):
    """What votes say of n rows."""

    candidates: NDArray[np.bool_]  # [n, c] named by somebody, or likely by what annotators confuse
    prior: Floats  # [n, c] for training, largest 1 in every row
    said: Floats  # [n, c] for resolving: what the votes say, less flattened, since no network judges a row that it was taught
    opinion: Floats | None  # [n, c] what other rows say of each row, where held-out votes find that they help
    joint: Joint
    judges: HeldOutVotes  # votes by which opinions of the rows are judged
    counts: Floats  # [n, c] votes for each label
    accuracy: float  # of a vote, by the joint posterior
    way: str | None  # in which held-out votes want the features seen; None: features do not help


def vote_prior(x: NDArray[Any], votes: Votes, item: NDArray[np.intp], seed: int = 0) -> VotePrior:
    """The prior of rows x [n, d] whose items among those of the votes are `item` [n], -1 where nobody voted."""
    rows = np.flatnonzero(item >= 0)
    joint = _join(x[rows], votes, item[rows], seed)
    prior, said = (np.ones((len(x), len(votes.labels))) for _ in range(2))
    prior[rows] = np.maximum(joint.prior[item[rows]] / joint.prior[item[rows]].max(1, keepdims=True), 1e-6)
    said[rows] = np.exp(np.maximum(joint.choice.power * joint.fitted.likelihood[item[rows]], -12))
    named = np.zeros((len(votes.items), len(votes.labels)), dtype=bool)
    named[votes.item, votes.label] = True
    if x.shape[1] == 0:
        # No features confirm what the model of annotators makes of the votes, so their plain shares count half.
        # On six sets of real votes that took 8 to 47 % off the labels' log-loss, and less than 0.3 points of accuracy.
        resolved = (joint.posterior + shares(votes, SHARE)) / 2
        posterior = np.tile(resolved.mean(0), (len(x), 1))
        posterior[rows] = resolved[item[rows]]
        said = np.maximum(posterior / posterior.max(1, keepdims=True), 1e-6)
    candidates = (said >= LEAST) | (item < 0)[:, None]
    candidates[rows] |= named[item[rows]]
    opinion = None if joint.opinion is None else np.full((len(x), len(votes.labels)), np.nan)
    if opinion is not None and joint.opinion is not None:
        opinion[rows] = joint.opinion[item[rows]]
    place = np.full(len(votes.items), -1)
    place[item[rows]] = rows
    judges = leave_answers_out(votes, joint.fitted, joint.choice.power, place, seed)
    way = joint.choice.features and joint.choice.features.split(",")[0]
    counts = np.zeros((len(x), len(votes.labels)))
    counts[rows] = vote_counts(votes)[item[rows]]
    accuracy = float(np.average(joint.posterior[votes.item, votes.label], weights=votes.share))
    return VotePrior(candidates, prior, said, opinion, joint, judges, counts, accuracy, way)


def _join(x: NDArray[Any], votes: Votes, item: NDArray[np.intp], seed: int) -> Joint:
    """People and features together; of many items a sample chooses, of many rows a sample tells what others were called."""
    draw = np.random.default_rng(seed).permutation
    if len(votes.items) <= SAMPLE:
        return join(votes, _predictions(x, item, len(votes.items), WAYS), seed=seed)
    known = np.unique(item) if len(item) else np.arange(len(votes.items))
    some = np.sort(draw(known)[:SAMPLE])
    rows = np.flatnonzero(np.isin(item, some))
    place = np.searchsorted(some, item[rows])
    scores = choose(votes.of_items(some), _predictions(x[rows], place, len(some), WAYS), seed=seed)
    rows = np.sort(draw(len(item))[:MOST])
    ways = [way for way in WAYS if (next(iter(scores)).features or "").startswith(f"{way},")]
    return join(votes, _predictions(x[rows], item[rows], len(votes.items), ways), scores=scores)


def narrowed(space: Space, found: VotePrior, *, on_pictures: bool = False) -> Space:
    """The space as held-out votes leave it: they chose how features are seen and how far frequent labels are held back.

    Neither other rows nor POP remove labels: what the votes leave open is weighed, not cut. Unless others are asked for, networks learn
    alone, and there are twice as many: trees and linear models would need one label for every row, which votes leave open.
    On pictures the epochs stay open, as without votes: what a device can afford is decided where networks are trained on them.
    """
    method = space.method
    if isinstance(method, BalancedProden):
        method = replace(method, balance=found.joint.choice.model.balance)
    hidden = HIDDEN if space.hidden == Space.hidden else space.hidden
    space = replace(space, hidden=hidden, scaling=(found.way or "both",), kernel=None, purify=None, method=method)
    space = replace(space, lr=(0.1,), weight_decay=(1e-3,))
    if space.learners != Space.learners:
        return space
    members = 2 * Space.members if space.members == Space.members else space.members
    epochs = space.epochs
    if epochs is None and not on_pictures:
        epochs = 2 * (space.of(*found.prior.shape).epochs or 30)
    return replace(space, learners=("networks",), members=members, epochs=epochs)


def _predictions(x: NDArray[Any], item: NDArray[np.intp], items: int, ways: Sequence[str]) -> dict[str, Predict]:
    """Regressions from weights of all items [items, c] to scores [items, c]; an item without features has none: NaN."""
    found: dict[str, Predict] = {}
    wide = learn_ranks(x)(x) if x.size and ways else np.empty((0, 0))
    for way in ways if x.size else ():
        seen, _ = see(way, wide)
        if seen.shape[1]:
            regression = leave_one_out_regression(seen)
            found |= {f"{way}, ridge {r:g}": partial(_scores, partial(regression, r), item, items) for r in RIDGES}
    return found


def _scores(
    regression: Callable[[NDArray[Any]], NDArray[Any]], item: NDArray[np.intp], items: int, weights: Floats
) -> Floats:
    scores = np.full((items, weights.shape[1]), np.nan)
    scores[item] = regression(weights[item])
    return scores
