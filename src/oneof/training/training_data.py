"""Check what a stack of trials learns from and put it on the device: nothing of it changes during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.augment.views import Augment, Plain, Views
from oneof.data.on_disk import Features, OnDiskFeatures, fitted_scaling
from oneof.data.scaling import SCALINGS, Scaling
from oneof.methods.base import Method, first_output, tree_map
from oneof.networks import Network
from oneof.networks.cuda.accelerate import accelerate_views
from oneof.purify import Purify, stack_rules
from oneof.training.checks import check_images, check_labels, check_method, check_rule, check_unscaled
from oneof.training.prior import Prior, log_prior
from oneof.training.processes import ProcessGroup
from oneof.training.set_input import as_tensor, read_candidates
from oneof.training.stack import Stack
from oneof.training.tables import flat_index, gather_rows
from oneof.training.trials import Training, Trial

WORTH_COMPILING = 20_000  # steps of LeNet save what compiling it takes: docs/decisions/0004-speed-on-the-card.md
# Rows of a block in evaluation: as many as in training, so that layers stay in the cache, and their memory is used again.
CPU_EVAL_ROWS = 256
_EVAL_VALUES = 2**23  # inputs of a block on a GPU, of all trials together: some megabytes, so that layers fit too


class TrainingData(NamedTuple):
    """Hold what stays the same during training: features, candidates, rows and rates of t trials on one device."""

    x: Features  # [n, ...]
    candidates: Tensor  # as given, [1, n, c], or [t, n, c] where trials have their own
    prior: Tensor | None  # [1, n, c] log prior, see `oneof.training.prior`
    # Whether a label outside the set may be right: then methods see every label that was not removed.
    allow_outside_labels: bool
    labels: Tensor | None  # [n] true labels, for reporting only
    rows: Tensor  # [t, m] training rows
    held_out: Tensor | None  # [t, k]
    test: Tensor | None  # [t, l]
    shift: Tensor | None  # [t, 1, ...] features are scaled as they are gathered: (x - shift) * scale
    scale: Tensor | None
    lr: Tensor  # [t]
    weight_decay: tuple[float, ...]  # of each trial
    method: Method
    purify: Purify | None
    training: Training
    augment: Augment | None  # how images are augmented in training; None for tables
    eval_transform: Views | None  # how images are normalised otherwise; None for tables
    # Images in a forward of a full batch, for which a network is compiled; 1: none is; 0 or less: see `Stack`.
    compile_batch: int
    all_rows: Tensor  # [t, m] training rows of all processes
    group: ProcessGroup = ProcessGroup()  # ranks that share the training rows; `rows` are those of this one

    @property
    def n_rows(self) -> int:
        """Return the number of training rows of all processes."""
        return self.all_rows.shape[1]

    @property
    def n_drawn(self) -> int:
        """Return how many rows this rank draws in an epoch: as many as every other, so that all take as many steps."""
        return drawn_rows(self.n_rows, self.training.batch, self.group.size)

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return self.candidates.shape[2]

    @property
    def generator_device(self) -> torch.device:
        """Return where random numbers are drawn.

        On the CPU, for the same numbers on every device; where steps draw too, on the device that they run on.
        """
        has_own_step = type(self.method).step is not Method.step
        steps_draw = self.augment is not None or self.training.noise > 0 or has_own_step
        if steps_draw:
            return self.lr.device
        return torch.device("cpu")

    def network(self, make: Network) -> nn.Module:
        """Return a network that `make` builds, as the method trains it."""
        shape = tuple(self.x.shape[1:])
        module = make(shape, self.n_classes)
        return self.method.network(module, self.n_classes, shape)

    def features(self, rows: Tensor) -> Tensor:
        """Return scaled features, or normalised images, [t, b, ...] of rows [t, b]; nothing is augmented."""
        shape = (*rows.shape, *self.x.shape[1:])
        x = self.x.index_select(0, rows.reshape(-1))
        if self.eval_transform is not None:
            return self.eval_transform.apply(x, (None,)).view(shape)
        x = x.view(shape)
        if self.shift is None or self.scale is None:
            return x
        return (x - self.shift) * self.scale

    def views(self, rows: Tensor, generators: list[torch.Generator]) -> Tensor:
        """Return what networks are trained on [v, t, b, ...]: every view of images, with its own draws; one of features."""
        if self.augment is None:
            return self.features(rows)[None]
        views = []
        for trial, generator in enumerate(generators):
            views.append(self.augment(self.x[rows[trial]], generator))
        return torch.stack(views, dim=1)

    def original_candidates(self, rows: Tensor) -> Tensor:
        """Return the sets as given [t, b, c] of rows [t, b]."""
        return gather_rows(self.candidates, self._index(self.candidates, rows))

    def training_candidates(self) -> Tensor:
        """Return the sets of the training rows [t, m, c] as a copy to be written to."""
        return self.original_candidates(self.rows)

    def visible_candidates(self, candidates: Tensor, rows: Tensor) -> Tensor:
        """Return what methods see of the remaining sets [t, b, c] of rows [t, b].

        Where labels outside the sets may be right, that is every label that was not removed.
        """
        if not self.allow_outside_labels:
            return candidates
        return candidates | ~self.original_candidates(rows)

    def log_prior_of(self, rows: Tensor) -> Tensor | None:
        """Return the log prior [t, b, c] of rows [t, b]; None if there is none."""
        if self.prior is None:
            return None
        return gather_rows(self.prior, self._index(self.prior, rows))

    def init_memory(self, candidates: Tensor) -> Any:
        """Return what the method remembers before training, given the sets [t, m, c] of this process's rows."""
        if self.group.size > 1:  # a method's `init` may look at several rows
            everything = self._replace(rows=self.all_rows, group=ProcessGroup())
            memory = everything.init_memory(everything.training_candidates())
            local_rows = slice(*self.group.local_range(self.n_rows))
            return tree_map(lambda table: table[:, local_rows].clone(), memory)
        visible = self.visible_candidates(candidates, self.rows)
        if self.prior is None or not self.method.uses_prior:
            return self.method.init(visible)
        return self.method.init(visible, self.log_prior_of(self.rows))

    def _index(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return where rows [t, b] are in a table [1, n, c] that trials share, or [t, n, c]."""
        if len(table) == 1:
            return rows
        return flat_index(rows, len(self.x))

    def logits(self, stack: Stack, rows: Tensor) -> Tensor:
        """Return logits [t, k, c] of rows [t, k] in evaluation mode; the processes of the group share the work."""
        local_rows = slice(*self.group.local_range(rows.shape[1]))
        return self.outputs(stack, rows[:, local_rows])

    def outputs(self, stack: Stack, rows: Tensor, part: str = "") -> Tensor:
        """Return outputs of the networks, or of a part, for the rows of all processes, of which this one computes `rows`."""
        size = block_size(self.x, len(rows), rows.device)
        blocks = []
        with stack.eval_mode():
            for start in range(0, max(rows.shape[1], 1), size):
                features = self.features(rows[:, start : start + size])
                blocks.append(first_output(stack(features, part)))
        return self.group.gathered_rows(torch.cat(blocks, dim=1))

    def shared_with(self, group: ProcessGroup) -> TrainingData:
        """Return the part of the data that one of several ranks works on: the rows that it owns."""
        if group.size == 1:
            return self._replace(group=group)
        start, end = group.local_range(self.n_rows)
        return self._replace(rows=self.rows[:, start:end].contiguous(), group=group)


def drawn_rows(n_rows: int, batch: int, n_ranks: int) -> int:
    """Return how many rows each of several ranks draws in an epoch, in batches of this size.

    Ranks that own a row less than others draw one twice, and all of them one more where the last batch would be a single row, whose
    variance batch normalisation cannot compute.

    >>> [drawn_rows(45, 2, n_ranks) for n_ranks in (1, 2, 3)]
    [45, 24, 16]
    """
    n_drawn = -(-n_rows // n_ranks)
    if n_ranks > 1 and batch > 1 and n_drawn % batch == 1:
        n_drawn += 1
    return n_drawn


def batch_of_rank(batch: int, n_ranks: int) -> int:
    """Return how many rows of a batch each rank draws, at least two.

    >>> [batch_of_rank(256, 3), batch_of_rank(2, 2), batch_of_rank(1, 2)]
    [86, 2, 1]
    """
    return max(min(2, batch), -(-batch // n_ranks))


def block_size(x: Features, t: int, device: torch.device) -> int:
    """Return how many rows t networks are evaluated on at once."""
    if device.type == "cpu":
        return CPU_EVAL_ROWS
    return max(1, _EVAL_VALUES // (x[0].numel() * t))


def make_training_data(
    x: Any, candidates: Any, trials: Sequence[Trial], method: Method, purify: Purify | None, training: Training,
    views: Views | None = None, labels: Any = None, device: torch.device = torch.device("cpu"),  # noqa: B008
    prior: Prior = Prior(),  # noqa: B008 - frozen
) -> TrainingData:  # fmt: skip
    """Check the inputs of `fit` and put them on the device."""
    features = as_features(x, torch.get_default_dtype(), device, views)
    n = len(features)
    check_method(method, views, training)
    _check_rates(trials)
    rule = _stacked_rule(trials, purify, device)
    check_rule(method, rule)
    mask = read_candidates(candidates, n, len(trials), device)
    true_labels = None
    if labels is not None:
        true_labels = as_tensor(labels, torch.int64, device)
        check_labels(true_labels, n, mask.shape[2])
    rows = _stacked_rows([trial.rows for trial in trials], "rows", n, device)
    if rows is None:
        rows = torch.arange(n, device=device).expand(len(trials), -1)
    scalings = [trial.scaling for trial in trials]
    if views is not None:
        check_unscaled(scalings)
    shift, scale = _fit_scalings(features, rows, scalings)

    transforms = _Transforms()
    if views is not None:
        transforms = _make_transforms(views, method, training, rows.shape[1], device)
    return TrainingData(
        x=features,
        candidates=mask,
        prior=log_prior(prior, mask, torch.get_default_dtype()),
        allow_outside_labels=prior.slack > 0,
        labels=true_labels,
        rows=rows,
        held_out=_stacked_rows([trial.held_out for trial in trials], "held_out", n, device),
        test=_stacked_rows([trial.test for trial in trials], "test", n, device),
        shift=shift,
        scale=scale,
        lr=torch.tensor([trial.lr for trial in trials], device=device),
        weight_decay=tuple(trial.weight_decay for trial in trials),
        method=method,
        purify=rule,
        training=training,
        augment=transforms.augment,
        eval_transform=transforms.evaluate,
        compile_batch=transforms.compile_batch,
        all_rows=rows,
    )


class _Transforms(NamedTuple):
    """Transforms of images before the networks see them; rows of a table have none."""

    augment: Augment | None = None  # in training
    evaluate: Views | None = None  # in evaluation
    compile_batch: int = 0  # images of a forward for which networks are compiled; 0: they are not


def _make_transforms(
    views: Views, method: Method, training: Training, n_rows: int, device: torch.device
) -> _Transforms:
    """Return the transforms of images: on a GPU, views are accelerated, and compiled if that pays."""
    evaluate = replace(views, kinds=((Plain(), 1),))
    if device.type != "cuda":
        return _Transforms(views, evaluate)
    batch = 0  # nothing is compiled
    if worth_compiling(training, n_rows):
        batch = training.batch
    compile_batch = max(1, images_per_forward(views, batch, method))
    return _Transforms(accelerate_views(views, batch), evaluate, compile_batch)


def worth_compiling(training: Training, n_rows: int) -> bool:
    """Return whether enough steps follow to pay for compiling; the answer is the same for a run that is resumed."""
    steps_per_epoch = -(-n_rows // training.batch)
    return training.epochs * steps_per_epoch >= WORTH_COMPILING


def images_per_forward(views: Views, batch: int, method: Method) -> int:
    """Return how many images go through the network at once in a full batch: all views, or those of one."""
    if method.joint_forward:
        return batch * views.count
    return batch


def as_features(x: Any, dtype: torch.dtype, device: torch.device, views: Views | None = None) -> Features:
    """Return features, or images as they are, on the device; rows on disk stay there."""
    if views is not None:
        check_images(x, views)
    if not isinstance(x, OnDiskFeatures):
        if views is not None:
            dtype = torch.uint8
        return as_tensor(x, dtype, device)
    if views is None and (x.dtype == torch.uint8 or device.type != "cpu"):
        got = f"{x.dtype} for {device}".removeprefix("torch.")
        raise ValueError(f"a table on the disk must be float32 for the CPU; got {got}. For images, give views= too.")
    return x


def _stacked_rows(per_trial: list[NDArray[np.intp] | None], name: str, n: int, device: torch.device) -> Tensor | None:
    """Return the row numbers of t trials as one tensor [t, m]; None if no trial has any."""
    row_lists = [rows for rows in per_trial if rows is not None]
    if not row_lists:
        return None
    lengths = {len(rows) for rows in row_lists}
    if len(row_lists) < len(per_trial) or len(lengths) > 1:
        raise ValueError(f"trials of one stack must have the same number of {name}; trim them, or fit them apart.")
    rows = torch.as_tensor(np.stack(row_lists), dtype=torch.int64, device=device)
    if rows.numel() == 0 or int(rows.min()) < 0 or int(rows.max()) >= n:
        raise ValueError(f"{name} must be row numbers from 0 to {n - 1}, at least one; got {list(rows.shape)} of them.")
    return rows


def _fit_scalings(x: Features, rows: Tensor, scalings: list[str | Scaling]) -> tuple[Tensor | None, Tensor | None]:
    """Fit each trial's scaling on its training rows in double precision; return shift and scale [t, 1, ...]."""
    for scaling in scalings:
        if isinstance(scaling, str) and scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}; got {scaling!r}.")
    if all(scaling == "none" for scaling in scalings):
        return None, None
    shifts = []
    scales = []
    for scaling, trial_rows in zip(scalings, rows, strict=True):
        if isinstance(x, OnDiskFeatures):
            shift, scale = fitted_scaling(scaling, x, trial_rows)
        else:
            if isinstance(scaling, str):
                scaling = SCALINGS[scaling]
            shift, scale = scaling(x[trial_rows].double())
        shifts.append(shift)
        scales.append(scale)
    dtype = x[0].dtype
    return torch.stack(shifts)[:, None].to(dtype), torch.stack(scales)[:, None].to(dtype)


def _check_rates(trials: Sequence[Trial]) -> None:
    for trial in trials:
        if not trial.lr > 0:
            raise ValueError(f"lr must be positive; got {trial.lr}.")
        if not trial.weight_decay >= 0:
            raise ValueError(f"weight_decay must not be negative; got {trial.weight_decay}.")


def _stacked_rule(trials: Sequence[Trial], purify: Purify | None, device: torch.device) -> Purify | None:
    """Return one rule for all trials, each with its own numbers; None if none purifies."""
    rules = [trial.purify or purify for trial in trials]
    rules_that_purify = [rule for rule in rules if rule is not None]
    if not rules_that_purify:
        return None
    if len(rules_that_purify) < len(rules):
        raise ValueError("trials of one stack must all purify or none; fit them apart.")
    return stack_rules(rules_that_purify, device)
