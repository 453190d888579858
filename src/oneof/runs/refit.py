"""Fit again from what people decided: the sets that they left, and the settings and weights of the run to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.ensemble.accuracy import random_sample
from oneof.ensemble.pipeline import Examples
from oneof.ensemble.resolve import FEW, spread
from oneof.learners.config import Setting, Space
from oneof.learners.forest import Forest
from oneof.runs.decisions import Decision, ResolvedDecision, decided_sets, resolve_decisions
from oneof.runs.folder import METADATA, Run, fingerprint
from oneof.storage.settings import digest

EPOCHS_DIVISOR = 5  # a fit from trained weights takes this many times fewer epochs than one from random weights
_DEFAULT_EPOCHS = 60
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

    def starting_point(self, n_classes: int) -> dict[str, Any]:
        """Return what the search starts from: settings, weights by hidden layers, and the forest.

        There are no settings for networks on pictures. If linear models replaced the networks, the settings are those of
        linear models. If a class was added, weights and forest have no output for it and are left out.
        """
        model = self.run.model
        start: dict[str, Any] = {"settings": self._settings()}
        if n_classes != len(model.classes):
            return start
        for member in model.members:
            weights = []
            for t in range(member.stack.t):
                weights.append({name: tensor[t] for name, tensor in member.stack.whole.items()})
            hidden = tuple(member.shape.get("hidden", ()))
            start.setdefault("starts", {})[hidden] = weights
        start["forest"] = next((learner for learner in model.others if isinstance(learner, Forest)), None)
        return start

    def _settings(self) -> tuple[Setting, ...]:
        """Return the distinct settings that the run chose."""
        model = self.run.model
        if model.encoding.pixels:
            return ()
        settings = []
        for chosen in self.run.metadata["chosen"]:
            hidden = tuple(chosen["hidden"]) if "networks" in model.learners else ()
            settings.append(Setting(**{**chosen, "hidden": hidden}))
        return tuple(dict.fromkeys(settings))

    def shorten(self, space: Space, n: int, n_classes: int) -> Space:
        """Return the space for networks that start from trained weights: fewer epochs, purified from the first one.

        If a class was added, the networks start from random weights, and the space is returned unchanged.
        """
        if n_classes != len(self.run.model.classes):
            return space
        space = space.of(n, n_classes)
        purify = space.purify
        if purify is not None:
            purify = replace(purify, warm_up=1, interval=2, window=2)
        available = (*self.run.model.learners, "kernel")
        learners = tuple(learner for learner in space.learners if learner in available)
        epochs = max(_MIN_EPOCHS, (space.epochs or _DEFAULT_EPOCHS) // EPOCHS_DIVISOR)
        return replace(space, epochs=epochs, purify=purify, learners=learners)

    def apply_decisions(self, examples: Examples) -> Examples:
        """Return the examples with the sets that people left, and with classes for the labels that they typed."""
        old_names = [str(name) for name in examples.candidates.classes.tolist()]
        sets, names = decided_sets(examples.candidates.mask, old_names, self.decisions)
        c = len(names)
        old_columns = range(len(old_names))
        class_index = {name: j for j, name in enumerate(names)}
        rows = sorted(self.decisions)

        def decided_prior(prior: NDArray[Any]) -> NDArray[Any]:
            """Return a prior [n, c] in which the decisions replace the votes on their rows."""
            prior = spread(prior, old_columns, c)
            prior[rows] = np.where(sets[rows], 1.0, FEW)
            return prior

        labels = np.full(len(sets), -1)
        labels[rows] = [class_index.get(self.decisions[row].label or "", -1) for row in rows]
        sampled = random_sample(labels)
        noisy = np.array(self.run.purified["outside"].is_valid())  # according to the learners of the run
        noisy[rows] = False
        gold = examples.gold
        if "gold" in self.run.purified.column_names:
            gold = np.array([class_index.get(label, -1) for label in self.run.purified["gold"].to_pylist()])
        evidence = examples.beside
        if evidence is not None:
            prior = decided_prior(evidence.prior)
            evidence = evidence.over(old_columns, c)._replace(prior=prior)
        return replace(
            examples,
            candidates=Candidates(spread(examples.candidates.mask, old_columns, c, False), np.array(names)),
            taught=sets,
            unbelieved=noisy,
            prior=None if examples.prior is None else decided_prior(examples.prior),
            beside=evidence,
            drawn=sampled if (sampled >= 0).any() else None,
            gold=gold,
        )
