"""The truth-free search: what held-out candidate sets say chooses the settings, and an ensemble of the best is trained.

1. Kernel regression that leaves each row out (`oneof.selection.leave_one_out`) weighs the candidates, once for every way to see the features.
   How often its prediction lies in the row's set ranks these ways; their mean purifies the sets.
2. Settings of networks are tried for a few epochs on folds of the purified sets, all as one stack, and scored on held-out sets.
3. An ensemble of the best settings is trained; every network holds out other rows.

No true label is used anywhere. Docs: docs/decisions/0006-default-estimator.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.ranks import Ranks, learn_ranks
from oneof.data.splits import split_rows
from oneof.metrics import CRITERIA, MEANS, criteria, with_means
from oneof.networks import MLP
from oneof.purify import Purify, Removals
from oneof.selection.leave_one_out import Kernel, ask_others
from oneof.selection.space import SEEN, Setting, Space
from oneof.storage.rows import Row
from oneof.storage.settings import plain_value
from oneof.training.fit import fit
from oneof.training.problem import Training
from oneof.training.processes import Crew, check_rows, together
from oneof.training.state import Fit
from oneof.training.trials import Trial


class Found(NamedTuple):
    """What a search leaves behind."""

    fits: tuple[Fit, ...]  # the ensemble, one stack per architecture
    tried: list[Row]  # with truth-free scores: ways to see the features, then settings, best first
    chosen: list[Setting]  # those in the ensemble
    candidates: NDArray[np.bool_]  # [n, c] the sets that the ensemble was trained on
    weights: NDArray[np.float64] | None  # [n, c] of the candidates, by what the other rows say


class Table(NamedTuple):
    """The data of a search and where it runs."""

    ranks: Ranks
    wide: NDArray[np.float64]  # [n, 2d]
    mask: NDArray[np.bool_]  # [n, c]
    groups: Any
    gold: NDArray[np.intp] | None  # [n], -1 where unknown
    space: Space
    seed: int
    device: str | torch.device
    memory: int | None
    progress: str | None
    checkpoint: str | Path | None
    crew: Crew = Crew()


def search(
    x: NDArray[Any],
    mask: NDArray[np.bool_],
    *,
    space: Space = Space(),  # noqa: B008 - frozen
    seed: int = 0,
    groups: Any = None,
    rule: str = "both",
    gold: NDArray[np.intp] | None = None,
    progress: str | None = None,
    checkpoint: str | Path | None = None,
    memory: int | None = None,
    device: str | torch.device = "cpu",
    processes: int | None = None,
) -> Found:
    """Choose settings by what held-out candidate sets say, and train an ensemble of the best.

    Parameters
    ----------
    x, mask
        Features [n, d] and candidate sets [n, c].
    space
        What is tried.
    seed
        Of samples, folds and networks.
    groups
        Rows of one group [n] are never on both sides of a split.
    rule
        What held-out sets are asked: a key of `oneof.metrics.CRITERIA`, or of `oneof.metrics.MEANS`.
    gold
        True labels [n] of some rows, -1 elsewhere: they choose the settings, in place of the rule, and train nothing.
    progress, checkpoint, memory, device, processes
        As for `oneof.fit`; processes are started once for the whole search.

    >>> from oneof.data.synthetic import mixture
    >>> data = mixture(n=300, d=2, c=3, seed=0)
    >>> small = Space(scaling=("feature", "ranks"), lr=(0.1,), weight_decay=(1e-3,), epochs=5, members=2)
    >>> found = search(data.x, np.eye(3, dtype=bool)[data.labels], space=small)
    >>> found.chosen[0].lr, sum(one.stack.t for one in found.fits)
    (0.1, 2)
    """
    rules = (*MEANS, *CRITERIA)
    if rule not in rules:
        raise ValueError(f"rule must be one of {', '.join(rules)}; got {rule!r}.")
    check_rows(len(x), processes or 1)
    work = partial(_search, x, mask, space, seed, groups, rule, gold, progress, checkpoint, memory, device)
    return together(work, processes)  # type: ignore[no-any-return]


def _search(
    x: NDArray[Any],
    mask: NDArray[np.bool_],
    space: Space,
    seed: int,
    groups: Any,
    rule: str,
    gold: NDArray[np.intp] | None,
    progress: str | None,
    checkpoint: str | Path | None,
    memory: int | None,
    device: str | torch.device,
    crew: Crew,
) -> Found:
    """`search` in one process, or in one of a crew's."""
    ranks = learn_ranks(x)
    space, seed = space.of(len(x)), crew.agreed(seed)
    table = Table(ranks, ranks(x), mask, groups, gold, space, seed, device, memory, progress, checkpoint, crew)
    asked = crew.each(partial(ask, table), space.scaling) if space.kernel else []
    rule = rule if gold is None else "gold"
    asked.sort(key=lambda one: -one.row[rule])
    weights = np.asarray(np.mean([one.weights for one in asked], axis=0)) if asked else None
    kept, lead = purified(mask, weights, space.margin)
    ways = [one.row["scaling"] for one in asked[: space.scalings]] or list(space.scaling)
    settings = [Setting(*one) for one in product(space.hidden, ways, space.lr, space.weight_decay)]
    tried, chosen = _try(table._replace(mask=kept), settings, rule)
    fits = _ensemble(table._replace(mask=kept), chosen)
    fits = tuple(replace(one, removals=_with_first_round(one, lead)) for one in fits)
    return Found(fits, [one.row for one in asked] + tried, chosen, kept, weights)


