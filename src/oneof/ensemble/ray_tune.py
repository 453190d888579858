"""Search settings on a Ray cluster: actors train them, and this process asks Optuna, reports to it and stops poor ones early."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from oneof.data.dataset import Dataset
from oneof.ensemble.tune import (
    Tuned,
    ask_setting,
    best_setting,
    describe_trial,
    finished_trials,
    load_optuna,
    make_folds,
    open_study,
    scores,
)
from oneof.learners.config import FitConfig
from oneof.storage.optional_packages import load_package
from oneof.storage.rows import Row


class SettingScorer:
    """Tries settings in a worker process, an epoch at a time; the table is split into folds once."""

    def __init__(self, data: Dataset, config: FitConfig, epochs: int) -> None:
        torch.set_num_threads(1)
        self._folds = make_folds(data, config, epochs)
        self._scores: Iterator[float] = iter(())

    def begin(self, setting: Row) -> float | None:
        """Begin to train a setting; return its score after the first epoch."""
        self._scores = scores(self._folds, setting)
        return self.next_score()

    def next_score(self) -> float | None:
        """Return the score after another epoch; None if there are no more."""
        return next(self._scores, None)


@dataclass
class _Trial:
    """A setting that an actor tries."""

    actor: Any
    trial: Any  # Optuna's
    setting: Row
    number: int
    scores: list[float]  # after every epoch
    n_reported: int = 0  # epochs that Optuna knows of; one that is tried again is not reported twice


def search_on_ray(
    data: Dataset,
    config: FitConfig,
    epochs: int,
    trials: int,
    storage: str,
    spec: Row,
    *,
    echo: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Try settings as `search_settings` does, one on every core of the cluster that RAY_ADDRESS names, else of this machine.

    Settings that are tried at the same time do not know of each other, so another number of cores tries others. The database is
    opened by this process alone. A setting whose node is lost is tried again elsewhere.
    """
    ray = load_package("ray", "a search on a cluster")
    optuna = load_optuna()
    make_folds(data, config, epochs)  # raises an error before a worker is started
    study = open_study(optuna, storage, spec, epochs)
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        numbers = iter(range(len(finished_trials(study)), trials))
        running: dict[Any, _Trial] = {}
        for actor in _start_actors(ray, data, config, epochs, trials - len(finished_trials(study))):
            _begin_next(optuna, study, config, actor, numbers, running)
        while running:
            (score,), _ = ray.wait(list(running), num_returns=1)
            current = running.pop(score)
            try:
                value = ray.get(score)
            except ray.exceptions.RayActorError:
                current.scores.clear()
                running[current.actor.begin.remote(current.setting)] = current
                continue
            if value is not None and not _is_poor(current, value):
                running[current.actor.next_score.remote()] = current
                continue
            result = None
            if value is None:
                result = current.scores[-1]
                study.tell(current.trial, result)
            else:
                study.tell(current.trial, state=optuna.trial.TrialState.PRUNED)
            echo(describe_trial(current.number, trials, result, current.setting))
            _begin_next(optuna, study, config, current.actor, numbers, running)
    finally:
        if started_here:
            ray.shutdown()
    return best_setting(study)


def _start_actors(ray: Any, data: Dataset, config: FitConfig, epochs: int, n_trials: int) -> list[Any]:
    """Start an actor on every core of the cluster, but no more than there are settings to try."""
    n_cores = int(ray.cluster_resources().get("CPU", 1))
    shared_data = ray.put(data)
    make_actor = ray.remote(num_cpus=1, max_restarts=-1)(SettingScorer)
    actors = []
    for _ in range(min(n_cores, n_trials)):
        actors.append(make_actor.remote(shared_data, config, epochs))
    return actors


def _begin_next(
    optuna: Any, study: Any, config: FitConfig, actor: Any, numbers: Iterator[int], running: dict[Any, _Trial]
) -> None:
    """Give an actor the next setting, if one is left."""
    number = next(numbers, None)
    if number is None:
        return
    trial, setting = ask_setting(optuna, study, config.seed, number)
    running[actor.begin.remote(setting)] = _Trial(actor, trial, setting, number, [])


def _is_poor(current: _Trial, score: float) -> bool:
    """Report the score after an epoch; return whether the trial should be stopped."""
    current.scores.append(score)
    if len(current.scores) > current.n_reported:
        current.n_reported = len(current.scores)
        current.trial.report(score, current.n_reported)
    return bool(current.trial.should_prune())
