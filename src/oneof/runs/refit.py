"""Fit again from what people decided: the sets that they left, and the settings and weights of the run to start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.dataset import UNKNOWN, UNNAMED_PRIOR, Dataset, scatter_columns
from oneof.ensemble.accuracy import gold_of_random_sample
from oneof.learners.base import WarmStart
from oneof.learners.config import EnsembleConfig, NetworkConfig
from oneof.learners.forest import Forest
from oneof.runs.decisions import Decision, ResolvedDecision, decided_sets, resolve_decisions
from oneof.runs.folder import METADATA, Run, fingerprint
from oneof.storage.settings import digest

EPOCHS_DIVISOR = 5  # a fit from trained weights takes this many times fewer epochs than one from random weights
_MIN_EPOCHS = 3


@dataclass(frozen=True)
class Refit:
    """A run and the decisions about it, from which the next run is fitted."""

    run: Run
    active_decisions: tuple[Decision, ...]

    @cached_property
    def decisions(self) -> dict[int, ResolvedDecision]:
        """Return the decisions by row, without those about rows that the run does not have."""
        decisions = {}
        for row, decision in resolve_decisions(self.active_decisions).items():
            if 0 <= row < self.run.metadata["n"]:
                decisions[row] = decision
        return decisions

    @property
    def identity(self) -> dict[str, Any]:
        """Return what distinguishes the next run from other fits of the same task."""
        decisions = {str(row): list(decision) for row, decision in self.decisions.items()}
        return {"from": fingerprint(self.run.folder / METADATA), "decisions": digest(decisions)}

    def warm_start(self, data: Dataset) -> WarmStart:
        """Return what learners start from: settings, weights by hidden layers, forests, and the sets that were noisy.

        There are no settings for networks on pictures. If linear models replaced the networks, the settings are those of
        linear models. If a class was added, weights and forests have no output for it and are left out.
        """
        model = self.run.model
        warm_start = WarmStart(networks=self._network_configs(), noisy_sets=self._noisy_sets())
        if len(data.classes) != len(model.classes):
            return warm_start
        weights = {}
        for member in model.members:
            hidden = tuple(member.shape.get("hidden", ()))
            weights[hidden] = [_weights_of(member, t) for t in range(member.stack.t)]
        forests = {}
        for learner in model.others:
            if isinstance(learner, Forest):
                forests[learner.kind] = learner
        return replace(warm_start, weights=weights, forests=forests)

    def _network_configs(self) -> tuple[NetworkConfig, ...]:
        """Return the distinct settings that the run chose."""
        model = self.run.model
        if model.encoding.pixels:
            return ()
        configs = []
        for chosen in self.run.metadata["chosen"]:
            hidden = ()
            if "networks" in model.learners:
                hidden = tuple(chosen["hidden"])
            configs.append(NetworkConfig(**{**chosen, "hidden": hidden}))
        return tuple(dict.fromkeys(configs))

    def _noisy_sets(self) -> NDArray[np.bool_]:
        """Return which sets [n] miss the truth according to the learners of the run, but for those that people decided."""
        noisy = np.array(self.run.purified["outside"].is_valid())
        noisy[sorted(self.decisions)] = False
        return noisy

    def shorten(self, config: EnsembleConfig, n: int, n_classes: int) -> EnsembleConfig:
        """Return the config for networks that start from trained weights: fewer epochs, and on tables purification from the first one.

        If a class was added, the networks start from random weights, and the config is returned unchanged.
        """
        if n_classes != len(self.run.model.classes):
            return config
        config = config.for_size(n, n_classes)
        purify = config.purify
        if purify is not None:
            purify = replace(purify, warm_up=1, interval=2, window=2)
        available = (*self.run.model.learners, "kernel")
        learners = tuple(learner for learner in config.learners if learner in available)
        assert config.epochs is not None  # `for_size` set it
        epochs = max(_MIN_EPOCHS, config.epochs // EPOCHS_DIVISOR)
        return replace(config, epochs=epochs, purify=purify, learners=learners)

    def apply_decisions(self, data: Dataset) -> Dataset:
        """Return the data set with the sets that people left, and with classes for the labels that they typed."""
        reviewed, names = decided_sets(data.candidates.mask, data.classes, self.decisions)
        c = len(names)
        old_columns = range(len(data.classes))
        rows = sorted(self.decisions)

        def decided_prior(prior: NDArray[Any]) -> NDArray[Any]:
            """Return a prior [n, c] in which the decisions replace the votes on their rows."""
            prior = scatter_columns(prior, old_columns, c, UNNAMED_PRIOR)
            prior[rows] = np.where(reviewed[rows], 1.0, UNNAMED_PRIOR)
            return prior

        prior: NDArray[Any] = np.broadcast_to(np.float64(1.0), (len(data), c))
        votes = data.votes
        if votes is not None:
            prior = decided_prior(data.prior)
            likelihood = decided_prior(votes.likelihood)
            votes = votes.with_classes(old_columns, c)._replace(likelihood=likelihood)
        mask = scatter_columns(data.candidates.mask, old_columns, c, False)
        return replace(
            data,
            candidates=Candidates(mask, np.array(names)),
            reviewed_sets=reviewed,
            prior=prior,
            votes=votes,
            gold=self._stored_gold(names, data.gold),
            audit_labels=gold_of_random_sample(self._decided_labels(names, len(data))),
        )

    def _decided_labels(self, names: Sequence[str], n: int) -> NDArray[np.intp]:
        """Return the label that people decided for each row [n], UNKNOWN elsewhere."""
        labels = np.full(n, UNKNOWN)
        for row, decision in self.decisions.items():
            if decision.label in names:
                labels[row] = names.index(decision.label)
        return labels

    def _stored_gold(self, names: Sequence[str], gold: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the gold labels of the run [n], UNKNOWN elsewhere; a run without any has these."""
        if "gold" not in self.run.purified.column_names:
            return gold
        class_index = {name: j for j, name in enumerate(names)}
        stored = self.run.purified["gold"].to_pylist()
        return np.array([class_index.get(label, UNKNOWN) for label in stored])


def _weights_of(member: Any, t: int) -> dict[str, Any]:
    """Return the weights of network t of a stack."""
    return {name: tensor[t] for name, tensor in member.stack.tensors.items()}
