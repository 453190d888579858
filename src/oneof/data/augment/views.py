"""The views of an image that each method trains on, per data set, or for pictures of any side.

A view is two functions: `draw` takes every random number from the generator, `apply` is plain tensor arithmetic on uint8
images [b, ch, h, w] with what was drawn. Apart they can be tested against Pillow, and `apply` can be compiled while the
generator stays outside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.data.augment import draws
from oneof.data.augment.colour import enhance, grey, hue
from oneof.data.augment.geometry import crop, erase, resized_crop
from oneof.data.augment.policies import AutoAugment, RandAugment, autoaugment, randaugment

PAD = 4  # of the reflected frame that random crops reach into, for sides of 28 and 32
HOLE = 16  # side of Cutout's hole, for these too


@dataclass(frozen=True)
class Plain:
    """The image as it is."""

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> None:
        return None

    def apply(self, images: Tensor, draw: None) -> Tensor:
        return images


@dataclass(frozen=True)
class Weak:
    """Horizontal flip and a crop after padding by reflection."""

    flipped: float = 0.5  # share of the images
    pad: int = PAD

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> draws.Shift:
        return draws.shift(b, self.pad, generator, self.flipped)

    def apply(self, images: Tensor, draw: draws.Shift) -> Tensor:
        return crop(images, *draw, self.pad)


@dataclass(frozen=True)
class Strong:
    """Flip, crop, a black Cutout hole, then AutoAugment where there is a policy."""

    policy: AutoAugment | None
    flipped: float = 0.5
    pad: int = PAD
    hole: int = HOLE

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> tuple[Any, ...]:
        policy = self.policy.draw(b, generator) if self.policy else None
        shift = draws.shift(b, self.pad, generator, self.flipped)
        return shift, draws.cutout(b, self.hole, h, w, generator), policy

    def apply(self, images: Tensor, draw: tuple[draws.Shift, draws.Hole, Any]) -> Tensor:
        shift, hole, policy = draw
        images = erase(crop(images, *shift, self.pad), *hole, images.new_zeros(1))
        return self.policy.apply(images, policy) if self.policy else images


@dataclass(frozen=True)
class Query:
    """PiCO's query: resized crop, flip, colour jitter, sometimes grey."""

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> tuple[Any, ...]:
        box, flip = draws.box(b, h, w, generator), draws.coin(b, generator)
        return box, flip, draws.jitter(b, generator), draws.coin(b, generator, 0.2)

    def apply(self, images: Tensor, draw: tuple[Any, ...]) -> Tensor:
        box, flip, (on, kinds, factors, turn), greyed = draw
        images = resized_crop(images, box, flip)
        for kind, factor in zip(kinds.unbind(), factors.unbind(), strict=True):
            images = enhance(images, kind, factor)
        images = torch.where(on[:, None, None, None], hue(images, turn), images)
        return torch.where(greyed[:, None, None, None], grey(images.float()).to(torch.uint8), images)


@dataclass(frozen=True)
class Key:
    """PiCO's key: resized crop, flip, RandAugment and the hole that ends it."""

    policy: RandAugment
    colour: Tensor  # [3] of the hole

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> tuple[Any, ...]:
        box, flip = draws.box(b, h, w, generator), draws.coin(b, generator)
        return box, flip, self.policy.draw(b, generator), draws.cutout_up_to(b, 0.5, h, w, generator)

    def apply(self, images: Tensor, draw: tuple[Any, Tensor, Tensor, draws.Hole]) -> Tensor:
        box, flip, policy, hole = draw
        return erase(self.policy.apply(resized_crop(images, box, flip), policy), *hole, self.colour)


