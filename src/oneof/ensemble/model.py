"""A trained ensemble: networks, trees and regressions, how each sees features, and how much each counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.encode import Encoding
from oneof.data.with_ranks import Ranks
from oneof.learners.fitted import Learner, Own
from oneof.networks.named import name_of
from oneof.training.device import on_cpu
from oneof.training.set_input import as_tensor
from oneof.training.stack import Stack
from oneof.training.state import Fit

_CELLS = 2**22  # probabilities in memory at a time, over all networks
_PICTURES = 512  # looked at together


class Member(NamedTuple):
    """t networks of one architecture, and how they see features."""

    stack: Stack
    shift: Tensor | None  # [t, 1, d]
    scale: Tensor | None
    origin: NDArray[np.float64] | None  # [d], subtracted in double precision
    ranks: Ranks | None  # put beside the features before all else

    def seen(self, x: NDArray[Any], t: slice = slice(None)) -> Tensor:
        """Features x [n, d] as the networks t see them, [t, n, d or 2d], where the networks are."""
        features = self._unscaled(x)[None]
        if self.shift is None or self.scale is None:
            return features.expand(len(range(self.stack.t)[t]), -1, -1)
        return (features - self.shift[t]) * self.scale[t]

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Features x [n, d] as the first network sees them."""
        return self.seen(x, slice(1))[0].cpu().numpy()

    def _unscaled(self, x: NDArray[Any]) -> Tensor:
        place = next(iter(self.stack.weights.values())).device
        if place.type == "cpu":
            wide = x if self.ranks is None else self.ranks(x)
            values = wide if self.origin is None else np.asarray(wide, dtype=np.float64) - self.origin
            return torch.as_tensor(np.asarray(values, dtype=np.float32))
        there = as_tensor(x, torch.float64, place)
        there = there if self.ranks is None else self.ranks.on_device(there)
        return (there if self.origin is None else there - torch.as_tensor(self.origin, device=place)).float()

    @property
    def shape(self) -> dict[str, Any]:
        """What a network of the member is built from; a linear model has no hidden layer."""
        layers = [weight for weight in self.stack.weights.values() if weight.dim() == 3]
        hidden = [layer.shape[1] for layer in layers[:-1]]
        return {"networks": self.stack.t, "inputs": layers[0].shape[2], "hidden": hidden}

    @property
    def is_linear(self) -> bool:
        return not self.shape["hidden"]

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Logits [t, n, c] of features x [n, d]."""
        with self.stack.eval_mode():
            return self.stack(self.seen(x))  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class PictureMember:
    """t networks on pictures, which see levels [n, d] as [n, channels, side, side], normalised."""

    stack: Stack
    network: str  # as `oneof.networks.named` knows it
    pixels: tuple[int, ...]  # channels, side, side
    scale: Tensor  # [channels]
    offset: Tensor
    is_linear = False

    @property
    def shape(self) -> dict[str, Any]:
        return {"networks": self.stack.t, "network": self.network, "pixels": list(self.pixels)}

    @cached_property
    def networks(self) -> list[nn.Module]:
        return [module.eval() for module in self.stack.modules()]

    def normalised(self, x: NDArray[Any]) -> Tensor:
        """What the networks see, where they are."""
        levels = torch.as_tensor(x).to(self.scale.device).view(-1, *self.pixels)
        return levels * self.scale[:, None, None] + self.offset[:, None, None]

    @torch.no_grad()
    def logits(self, x: NDArray[Any]) -> Tensor:
        """Logits [t, n, c] of levels x [n, d]."""
        seen = self.normalised(x)
        return torch.stack([network(seen) for network in self.networks]).cpu()

    @torch.no_grad()
    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """What the first network's body makes of levels x [n, d]: [n, width]."""
        body: Any = self.networks[0].body
        blocks = [x[start : start + _PICTURES] for start in range(0, len(x), _PICTURES)]
        return torch.cat([body(self.normalised(block)).cpu() for block in blocks]).numpy()


