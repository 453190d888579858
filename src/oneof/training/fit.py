"""Fit trials: check inputs, divide trials into stacks, train, save and resume them, and keep the best epoch."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.augment.views import Views
from oneof.data.on_disk import Features, OnDiskFeatures
from oneof.methods import Method, Proden
from oneof.metrics import CRITERIA
from oneof.networks import MLP, Network
from oneof.purify import Purify
from oneof.storage.progress import progress_bar
from oneof.storage.settings import to_serializable
from oneof.training.checkpoint import Checkpointer, fingerprint, plan_stacks
from oneof.training.checks import check_last_batch, check_views, probe_network
from oneof.training.device import checked_device, free_memory, to_local_gpu
from oneof.training.interrupt import interrupt_deferred
from oneof.training.loop import begin, steps
from oneof.training.prior import Prior
from oneof.training.processes import ProcessGroup, check_rows, run_distributed
from oneof.training.set_input import check_memory, read_candidates
from oneof.training.stack import build
from oneof.training.state import BestEpoch, Fit, Record, join_fits
from oneof.training.training_data import TrainingData, as_features, batch_of_rank, drawn_rows, make_training_data
from oneof.training.trials import Training, Trial

_log = logging.getLogger(__name__)

BYTES_PER_LABEL = 19
"""Of a row's label, roughly: candidates 1, memory 4, POP's sum 4, its removals 6, and 4 more while they change."""


def fit(
    x: Any, candidates: Any, *, trials: Sequence[Trial] = (Trial(),), method: Method = Proden(),  # noqa: B008 - frozen
    purify: Purify | None = None, network: Network = MLP(), training: Training = Training(),  # noqa: B008 - frozen
    views: Views | None = None, prior: Any = None, slack: float = 0.0, labels: Any = None, choose: str = "last",
    device: str | torch.device = "cpu", progress: str | None = None, memory: int | None = None,
    checkpoint: str | Path | None = None, every: float = 30.0, n_jobs: int | None = None,
) -> Fit:  # fmt: skip
    """Train t trials at once.

    Parameters
    ----------
    x
        Features [n, ...]; `oneof.data.on_disk.OnDiskFeatures` for those that do not fit in memory, and for images that do not fit the device.
    candidates
        Bool mask [n, c], or [t, n, c] where every trial has its own sets; or a SciPy sparse matrix [n, c], or for every row a list
        of label numbers (None: nothing is known). They are kept as dense masks; what does not fit in memory is refused.
    trials
        Seeds, rows and rates; every trial gives what it would give alone.
    method, purify, network, training
        What is learned, whether POP purifies the sets, by which network, and how.
    views
        How images are augmented. With it x is uint8 [n, channels, height, width], on the device too.
    prior
        Evidence of votes for each label [n, c], such as counts; dense or SciPy sparse. Methods that weight candidates weight them by
        prior x posterior, and POP compares these products. None: all labels of a set are equally likely before training.
    slack
        With a prior: number of votes that is assumed for a label that nobody named. 0: it cannot be right.
    labels
        True labels [n], for reporting; used by nothing else unless choose="oracle".
    choose
        Which epoch is kept: the "last"; or the best by one of `oneof.metrics.CRITERIA`, or by the "oracle", which looks at true
        labels. All but "last" need `held_out` rows in every trial.
    device
        Where to train.
    progress
        Show a bar with this title.
    memory
        Bytes that a stack may take; more trials than fit are trained in several stacks. Default: half of what is free.
    checkpoint
        Folder in which the run is saved, every `every` seconds and on Ctrl-C, once the current step is done. The same call resumes
        from it, wherever it was killed, and ends with the numbers of an uninterrupted run.
    n_jobs
        Number of processes. Trials are dealt out among them and give what one process gives, up to rounding. Where there are fewer trials
        on images than processes, these are the ranks of distributed data-parallel training: each owns a share of the rows with
        their sets and memory, draws its part of every batch from it, and gradients are averaged. That gives the accuracy of one
        process, not its bits. With device "cuda" each takes the GPU of its rank. Default: those that torchrun, SLURM or
        Ray Train started, else one. New ones are started by spawning, so a script that asks for them needs
        `if __name__ == "__main__":`.

    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> x, labels = make_blobs(n_samples=200, centers=3, random_state=0)
    >>> result = fit(x, np.eye(3, dtype=bool)[labels], training=Training(epochs=20))
    >>> (result.logits(x)[0].argmax(-1).numpy() == labels).mean() > 0.8
    np.True_
    """
    request = FitRequest(
        trials=trials,
        method=method,
        purify=purify,
        network=network,
        training=training,
        views=views,
        prior=Prior(prior, slack),
        labels=labels,
        choose=choose,
        device=device,
        progress=progress,
        memory=memory,
        checkpoint=checkpoint,
        every=every,
    )
    return run_distributed(partial(_fit, x, candidates, request), n_jobs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FitRequest:
    """Hold the arguments of `fit`, but for the data and the number of processes."""

    trials: Sequence[Trial]
    method: Method
    purify: Purify | None
    network: Network
    training: Training
    views: Views | None
    prior: Prior
    labels: Any
    choose: str
    device: str | torch.device
    progress: str | None
    memory: int | None
    checkpoint: str | Path | None
    every: float


class _FitInputs(NamedTuple):
    """The inputs of `fit`, checked and on the device, and the stacks in which its trials are trained."""

    request: FitRequest
    training: Training  # with the rows of a batch that this process draws
    features: Features
    mask: Tensor  # candidate sets [t or 1, n, c]
    device: torch.device
    stacks: Sequence[Sequence[Trial]]
    ranks: ProcessGroup  # the processes that share the rows of a stack
    shows_progress: bool


def _fit(x: Any, candidates: Any, request: FitRequest, group: ProcessGroup) -> Fit:
    """Run `fit` in one process, alone or in a group."""
    device = _local_device(request.device, group)
    if group.size > 1:
        request = replace(request, views=to_local_gpu(request.views))
    check_views(request.views, device)
    if not request.trials:
        raise ValueError("trials must hold at least one trial; got none.")
    origin = None
    if request.views is None:
        origin = _origin(x, request.trials)
    if origin is not None:
        x = np.asarray(x) - origin
    features = as_features(x, torch.get_default_dtype(), device, request.views)
    mask = read_candidates(candidates, len(features), len(request.trials), device)
    share_rows = request.views is not None and len(request.trials) < group.size
    ranks = ProcessGroup()  # each process trains trials of its own
    if share_rows:
        ranks = group
    training = replace(request.training, batch=batch_of_rank(request.training.batch, ranks.size))
    stacks = _plan(request, training, features, mask.shape[2], device, ranks, group)
    inputs = _FitInputs(request, training, features, mask, device, stacks, ranks, group.rank == 0)
    fit_stack = partial(_fit_numbered_stack, inputs)
    if share_rows:  # all processes train every stack together
        fits = [fit_stack(number) for number in range(len(stacks))]
    else:
        fits = group.map(fit_stack, range(len(stacks)))
    return replace(join_fits(fits), origin=origin, network=request.network, method=request.method)


def _plan(
    request: FitRequest,
    training: Training,
    features: Features,
    n_classes: int,
    device: torch.device,
    ranks: ProcessGroup,
    group: ProcessGroup,
) -> Sequence[Sequence[Trial]]:
    """Check that the trials can be trained, and return them in stacks that fit in memory."""
    n = len(features)
    shape = tuple(features.shape[1:])
    row_counts = _row_counts(request.trials, n)
    check_rows(min(row_counts), ranks.size)
    check_memory(max(row_counts), n_classes, _min_bytes_per_label(request), device)
    network = _check_network(request, shape, n_classes, device)
    if _sees_single_batches(request):
        drawn_counts = {drawn_rows(n_rows, training.batch, ranks.size) for n_rows in row_counts}
        check_last_batch(network, shape, drawn_counts, training.batch)
    bytes_per_trial = _trial_bytes(request, network, n, n_classes, shape)
    memory_limit = request.memory or free_memory(device) // 2
    if request.views:
        memory_limit = 0  # convolutions gain nothing from a stack
    return plan_stacks(request.trials, bytes_per_trial, memory_limit, request.checkpoint, group)


def _fit_numbered_stack(inputs: _FitInputs, number: int) -> Fit:
    """Train the stack of this number."""
    request = inputs.request
    trials = inputs.stacks[number]
    data = make_training_data(
        inputs.features,
        _sets_of_stack(inputs.mask, inputs.stacks, number),
        trials,
        request.method,
        request.purify,
        inputs.training,
        request.views,
        request.labels,
        inputs.device,
        request.prior,
    )
    checkpointer = None
    if request.checkpoint:
        checkpointer = _checkpointer(number, request, data, trials, inputs.ranks)
    title = None
    if inputs.shows_progress:
        title = _title_of_stack(request.progress, number, len(inputs.stacks))
    gpus = []
    if inputs.device.type == "cuda":
        gpus.append(inputs.device)
    with torch.random.fork_rng(devices=gpus):
        # Modules such as dropout draw from torch's own generators.
        torch.manual_seed(inputs.ranks.seed(trials[0].seed))
        return _fit_stack(data.shared_with(inputs.ranks), trials, request, title, checkpointer)


def _local_device(name: str | torch.device, group: ProcessGroup) -> torch.device:
    """Return the device of this name; in a group, each process takes the GPU of its rank."""
    device = checked_device(name)
    if group.size > 1 and device.type == "cuda":
        device = torch.device("cuda", group.rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def _row_counts(trials: Sequence[Trial], n: int) -> set[int]:
    """Return the numbers of rows, of n, that trials are trained on; a single number if they agree."""
    row_counts = set()
    for trial in trials:
        if trial.rows is None:
            row_counts.add(n)
        else:
            row_counts.add(len(trial.rows))
    return row_counts


def _sets_of_stack(mask: Tensor, stacks: Sequence[Sequence[Trial]], number: int) -> Tensor:
    """Return the sets of a stack's trials [t, n, c], or those that all trials share [n, c]."""
    if len(mask) == 1:
        return mask[0]
    start = sum(map(len, stacks[:number]))
    return mask[start : start + len(stacks[number])]


