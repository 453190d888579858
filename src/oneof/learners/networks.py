"""The truth-free search: what candidate sets say chooses how the features are seen, and an ensemble is trained.

1. Kernel regression that leaves each row out (`oneof.learners.kernel`) weighs the candidates, once for every way to see the features.
   How often its prediction lies in the row's set ranks these ways; their mean purifies the sets.
2. An ensemble of networks is trained on features seen in the best ways, and linear models beside it; every network holds out other rows.

No true label is used anywhere. Docs: docs/decisions/0006-default-estimator.md. `oneof.ensemble.tune` searches the other settings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.splits import split_rows
from oneof.learners.config import Setting
from oneof.learners.fitted import Regression, Taught, sharpened
from oneof.learners.kernel import KernelConfig
from oneof.learners.scaled_rows import Asked, Prepared, Search, ask, prepare, purified, training, trial_of
from oneof.metrics import CRITERIA, MEANS
from oneof.networks import MLP
from oneof.purify import Removals
from oneof.storage.rows import Row
from oneof.training.fit import fit
from oneof.training.processes import ProcessGroup, check_rows, run_distributed
from oneof.training.state import Fit
from oneof.training.trials import Trial


class Found(NamedTuple):
    """What a search leaves behind."""

    fits: tuple[Fit, ...]  # the ensemble, one stack per architecture; none where only other learners are asked for
    tried: list[Row]  # ways to see the features with truth-free scores, best first
    chosen: list[Any]  # those in the ensemble: a `Setting` each; of pictures a `Plan`
    candidates: NDArray[np.bool_]  # [n, c] the sets that the ensemble was trained on
    weights: NDArray[np.float64] | None  # [n, c] of the candidates, by what the other rows say
    regression: Taught | None  # by which they said it
    left_out: list[str]  # for want of time, in words


def search(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search = Search()) -> Found:  # noqa: B008 - frozen
    """Choose how features x [n, d] are seen by what candidate sets [n, c] say, and train an ensemble.

    >>> from oneof.data.synthetic import mixture
    >>> from oneof.learners.config import Space
    >>> data = mixture(n=300, d=2, c=3, seed=0)
    >>> small = Space(scaling=("feature", "ranks"), lr=(0.1,), weight_decay=(1e-3,), epochs=5, members=2)
    >>> found = search(data.x, np.eye(3, dtype=bool)[data.labels], Search(space=small))
    >>> found.chosen[0].lr, sum(one.stack.t for one in found.fits)  # two networks, and two linear ones
    (0.1, 4)
    """
    rules = (*MEANS, *CRITERIA)
    if asked.rule not in rules:
        raise ValueError(f"rule must be one of {', '.join(rules)}; got {asked.rule!r}.")
    check_rows(len(x), asked.processes or 1)
    return run_distributed(partial(_search, x, mask, asked), asked.processes)  # type: ignore[no-any-return]


def _search(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, crew: ProcessGroup) -> Found:
    """`search` in one process, or in one of a crew's."""
    rows = prepare(x, mask, asked, crew)
    space, rule = rows.space, asked.rule if asked.gold is None else "gold"
    networks = {"networks", "linear"} & {one for one in space.learners if isinstance(one, str)}
    asked_ways = tuple(dict.fromkeys(one.scaling for one in asked.settings)) or space.scaling
    rank = space.kernel or not networks or len(asked_ways) > space.scalings
    heard = crew.each(partial(ask, rows), asked_ways) if rank else []
    heard.sort(key=lambda one: -one.row[rule])
    believed = heard if space.kernel or not networks else []  # else they only rank the ways to see the features
    weights = np.asarray(np.mean([one.weights for one in believed], axis=0)) if believed else None
    regression = _regression(rows, believed[: space.scalings])
    if not networks:
        return Found((), [one.row for one in heard], [], mask, weights, regression, [])
    kept, lead = purified(mask, weights, space.margin)
    ways = [one.row["scaling"] for one in heard[: space.scalings]] or list(asked_ways)
    hidden = space.hidden if "networks" in networks else ((),)
    settings = [Setting(*one) for one in product(hidden, ways, space.lr, space.weight_decay)][: space.settings]
    epochs = crew.broadcast_int(_affordable(rows._replace(mask=kept), settings))
    left_out = [] if epochs == space.epochs else [f"--time-limit: networks had {epochs} of {space.epochs} epochs."]
    if not epochs and believed:
        left_out = ["--time-limit: there was no time for networks."]
        return Found((), [one.row for one in heard], [], mask, weights, regression, left_out)
    rows = rows._replace(asked=replace(rows.asked, space=replace(space, epochs=max(epochs, 1))))
    chosen = list(asked.settings) or settings
    fits = _ensemble(rows._replace(mask=kept), chosen)
    if "linear" in networks and () not in hidden:
        linear = list(dict.fromkeys(one._replace(hidden=()) for one in chosen))
        # steps of linear models are all overhead
        wide = replace(rows.asked, space=replace(rows.space, batch=4 * (space.batch or 50)))
        fits += _ensemble(rows._replace(mask=kept, asked=wide), linear, "linear")
    fits = tuple(replace(one, removals=_with_first_round(one, lead)) for one in fits)
    return Found(fits, [one.row for one in heard], chosen, kept, weights, regression, left_out)


