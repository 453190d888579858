"""A method's loss and what it remembers of every row, as a PyTorch criterion."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from oneof.losses.inputs import as_log_prior, as_mask, as_method
from oneof.losses.network import (
    Autocast,
    GivenLogits,
    GivenOutputs,
    added_parts,
    at_least_float32,
    extend_network,
    needs_network,
)
from oneof.losses.tables import LastPositions, TableModule, WriteLog, put_rows, world_size
from oneof.methods.base import Batch, Memory, Method, leaves, tree_map

_log = logging.getLogger(__name__)
REDUCTIONS = ("mean", "sum", "none")
PATIENCE = 5  # passes over the data without the call that ends an epoch, after which a warning is logged


class Observer(Protocol):
    """Interface of `Purifier` that a criterion calls."""

    def is_observing(self) -> bool: ...

    def add(self, logits: Tensor, candidates: Tensor, at: Tensor, last: Tensor | None) -> None: ...


class BatchRows(NamedTuple):
    """The rows of a batch."""

    at: Tensor  # [b] row numbers, on the device of the tables
    candidates: Tensor  # [b, c]
    memory: Memory  # rows [b, ...]
    log_prior: Tensor | None  # [b, c]


class CandidateLoss(TableModule):
    """Loss of a classifier whose training rows each have a set of candidate labels, one of which is right.

    The criterion holds the sets and what the method remembers of every row; a batch is named by its row numbers:

        criterion = oneof.CandidateLoss("proden", candidates)
        for index, x in loader:
            loss = criterion(net(x), index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    Memory is updated from the logits that gave the loss. Methods that update it after the step (RC, LWS, CAVL) need one more line
    there: `criterion.update(net(x), index)`. Nothing is remembered in evaluation mode or without gradients. Where a method counts
    epochs (RCR, PiCO, VALEN, balanced PRODEN), call `criterion.next_epoch()` at the end of each; `Purifier.step` does so.

    Parameters
    ----------
    method
        A key of `oneof.METHODS`, or an instance of a `oneof.Method`.
    candidates
        Mask [n, c] of bool or 0/1: a tensor, an array, a sparse matrix of torch or SciPy, or what `oneof.read` returns. Its columns are the
        network's outputs.
    prior
        Weights [n, c] of the labels, such as counts of votes. Methods that weigh candidates weigh by prior x posterior.
    network
        For PiCO and VALEN: the module that is trained, with `body` (features [b, width]), `width` and `head` (linear). The parts that
        the method adds are parameters of the criterion: give them to the optimizer, too.
    input_shape
        For PiCO and VALEN: the shape of an example.
    reduction
        "mean" over the rows that are not ignored, "sum" or "none".
    ignore_index
        Rows of a batch with this index have no loss and are not remembered. None: every index must be a row number.
    after_step
        Whether memory is written by `update` alone. Default: as the method says. Set it where the forward that gives the loss sees altered
        inputs, such as mixup or noise.

    >>> criterion = CandidateLoss("proden", torch.tensor([[True, True, False], [False, True, True]]))
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    >>> round(criterion(logits, torch.tensor([0, 1])).item(), 3)
    1.169
    >>> criterion.memory
    tensor([[0.8808, 0.1192, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """

    def __init__(
        self, method: str | Method, candidates: Any, prior: Any = None, *, network: Any = None,
        input_shape: tuple[int, ...] | None = None, reduction: str = "mean", ignore_index: int | None = None,
        after_step: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}.")
        self.method = as_method(method)
        self.reduction = reduction
        self.ignore_index = ignore_index
        if after_step is None:
            after_step = self.method.after_step
        self.after_step = after_step
        self.tables["candidates"] = as_mask(candidates)
        if prior is not None:
            self.tables["log_prior"] = as_log_prior(prior, self.candidates)
            if not self.method.uses_prior:
                name = type(self.method).__name__
                _log.warning(
                    f"{name} has no weights that follow the classifier: it does not use the prior.", stacklevel=2
                )
        self._memory_names = self._init_memory()
        self._shared_names: list[str] = []
        # in a tuple, so that the user's network does not become a part of this module
        self._extended: tuple[torch.nn.Module, ...] = ()
        if needs_network(self.method):
            self._add_network(network, input_shape)
        self._last_positions = LastPositions(len(self.candidates))
        self._memory_log = WriteLog(len(self.candidates))
        self._features_log = WriteLog(len(self.candidates))
        self.observer: Observer | None = None
        self._rows_this_epoch = 0
        self._rows_since_update = 0
        self._begin_epoch()

    @property
    def candidates(self) -> Tensor:
        """Return the bool mask [n, c] of the labels that are left; `Purifier` removes labels from it."""
        return self.tables["candidates"]

    @property
    def memory(self) -> Memory:
        """Return what the method remembers of every row [n, ...]: a tensor, a tuple of tensors, or ()."""
        if self._memory_names == ["memory"]:
            return self.tables["memory"]
        return tuple(self.tables[name] for name in self._memory_names)

    @property
    def shared(self) -> tuple[Tensor, ...]:
        """Return what the method keeps that belongs to no row, such as PiCO's queue, prototypes and momentum weights."""
        return tuple(self.tables[name] for name in self._shared_names)

    def forward(self, logits: Tensor, index: Any, *, features: Any = None, views: Any = None) -> Tensor:
        """Return the loss of a batch, and remember it in training mode.

        Parameters
        ----------
        logits
            [b, c]; or [v, b, c] of v views, the plain one first. The loss is then the mean over the views, or what the method
            makes of them (RCR); memory is that of view 0.
        index
            [b] row numbers in the candidates.
        features
            For PiCO and VALEN: [b, width], what the body of the network gave for view 0; for VALEN with logits of several views
            [v, b, width].
        views
            For PiCO and VALEN: the inputs of the batch. (query, key) or [2, b, ...] for PiCO, [b, ...] or [v, b, ...] for VALEN.
        """
        self._check_logits(logits)
        at, positions = self._locate(index, logits.shape[-2])
        if self._extended:
            features, views = self._inputs(features, views, logits.shape[-2])
        if positions is None:
            return self._reduce(self._losses(logits, at, features, views))
        losses = logits.new_zeros(logits.shape[-2], dtype=at_least_float32(logits).dtype)
        if len(positions) > 0:
            if self._extended:
                features = features.index_select(1, positions)
                views = views.index_select(1, positions)
            of_kept = self._losses(logits.index_select(-2, positions), at, features, views)
            losses = losses.index_copy(0, positions, of_kept)
        else:
            losses = losses + 0.0 * logits.sum()  # so that backward works
        return self._reduce(losses, len(positions))

    @torch.no_grad()
    def update(self, logits: Tensor, index: Any) -> None:
        """Update memory from logits [b, c], or [v, b, c], of a second forward, after the optimizer's step.

        Methods whose `after_step` is set (RC, LWS, CAVL) are updated by this call alone. In evaluation mode nothing is written.
        """
        if not self.training:
            return
        self._check_logits(logits)
        at, positions = self._locate(index, logits.shape[-2])
        if positions is not None:
            logits = logits.index_select(-2, positions)
        with Autocast(logits.device).off():
            self._update(at_least_float32(logits), self._rows(at))
        self._rows_since_update = 0

    @torch.no_grad()
    def observe(self, logits: Tensor, index: Any) -> None:
        """Show logits [b, c] of rows to the purifier; `Purifier.observe` calls this."""
        self._check_logits(logits)
        at, positions = self._locate(index, logits.shape[-2])
        if positions is not None:
            logits = logits.index_select(-2, positions)
        if self.observer is not None:
            self._show(self.observer, at_least_float32(logits), self._rows(at), self._last_positions(at))

    def next_epoch(self) -> None:
        """End an epoch: merge what several processes remembered, and do what the method does before the next one."""
        self.sync()
        self.epoch += 1
        self._rows_this_epoch = 0
        self._begin_epoch()

    @torch.no_grad()
    def sync(self) -> None:
        """Merge the rows that the processes of `torch.distributed` have written; of several writers of a row, the last one counts.

        What belongs to no row, such as PiCO's queue, becomes that of rank 0. Every process must call it. In one process it does nothing.
        """
        if world_size() == 1:
            return
        self._memory_log.merge(list(leaves(self.memory)))
        if "features" in self.tables:
            self._features_log.merge([self.tables["features"], self.tables["has_features"]])
        for table in self.shared:
            distributed.broadcast(table, src=0)

    @torch.no_grad()
    def set_features(self, features: Tensor, index: Any) -> None:
        """Store features [b, width] of rows, from which VALEN finds each row's neighbours when its warm-up ends.

        The features given with every batch are stored, too; call this in evaluation mode for those of the trained network.
        """
        at, positions = self._locate(index, len(features))
        if positions is not None:
            features = features.index_select(0, positions)
        self._put_features(at, features)

    def extra_repr(self) -> str:
        n, c = self.candidates.shape
        return f"{self.method}, rows={n}, classes={c}, reduction={self.reduction!r}"

    def _init_memory(self) -> list[str]:
        """Create the tables of the method's memory and return their names."""
        if self.method.uses_prior and "log_prior" in self.tables:
            memory = self.method.init(self.candidates, self.tables["log_prior"])
        else:
            memory = self.method.init(self.candidates)
        names = ["memory"]
        if isinstance(memory, tuple):
            names = [f"memory_{number}" for number in range(len(memory))]
        for name, table in zip(names, leaves(memory), strict=True):
            self.tables[name] = table
        return names

    def _add_network(self, network: Any, input_shape: tuple[int, ...] | None) -> None:
        """Build what the method adds to the network: parts, which are this module's, and state made from the weights."""
        n, c = self.candidates.shape
        if isinstance(network, DistributedDataParallel):
            network = network.module
        module = extend_network(self.method, network, c, input_shape)
        for name, part in added_parts(module, network).items():
            self.add_module(name, part)
        self._extended = (module,)
        self._input_shape = tuple(input_shape or ())
        for number, table in enumerate(self.method.shared(GivenOutputs(module))):
            self.tables[f"shared_{number}"] = table
            self._shared_names.append(f"shared_{number}")
        if type(self.method).refresh is not Method.refresh:
            self.tables["features"] = torch.zeros(n, int(network.width), device=self.candidates.device)
            self.tables["has_features"] = torch.zeros(n, dtype=torch.bool, device=self.candidates.device)

    def _check_logits(self, logits: Tensor) -> None:
        c = self.candidates.shape[1]
        if logits.dim() not in (2, 3) or logits.shape[-1] != c:
            raise ValueError(
                f"logits must be [b, {c}], or [v, b, {c}] of several views, for candidates of {c} classes; got {list(logits.shape)}."
            )

    def _locate(self, index: Any, b: int) -> tuple[Tensor, Tensor | None]:
        """Return row numbers on the device of the tables and, where some are to be ignored, the positions in the batch of the others."""
        index = torch.as_tensor(index)
        if index.shape != (b,) or index.is_floating_point() or index.dtype == torch.bool:
            raise ValueError(
                f"index must hold the number of each of the batch's {b} rows; got {index.dtype} of shape {list(index.shape)}."
            )
        index = index.long()
        positions = None
        if self.ignore_index is not None:
            positions = (index != self.ignore_index).nonzero().squeeze(1)
            index = index.index_select(0, positions)
        self._check_range(index)
        device = self.candidates.device
        if positions is not None:
            positions = positions.to(device, non_blocking=True)
        return index.to(device, non_blocking=True), positions

    def _check_range(self, index: Tensor) -> None:
        n = len(self.candidates)
        remedy = "Number the rows as the candidates are, or set ignore_index= for rows without a set."
        needed = f"index must hold row numbers from 0 to {n - 1}, the rows of the candidates"
        if index.is_cuda:  # without waiting for the device
            is_inside = (index.clamp(0, n - 1) == index).all()
            torch._assert_async(is_inside, f"{needed}. {remedy}")
            return
        if len(index) == 0:
            return
        lowest, highest = index.aminmax()
        if int(lowest) < 0 or int(highest) >= n:
            position = int(((index < 0) | (index >= n)).nonzero()[0])
            raise IndexError(f"{needed}; got {int(index[position])} at position {position} of the batch. {remedy}")

    def _inputs(self, features: Tensor | None, views: Any, b: int) -> tuple[Tensor, Tensor]:
        """Return features [v, b, width] and views [v, b, ...] of a method that adds parts to the network."""
        name = type(self.method).__name__
        count = self.method.views
        if features is None or views is None:
            example = "(x0, x1)"
            if count == 1:
                example = "x"
            raise TypeError(
                f"{name} needs features= [b, width] of view 0 and views=, the inputs of the batch. Call "
                f"criterion(logits, index, features=features, views={example})."
            )
        if not isinstance(views, Tensor):
            views = torch.stack(list(views))
        if views.dim() == 1 + len(self._input_shape):
            views = views[None]
        expected = (b, *self._input_shape)
        if views.shape[1:] != expected:
            raise ValueError(
                f"views must be {list(expected)} each, by the batch and input_shape; got {list(views.shape)}."
            )
        if len(views) != count and not (count == 1 and self.method.joint_forward):
            raise ValueError(f"{name} needs {count} views; got {len(views)}.")
        return _with_view_axis(features), views

    def _rows(self, at: Tensor) -> BatchRows:
        """Gather the rows of a batch."""
        log_prior = None
        if "log_prior" in self.tables:
            log_prior = self.tables["log_prior"].index_select(0, at)
        return BatchRows(
            at=at,
            candidates=self.candidates.index_select(0, at),
            memory=tree_map(lambda table: table.index_select(0, at), self.memory),
            log_prior=log_prior,
        )

    def _losses(self, logits: Tensor, at: Tensor, features: Tensor | None, views: Any) -> Tensor:
        """Return the loss [b] of rows of the data, and remember them in training."""
        remembers = self.training and torch.is_grad_enabled()
        autocast = Autocast(logits.device)
        with autocast.off():
            logits = at_least_float32(logits)
            rows = self._rows(at)
            if type(self.method).step is Method.step:
                losses = self._loss(logits, rows, remembers)
            else:
                losses = self._step(logits, rows, remembers, features, views, autocast)
        if remembers:
            self._count_rows(len(at))
        return losses

    def _loss(self, logits: Tensor, rows: BatchRows, remembers: bool) -> Tensor:
        """Return the loss [b] of a method that has `loss` and `update`."""
        loss = self.method.loss(logits, rows.candidates, rows.memory)
        if logits.dim() == 3:
            loss = loss.mean(0)
        if remembers and not self.after_step:
            with torch.no_grad():
                self._update(logits.detach(), rows)
        return loss

    def _update(self, logits: Tensor, rows: BatchRows) -> None:
        if logits.dim() == 3:
            logits = logits[0]
        weighed = logits
        if self.method.uses_prior and rows.log_prior is not None:
            weighed = logits + rows.log_prior
        memory = self.method.update(weighed, rows.candidates, rows.memory)
        self._remember(logits, rows, memory)

    def _step(
        self, logits: Tensor, rows: BatchRows, remembers: bool, features: Any, views: Any, autocast: Autocast
    ) -> Tensor:
        """Return the loss [b] of a method that has a `step`, with an axis of one trial as in `oneof.fit`."""
        net: GivenLogits | GivenOutputs = GivenLogits()
        inputs = _with_view_axis(logits)
        if self._extended:
            net = self._with_outputs(logits, features, views, autocast)
            inputs = views
        elif len(inputs) != self.method.views:
            name = type(self.method).__name__
            count = self.method.views
            raise ValueError(f"{name} needs logits [{count}, b, c] of {count} views; got {list(logits.shape)}.")
        prior = None
        if self.method.uses_prior and rows.log_prior is not None:
            prior = rows.log_prior[None]
        batch = Batch(
            candidates=rows.candidates[None],
            memory=tree_map(lambda part: part[None], rows.memory),
            epoch=torch.full((), self.epoch, device=logits.device),
            generators=[_default_generator(logits.device)],
            prior=prior,
        )
        done = self.method.step(net, inputs[:, None], batch, self.shared)
        if remembers:
            self._remember_step(done.logits[0], rows, tree_map(lambda part: part[0], done.memory), done.shared)
            if features is not None and "features" in self.tables:
                self._put_features(rows.at, features[0].detach())
        return done.loss[0]

    def _with_outputs(self, logits: Tensor, features: Any, views: Tensor, autocast: Autocast) -> GivenOutputs:
        """Return the network with what it gave for view 0 or, where the method sees all views together, for all of them."""
        count = 1
        if self.method.joint_forward:
            count = len(views)
        logits = _with_view_axis(logits)
        if len(logits) != count or len(features) != count:
            name = type(self.method).__name__
            needed = "view 0"
            if count > 1:
                needed = f"{count} views"
            raise ValueError(
                f"{name} needs logits and features of {needed}; got {list(logits.shape)} and {list(features.shape)}."
            )
        (module,) = self._extended
        with autocast.restored():
            flat = [tensor[:count].flatten(0, 1) for tensor in (views, features, logits)]
            outputs = module.outputs(*flat)  # type: ignore[operator]
        return GivenOutputs(module, outputs, autocast)

    @torch.no_grad()
    def _remember_step(self, logits: Tensor, rows: BatchRows, memory: Memory, shared: tuple[Tensor, ...]) -> None:
        if not self.after_step:
            self._remember(logits, rows, memory)
        for name, table in zip(self._shared_names, shared, strict=True):
            self.tables[name] = table.detach()

    def _remember(self, logits: Tensor, rows: BatchRows, memory: Memory) -> None:
        """Write the memory of a batch, and show its logits [b, c] to the purifier."""
        observer = self.observer
        is_observing = observer is not None and observer.is_observing()
        if not self._memory_names and not is_observing:
            return
        last = self._last_positions(rows.at)
        self._memory_log.mark(rows.at)
        for table, new in zip(leaves(self.memory), leaves(memory), strict=True):
            put_rows(table, rows.at, new, last)
        if observer is not None and is_observing:
            self._show(observer, logits, rows, last)

    def _show(self, observer: Observer, logits: Tensor, rows: BatchRows, last: Tensor | None) -> None:
        """Show logits [b, c], weighed by the prior, to the purifier."""
        if rows.log_prior is not None:
            logits = logits + rows.log_prior
        observer.add(logits, rows.candidates, rows.at, last)

    def _put_features(self, at: Tensor, features: Tensor) -> None:
        self._features_log.mark(at)
        put_rows(self.tables["features"], at, features, self._last_positions(at))
        self.tables["has_features"].index_fill_(0, at, True)

    def _reduce(self, losses: Tensor, count: int | None = None) -> Tensor:
        """Reduce losses [b]; of rows to ignore they are zero, and `count` is the number of the others."""
        if self.reduction == "none":
            return losses
        if self.reduction == "sum":
            return losses.sum()
        if count is None:
            return losses.mean()
        return losses.sum() / max(count, 1)

    @torch.no_grad()
    def _begin_epoch(self) -> None:
        """Do what the method does to whole tables before an epoch."""
        memory = tree_map(lambda table: table[None], self.memory)
        memory = self.method.on_epoch_start(memory, lambda rows: rows.mean(1, keepdim=True))
        shared = self.shared
        if type(self.method).refresh is not Method.refresh:
            net: Any = GivenLogits()
            if self._extended:
                net = GivenOutputs(self._extended[0])
            memory, shared = self.method.refresh(net, self._all_features, memory, shared, self.epoch)
        for name, table in zip(self._memory_names, leaves(memory), strict=True):
            self.tables[name] = table[0]
        for name, table in zip(self._shared_names, shared, strict=True):
            self.tables[name] = table

    def _all_features(self) -> Tensor:
        """Return the features [1, n, width] of all rows."""
        missing = (~self.tables["has_features"]).nonzero()
        if len(missing):
            n = len(self.candidates)
            raise ValueError(
                f"{type(self.method).__name__} needs the features of every row when its warm-up ends; {len(missing)} of {n} rows were in "
                f"no batch, first row {int(missing[0])}. Build the criterion from the rows that you train on, or call set_features."
            )
        return self.tables["features"][None]

    def _count_rows(self, b: int) -> None:
        """Log a warning, once, where a call that the method needs is missing from the loop."""
        n = len(self.candidates)
        self._rows_this_epoch += b
        self._rows_since_update += b
        if self.after_step and n < self._rows_since_update <= n + b:
            _log.warning(
                f"{type(self.method).__name__} has not been updated for a whole epoch: its memory is still that of the start. Call "
                "criterion.update(net(x), index) after optimizer.step()."
            )
        if PATIENCE * n < self._rows_this_epoch <= PATIENCE * n + b and self._counts_epochs():
            name = "Purifier"
            call = "purifier.step()"
            if self.observer is None:
                name = type(self.method).__name__
                call = "criterion.next_epoch()"
            _log.warning(
                f"{name} counts epochs, and none has ended after {PATIENCE} passes over the rows. "
                f"Call {call} at the end of each."
            )

    def _counts_epochs(self) -> bool:
        kind = type(self.method)
        by_method = (
            kind.step is not Method.step
            or kind.on_epoch_start is not Method.on_epoch_start
            or kind.refresh is not Method.refresh
        )
        return by_method or self.observer is not None or world_size() > 1


def _with_view_axis(tensor: Tensor) -> Tensor:
    """Return outputs [b, ...] of one view as [1, b, ...]; those of several views [v, b, ...] as they are."""
    if tensor.dim() == 3:
        return tensor
    return tensor[None]


def _default_generator(device: torch.device) -> torch.Generator:
    """Return torch's own generator of a device: what a step draws comes from where dropout draws."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
