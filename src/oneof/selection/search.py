"""The truth-free search: what candidate sets say chooses how the features are seen, and an ensemble is trained.

1. Kernel regression that leaves each row out (`oneof.selection.leave_one_out`) weighs the candidates, once for every way to see the features.
   How often its prediction lies in the row's set ranks these ways; their mean purifies the sets.
2. An ensemble of networks is trained on features seen in the best ways, and linear models beside it; every network holds out other rows.

No true label is used anywhere. Docs: docs/decisions/0006-default-estimator.md. `oneof.selection.tune` searches the other settings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.splits import Split, split_rows
from oneof.data.with_ranks import Ranks
from oneof.metrics import CRITERIA, MEANS, criteria, with_means
from oneof.networks import MLP
from oneof.purify import Removals
from oneof.selection.forest import Forest
from oneof.selection.learners import Regression, Seen, Taught, sharpened
from oneof.selection.leave_one_out import Kernel, Opinion, ask_others
from oneof.selection.space import SEEN, Setting, Space, see, widen
from oneof.storage.rows import Row
from oneof.training.fit import fit
from oneof.training.processes import Crew, check_rows, together
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial


@dataclass(frozen=True, eq=False)
class Search:
    """What is asked of a search, and how it is run; the last five as for `oneof.fit`. Processes are started once for all of it."""

    space: Space = Space()  # noqa: RUF009 - frozen; what is tried
    seed: int = 0  # of samples, folds and networks
    rule: str = "both"  # what held-out sets are asked: a key of `oneof.metrics.CRITERIA`, or of `oneof.metrics.MEANS`
    groups: Any = None  # [n] rows of one group are never on both sides of a split
    settings: tuple[Setting, ...] = ()  # of the ensemble, to take as they are. (): those of the space
    # weights from which the networks of the ensemble start, by the widths of their hidden layers; others are drawn
    starts: Mapping[tuple[int, ...], Sequence[Mapping[str, Tensor]]] = field(default_factory=dict)
    forest: Forest | None = None  # trees that were grown before on the same rows: only some are grown anew
    prior: NDArray[np.floating[Any]] | None = None  # [n, c] how much votes speak for each label, as for `oneof.fit`
    gold: NDArray[np.intp] | None = None  # [n] true labels, -1 where unknown: they choose in place of the rule
    heard: Opinion | None = None  # what other rows say of features seen as "both", where that is known
    until: float | None = None  # when to end, by `time.monotonic`: networks get as many epochs as fit, or are left out
    progress: str | None = None
    checkpoint: str | Path | None = None
    memory: int | None = None
    device: str | torch.device = "cpu"  # `oneof.runs.learn` takes "auto" too
    processes: int | None = None

    @property
    def seconds_left(self) -> float:
        return math.inf if self.until is None else self.until - time.monotonic()


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
    >>> from oneof.selection.space import Space
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
    return together(partial(_search, x, mask, asked), asked.processes)  # type: ignore[no-any-return]


def _search(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, crew: Crew) -> Found:
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
    epochs = crew.agreed(_affordable(rows._replace(mask=kept), settings))
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
    sharpness = (rows.space.kernel or Kernel()).sharpness
    learner = Regression(rows.ranks, tuple(one.seen for one in heard), sharpness)
    return Taught(learner, sharpened([one.scores for one in heard], sharpness))


def regression_as_given(found: Found, x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, sharp: float) -> Found:
    """With regressions on the sets as given in place of those on resolved candidates."""
    kernel = replace(asked.space.kernel or Kernel(), rounds=0, sharpness=sharp)
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


# ------------------------------------------------------------------------------------- shared with `oneof.selection.tune`


class Prepared(NamedTuple):
    """The rows of a search, with their features beside their ranks."""

    ranks: Ranks
    wide: NDArray[np.float64] | Tensor  # [n, 2d]; on a GPU a tensor
    mask: NDArray[np.bool_]  # [n, c]
    asked: Search  # its space with numbers in place of None
    crew: Crew

    @property
    def space(self) -> Space:
        return self.asked.space


def prepare(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, crew: Crew = Crew()) -> Prepared:  # noqa: B008 - frozen
    """Make rows x [n, d] with their sets [n, c] ready for a search; a crew agrees on its seed."""
    ranks, wide = widen(x, torch.device(asked.device))
    asked = replace(asked, space=asked.space.of(*mask.shape), seed=crew.agreed(asked.seed))
    return Prepared(ranks, wide, mask, asked, crew)


class Asked(NamedTuple):
    """What the other rows say when the features are seen in one way."""

    row: Row
    weights: NDArray[np.floating[Any]]  # [n, c]
    scores: NDArray[np.float32]  # [n, c] for every label
    seen: Seen  # to ask about new rows


def ask(rows: Prepared, scaling: str) -> Asked:
    """What they say with the features seen in this way, and how well that agrees with the rows' own sets."""
    x, (shift, scale) = see(scaling, rows.wide)
    kernel, gold = rows.space.kernel or Kernel(), rows.asked.gold
    prior = None if rows.asked.prior is None else np.log(np.maximum(rows.asked.prior, 1e-12))
    opinion = rows.asked.heard if scaling == "both" else None
    if opinion is None:
        among, groups = rows.space.rows, rows.asked.groups
        opinion = ask_others(x, rows.mask, kernel, prior=prior, rows=among, seed=rows.asked.seed, groups=groups)
    logits = torch.as_tensor(kernel.sharpness * opinion.scores)
    scores = with_means({name: one.item() for name, one in criteria(logits, torch.as_tensor(rows.mask)).items()})
    if gold is not None:
        scores["gold"] = float((opinion.scores.argmax(1) == gold)[gold >= 0].mean())
    seen = Seen(shift.numpy(), scale.numpy(), opinion.machine)
    row = {"stage": "others", "scaling": scaling} | {name: round(score, 6) for name, score in scores.items()}
    return Asked(row, opinion.weights, opinion.scores.astype(np.float32), seen)


def purified(
    mask: NDArray[np.bool_], weights: NDArray[np.floating[Any]] | None, margin: float
) -> tuple[NDArray[np.bool_], NDArray[np.floating[Any]]]:
    """The sets without labels that another candidate leads by the margin; and the lead [n, c] where a label fell, else 0."""
    if weights is None:
        return mask, np.zeros(mask.shape)
    lead = weights.max(1, keepdims=True) - weights
    falls = mask & (lead >= margin)
    return mask & ~falls, np.where(falls, lead, 0.0)


def trial_of(setting: Setting, seed: Sequence[int], split: Split) -> Trial:
    """A network of the setting that trains on one side of a split and is asked about the other."""
    return Trial(seed_of(*seed), *split, None, setting.lr, setting.weight_decay, SEEN[setting.scaling])


def seed_of(*numbers: int) -> int:
    """A seed that belongs to these numbers."""
    return int(np.random.default_rng(numbers).integers(2**31 - 1))


def training(space: Space, epochs: int) -> Training:
    """How the networks of a space with numbers in place of None are trained."""
    return Training(
        epochs=epochs, batch=space.batch or 50, optimizer=space.optimizer, mixup=space.mixup, noise=space.noise
    )