def _title_of_stack(title: str | None, number: int, n_stacks: int) -> str | None:
    """Return the title of the progress bar of one of several stacks."""
    if title is None or n_stacks == 1:
        return title
    return f"{title} ({number + 1} of {n_stacks})"


def _trial_bytes(request: FitRequest, network: nn.Module, n: int, n_classes: int, shape: tuple[int, ...]) -> int:
    """Estimate the bytes of a trial: tables, weights with gradients and momentum, and the activations of a batch."""
    tables = BYTES_PER_LABEL * n * n_classes
    n_weights = sum(weight.numel() for weight in network.parameters())
    return tables + 4 * (6 * n_weights + 8 * request.training.batch * math.prod(shape))


def _min_bytes_per_label(request: FitRequest) -> int:
    """Return the least number of bytes that a trial keeps for each label of its training rows."""
    n_bytes = 1  # the candidates
    if type(request.method).init is not Method.init:
        n_bytes += 4
    if request.purify is not None:
        n_bytes += 10  # the sum that is observed, and round and margin of each removal
    return n_bytes


def _origin(x: Any, trials: Sequence[Trial]) -> NDArray[np.float64] | None:
    """Return column medians where float64 is about to be rounded, so that a time stamp loses no digits; scaling undoes this."""
    if isinstance(x, (Tensor, OnDiskFeatures)):
        return None
    values = np.asarray(x)
    is_rounded = values.dtype == np.float64 and torch.get_default_dtype() == torch.float32
    if not is_rounded or any(trial.scaling == "none" for trial in trials):
        return None
    return np.asarray(np.median(values, axis=0))


