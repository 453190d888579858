"""A trial, which is one training run of a stack, and the settings with which a stack is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.scaling import Scaling
from oneof.purify import Purify
from oneof.training.optimize import SGD, Schedule, cosine


@dataclass(frozen=True, eq=False)
class Trial:
    """One training run: its randomness, its rows of the data, its rates.

    Rows are indices into the x and candidates given to `fit`.
    """

    seed: int = 0
    rows: NDArray[np.intp] | None = None  # to train on; None: all
    held_out: NDArray[np.intp] | None = None  # their *sets* choose the epoch
    test: NDArray[np.intp] | None = None  # their labels, if given, are reported and choose nothing
    lr: float = 0.05
    weight_decay: float = 1e-3
    scaling: str | Scaling = "none"  # a key of oneof.data.scaling.SCALINGS, or a function like those; fitted on `rows`
    purify: Purify | None = None  # this trial's own numbers, in place of fit's
    start: Mapping[str, Tensor] | None = None  # weights to start from; None: random, from the seed


@dataclass(frozen=True)
class Training:
    """Settings with which a stack is trained, whatever the method."""

    epochs: int = 100
    batch: int = 100
    optimizer: SGD = SGD()  # noqa: RUF009 - frozen
    schedule: Schedule = cosine
    mixup: float = 0.0  # alpha of the Beta distribution of mixing weights; 0: no mixup
    noise: float = 0.0  # deviation of Gaussian noise on the scaled features
    # Decay of an average of the weights that predicts in place of the networks, such as 0.999; 0: none. See `oneof.training.average`.
    average: float = field(default=0.0, metadata={"since": "0.2"})

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in ("mixup", "noise"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be a decay from 0 to below 1, such as 0.999; got {self.average}.")

    @property
    def alters_input(self) -> bool:
        return self.mixup > 0 or self.noise > 0
