"""`fit`: the border of the loop. Inputs are checked, trials cut into stacks, runs saved and resumed, the best epoch kept."""

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.augment.views import Views
from oneof.data.on_disk import RowsOnDisk
from oneof.methods import Method, Proden
from oneof.metrics import CRITERIA
from oneof.networks import MLP, Network
from oneof.purify import Purify
from oneof.storage.progress import bar
from oneof.storage.settings import plain_value
from oneof.training.checkpoint import Checkpointer, fingerprint, plan_stacks
from oneof.training.checks import check_last_batch, check_shared, check_views, probe_network
from oneof.training.device import checked_device, free_memory, to_local_gpu
from oneof.training.interrupt import interrupt_deferred
from oneof.training.loop import begin, steps
from oneof.training.prior import Prior
from oneof.training.processes import ProcessGroup, check_rows, run_distributed
from oneof.training.set_input import check_memory, read_candidates
from oneof.training.stack import build
from oneof.training.state import BestEpoch, Fit, join
from oneof.training.training_data import TrainingData, as_features, make_training_data
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
        Features [n, ...]; `oneof.data.on_disk.RowsOnDisk` for those that do not fit in memory, and for images that do not fit the device.
    candidates
        Bool mask [n, c], or [t, n, c] where every trial has its own sets; or a SciPy sparse matrix [n, c], or for every row a list
        of label numbers (None: nothing is known). They are kept as dense masks; what does not fit in memory is refused.
    trials
        Seeds, rows and rates; every trial gives what it would give alone.
    method, purify, network, training
        What is learned, whether POP purifies the sets, by which network, and how.
    views
        How images are seen: with it x is uint8 [n, channels, height, width] and stays so on the device.
    prior
        How much votes speak for each label [n, c], such as counts; dense or SciPy sparse. Methods that weigh candidates weigh by
        prior x posterior, and POP compares these products. None: the sets say all.
    slack
        With a prior: what a label counts that nobody named, in votes. 0: it cannot be right.
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
        A folder to save the run in, every so many seconds (`every`) and on Ctrl-C, once the step under way is done. The same
        call resumes from it, wherever it was killed, and ends with the numbers of an uninterrupted run.
    n_jobs
        Number of processes that train together and give what one process gives, up to rounding. Trials are dealt out among them; where
        there are fewer trials than processes, each owns some of the rows of every trial. With device "cuda" each takes the GPU of
        its rank. Default: those that torchrun or SLURM started, else one. New ones are started by spawning, so a
        script that asks for them needs `if __name__ == "__main__":`.

    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> x, labels = make_blobs(n_samples=200, centers=3, random_state=0)
    >>> result = fit(x, np.eye(3, dtype=bool)[labels], training=Training(epochs=20))
    >>> (result.logits(x)[0].argmax(-1).numpy() == labels).mean() > 0.8
    np.True_
    """
    asked = FitRequest(
        trials, method, purify, network, training, views, Prior(prior, slack), labels, choose, device, progress, memory,
        checkpoint, every,
    )  # fmt: skip
    return run_distributed(partial(_fit, x, candidates, asked), n_jobs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FitRequest:
    """What `fit` is asked for, beside the data and the processes."""

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


def _fit(x: Any, candidates: Any, asked: FitRequest, group: ProcessGroup) -> Fit:
    """`fit` in one process, or in one of a group's."""
    place = _place(asked.device, group)
    views = to_local_gpu(asked.views) if group.size > 1 else asked.views
    asked, trials, method = replace(asked, views=views), asked.trials, asked.method
    check_views(views, place)
    if not trials:
        raise ValueError("trials must hold at least one trial; got none.")
    origin = None if views else _origin(x, trials)
    features = as_features(x if origin is None else np.asarray(x) - origin, torch.get_default_dtype(), place, views)
    sets = read_candidates(candidates, len(features), len(trials), place)
    shape, classes = tuple(features.shape[1:]), sets.shape[2]
    rows = {len(features if trial.rows is None else trial.rows) for trial in trials}
    check_memory(max(rows), classes, _least_bytes_per_label(asked), place)
    one = _looked_at(asked, shape, classes, rows, place)
    weights = sum(weight.numel() for weight in one.parameters())  # kept with gradients; and a batch's features
    tables = BYTES_PER_LABEL * len(features) * classes
    each = tables + 4 * (6 * weights + 8 * asked.training.batch * math.prod(shape))  # roughly
    stacks = plan_stacks(trials, each, _limit(asked, one, place, group), asked.checkpoint, group)
    apart = len(stacks) >= group.size  # whole stacks are dealt out; else all processes share the rows of every one
    if not apart:
        check_shared(one, max(map(len, stacks)))
        check_rows(min(rows), group.size)

    def fit_one(number: int) -> Fit:
        some, start = stacks[number], sum(map(len, stacks[:number]))
        rest = (method, asked.purify, asked.training, views, asked.labels, place, asked.prior)
        own = sets[0] if len(sets) == 1 else sets[start : start + len(some)]
        problem = make_training_data(features, own, some, *rest)
        team = ProcessGroup() if apart else group
        keeper = _keeper(number, asked, problem, some, team) if asked.checkpoint else None
        which = f" ({number + 1} of {len(stacks)})" if len(stacks) > 1 else ""
        title = None if group.rank or asked.progress is None else asked.progress + which
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.manual_seed(some[0].seed)  # modules such as dropout draw from torch's own generators
            return _fit_stack(problem.shared_with(team), some, asked, title, keeper)

    fits = group.each(fit_one, range(len(stacks))) if apart else [fit_one(number) for number in range(len(stacks))]
    return replace(join(fits), origin=origin, network=asked.network, method=method)


