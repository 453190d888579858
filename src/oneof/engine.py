"""`fit`: the border of the loop. Inputs are checked, trials cut into stacks, runs saved and resumed, the best epoch kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.checkpoint import Keeper, fingerprint
from oneof.data.augment.views import Views
from oneof.files import written_beside
from oneof.loop import begin, steps
from oneof.methods import Method, Proden
from oneof.networks import MLP, Network
from oneof.problem import Problem, Training, as_tensor, pose
from oneof.progress import bar
from oneof.purify import Purify
from oneof.runtime import free_memory
from oneof.settings import plain_value
from oneof.stack import build
from oneof.state import Best, Fit, join
from oneof.trials import Trial, cut

CHOICES = ("last", "covering", "approximated", "oracle")
"""How the epoch is chosen: the last one, or the best by what held-out sets say; "oracle" looks at held-out true labels."""


def fit(
    x: Any,
    candidates: Any,
    *,
    trials: Sequence[Trial] = (Trial(),),
    method: Method = Proden(),  # noqa: B008 - frozen
    purify: Purify | None = None,
    network: Network = MLP(),  # noqa: B008 - frozen
    training: Training = Training(),  # noqa: B008 - frozen
    views: Views | None = None,
    labels: Any = None,
    choose: str = "last",
    device: str | torch.device = "cpu",
    progress: str | None = None,
    memory: int | None = None,
    checkpoint: str | Path | None = None,
    every: float = 30.0,
) -> Fit:
    """Train t trials at once.

    Parameters
    ----------
    x
        Features [n, ...].
    candidates
        Bool mask [n, c], or [t, n, c] where every trial has its own sets.
    trials
        Seeds, rows and rates; every trial gives what it would give alone.
    method, purify, network, training
        What is learned, whether POP purifies the sets, by which network, and how.
    views
        How images are seen: with it x is uint8 [n, channels, height, width] and stays so on the device.
    labels
        True labels [n], for reporting; used by nothing else unless choose="oracle".
    choose
        One of CHOICES. All but "last" need `held_out` rows in every trial.
    device
        Where to train.
    progress
        Show a bar with this title.
    memory
        Bytes that a stack may take; more trials than fit are trained in several stacks. Default: half of what is free.
    checkpoint
        A folder to save the run in, every so many seconds (`every`). The same call resumes from it, wherever it was killed, and
        ends with the numbers of a run that never was.

    >>> import numpy as np
    >>> from oneof.data.synthetic import mixture
    >>> data = mixture(n=200, d=2, c=3, seed=0)
    >>> result = fit(data.x, np.eye(3, dtype=bool)[data.labels], training=Training(epochs=20))
    >>> (result.logits(data.x)[0].argmax(-1).numpy() == data.labels).mean() > 0.8
    np.True_
    """
    place = _place(device)
    _check_trials(trials, candidates)
    origin = None if views else _origin(x, trials)
    features = as_tensor(
        x if origin is None else np.asarray(x) - origin, torch.uint8 if views else torch.get_default_dtype(), place
    )
    mask = as_tensor(candidates, None, place)
    build_one = partial(_network, method, network, tuple(features.shape[1:]), mask.shape[-1])
    each = _bytes_per_trial(features, mask, build_one, training)
    stacks = _stacks(trials, each, memory or free_memory(place) // 2, checkpoint)
    setting = {
        "method": method,
        "purify": purify,
        "network": network,
        "training": training,
        "choose": choose,
        "views": views and views.names,
    }
    start, fits = 0, []
    for number, some in enumerate(stacks, 1):
        own = mask[start : start + len(some)] if mask.dim() == 3 else mask
        problem = pose(features, own, some, method, purify, training, views, labels, place)
        title = progress if progress is None or len(stacks) == 1 else f"{progress} ({number} of {len(stacks)})"
        keeper = (
            None if checkpoint is None else _keeper(Path(checkpoint) / f"stack-{number}", setting, problem, some, every)
        )
        fits.append(_fit_stack(problem, build_one, [trial.seed for trial in some], choose, title, keeper))
        start += len(some)
    return replace(join(fits), origin=origin)


def _place(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be one that torch knows, such as 'cpu' or 'cuda'; got {device!r}.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} needs a GPU and a build of torch for it; there is none here. Use 'cpu'.")
    return place


def _check_trials(trials: Sequence[Trial], candidates: Any) -> None:
    if not trials:
        raise ValueError("trials must hold at least one trial; got none.")
    if np.ndim(candidates) == 3 and len(candidates) != len(trials):
        raise ValueError(f"candidates must have sets for every trial ({len(trials)}); got {len(candidates)}.")


def _origin(x: Any, trials: Sequence[Trial]) -> NDArray[np.float64] | None:
    """Column medians, where features in double precision are about to be rounded: a time stamp would lose its digits.

    Every scaling takes out a shift of its own afterwards, so this one has no other effect.
    """
    values = x if isinstance(x, Tensor) else np.asarray(x)
    rounded = (
        isinstance(values, np.ndarray) and values.dtype == np.float64 and torch.get_default_dtype() == torch.float32
    )
    if not rounded or any(trial.scaling == "none" for trial in trials):
        return None
    return np.asarray(np.median(values, axis=0))


def _stacks(trials: Sequence[Trial], each: int, limit: int, checkpoint: str | Path | None) -> list[Sequence[Trial]]:
    """The trials cut into stacks; a resumed run is cut as it was, whatever memory is free now."""
    stacks = cut(trials, each, limit)
    if checkpoint is None:
        return stacks
    note = Path(checkpoint) / "stacks.json"
    if note.exists():
        sizes = _sizes(note)
        if sum(sizes) != len(trials):
            raise ValueError(
                f"{checkpoint} holds a checkpoint of another run: it has {sum(sizes)} trials, now {len(trials)}. "
                "Give another folder, or delete this one."
            )
        ends = list(accumulate(sizes, initial=0))
        return [trials[a:b] for a, b in pairwise(ends)]
    note.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(note) as file:
        file.write(json.dumps([len(some) for some in stacks]).encode())
    return stacks


def _sizes(note: Path) -> list[int]:
    try:
        return [int(size) for size in json.loads(note.read_text())]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{note} must hold the sizes of the stacks; it is damaged. Delete its folder.") from error


def _keeper(folder: Path, setting: dict[str, Any], problem: Problem, trials: Sequence[Trial], every: float) -> Keeper:
    numbers = [
        {"seed": t.seed, "lr": t.lr, "weight_decay": t.weight_decay, "scaling": t.scaling, "purify": t.purify}
        for t in trials
    ]
    plain = {name: plain_value(value) for name, value in setting.items()}
    plain |= {"trials": [{name: plain_value(value) for name, value in row.items()} for row in numbers]}
    return Keeper(folder, plain | {"data": fingerprint(problem)}, every)


def _network(method: Method, network: Network, shape: tuple[int, ...], classes: int) -> nn.Module:
    return method.network(network(shape, classes), classes, shape)


def _bytes_per_trial(x: Tensor, candidates: Tensor, build_one: Callable[[], nn.Module], training: Training) -> int:
    """Roughly what a trial takes: sets, memory and POP's sum of every row; weights with their gradients; a batch's features."""
    with torch.random.fork_rng(devices=[]):
        weights = sum(weight.numel() for weight in build_one().parameters())
    tables = candidates.shape[-2:].numel() * 13
    return tables + 4 * (6 * weights + 8 * training.batch * x[0].numel())


def _fit_stack(
    problem: Problem,
    build_one: Callable[[], nn.Module],
    seeds: list[int],
    choose: str,
    title: str | None,
    keeper: Keeper | None,
) -> Fit:
    _check_choice(choose, problem)
    state = begin(problem, build(build_one, seeds, problem.lr.device, problem.fast), seeds)
    best = Best(state, choose)
    history = keeper.restore(state, best) if keeper else []
    with bar(title or "", problem.training.epochs, title is not None, done=len(history)) as advance:
        for record in steps(problem, state):
            if record is not None:
                history.append(record)
                best.see(record, state)
                advance(f"set size {float(record.set_size.mean()):.2f}")
            if keeper:
                keeper.save(state, best, history)
    if keeper:
        keeper.save(state, best, history, now=True)
    return best.fit(problem, state, history)


def _check_choice(choose: str, problem: Problem) -> None:
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}; got {choose!r}.")
    if choose != "last" and problem.held_out is None:
        raise ValueError(f"choose={choose!r} needs held_out rows in every trial. Give them, or choose='last'.")
    if choose == "oracle" and problem.labels is None:
        raise ValueError("choose='oracle' needs labels. Give them, or choose without true labels.")