View = Plain | Weak | Strong | Query | Key
Kinds = tuple[tuple[View, int], ...]  # and how many of each


Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Function that gives the views [v, b, ...] of a batch of images."""


@dataclass(frozen=True)
class Views:
    """All views of a batch: uint8 images [b, ch, h, w] and a generator give normalised [v, b, ch, h, w].

    Views of one kind are made together, as one larger batch. Channels lie innermost in memory: `flatten(0, 1)` of the
    result is in torch's channels_last format as it stands.
    """

    kinds: Kinds
    scale: Tensor  # [ch]
    offset: Tensor  # [ch]
    dtype: torch.dtype

    @property
    def names(self) -> list[str]:
        """What the views are, in words that a checkpoint can compare."""
        shares = [(view, count, getattr(view, "flipped", 0.5)) for view, count in self.kinds]
        return [f"{n} {type(view).__name__}" + (f", {p:g} flipped" if p != 0.5 else "") for view, n, p in shares]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.kinds)

    @property
    def channels(self) -> int:
        return len(self.scale)

    @property
    def size(self) -> int | None:
        """Side of the square images that the policies' maps are for; None where there is no policy."""
        policies = (view.policy for view, _ in self.kinds if isinstance(view, (Strong, Key)))
        return next((policy.size for policy in policies if policy), None)

    @property
    def smallest(self) -> int:
        """Pixels that either side must have at least: crops reach into a frame that mirrors `pad` of them, the edge not among them."""
        return 1 + max(view.pad if isinstance(view, (Weak, Strong)) else 0 for view, _ in self.kinds)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return self.apply(images, self.draw(images, generator))

    def draw(self, images: Tensor, generator: torch.Generator) -> tuple[Any, ...]:
        """All that is random, in the order of the views."""
        b, _, h, w = images.shape
        return tuple(view.draw(count * b, h, w, generator) for view, count in self.kinds)

    def apply(self, images: Tensor, draw: tuple[Any, ...]) -> Tensor:
        """The views for given draws; no random number is used."""
        pairs = zip(self.kinds, draw, strict=True)
        seen = [view.apply(images.expand(n, *images.shape).flatten(0, 1), drawn) for (view, n), drawn in pairs]
        inner = torch.cat(seen).movedim(1, -1).to(torch.float32, memory_format=torch.contiguous_format)
        normalised = torch.addcmul(self.offset, inner, self.scale).to(self.dtype).movedim(-1, 1)
        return normalised.view(self.count, *images.shape)


class Pictures(NamedTuple):
    """What the views must know of a data set."""

    size: int
    mean: tuple[float, ...]  # per channel, of levels scaled to 0 ... 1
    std: tuple[float, ...]
    weak: bool = False  # is the first view of POP cropped too?

    @property
    def colour(self) -> bool:
        return len(self.mean) == 3


DATASETS = {
    "mnist": Pictures(28, (0.1307,), (0.3081,)),
    "kmnist": Pictures(28, (0.5,), (0.5,), weak=True),
    "fashion-mnist": Pictures(28, (0.1307,), (0.3081,), weak=True),
    "cifar10": Pictures(32, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": Pictures(32, (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
}


def _strong(of: Pictures, device: torch.device | str, flipped: float = 0.5) -> Strong:
    hole = HOLE if of.size in (28, 32) else of.size // 2
    return Strong(autoaugment(of.size, device) if of.colour else None, flipped, round(of.size / 8), hole)


def _pop(of: Pictures, device: torch.device | str, flipped: float = 0.5) -> Kinds:
    first = Weak(flipped, round(of.size / 8)) if of.weak else Plain()
    return ((first, 1), (_strong(of, device, flipped), 2))


def _pico(of: Pictures, device: torch.device | str) -> Kinds:
    """Of grey images the query is POP's view 0 and the key its view 1."""
    if not of.colour:
        (first, _), (strong, _) = _pop(of, device)
        return ((first, 1), (strong, 1))
    colour = torch.tensor((125, 123, 114), dtype=torch.uint8).to(device)
    return ((Query(), 1), (Key(randaugment(of.size, device=device), colour), 1))


RECIPES: dict[str, Callable[[Pictures, torch.device | str], Kinds]] = {
    "plain": lambda of, device: ((Plain(), 1),),
    "pop": _pop,
    "upright": partial(_pop, flipped=0.0),  # of what has no mirror image: digits and letters
    "rcr": lambda of, device: ((Weak(pad=round(of.size / 8)), 1), (_strong(of, device), 2)),
    "pico": _pico,
}


def views(
    recipe: str, dataset: str | Pictures, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Views:
    """The views of a recipe for a data set, or for other pictures, with all tables on the device.

    "plain" is one view, normalised only; "pop" and "rcr" are three; "upright" is "pop", never flipped; "pico" query and key.

    >>> images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    >>> views("pop", "cifar10")(images, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5, 3, 32, 32])
    """
    if recipe not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}; got {recipe!r}.")
    if isinstance(dataset, str) and dataset not in DATASETS:
        raise ValueError(f"dataset must be one of {', '.join(DATASETS)} to have views; got {dataset!r}.")
    of = DATASETS[dataset] if isinstance(dataset, str) else dataset
    mean, std = torch.tensor(of.mean), torch.tensor(of.std)
    kinds = RECIPES[recipe](of, device)
    return Views(kinds, (1 / (255 * std)).to(device), (-mean / std).to(device), dtype)
