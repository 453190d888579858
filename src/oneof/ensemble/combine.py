"""Networks, linear models, trees and the kernel as one model: each is asked about rows that it did not learn from, and held-out sets weigh them."""

from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.ensemble.model import Model
from oneof.ensemble.resolve import Mask, Opinions, ask_networks, heard_once, join_opinions, trained_rows
from oneof.ensemble.stacking import combine_within_sets, learner_weights, significantly_better
from oneof.learners.fitted import Lesson, Taught, grow_trees, teach_own
from oneof.learners.networks import Found
from oneof.learners.scaled_rows import Search
from oneof.storage.rows import Row
from oneof.training.state import Fit


class Rows(NamedTuple):
    """What was learned from."""

    x: NDArray[Any]  # [n, d]
    original: Mask  # [n, c]
    taught: Mask  # [n, c] the sets that networks were given, with what people decided
    known: Mask  # [n, c] the sets by which learners are judged


class Ensemble(NamedTuple):
    """Learners that count, and what they say."""

    model: Model
    opinions: Opinions
    fits: tuple[Fit, ...]  # of the networks that are part of the model
    tried: list[Row]  # a row for each learner
    left_out: list[str]


def weigh_learners(networks: Model, found: Found, rows: Rows, asked: Search) -> Ensemble:
    """Teach the other learners what networks and rows found, and weigh all; `networks` is the model of all that were trained."""
    own = [
        (networks.of([one]), trained_rows([fit], len(rows.x)))
        for one, fit in zip(networks.members, found.fits, strict=True)
    ]
    parts = [ask_networks(one, rows.x, rows.original, trained) for one, trained in own]
    late = asked.seconds_left <= 0 and found.weights is not None and "trees" in asked.space.learners
    kept = _of_best_kind(networks, parts, rows.known, asked.rule)
    others = _teach_others(rows, found, parts, kept, asked, late)
    heard = [parts[i] for i in kept] + [heard_once(one.left_out, rows.known) for one in others]
    share = _shares(heard, rows, asked)
    members, learners = [networks.members[i] for i in kept], [one.learner for one in others]
    named, counts = networks.of(members, learners, share.tolist()).learners, share > 0
    voices = [member.stack.t for member in members] + [1] * len(others)
    return Ensemble(
        networks.of(compress(members, counts), compress(learners, counts[len(kept) :]), share[counts].tolist()),
        join_opinions(heard, share.tolist(), voices),
        tuple(compress([found.fits[i] for i in kept], counts)),
        [{"stage": "learners", "learner": name, "share": one} for name, one in named.items()],
        ["--time-limit: there was no time for trees."] if late else [],
    )


def _shares(heard: list[Opinions], rows: Rows, asked: Search) -> NDArray[np.floating[Any]]:
    """How much each learner counts, by rows that all held out."""
    held_out = np.all([one.held_out for one in heard], axis=0)
    prior = None if asked.prior is None else asked.prior[held_out]
    return learner_weights([one.mean[held_out] for one in heard], rows.known[held_out], prior)


def _of_best_kind(model: Model, parts: list[Opinions], sets: Mask, rule: str) -> list[int]:
    """The members that are not linear, or those that are where they are clearly better: together the worse would spoil the better."""
    linear = np.array([member.is_linear for member in model.members])
    rows = np.all([part.held_out for part in parts], axis=0) if parts else np.zeros(0, dtype=bool)
    if linear.all() or not linear.any() or not rows.any():
        return list(range(len(parts)))
    straight, bent = (np.mean([one.mean[rows] for one in compress(parts, kind)], axis=0) for kind in (linear, ~linear))
    return [int(i) for i in np.flatnonzero(linear == significantly_better(straight, bent, sets[rows], rule))]


def _teach_others(
    rows: Rows, found: Found, parts: list[Opinions], kept: list[int], asked: Search, late: bool
) -> list[Taught]:
    """Teach the learners that need a label for each row: by the prior if there is one, else by networks and what the other rows say."""
    beliefs: NDArray[np.floating[Any]] | None = found.weights
    if asked.prior is not None:  # a row's prior must not reach its held-out predictions by way of other rows' labels
        beliefs = combine_within_sets(rows.taught, [], asked.prior + 1e-9)
    elif beliefs is None or parts:
        by_networks = combine_within_sets(rows.taught, [part.mean for part in parts])
        beliefs = by_networks if beliefs is None else np.asarray((by_networks + beliefs) / 2)
    lesson, c = Lesson(rows.x, beliefs, asked.groups, asked.seed), beliefs.shape[1]
    wanted, others = asked.space.learners, []
    kernel = found.regression if "kernel" in wanted else None
    beside = [parts[i] for i in kept] + ([heard_once(kernel.left_out, rows.known)] if kernel else [])

    def useful(said: NDArray[np.float32]) -> bool:
        heard = [*beside, heard_once(said, rows.known)._replace(held_out=np.asarray(said.any(1)))]
        return not beside or bool(_shares(heard, rows, asked)[-1] > 0)

    if "trees" in wanted and not late and asked.space.trees.affordable(*beliefs.shape):
        checkpoint = None if asked.checkpoint is None else Path(asked.checkpoint) / "trees"
        trees = grow_trees(lesson, c, asked.space.trees, asked.forest, asked.device, useful, checkpoint)
        others.append(trees)
    others += [teach_own(lesson, one, c) for one in wanted if not isinstance(one, str)]
    if found.regression is not None and ("kernel" in wanted or not (found.fits or others)):
        others.append(found.regression)
    return others
