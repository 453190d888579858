"""A wider search, on Optuna: settings are tried one after another, poor ones are stopped early, and no trial is ever lost.

A setting is tried as a stack of networks, one per fold. What the other rows say (with the features seen in the setting's way)
purifies the sets that a network trains on; it is asked about the *original* sets of the rows that it held out, which are the same
for every setting. The score is the mean of covering rate and approximated accuracy there. No true label is used anywhere.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.splits import Split, split_rows
from oneof.learners.config import SEEN, Setting
from oneof.learners.scaled_rows import Prepared, Search, ask, prepare, purified, seed_of, training, trial_of
from oneof.metrics import CRITERIA, with_means
from oneof.networks import MLP
from oneof.storage.optional_packages import load_package
from oneof.storage.regular import check_regular
from oneof.storage.rows import Row
from oneof.storage.settings import first_difference
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.training_data import make_training_data

FEWEST = 200  # rows: the sets of fewer, held out, tell nothing about a setting

RANGES: dict[str, Any] = {
    "hidden": ["", "64", "256", "1024", "256,256"],  # layers as text, which every storage holds
    "scaling": list(SEEN),
    "lr": (0.01, 1.0),
    "weight_decay": (1e-5, 1e-2),
    "mixup": [0.0, 1.0],
}
"""What settings are drawn from: lists, or two ends between which the logarithm is drawn."""

FIRST = {"hidden": "256", "scaling": "feature", "lr": 0.1, "weight_decay": 1e-3, "mixup": 1.0}
"""The setting that is tried first, near the estimator's own: so what is found is no worse by the score."""


class Folds(NamedTuple):
    """The rows that settings are tried on, and how they are split."""

    rows: Prepared
    splits: list[Split]
    sets: Callable[[str], NDArray[np.bool_]]  # [t, n, c] by how features are seen: purified, but where a fold holds out


class Tuned(NamedTuple):
    """The best setting, as `Space.narrowed` and `PartialLabelClassifier` take it, with its score; how many were tried, and stopped early."""

    setting: dict[str, Any]
    score: float
    tried: int
    stopped: int


def folds_of(x: NDArray[Any], mask: NDArray[np.bool_], asked: Search = Search()) -> Folds:  # noqa: B008 - frozen
    """What settings are tried on: the table, or a sample of a large one, in folds.

    >>> folds = folds_of(np.random.default_rng(0).normal(size=(300, 2)), np.ones((300, 3), bool))
    >>> len(folds.splits), folds.rows.wide.shape
    (3, (300, 4))
    """
    space, seed = asked.space.of(len(x)), asked.seed
    some = np.sort(np.random.default_rng(seed).permutation(len(x))[: space.rows])
    groups = None if asked.groups is None else np.asarray(asked.groups)[some]
    splits = split_rows(np.arange(len(some)), space.folds, groups, seed)
    if len(some) < FEWEST or splits[0][1] is None:
        raise ValueError(
            f"a search needs {FEWEST} rows or more, and groups that can be held out; got {len(x)} rows. Use oneof fit."
        )
    rows = prepare(x[some], mask[some], replace(asked, space=space, groups=groups))
    return Folds(rows, splits, cache(partial(_sets, rows, splits)))


def _sets(rows: Prepared, splits: list[Split], scaling: str) -> NDArray[np.bool_]:
    kept, _ = purified(rows.mask, ask(rows, scaling).weights, rows.space.margin)
    sets = np.repeat(kept[None], len(splits), axis=0)
    for own, (_, held_out) in zip(sets, splits, strict=True):
        own[held_out] = rows.mask[held_out]
    return sets