def _checkpointer(
    number: int, request: FitRequest, data: TrainingData, trials: Sequence[Trial], group: ProcessGroup
) -> Checkpointer:
    """Return what saves a stack, with the settings by which a checkpoint is recognised."""
    settings: dict[str, Any] = {}
    for name in ("method", "purify", "network", "training", "choose"):
        settings[name] = getattr(request, name)
    settings["views"] = None
    views = request.views
    if views is not None:
        settings["views"] = {
            "kinds": views.names,
            "scale": views.scale,
            "offset": views.offset,
            "dtype": str(views.dtype),
        }
    if request.prior.slack:
        settings["slack"] = request.prior.slack
    settings["trials"] = []
    for trial in trials:
        trial_settings = {
            "seed": trial.seed,
            "lr": trial.lr,
            "weight_decay": trial.weight_decay,
            "scaling": trial.scaling,
            "purify": trial.purify,
        }
        settings["trials"].append(trial_settings)
    identity = to_serializable(settings) | {"data": fingerprint(data)}
    folder = Path(str(request.checkpoint)) / f"stack-{number + 1}"
    return Checkpointer(folder, identity, request.every, group)


def _check_network(request: FitRequest, shape: tuple[int, ...], n_classes: int, device: torch.device) -> nn.Module:
    """Return one of the networks that will be trained, after a check that it can be."""
    method = request.method
    views = request.views
    if request.prior.weights is not None and not method.uses_prior:
        name = type(method).__name__
        _log.warning(f"{name} has no weights that follow the classifier: it does not use the prior.", stacklevel=2)
    in_bfloat16 = views is not None and device.type == "cuda"
    return probe_network(request.network, method, shape, n_classes, device, in_bfloat16)