def _place(device: str | torch.device, group: ProcessGroup) -> torch.device:
    place = checked_device(device)
    if group.size > 1 and place.type == "cuda":
        place = torch.device("cuda", group.rank % torch.cuda.device_count())
        torch.cuda.set_device(place)
    return place


def _limit(asked: FitRequest, one: nn.Module, place: torch.device, group: ProcessGroup) -> int:
    """Bytes that a stack may take; 0 for one trial at a time."""
    shared_statistics = len(asked.trials) < group.size and any(True for _ in one.buffers())
    alone = asked.views or shared_statistics  # convolutions gain nothing from a stack
    return 0 if alone else asked.memory or free_memory(place) // 2


def _least_bytes_per_label(asked: FitRequest) -> int:
    """Return the least number of bytes that a trial keeps for each label of its training rows."""
    n_bytes = 1  # the candidates
    if type(asked.method).init is not Method.init:
        n_bytes += 4
    if asked.purify is not None:
        n_bytes += 10  # the sum that is observed, and round and margin of each removal
    return n_bytes


def _origin(x: Any, trials: Sequence[Trial]) -> NDArray[np.float64] | None:
    """Column medians, where float64 is about to be rounded: a time stamp would lose digits. Scaling undoes this."""
    if isinstance(x, (Tensor, RowsOnDisk)):
        return None
    values = np.asarray(x)
    rounded = values.dtype == np.float64 and torch.get_default_dtype() == torch.float32
    if not rounded or any(trial.scaling == "none" for trial in trials):
        return None
    return np.asarray(np.median(values, axis=0))


def _keeper(
    number: int, asked: FitRequest, problem: TrainingData, trials: Sequence[Trial], group: ProcessGroup
) -> Checkpointer:
    setting = {name: getattr(asked, name) for name in ("method", "purify", "network", "training", "choose")}
    look = asked.views
    seen = look and {"kinds": look.names, "scale": look.scale, "offset": look.offset, "dtype": str(look.dtype)}
    setting |= {"views": seen} | ({"slack": asked.prior.slack} if asked.prior.slack else {})
    numbers = ("seed", "lr", "weight_decay", "scaling", "purify")
    setting["trials"] = [{name: getattr(trial, name) for name in numbers} for trial in trials]
    folder = Path(str(asked.checkpoint)) / f"stack-{number + 1}"
    return Checkpointer(folder, plain_value(setting) | {"data": fingerprint(problem)}, asked.every, group)


def _looked_at(
    asked: FitRequest, shape: tuple[int, ...], classes: int, rows: set[int], place: torch.device
) -> nn.Module:
    """One of the networks that will be trained, after a look at whether it can be."""
    method, views, training = asked.method, asked.views, asked.training
    if asked.prior.weights is not None and not method.uses_prior:
        name = type(method).__name__
        _log.warning(f"{name} has no weights that follow the classifier: it does not use the prior.", stacklevel=2)
    one = probe_network(asked.network, method, shape, classes, place, fast=views is not None and place.type == "cuda")
    seen_apart = views is None or views.count == 1 or not method.joint_forward
    if seen_apart or method.after_step or training.alters_input:  # then a forward sees a batch's rows once
        check_last_batch(one, shape, rows, training.batch)
    return one


def _fit_stack(
    problem: TrainingData, trials: Sequence[Trial], asked: FitRequest, title: str | None, keeper: Checkpointer | None
) -> Fit:
    choose, choices = asked.choose, ("last", *CRITERIA, "oracle")
    if choose not in choices:
        raise ValueError(f"choose must be one of {', '.join(choices)}; got {choose!r}.")
    if choose != "last" and problem.held_out is None:
        raise ValueError(f"choose={choose!r} needs held_out rows in every trial. Give them, or choose='last'.")
    if choose == "oracle" and problem.labels is None:
        raise ValueError("choose='oracle' needs labels. Give them, or choose without true labels.")
    seeds, starts = [trial.seed for trial in trials], [trial.start for trial in trials]
    stack = build(partial(problem.network, asked.network), seeds, problem.lr.device, problem.compile_batch, starts)
    state = begin(problem, stack, seeds)
    best = BestEpoch(state, choose)
    history = keeper.restore(state, best) if keeper else []
    shown = title is not None and problem.group.rank == 0
    with ExitStack() as contexts:
        advance = contexts.enter_context(bar(title or "", problem.training.epochs, shown, len(history), unit="epochs"))
        # without a checkpoint there is nothing to save, and Ctrl-C need not wait for the end of a step
        interrupted = contexts.enter_context(interrupt_deferred()) if keeper else lambda: False
        for record in steps(problem, state):
            if record is not None:
                history.append(record)
                best.see(record, state)
                advance(f"set size {float(record['set_size'].mean()):.2f}")
            if keeper and keeper.save(state, best, history, now=interrupted()):
                raise KeyboardInterrupt
        if keeper:
            keeper.save(state, best, history, now=True)
    return best.fit(problem, state, history)