# --------------------------------------------------------------------------------------------------- 1. what other rows say


class Asked(NamedTuple):
    """What the other rows say when the features are seen in one way."""

    row: Row
    weights: NDArray[np.floating[Any]]  # [n, c]


def ask(table: Table, scaling: str) -> Asked:
    """What they say with the features seen in this way, and how well that agrees with the rows' own sets."""
    wide = torch.as_tensor(table.wide)
    shift, scale = SEEN[scaling](wide)
    x = ((wide - shift) * scale)[:, scale != 0].numpy()
    kernel = table.space.kernel or Kernel()
    opinion = ask_others(x, table.mask, kernel, rows=table.space.rows, seed=table.seed)
    logits, sets = torch.as_tensor(kernel.sharpness * opinion.scores), torch.as_tensor(table.mask)
    scores = _rounded({name: one.item() for name, one in criteria(logits, sets).items()})
    if table.gold is not None:
        known = table.gold >= 0
        scores["gold"] = round(float((opinion.scores.argmax(1) == table.gold)[known].mean()), 6)
    return Asked({"stage": "others", "scaling": scaling, **scores}, opinion.weights)


def _rounded(scores: dict[str, float]) -> Row:
    return {name: round(value, 6) for name, value in with_means(scores).items()}


def purified(
    mask: NDArray[np.bool_], weights: NDArray[np.float64] | None, margin: float
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The sets without labels that another candidate leads by the margin; and the lead [n, c] where a label fell, else 0."""
    if weights is None:
        return mask, np.zeros(mask.shape)
    lead = weights.max(1, keepdims=True) - weights
    falls = mask & (lead >= margin)
    return mask & ~falls, np.where(falls, lead, 0.0)


# ------------------------------------------------------------------------------------------------ 2. settings of networks


def _try(table: Table, settings: list[Setting], rule: str) -> tuple[list[Row], list[Setting]]:
    """Every setting with its scores on held-out sets, best first; and the best few."""
    space, n = table.space, len(table.wide)
    if len(settings) <= 1 or n < 200:  # so few held-out rows tell nothing
        return [], settings[: space.settings]
    rows = np.sort(np.random.default_rng(table.seed).permutation(n)[: space.rows])
    splits = split_rows(rows, space.folds, table.groups, table.seed)
    tried: list[tuple[Row, Setting]] = []
    for number, hidden in enumerate(space.hidden):
        own = [one for one in settings if one.hidden == hidden]
        trials = [_trial(table, one, i, k, *split) for i, one in enumerate(own) for k, split in enumerate(splits)]
        fitted = _fit(table, trials, hidden, None, space.trial_epochs, f"try-{number}")
        columns = fitted.history.columns
        by_sets = {name: _last(columns.get(name), len(own)) for name in CRITERIA}
        right = _last(columns.get("oracle"), len(own))
        for i, one in enumerate(own):
            # a gold label that is unknown is met by no setting, so the order is that of the known ones
            gold = {} if table.gold is None else {"gold": round(right[i], 6)}
            scores = _rounded({name: values[i] for name, values in by_sets.items()})
            tried.append(({"stage": "networks", **plain_value(one._asdict()), **scores, **gold}, one))
    tried.sort(key=lambda pair: -pair[0][rule])
    return [row for row, _ in tried], [one for _, one in tried[: space.settings]]


def _last(column: Tensor | None, settings: int) -> list[float]:
    """The last epoch's score of each setting, the mean over folds; a network that diverged has none."""
    if column is None:
        return [0.0] * settings
    return column[-1].double().nan_to_num(0.0).view(settings, -1).mean(1).tolist()


def _trial(
    table: Table, one: Setting, i: int, k: int, rows: NDArray[np.intp], held_out: NDArray[np.intp] | None
) -> Trial:
    seed = int(np.random.default_rng([table.seed, i, k]).integers(2**31 - 1))
    return Trial(seed, rows, held_out, None, one.lr, one.weight_decay, SEEN[one.scaling])


def _fit(
    table: Table, trials: Sequence[Trial], hidden: tuple[int, ...], purify: Purify | None, epochs: int, name: str
) -> Fit:
    space = table.space
    fitted = fit(
        table.wide,
        table.mask,
        trials=trials,
        method=space.method,
        purify=purify,
        network=MLP(hidden),
        labels=table.gold,
        training=Training(
            epochs=epochs, batch=space.batch or 50, optimizer=space.optimizer, mixup=space.mixup, noise=space.noise
        ),
        device=table.device,
        progress=table.progress,
        memory=table.memory,
        checkpoint=None if table.checkpoint is None else Path(table.checkpoint) / name,
        processes=table.crew.size,
    )
    return replace(fitted, ranks=table.ranks)


# ---------------------------------------------------------------------------------------------------------- 3. the ensemble


def _ensemble(table: Table, chosen: list[Setting]) -> tuple[Fit, ...]:
    """Networks of the chosen settings in turn, every one with its own held-out rows."""
    space = table.space
    splits = split_rows(np.arange(len(table.wide)), space.parts or space.members, table.groups, table.seed + 1)
    members = [(chosen[i % len(chosen)], i, splits[i % len(splits)]) for i in range(space.members)]
    fits = []
    for number, hidden in enumerate(_distinct(one.hidden for one, _, _ in members)):
        trials = [_trial(table, one, len(chosen), i, *split) for one, i, split in members if one.hidden == hidden]
        fits.append(_fit(table, trials, hidden, space.purify, space.epochs or 60, f"ensemble-{number}"))
    return tuple(fits)


def _distinct(values: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(values))


def _with_first_round(fitted: Fit, lead: NDArray[np.float64]) -> Removals | None:
    """The log of removals with those of step 1 before all others, as round 0."""
    if fitted.removals is None:
        return None
    fell = torch.as_tensor(lead, dtype=fitted.dtype, device=fitted.rows.device)[fitted.rows]  # [t, m, c]
    trial, row, label = (fell > 0).nonzero(as_tuple=True)
    first = Removals(trial, row, label, torch.zeros_like(label), fell[fell > 0])
    return Removals(*(torch.cat(pair) for pair in zip(first, fitted.removals, strict=True)))