def scores(folds: Folds, drawn: Row) -> Iterator[float]:
    """What held-out sets say of a setting, after every epoch; a network that diverged says nothing."""
    rows, space = folds.rows, replace(folds.rows.space, mixup=drawn["mixup"])
    setting = Setting(tuple(drawn["hidden"]), drawn["scaling"], drawn["lr"], drawn["weight_decay"])
    trials = [trial_of(setting, (rows.asked.seed, k), split) for k, split in enumerate(folds.splits)]
    x = rows.wide - np.median(rows.wide, axis=0)  # so that rounding to single precision spares what differs
    sets = folds.sets(setting.scaling)
    problem = make_training_data(x, sets, trials, space.method, None, training(space, space.trial_epochs))
    seeds = [one.seed for one in trials]
    state = begin(problem, build(partial(problem.network, MLP(setting.hidden)), seeds, torch.device("cpu")), seeds)
    for record in epochs(problem, state):
        said = {name: float(one.double().nan_to_num(0.0).mean()) for name, one in record.items() if name in CRITERIA}
        yield with_means(said)[rows.asked.rule]


# ------------------------------------------------------------------------------------------------------------- with Optuna


def search_settings(
    folds: Folds, trials: int, storage: str, asked: Row, *, say: Callable[[str], None] = lambda line: None
) -> Tuned:
    """Try settings until there are so many in the storage, which must be of the same search (`asked`), and take the best.

    Every trial draws from a seed of its own and from what was finished before it, so a search that was killed and repeated tries
    what it would have tried. One process at a time.
    """
    optuna = load_optuna()
    study = _study(optuna, storage, asked, folds.rows.space.trial_epochs)
    for number in range(len(_finished(study)), trials):
        study.sampler = optuna.samplers.TPESampler(seed=seed_of(folds.rows.asked.seed, number))
        if number == 0:
            study.enqueue_trial(FIRST)
        trial = study.ask()
        setting = _as_setting({name: _drawn(trial, name, some) for name, some in RANGES.items()})
        value = _try(optuna, study, trial, scores(folds, setting))
        say(f"{number + 1}/{trials}: {value:.4f} {setting}" if value else f"{number + 1}/{trials}: stopped early")
    best, finished = study.best_trial, _finished(study)
    stopped = sum(trial.state.name == "PRUNED" for trial in finished)
    return Tuned(_as_setting(best.params), float(best.value), len(finished), stopped)


def read_setting(path: Path) -> dict[str, Any]:
    """Read a setting that was written down as JSON."""
    check_regular(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"settings must be a JSON file, as oneof tune writes it; {path} is none ({error}).") from error
    if not isinstance(found, dict):
        raise ValueError(f"settings must be a JSON object, as oneof tune writes it; {path} holds {found!r:.60}.")
    return found


def load_optuna() -> Any:
    """Optuna, if it is installed."""
    optuna = load_package("optuna", "a search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, storage: str, asked: Row, length: int) -> Any:
    """The study in the storage, new or begun; what a killed run was in the middle of has failed."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=length // 3)
    try:
        study = optuna.create_study(
            study_name="oneof", storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
        )
    except Exception as error:  # SQLAlchemy's many; it is not ours to import
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"storage must be a database that Optuna can open, such as sqlite:///search.db; got {storage!r} ({reason})."
        ) from error
    difference = first_difference(study.user_attrs.get("asked", asked), asked)
    if difference:
        raise ValueError(f"{storage} holds another search: {difference}. Give another storage, or delete this one.")
    study.set_user_attr("asked", asked)
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in ("COMPLETE", "PRUNED")]


def _drawn(trial: Any, name: str, some: Any) -> Any:
    if isinstance(some, list):
        return trial.suggest_categorical(name, some)
    return trial.suggest_float(name, *some, log=True)


def _as_setting(drawn: Row) -> Row:
    return drawn | {"hidden": [int(width) for width in drawn["hidden"].split(",") if width]}


def _try(optuna: Any, study: Any, trial: Any, values: Iterator[float]) -> float | None:
    """The score after the last epoch; None if it was stopped, being below the median of those before it."""
    value = 0.0
    for epoch, value in enumerate(values, 1):
        trial.report(value, epoch)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return None
    study.tell(trial, value)
    return value
