"""Learn again from what people decided: the sets that they left, and the networks to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.dataset import UNKNOWN, UNNAMED_PRIOR, Dataset, scatter_columns
from oneof.ensemble.accuracy import random_sample
from oneof.learners.base import WarmStart
from oneof.learners.config import EnsembleConfig, NetworkConfig
from oneof.learners.forest import Forest
from oneof.runs.folder import FACTS, Run, fingerprint
from oneof.runs.review.decisions import Decision, Verdict, decided_sets, verdicts
from oneof.storage.settings import digest

EPOCHS_FACTOR = 5  # times fewer epochs than from random weights


@dataclass(frozen=True)
class Refit:
    """A run and the decisions of people about it, to learn again from both."""

    run: Run
    decisions: tuple[Decision, ...]

    @cached_property
    def verdicts(self) -> dict[int, Verdict]:
        """Return what was decided about each row."""
        by_row = verdicts(self.decisions)
        return {row: verdict for row, verdict in by_row.items() if 0 <= row < self.run.facts["n"]}

    @property
    def identity(self) -> dict[str, Any]:
        """Return what the next run is recognised by, beside its spec."""
        decided = {str(row): list(verdict) for row, verdict in self.verdicts.items()}
        return {"from": fingerprint(self.run.folder / FACTS), "decisions": digest(decided)}

    def warm_start(self, data: Dataset) -> WarmStart:
        """Return settings, weights and trees of the run to start from.

        Settings are those of linear models where these were better than networks; networks on pictures have none. Weights and trees
        have no output for a label that was added, and are left out then.
        """
        model = self.run.model
        configs = []
        if not model.encoding.pixels:
            for stored in self.run.facts["chosen"]:
                hidden = tuple(stored["hidden"]) if "networks" in model.learners else ()
                configs.append(NetworkConfig(**{**stored, "hidden": hidden}))
        warm_start = WarmStart(networks=tuple(dict.fromkeys(configs)), noisy_sets=self.noisy_sets)
        if len(data.classes) != len(model.classes):
            return warm_start
        weights: dict[tuple[int, ...], list[dict[str, Any]]] = {}
        for member in model.members:
            hidden = tuple(member.shape.get("hidden", ()))
            weights[hidden] = []
            for t in range(member.stack.t):
                weights[hidden].append({name: weight[t] for name, weight in member.stack.whole.items()})
        forests = [other for other in model.others if isinstance(other, Forest)]
        return replace(warm_start, weights=weights, forest=forests[0] if forests else None)

    @property
    def noisy_sets(self) -> NDArray[np.bool_]:
        """Return which sets [n] missed the truth by the run's learners, but for those that people decided."""
        noisy = np.array(self.run.purified["outside"].is_valid())
        noisy[sorted(self.verdicts)] = False
        return noisy

    def shorten(self, config: EnsembleConfig, n: int, c: int) -> EnsembleConfig:
        """Return the config for networks that have learned most already: fewer epochs, purified from the first on."""
        if c != len(self.run.model.classes):
            return config
        config = config.for_size(n, c)
        purify = config.purify
        if purify is not None:
            purify = replace(purify, warm_up=1, interval=2, window=2)
        known = (*self.run.model.learners, "kernel")
        learners = tuple(learner for learner in config.learners if learner in known)
        epochs = max(3, (config.epochs or 60) // EPOCHS_FACTOR)
        return replace(config, epochs=epochs, purify=purify, learners=learners)

    def apply_decisions(self, data: Dataset) -> Dataset:
        """Return the data set with the sets that people left, and with classes for labels that they typed."""
        reviewed, classes = decided_sets(data.candidates.mask, data.classes, self.verdicts)
        rows = sorted(self.verdicts)
        class_index = {name: j for j, name in enumerate(classes)}
        old_columns = range(len(data.classes))
        c = len(classes)

        def overrule(prior: NDArray[Any]) -> NDArray[Any]:
            """Return a prior in which decisions of people count in place of votes."""
            prior = scatter_columns(prior, old_columns, c, UNNAMED_PRIOR)
            prior[rows] = np.where(reviewed[rows], 1.0, UNNAMED_PRIOR)
            return prior

        votes = data.votes
        prior = np.broadcast_to(np.float64(1.0), (len(data), c))
        if votes is not None:
            votes = votes.with_classes(old_columns, c)._replace(likelihood=overrule(votes.likelihood))
            prior = overrule(data.prior)
        decided = np.full(len(reviewed), UNKNOWN)
        for row in rows:
            decided[row] = class_index.get(self.verdicts[row].label or "", UNKNOWN)
        gold = data.gold
        if "gold" in self.run.purified.column_names:
            stored = self.run.purified["gold"].to_pylist()
            gold = np.array([class_index.get(label, UNKNOWN) for label in stored])
        mask = scatter_columns(data.candidates.mask, old_columns, c, False)
        return replace(
            data,
            candidates=Candidates(mask, np.array(classes)),
            reviewed=reviewed,
            prior=prior,
            votes=votes,
            gold=gold,
            audit=random_sample(decided),
        )
