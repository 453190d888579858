"""What a stack of trials is to learn, checked at the border and laid out on the device: it stays the same during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.augment.views import Augment, Part, Plain, Views
from oneof.data.on_disk import Features, RowsOnDisk, fitted_scaling
from oneof.data.scaling import SCALINGS, Scaling
from oneof.methods.base import Method, first, tree_map
from oneof.networks import Network
from oneof.networks.cuda.accelerate import accelerate_views
from oneof.purify import Purify, stacked
from oneof.training.checks import check_images, check_labels, check_method, check_rule, check_unscaled
from oneof.training.prior import Prior, log_prior
from oneof.training.processes import ProcessGroup
from oneof.training.set_input import as_tensor, read_candidates
from oneof.training.stack import Stack
from oneof.training.tables import flat_index, gather_rows
from oneof.training.trials import Training, Trial

WORTH_COMPILING = 20_000  # steps of LeNet save what compiling it takes: docs/decisions/0004-speed-on-the-card.md


class TrainingData(NamedTuple):
    """What stays the same during training: data, rows and rates of t trials on one device."""

    x: Features  # [n, ...]
    candidates: Tensor  # as given, [1, n, c], or [t, n, c] where trials have their own
    prior: Tensor | None  # log of how much votes speak for each label, as `oneof.training.prior` makes it
    open: bool  # may a label that is in no set be right? Then methods see every label but those that fell
    labels: Tensor | None  # [n], for reporting only
    rows: Tensor  # [t, m] to train on
    held_out: Tensor | None  # [t, k]
    test: Tensor | None  # [t, l]
    shift: Tensor | None  # [t, 1, ...] features are scaled as they are gathered: (x - shift) * scale
    scale: Tensor | None
    lr: Tensor  # [t]
    weight_decay: tuple[float, ...]  # of each trial
    method: Method
    purify: Purify | None
    training: Training
    augment: Augment | None  # how images are varied for training; None for tables
    look: Views | None  # how they are seen otherwise: normalised only
    compile_batch: int  # images that a compiled network sees together in a full batch: all views, or those of one; 1: none is; 0 or less: see `Stack`
    all_rows: Tensor  # [t, m] rows to train on, of all processes
    group: ProcessGroup = ProcessGroup()  # processes that train together; `rows` are then those that this one owns

    def features(self, rows: Tensor) -> Tensor:
        """What the networks see of rows [t, b] when nothing is varied: scaled features, or the images normalised [t, b, ...]."""
        x = self.x.index_select(0, rows.reshape(-1))
        if self.look is not None:
            return self.look.apply(x, (None,)).view(*rows.shape, *self.x.shape[1:])
        x = x.view(*rows.shape, *self.x.shape[1:])
        return x if self.shift is None or self.scale is None else (x - self.shift) * self.scale

    def views(self, rows: Tensor, generators: list[torch.Generator], parts: Sequence[Part] | None = None) -> Tensor:
        """What networks are trained on [v, t, b, ...]: of images every view, with its own draws; of features one."""
        if self.augment is None:
            return self.features(rows)[None]
        draws = zip(rows, generators, parts or [None] * len(rows), strict=True)  # type: ignore[list-item]
        return torch.stack([self.augment(self.x[one], g, part) for one, g, part in draws], dim=1)

    @property
    def total(self) -> int:
        """Rows to train on, of all processes."""
        return self.all_rows.shape[1]

    @property
    def classes(self) -> int:
        return self.candidates.shape[2]

    def network(self, make: Network) -> nn.Module:
        """A network that `make` builds, as the method trains it."""
        shape = tuple(self.x.shape[1:])
        return self.method.network(make(shape, self.classes), self.classes, shape)

    @property
    def drawn_at(self) -> torch.device:
        """Where is drawn: on the CPU, for the same numbers on every device, unless steps draw too, which is done where they run."""
        in_steps = self.augment or self.training.noise or type(self.method).step is not Method.step
        return self.lr.device if in_steps else torch.device("cpu")

    def shared_with(self, group: ProcessGroup) -> TrainingData:
        """The part of the problem that one of several processes works on: the rows that it owns."""
        first, end = group.local_range(self.total)
        compile_batch = self.compile_batch if group.size == 1 else -min(self.compile_batch, 1)
        return self._replace(rows=self.rows[:, first:end].contiguous(), group=group, compile_batch=compile_batch)

    def sets(self, rows: Tensor) -> Tensor:
        """The sets as given [t, b, c] of rows [t, b]."""
        return gather_rows(self.candidates, self._given_at(self.candidates, rows))

    def training_candidates(self) -> Tensor:
        """The sets of the training rows [t, m, c] as a copy to be written to."""
        return gather_rows(self.candidates, self._given_at(self.candidates, self.rows))

    def visible_candidates(self, left: Tensor, rows: Tensor) -> Tensor:
        """What methods see of the sets [t, b, c] that are left of rows [t, b]: where they are open, every label but those that fell."""
        return left | ~self.sets(rows) if self.open else left

    def init_memory(self, left: Tensor) -> Any:
        """What the method remembers before training, of the sets of its rows."""
        if self.group.size > 1:  # a method's `init` may look at several rows
            all_rows, own_rows = (
                self._replace(rows=self.all_rows, group=ProcessGroup()),
                slice(*self.group.local_range(self.total)),
            )
            memory = all_rows.init_memory(all_rows.training_candidates())
            return tree_map(lambda table: table[:, own_rows].clone(), memory)
        prior = self.prior if self.method.uses_prior else None
        seen = self.visible_candidates(left, self.rows)
        if prior is None:
            return self.method.init(seen)
        return self.method.init(seen, gather_rows(prior, self._given_at(prior, self.rows)))

    def log_prior_of(self, rows: Tensor) -> Tensor | None:
        """The log prior [t, b, c] of rows [t, b]."""
        return None if self.prior is None else gather_rows(self.prior, self._given_at(self.prior, rows))

    def _given_at(self, table: Tensor, rows: Tensor) -> Tensor:
        return flat_index(rows, len(self.x)) if table.shape[0] > 1 else rows

    def logits(self, stack: Stack, rows: Tensor) -> Tensor:
        """Logits [t, k, c] of rows [t, k] in evaluation mode; a group's processes share them out."""
        return self.outputs(stack, rows[:, slice(*self.group.local_range(rows.shape[1]))])

    def outputs(self, stack: Stack, own: Tensor, part: str = "") -> Tensor:
        """What the networks, or a part of them, give of every process's own rows, in evaluation mode and in blocks."""
        size = block_size(self.x, len(own))
        with stack.eval_mode():
            starts = range(0, max(own.shape[1], 1), size)
            blocks = [first(stack(self.features(own[:, start : start + size]), part)) for start in starts]
        return self.group.gathered_rows(torch.cat(blocks, dim=1))


