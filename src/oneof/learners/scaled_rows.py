"""What a search is asked, the rows made ready for it, and what the other rows say of each: shared by `search` and `tune`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.splits import Split
from oneof.data.with_ranks import Ranks
from oneof.learners.config import SEEN, Setting, Space, see, widen
from oneof.learners.fitted import Seen
from oneof.learners.forest import Forest
from oneof.learners.kernel import KernelConfig, KernelScores, leave_one_out_scores
from oneof.metrics import criteria, with_means
from oneof.storage.rows import Row
from oneof.training.processes import ProcessGroup
from oneof.training.trials import Training, Trial


@dataclass(frozen=True, eq=False)
class Search:
    """What is asked of a search, and how it is run; `progress` to `processes` as for `oneof.fit`. Processes are started once for all of it."""

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
    heard: KernelScores | None = None  # what other rows say of features seen as "both", where that is known
    until: float | None = None  # when to end, by `time.monotonic`: networks get as many epochs as fit, or are left out
    progress: str | None = None
    checkpoint: str | Path | None = None
    memory: int | None = None
    device: str | torch.device = "cpu"  # `oneof.ensemble.pipeline` takes "auto" too
    processes: int | None = None
    threads: int | None = (
        None  # of torch, to train on pictures; None: by the size of a step and the processors that are idle
    )

    @property
    def seconds_left(self) -> float:
        return math.inf if self.until is None else self.until - time.monotonic()


class Prepared(NamedTuple):
    """The rows of a search, with their features beside their ranks."""

    ranks: Ranks
    wide: NDArray[np.float64] | Tensor  # [n, 2d]; on a GPU a tensor
    mask: NDArray[np.bool_]  # [n, c]
    asked: Search  # its space with numbers in place of None
    crew: ProcessGroup

    @property
    def space(self) -> Space:
        return self.asked.space


def prepare(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search, crew: ProcessGroup = ProcessGroup()) -> Prepared:  # noqa: B008 - frozen
    """Make rows x [n, d] with their sets [n, c] ready for a search; a crew agrees on its seed."""
    ranks, wide = widen(x, torch.device(asked.device))
    asked = replace(asked, space=asked.space.of(*mask.shape), seed=crew.broadcast_int(asked.seed))
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
    kernel, gold = rows.space.kernel or KernelConfig(), rows.asked.gold
    prior = None if rows.asked.prior is None else np.log(np.maximum(rows.asked.prior, 1e-12))
    opinion = rows.asked.heard if scaling == "both" else None
    if opinion is None:
        among, groups = rows.space.rows, rows.asked.groups
        opinion = leave_one_out_scores(
            x, rows.mask, kernel, log_prior=prior, max_rows=among, seed=rows.asked.seed, groups=groups
        )
    logits = torch.as_tensor(kernel.inverse_temperature * opinion.scores)
    scores = with_means({name: one.item() for name, one in criteria(logits, torch.as_tensor(rows.mask)).items()})
    if gold is not None:
        scores["gold"] = float((opinion.scores.argmax(1) == gold)[gold >= 0].mean())
    seen = Seen(shift.numpy(), scale.numpy(), opinion.model)
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