@dataclass(frozen=True)
class Model:
    """Everything that predicting needs."""

    classes: list[str]  # [c]
    encoding: Encoding  # columns -> features [n, d]
    members: tuple[Member | PictureMember, ...]
    calibration: dict[str, Any]  # as oneof.ensemble.calibrate makes it
    others: tuple[Learner, ...] = ()  # that are no networks
    shares: tuple[float, ...] = ()  # of each member, then of each other learner; (): every network counts alike

    @property
    def t(self) -> int:
        return sum(member.stack.t for member in self.members)

    @property
    def voices(self) -> int:
        """Networks, and other learners, which speak with one voice each."""
        return self.t + len(self.others)

    @property
    def parts(self) -> Sequence[float]:
        """How much each member counts, then each other learner."""
        return self.shares or [member.stack.t / self.t for member in self.members]

    @property
    def learners(self) -> dict[str, float]:
        """How much each kind of learner counts."""
        names = ["linear" if member.is_linear else "networks" for member in self.members]
        names += [type(one.fitted[0]).__name__ if isinstance(one, Own) else one.kind for one in self.others]
        counted = dict.fromkeys(names, 0.0)
        for name, share in zip(names, self.parts, strict=True):
            counted[name] = round(counted[name] + share, 4)
        return counted

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Rows as the first network sees them, of pictures what it makes of them; without networks, features of unit deviation."""
        return self.members[0].features(x) if self.members else (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)

    def of(
        self, members: Iterable[Member | PictureMember], others: Iterable[Learner] = (), shares: Iterable[float] = ()
    ) -> Model:
        """The same classes and features with other learners."""
        return replace(self, members=tuple(members), others=tuple(others), shares=tuple(shares))

    def on_cpu(self) -> Model:
        """The same model, its networks on tables on the CPU."""
        return replace(self, members=tuple(on_cpu(one) if isinstance(one, Member) else one for one in self.members))

    def blocks(self, x: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """Every network's probabilities [t, rows, c], some rows at a time: all at once would not fit for a million rows."""
        size = max(1, _CELLS // (self.t * max(len(self.classes), 2 * x.shape[1])))
        for start in range(0, len(x), size):
            rows = slice(start, min(start + size, len(x)))
            yield rows, torch.cat([member.logits(x[rows]).softmax(-1) for member in self.members])

    def check_predicts(self) -> None:
        """Refuse a model of votes alone: without features there is nothing to tell new rows apart by."""
        if not self.members and not self.others:
            remedy = "Fit again with columns to learn from, such as a text (--text COLUMN)."
            raise ValueError(
                f"new rows cannot be predicted: the run was fitted to votes alone, without features. {remedy}"
            )

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Mean probability [n, c] over the networks and other learners, by their shares."""
        self.check_predicts()
        found = np.zeros((len(x), len(self.classes)), dtype=np.float32)
        sizes = [member.stack.t for member in self.members]
        weights = [torch.full((t,), share / t) for t, share in zip(sizes, self.parts, strict=False)]
        for rows, each in self.blocks(x) if self.members else ():
            found[rows] = torch.einsum("t,tnc->nc", torch.cat(weights), each).numpy()
        for share, learner in zip(self.parts[len(sizes) :], self.others, strict=True):
            found += np.float32(share) * learner(x)
        return found

    def check_portable(self) -> None:
        """Refuse a classifier of the user's own, which has no form but a pickle."""
        own = next((type(one.fitted[0]).__name__ for one in self.others if isinstance(one, Own)), None)
        if own is not None:
            raise ValueError(
                f"learners must be oneof's own to be written; {own} is not. Fit without it to save or export."
            )


def member_of(fitted: Fit) -> Member | PictureMember:
    """The networks of a fit, without what training left beside them."""
    if fitted.eval_transform is None:
        return Member(fitted.stack, fitted.shift, fitted.scale, fitted.origin, fitted.ranks)
    name, look = name_of(fitted.network), fitted.eval_transform
    return PictureMember(fitted.stack, name, tuple(fitted.shape), look.scale, look.offset)
