"""A search on a Ray cluster: what is asked of the actors, with a stand-in for Ray, and on Ray itself where it is installed."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
from test_sweeps import TABLE

import oneof.ensemble.ray_tune
from oneof.ensemble.ray_tune import search_on_ray
from oneof.ensemble.tune import RANGES
from oneof.learners.config import FitConfig

EPOCHS = 4


class ActorLost(Exception):
    """Stands for RayActorError."""


class Stage:
    """Stands for Ray: two cores, and remote calls that run at once; the third one loses its actor."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayActorError=ActorLost)
        self.n_actors = 0
        self.n_calls = 0
        self.results: dict[int, object] = {}

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: object) -> object:
        return value

    def remote(self, **options: object):
        def wrap(kind: type):
            def make(*arguments: object) -> SimpleNamespace:
                self.n_actors += 1
                actor = kind(*arguments)
                calls = {
                    name: SimpleNamespace(remote=lambda *a, name=name: self.call(actor, name, a))
                    for name in ("begin", "next_score")
                }
                return SimpleNamespace(**calls)

            return SimpleNamespace(remote=make)

        return wrap

    def call(self, actor: object, name: str, arguments: tuple[object, ...]) -> int:
        self.n_calls += 1
        result: object = ActorLost() if self.n_calls == 3 else getattr(actor, name)(*arguments)
        self.results[self.n_calls] = result
        return self.n_calls

    def wait(self, references: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        return [min(references)], []

    def get(self, reference: int) -> object:
        result = self.results.pop(reference)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def _few_settings(monkeypatch):
    few = RANGES | {"hidden": ["", "16", "256"], "scaling": ["feature", "ranks"]}
    monkeypatch.setattr("oneof.ensemble.tune.RANGES", few)


@pytest.mark.usefixtures("_few_settings")
def test_settings_are_tried_by_actors_and_a_lost_one_begins_again(tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="Optuna is not installed: the extra sweep has it")
    stage = Stage()
    load = oneof.ensemble.ray_tune.load_package
    monkeypatch.setattr(
        oneof.ensemble.ray_tune, "load_package", lambda name, why: stage if name == "ray" else load(name, why)
    )
    said: list[str] = []
    storage = f"sqlite:///{tmp_path}/x.db"
    found = search_on_ray(TABLE, FitConfig(), EPOCHS, 5, storage, {"seed": 0}, echo=said.append)
    assert found.tried == 5
    assert found.score > 0.5
    assert stage.n_actors == 2
    assert sorted(line.split("/")[0] for line in said) == ["1", "2", "3", "4", "5"]
    n_calls = stage.n_calls
    assert search_on_ray(TABLE, FitConfig(), EPOCHS, 5, storage, {"seed": 0}) == found  # nothing is left to try
    assert stage.n_calls == n_calls


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_search_on_ray(tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    pytest.importorskip("optuna", reason="Optuna is not installed: the extra sweep has it")
    environment = {
        "env_vars": {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])}
    }
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        found = search_on_ray(TABLE, FitConfig(), EPOCHS, 4, f"sqlite:///{tmp_path}/x.db", {"seed": 0})
    finally:
        ray.shutdown()
    assert found.tried == 4
    assert np.isfinite(found.score)