def _affordable(rows: Prepared, settings: list[Setting]) -> int:
    """Epochs of the ensemble that take half of the time that is left, by the time that one takes: the rest is for trees and labels.

    Fewer than five teach a network too little: then none.
    """
    epochs, left = rows.space.epochs or 60, rows.asked.seconds_left
    if math.isinf(left):
        return epochs
    begun = time.monotonic()
    short = replace(rows.asked, space=replace(rows.space, epochs=1, purify=None), progress=None)
    _ensemble(rows._replace(asked=short), settings)
    some = int(min(epochs, (left / 2) // max(time.monotonic() - begun, 1e-3)))
    return some if some >= min(epochs, 5) else 0


def _regression(rows: Prepared, heard: list[Asked]) -> Taught | None:
    """The regressions that covered sets best, as a learner."""
    if not heard:
        return None
    sharpness = (rows.space.kernel or KernelConfig()).inverse_temperature
    learner = Regression(rows.ranks, tuple(one.seen for one in heard), sharpness)
    return Taught(learner, sharpened([one.scores for one in heard], sharpness))


def regression_as_given(found: Found, x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, sharp: float) -> Found:
    """With regressions on the sets as given in place of those on resolved candidates."""
    kernel = replace(asked.space.kernel or KernelConfig(), rounds=0, inverse_temperature=sharp)
    rows = prepare(x, mask, replace(asked, heard=None, space=replace(asked.space, kernel=kernel)))
    ways = [row["scaling"] for row in found.tried if row["stage"] == "others"]
    return found._replace(regression=_regression(rows, [ask(rows, way) for way in ways[: asked.space.scalings]]))


def _fit(rows: Prepared, trials: Sequence[Trial], hidden: tuple[int, ...], name: str) -> Fit:
    asked, space, x, middle = rows.asked, rows.space, rows.wide, None
    if isinstance(x, Tensor):  # before it is rounded; of arrays `fit` does the same
        middle = x.sort(0).values[[(len(x) - 1) // 2, len(x) // 2]].mean(0)
        x = x - middle
    checkpoint = None if asked.checkpoint is None else Path(asked.checkpoint) / name
    fitted = fit(
        x, rows.mask, trials=trials, method=space.method, purify=space.purify, network=MLP(hidden), prior=asked.prior,
        labels=asked.gold, training=training(space, space.epochs or 60), device=asked.device, progress=asked.progress,
        memory=asked.memory, checkpoint=checkpoint, processes=rows.crew.size,
    )  # fmt: skip
    return replace(fitted, ranks=rows.ranks, origin=fitted.origin if middle is None else middle.cpu().numpy())


def _ensemble(rows: Prepared, chosen: list[Setting], name: str = "ensemble") -> tuple[Fit, ...]:
    """Networks of the chosen settings in turn, every one with its own held-out rows."""
    space, asked = rows.space, rows.asked
    splits = split_rows(np.arange(len(rows.wide)), space.parts or space.members, asked.groups, asked.seed + 1)
    members = [(chosen[i % len(chosen)], i, splits[i % len(splits)]) for i in range(space.members)]
    fits = []
    for number, hidden in enumerate(dict.fromkeys(one.hidden for one, _, _ in members)):
        own = [member for member in members if member[0].hidden == hidden]
        starts: Sequence[Any] = asked.starts.get(hidden) or [None] * len(own)
        trials = [
            replace(trial_of(one, (asked.seed, len(chosen), i), split), start=start)
            for (one, i, split), start in zip(own, starts, strict=True)
        ]
        fits.append(_fit(rows, trials, hidden, f"{name}-{number}"))
    return tuple(fits)


def _with_first_round(fitted: Fit, lead: NDArray[Any]) -> Removals | None:
    """The log of removals with those of step 1 before all others, as round 0."""
    if fitted.removals is None:
        return None
    leads = torch.as_tensor(lead, dtype=fitted.history["loss"].dtype, device=fitted.rows.device)
    fell = leads[fitted.rows]  # [t, m, c]
    trial, row, label = (fell > 0).nonzero(as_tuple=True)
    first = Removals(trial, row, label, torch.zeros_like(label), fell[fell > 0])
    return Removals(*(torch.cat(pair) for pair in zip(first, fitted.removals, strict=True)))
