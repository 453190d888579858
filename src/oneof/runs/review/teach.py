"""Learning again from what people decided: the sets that they left, and the networks to start from."""

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
from oneof.runs.folder import FACTS, Run, fingerprint
from oneof.runs.review.decisions import Decision, Verdict, decided_sets, verdicts
from oneof.storage.settings import digest

QUICK = 5  # times fewer epochs than from drawn weights


@dataclass(frozen=True)
class Again:
    """What a run and the decisions about it give to the next one."""

    run: Run
    standing: tuple[Decision, ...]

    @cached_property
    def said(self) -> dict[int, Verdict]:
        return {row: one for row, one in verdicts(self.standing).items() if 0 <= row < self.run.facts["n"]}

    @property
    def asked(self) -> dict[str, Any]:
        """What the next run is recognised by, beside its task."""
        decisions = digest({str(row): list(one) for row, one in self.said.items()})
        return {"from": fingerprint(self.run.folder / FACTS), "decisions": decisions}

    def search(self, classes: int) -> dict[str, Any]:
        """What a search starts from: the settings that the run chose, its networks' weights by hidden layers, and its trees.

        Settings are those of linear models, where these were better than networks; networks on pictures have none. Weights and trees
        have no output for a label that was added.
        """
        model, hidden = self.run.model, "networks" in self.run.model.learners
        chosen = () if model.encoding.pixels else self.run.facts["chosen"]
        layers = [one | {"hidden": tuple(one["hidden"]) if hidden else ()} for one in chosen]
        found: dict[str, Any] = {"settings": tuple(dict.fromkeys(Setting(**one) for one in layers))}
        if classes != len(model.classes):
            return found
        for member in model.members:
            weights = [{name: one[t] for name, one in member.stack.tensors.items()} for t in range(member.stack.t)]
            found.setdefault("starts", {})[tuple(member.shape.get("hidden", ()))] = weights
        return found | {"forest": next((one for one in model.others if isinstance(one, Forest)), None)}

    def space(self, space: Space, n: int, classes: int) -> Space:
        """A space for networks that have learned most of it already: fewer epochs, purified from the first on."""
        if classes != len(self.run.model.classes):
            return space
        space = space.of(n, classes)
        early = None if space.purify is None else replace(space.purify, warm_up=1, interval=2, window=2)
        learners = tuple(one for one in space.learners if one in (*self.run.model.learners, "kernel"))
        return replace(space, epochs=max(3, (space.epochs or 60) // QUICK), purify=early, learners=learners)

    def teach(self, examples: Examples) -> Examples:
        """The examples with the sets that people left, and room for labels that they typed."""
        old = [str(name) for name in examples.candidates.classes.tolist()]
        taught, names = decided_sets(examples.candidates.mask, old, self.said)
        rows, place, known_before = sorted(self.said), {name: j for j, name in enumerate(names)}, range(len(old))

        def told(prior: NDArray[Any]) -> NDArray[Any]:
            """A prior in which people's decisions stand before votes."""
            prior = spread(prior, known_before, len(names))
            prior[rows] = np.where(taught[rows], 1.0, FEW)
            return prior

        beside, gold = examples.beside, examples.gold
        if beside is not None:
            beside = beside.over(known_before, len(names))._replace(prior=told(beside.prior))
        known = np.full(len(taught), -1)
        known[rows] = [place.get(self.said[row].label or "", -1) for row in rows]
        measured = random_sample(known)
        if "gold" in self.run.purified.column_names:
            gold = np.array([place.get(label, -1) for label in self.run.purified["gold"].to_pylist()])
        unbelieved = np.array(self.run.purified["outside"].is_valid())  # by what its learners said
        unbelieved[rows] = False
        candidates = Candidates(spread(examples.candidates.mask, known_before, len(names), False), np.array(names))
        prior = None if examples.prior is None else told(examples.prior)
        drawn = measured if (measured >= 0).any() else None
        given = replace(examples, candidates=candidates, taught=taught, unbelieved=unbelieved)
        return replace(given, prior=prior, beside=beside, drawn=drawn, gold=gold)
