"""Learning again from what people decided: the sets that they left, and the networks to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.runs.accuracy import random_sample
from oneof.runs.folder import FACTS, Run, fingerprint
from oneof.runs.labels import Judgement
from oneof.runs.learn import Examples
from oneof.runs.review.decided import decided_sets
from oneof.runs.review.log import Decision, Log, Verdict, verdicts
from oneof.selection.learners import Forest
from oneof.selection.space import Setting, Space
from oneof.storage.settings import digest

QUICK = 5  # times fewer epochs than from drawn weights
_FEW = 1e-6  # prior of a label that nobody knew before


@dataclass(frozen=True)
class Again:
    """What a run and the decisions about it give to the next one."""

    run: Run
    standing: tuple[Decision, ...]

    @classmethod
    def of(cls, run: Run) -> Again:
        """The decisions of a run's folder."""
        return cls(run, tuple(Log(run.folder).standing))

    @cached_property
    def said(self) -> dict[int, Verdict]:
        return {row: one for row, one in verdicts(self.standing).items() if 0 <= row < self.run.facts["n"]}

    @property
    def asked(self) -> dict[str, Any]:
        """What the next run is recognised by, beside its task."""
        decisions = digest({str(row): list(one) for row, one in self.said.items()})
        return {"from": fingerprint(self.run.folder / FACTS), "decisions": decisions}

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Those that the run chose; of linear models, where these were better than networks; none of networks on pictures."""
        if self.run.model.encoding.pixels:
            return ()
        linear = "networks" not in self.run.model.learners
        chosen = [one | {"hidden": () if linear else tuple(one["hidden"])} for one in self.run.facts["chosen"]]
        return tuple(dict.fromkeys(Setting(**one) for one in chosen))

    def starts(self, classes: int) -> dict[tuple[int, ...], list[Any]]:
        """The networks' weights by hidden layers; none where a label was added, for which these have no output."""
        if classes != len(self.run.model.classes):
            return {}
        return {
            member.hidden: [{name: one[t] for name, one in member.stack.whole.items()} for t in range(member.stack.t)]
            for member in self.run.model.members
        }

    def forest(self, classes: int) -> Forest | None:
        """The trees; none where a label was added."""
        trees = [one for one in self.run.model.others if isinstance(one, Forest)]
        return trees[0] if trees and classes == len(self.run.model.classes) else None

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
        rows, place = sorted(self.said), {name: j for j, name in enumerate(names)}

        def wide(values: NDArray[Any], other: float) -> NDArray[Any]:
            return np.pad(values, ((0, 0), (0, len(names) - len(old))), constant_values=other)

        def told(prior: NDArray[Any]) -> NDArray[Any]:
            """A prior in which people's decisions stand before votes."""
            prior = wide(prior, _FEW)
            prior[rows] = np.where(taught[rows], 1.0, _FEW)
            return prior

        beside, gold = examples.beside, examples.gold
        if beside is not None:
            votes = beside.votes
            if votes is not None:
                votes = votes._replace(others=wide(votes.others, float(np.log(_FEW))), said=wide(votes.said, _FEW))
            opinion = None if beside.opinion is None else wide(beside.opinion, 0.0)
            beside = Judgement(told(beside.prior), opinion, votes)
        known = np.full(len(taught), -1)
        known[rows] = [place.get(self.said[row].label or "", -1) for row in rows]
        measured = random_sample(known)
        if "gold" in self.run.purified.column_names:
            gold = np.array([place.get(label, -1) for label in self.run.purified["gold"].to_pylist()])
        unbelieved = np.array(self.run.purified["outside"].is_valid())  # by what its learners said
        unbelieved[rows] = False
        return replace(
            examples,
            candidates=Candidates(wide(examples.candidates.mask, False), np.array(names)),
            taught=taught,
            unbelieved=unbelieved,
            prior=None if examples.prior is None else told(examples.prior),
            beside=beside,
            drawn=measured if (measured >= 0).any() else None,
            gold=gold,
        )