def _sees_single_batches(request: FitRequest) -> bool:
    """Return whether a network is ever applied to batches of one view, of which the last may have a single row."""
    views = request.views
    one_view_at_a_time = views is None or views.count == 1 or not request.method.joint_forward
    return one_view_at_a_time or request.method.after_step or request.training.alters_input


def _check_choose(choose: str, data: TrainingData) -> None:
    """Raise ValueError if the epoch cannot be chosen in this way."""
    choices = ("last", *CRITERIA, "oracle")
    if choose not in choices:
        raise ValueError(f"choose must be one of {', '.join(choices)}; got {choose!r}.")
    if choose != "last" and data.held_out is None:
        raise ValueError(f"choose={choose!r} needs held_out rows in every trial. Give them, or choose='last'.")
    if choose == "oracle" and data.labels is None:
        raise ValueError("choose='oracle' needs labels. Give them, or choose without true labels.")


def _fit_stack(
    data: TrainingData,
    trials: Sequence[Trial],
    request: FitRequest,
    title: str | None,
    checkpointer: Checkpointer | None,
) -> Fit:
    """Train a stack from its start or its checkpoint to the last epoch."""
    _check_choose(request.choose, data)
    seeds = [trial.seed for trial in trials]
    starts = [trial.start for trial in trials]
    stack = build(partial(data.network, request.network), seeds, data.lr.device, data.compile_batch, starts)
    state = begin(data, stack, seeds)
    best = BestEpoch(state, request.choose)
    history: list[Record] = []
    if checkpointer is not None:
        history = checkpointer.restore(state, best)
    show_bar = title is not None and data.group.rank == 0
    with ExitStack() as contexts:
        advance = contexts.enter_context(progress_bar(title or "", data.training.epochs, show_bar, done=len(history)))
        interrupted: Callable[[], bool] | None = None
        # Without a checkpoint there is nothing to save, and Ctrl-C need not wait for the end of a step.
        if checkpointer is not None:
            interrupted = contexts.enter_context(interrupt_deferred())
        for record in steps(data, state):
            if record is not None:
                history.append(record)
                best.update(record, state)
                advance(f"set size {float(record['set_size'].mean()):.2f}")
            if checkpointer is not None and interrupted is not None:
                saved_for_interrupt = checkpointer.save(state, best, history, now=interrupted())
                if saved_for_interrupt:
                    raise KeyboardInterrupt
        if checkpointer is not None:
            checkpointer.save(state, best, history, now=True)
    return best.fit(data, state, history)
