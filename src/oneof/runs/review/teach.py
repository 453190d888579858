"""Learning again from what people decided: the sets that they left, and the networks to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.runs.calibrate import ENOUGH
from oneof.runs.folder import FACTS, Run, fingerprint
from oneof.runs.labels import Judgement
from oneof.runs.learn import Examples
from oneof.runs.review.decided import decided_sets
from oneof.runs.review.log import Decision, Log, Verdict, verdicts
from oneof.selection.space import Setting, Space
from oneof.storage.settings import digest

QUICK = 3  # times fewer epochs than from drawn weights
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
        """Those that the run chose."""
        return tuple(Setting(**one | {"hidden": tuple(one["hidden"])}) for one in self.run.facts["chosen"])

    def starts(self, classes: int) -> tuple[list[Any], ...]:
        """The networks' weights; none where a label was added, for which these have no output."""
        if classes != len(self.run.model.classes):
            return ()
        return tuple([net.state_dict() for net in member.stack.modules()] for member in self.run.model.members)

    def space(self, space: Space, n: int, classes: int) -> Space:
        """A space for networks that have learned most of it already: fewer epochs, purified from the first on."""
        if not self.starts(classes):
            return space
        space = space.of(n)
        early = None if space.purify is None else replace(space.purify, warm_up=1, interval=2, window=2)
        return replace(space, epochs=max(3, (space.epochs or 60) // QUICK), purify=early)

    def teach(self, examples: Examples) -> Examples:
        """The examples with the sets that people left, and room for labels that they typed."""
        old = [str(name) for name in examples.candidates.classes.tolist()]
        taught, names = decided_sets(examples.candidates.mask, old, self.said)
        more, rows = len(names) - len(old), np.flatnonzero([row in self.said for row in range(len(taught))])
        widened = np.pad(examples.candidates.mask, ((0, 0), (0, more)))
        prior = _told(examples.prior, taught, rows, more)
        beside = examples.beside
        if beside is not None:
            opinion = None if beside.opinion is None else np.pad(beside.opinion, ((0, 0), (0, more)))
            beside = Judgement(_told(beside.prior, taught, rows, more), opinion)
        candidates = Candidates(widened, np.array(names)) if more else examples.candidates
        return replace(
            examples, candidates=candidates, taught=taught, prior=prior, beside=beside, drawn=self._drawn(names)
        )  # fmt: skip

    def _drawn(self, names: list[str]) -> NDArray[np.intp] | None:
        """Final labels of the rows that were drawn at random, where there are enough to estimate by: the others were hard ones."""
        place = {name: j for j, name in enumerate(names)}
        found = np.full(self.run.facts["n"], -1)
        for one in self.standing:
            verdict = self.said.get(one.row)
            if one.drawn == "random" and verdict is not None and verdict.label is not None:
                found[one.row] = place[verdict.label]
        return found if (found >= 0).sum() >= ENOUGH else None


def _told(prior: NDArray[Any] | None, taught: NDArray[np.bool_], rows: NDArray[np.intp], more: int) -> Any:
    """A prior in which people's decisions stand before votes."""
    if prior is None:
        return None
    wide = np.pad(prior, ((0, 0), (0, more)), constant_values=_FEW)
    wide[rows] = np.where(taught[rows], 1.0, _FEW)
    return wide