def block_size(x: Features, t: int) -> int:
    """How many rows t networks look at together when nothing is learned: some megabytes of input, so that layers fit too."""
    return max(1, 2**23 // (x[0].numel() * t))


def make_training_data(
    x: Any, candidates: Any, trials: Sequence[Trial], method: Method, purify: Purify | None, training: Training,
    views: Views | None = None, labels: Any = None, device: torch.device = torch.device("cpu"),  # noqa: B008
    prior: Prior = Prior(),  # noqa: B008 - frozen
) -> TrainingData:  # fmt: skip
    """Check the inputs of `fit` and put them on the device."""
    features = as_features(x, torch.get_default_dtype(), device, views)
    n = len(features)
    check_method(method, views, training.alters_input)
    _check_rates(trials)
    rule = _rule(trials, purify, device)
    check_rule(method, rule)
    sets = read_candidates(candidates, n, len(trials), device)
    truth = None if labels is None else as_tensor(labels, torch.int64, device)
    if truth is not None:
        check_labels(truth, n, sets.shape[2])
    rows = _rows([trial.rows for trial in trials], "rows", n, device)
    if rows is None:
        rows = torch.arange(n, device=device).expand(len(trials), -1)
    kinds = [trial.scaling for trial in trials]
    if views is not None:
        check_unscaled(kinds)
    shift, scale = _scaling(features, rows, kinds)
    held_out, test = (_rows([getattr(trial, of) for trial in trials], of, n, device) for of in ("held_out", "test"))
    lr = torch.tensor([one.lr for one in trials], device=device)
    batch = training.batch if worth_compiling(training, rows.shape[1]) else 0  # that is compiled for; 0: none is
    augment: Augment | None = views
    if views is not None and device.type == "cuda":
        augment = accelerate_views(views, batch)
    return TrainingData(
        x=features, candidates=sets, prior=log_prior(prior, sets, torch.get_default_dtype()), open=prior.slack > 0,
        labels=truth, rows=rows, held_out=held_out, test=test, shift=shift, scale=scale, lr=lr,
        weight_decay=tuple(one.weight_decay for one in trials), method=method, purify=rule,
        training=training, all_rows=rows, augment=augment,
        look=views and replace(views, kinds=((Plain(), 1),)),
        compile_batch=max(1, images_per_forward(views, batch, method)) if views and device.type == "cuda" else 0,
    )  # fmt: skip


def worth_compiling(training: Training, rows: int) -> bool:
    """Do enough steps follow? The answer is the same for a run that is resumed."""
    return training.epochs * -(-rows // training.batch) >= WORTH_COMPILING


def images_per_forward(views: Views, batch: int, method: Method) -> int:
    """How many images a network sees at once in a full batch: all views of a method that puts them through as one, else those of one."""
    return batch * views.count if method.joint_forward else batch


def as_features(x: Any, dtype: torch.dtype, device: torch.device, views: Views | None = None) -> Features:
    """Features on the device; images as they are; or left where they lie, on the disk."""
    if views is not None:
        check_images(x, views)
    if not isinstance(x, RowsOnDisk):
        return as_tensor(x, dtype if views is None else torch.uint8, device)
    if views is None and (x.dtype == torch.uint8 or device.type != "cpu"):
        given = f"{x.dtype} for {device}".removeprefix("torch.")
        raise ValueError(f"a table on the disk must be float32 for the CPU; got {given}. Of images give views= too.")
    return x


def _rows(per_trial: list[NDArray[np.intp] | None], name: str, n: int, device: torch.device) -> Tensor | None:
    """Row numbers of t trials as one tensor [t, m]."""
    given = [rows for rows in per_trial if rows is not None]
    if not given:
        return None
    if len(given) < len(per_trial) or len({len(rows) for rows in given}) > 1:
        raise ValueError(f"trials of one stack must have the same number of {name}; trim them, or fit them apart.")
    rows = torch.as_tensor(np.stack(given), dtype=torch.int64, device=device)
    if rows.numel() == 0 or int(rows.min()) < 0 or int(rows.max()) >= n:
        raise ValueError(f"{name} must be row numbers from 0 to {n - 1}, at least one; got {list(rows.shape)} of them.")
    return rows


def _scaling(x: Features, rows: Tensor, kinds: list[str | Scaling]) -> tuple[Tensor | None, Tensor | None]:
    """An affine map per trial, fitted on its training rows in double precision."""
    unknown = next((kind for kind in kinds if isinstance(kind, str) and kind not in SCALINGS), None)
    if unknown is not None:
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}; got {unknown!r}.")
    if all(kind == "none" for kind in kinds):
        return None, None
    maps = []
    for kind, own in zip(kinds, rows, strict=True):
        fit = SCALINGS[kind] if isinstance(kind, str) else kind
        maps.append(fitted_scaling(kind, x, own) if isinstance(x, RowsOnDisk) else fit(x[own].double()))
    shift, scale = (torch.stack(part)[:, None].to(x[0].dtype) for part in zip(*maps, strict=True))
    return shift, scale


def _check_rates(trials: Sequence[Trial]) -> None:
    for trial in trials:
        if not trial.lr > 0:
            raise ValueError(f"lr must be positive; got {trial.lr}.")
        if not trial.weight_decay >= 0:
            raise ValueError(f"weight_decay must not be negative; got {trial.weight_decay}.")


def _rule(trials: Sequence[Trial], purify: Purify | None, device: torch.device) -> Purify | None:
    rules = [trial.purify or purify for trial in trials]
    given = [rule for rule in rules if rule is not None]
    if given and len(given) < len(rules):
        raise ValueError("trials of one stack must all purify or none; fit them apart.")
    return stacked(given, device) if given else None
