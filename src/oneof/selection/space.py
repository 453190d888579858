"""What the truth-free search tries: ways to see the features, rates, and how the ensemble is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oneof.data.scaling import Beside
from oneof.methods import BalancedProden, Method
from oneof.purify import Pop, Purify
from oneof.selection.leave_one_out import Kernel
from oneof.training.optimize import SGD, Optimizer

SEEN: dict[str, Beside] = {
    "feature": Beside("feature", ranks=False),
    "global": Beside("global", ranks=False),
    "root": Beside("root", ranks=False),
    "minmax": Beside("minmax", ranks=False),
    "none": Beside("none", ranks=False),
    "ranks": Beside(None),
    "both": Beside("feature"),
}
"""How features that stand beside their ranks may be seen; "both": each feature's deviation made one, and its ranks."""


class Setting(NamedTuple):
    """What the search chooses for a network."""

    hidden: tuple[int, ...]
    scaling: str  # a key of SEEN
    lr: float
    weight_decay: float


@dataclass(frozen=True)
class Space:
    """What is tried, and how the ensemble is made."""

    hidden: tuple[tuple[int, ...], ...] = ((256,),)
    scaling: tuple[str, ...] = ("feature", "global", "root", "ranks", "both")
    lr: tuple[float, ...] = (0.1, 0.3)
    weight_decay: tuple[float, ...] = (3e-4, 1e-3)
    kernel: Kernel | None = Kernel()  # noqa: RUF009 - frozen; None: sets are not purified beforehand
    margin: float = 0.3  # a label falls beforehand when another leads it by so much in what the other rows say
    method: Method = BalancedProden()  # noqa: RUF009 - frozen
    purify: Purify | None = Pop()  # noqa: RUF009 - frozen
    optimizer: Optimizer = SGD()  # noqa: RUF009 - frozen
    mixup: float = 1.0
    noise: float = 0.0
    batch: int | None = None  # None: 50, more for more than 5,000 rows
    scalings: int = 2  # ways to see the features that networks are tried with
    rows: int = 5000  # of a larger table a sample speaks for it until the ensemble is trained
    folds: int = 3
    trial_epochs: int = 15
    settings: int = 3  # that the ensemble is made of
    members: int = 12  # networks in the ensemble
    parts: int | None = None  # of the rows, each held out by other networks; None: as many as there are networks
    epochs: int | None = None  # None: 60, fewer for more than 20,000 rows

    def of(self, n: int) -> Space:
        """With numbers in place of None, for a table of n rows."""
        batch = self.batch or int(np.clip(n // 100, 50, 2048))
        epochs = self.epochs or int(np.clip(1_200_000 // n, 5, 60))
        return replace(self, batch=batch, epochs=epochs)
