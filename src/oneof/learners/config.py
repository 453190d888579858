"""What the truth-free search tries: ways to see the features, rates, and how the ensemble is made."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.scaling import Affine, Beside
from oneof.data.with_ranks import Ranks, learn_ranks, learn_ranks_on
from oneof.learners.fitted import LEARNERS, Trees
from oneof.learners.kernel import KernelConfig
from oneof.methods import METHODS, BalancedProden, Method
from oneof.purify import Pop, Purify
from oneof.storage.did_you_mean import did_you_mean
from oneof.training.optimize import SGD
from oneof.training.set_input import as_tensor

SEEN = {way: Beside(way, ranks=False) for way in ("feature", "global", "root", "minmax", "none")}
SEEN |= {"ranks": Beside(None), "both": Beside("feature")}
"""How features that stand beside their ranks may be seen; "both": each feature's deviation made one, and its ranks."""


def widen(x: NDArray[Any], device: torch.device) -> tuple[Ranks, NDArray[np.float64] | Tensor]:
    """Features x [n, d] beside their ranks [n, 2d], and the map that gives these; unless on the CPU, a tensor."""
    if device.type == "cpu":
        ranks = learn_ranks(x)
        return ranks, ranks(x)
    ranks = learn_ranks_on(there := as_tensor(x, None, device))
    return ranks, ranks.on_device(there)


def see(way: str, wide: NDArray[np.float64] | Tensor) -> tuple[Any, Affine]:
    """Features that stand beside their ranks as they are seen in one way, in the form in which they come, and the map."""
    values = torch.as_tensor(wide)
    shift, scale = SEEN[way](values)
    seen = ((values - shift) * scale)[:, scale != 0]
    return seen if isinstance(wide, Tensor) else seen.numpy(), Affine(shift.cpu(), scale.cpu())


class Setting(NamedTuple):
    """What the search chooses for a network."""

    hidden: tuple[int, ...]
    scaling: str  # a key of SEEN
    lr: float
    weight_decay: float


@dataclass(frozen=True)
class Space:
    """What is tried, and what the ensemble is made of."""

    hidden: tuple[tuple[int, ...], ...] = ((128, 128),)
    scaling: tuple[str, ...] = ("feature", "global", "root", "ranks", "both")
    lr: tuple[float, ...] = (0.3,)
    weight_decay: tuple[float, ...] = (3e-4,)
    learners: tuple[Any, ...] = LEARNERS  # of LEARNERS, or scikit-learn classifiers
    trees: Trees = Trees()  # noqa: RUF009 - frozen
    kernel: KernelConfig | None = KernelConfig()  # noqa: RUF009 - frozen; None: sets are not purified beforehand
    margin: float = 0.3  # a label falls beforehand when another leads it by so much in what the other rows say
    method: Method = BalancedProden()  # noqa: RUF009 - frozen
    purify: Purify | None = Pop()  # noqa: RUF009 - frozen
    optimizer: SGD = SGD()  # noqa: RUF009 - frozen
    mixup: float = 1.0
    noise: float = 0.0
    batch: int | None = None  # None: a tenth of the rows, 16 to 80; more for more than 8,000 rows; all about equal
    scalings: int = 2  # ways to see the features that networks are trained with: the best
    rows: int = 5000  # of a larger table a sample speaks for it until the ensemble is trained
    folds: int = 3  # on which `oneof tune` tries a setting
    trial_epochs: int = 15  # ... for so long
    settings: int = 3  # that the ensemble is made of: the first of hidden x scaling x lr x weight_decay
    members: int = 5  # networks in the ensemble, and linear ones beside them
    parts: int | None = None  # of the rows, each held out by other networks; None: as many as there are networks
    epochs: int | None = None  # None: 30, fewer for more than 40,000 rows or 5,000,000 cells [n, c]

    def narrowed(self, setting: Mapping[str, Any]) -> Space:
        """What a setting says in place of what would be searched; None says nothing.

        >>> Space().narrowed({"hidden": [64], "lr": 0.1, "scaling": None}).hidden
        ((64,),)
        """
        known = (*Setting._fields, "mixup")
        unknown = next((name for name in setting if name not in known), None)
        if unknown is not None:
            raise ValueError(f"a setting must say {', '.join(known)} and nothing else; got {unknown!r}.")
        said: dict[str, Any] = {name: value for name, value in setting.items() if value is not None}
        for name in said.keys() - {"hidden", "scaling"}:
            if isinstance(said[name], bool) or not isinstance(said[name], numbers.Real):
                raise ValueError(f"{name} must be a number; got {said[name]!r}.")
        if said.get("scaling", "none") not in SEEN:
            raise ValueError(f"scaling must be one of {', '.join(SEEN)}; got {said['scaling']!r}.")
        if "hidden" in said:
            said["hidden"] = widths(said["hidden"])
        alone: dict[str, Any] = {name: value if name == "mixup" else (value,) for name, value in said.items()}
        return replace(self, **alone)

    def of(self, n: int, c: int = 1) -> Space:
        """With numbers in place of None, for a table of n rows and c classes."""
        trained = max(1, n - n // (self.parts or self.members))
        most = int(np.clip(n // 10, 16, np.clip(n // 100, 80, 2048)))
        batch = self.batch or -(-trained // -(-trained // most))  # a last batch of a few rows costs a point of accuracy
        epochs = self.epochs or int(np.clip(min(1_200_000 // n, 150_000_000 // (n * c)), 5, 30))
        return replace(self, batch=batch, epochs=epochs)

    @property
    def quick(self) -> Space:
        """Without networks: the first answer."""
        return replace(self, learners=("kernel", "trees"), trees=replace(self.trees, count=100))


def method_for_tables(method: str | Method) -> Method:
    """A method by its name, or the one that was given, if it can learn from a table."""
    found: Method = instance(method, METHODS, Method, "method")
    if found.views > 1:
        raise ValueError(f"method must work on tables; {method!r} compares views of images. Use oneof.fit with views=.")
    return found


def checked_learners(learners: Any) -> tuple[Any, ...]:
    """Learners by name, or scikit-learn classifiers that give probabilities and take weights; one or several."""
    several = isinstance(learners, (list, tuple)) and learners
    for one in learners if several else [learners]:
        classifier = hasattr(one, "predict_proba") and not isinstance(one, type)
        if not classifier and (not isinstance(one, str) or one not in LEARNERS):
            some = f"some of {', '.join(LEARNERS)}, or scikit-learn classifiers with predict_proba"
            raise ValueError(f"learners must be {some}; got {one!r}.{did_you_mean(str(one), LEARNERS)}")
        if classifier and not (hasattr(one, "fit") and "sample_weight" in signature(one.fit).parameters):
            raise ValueError(
                f"learners must take sample_weight in fit; {type(one).__name__} does not. Use another one."
            )
    return tuple(learners) if several else (learners,)


def widths(hidden: Any) -> tuple[int, ...]:
    """Widths of hidden layers, given as one or as several.

    >>> widths(128), widths([64, 32])
    ((128,), (64, 32))
    """
    given = tuple(hidden) if isinstance(hidden, (list, tuple, np.ndarray)) else (hidden,)
    if not all(isinstance(width, (int, np.integer)) and width > 0 for width in given):
        raise ValueError(f"hidden_layer_sizes must be widths of layers, such as (128,) or (); got {hidden!r}.")
    return given


def instance(value: Any, known: dict[str, Any], kind: Any, name: str) -> Any:
    """An instance by its name, or the instance that was given."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be a name or an instance, such as {next(iter(known.values())).__name__}(); got {value!r}."
        )
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{did_you_mean(value, known)}")
    return known[value]()
