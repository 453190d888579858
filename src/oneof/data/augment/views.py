"""Views of images: what each method trains on, for the named data sets or for pictures of any side.

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
        policy = None
        if self.policy:
            policy = self.policy.draw(b, generator)
        shift = draws.shift(b, self.pad, generator, self.flipped)
        hole = draws.cutout(b, self.hole, h, w, generator)
        return shift, hole, policy

    def apply(self, images: Tensor, draw: tuple[draws.Shift, draws.Hole, Any]) -> Tensor:
        shift, hole, policy = draw
        black = images.new_zeros(1)
        images = erase(crop(images, *shift, self.pad), *hole, black)
        if self.policy:
            images = self.policy.apply(images, policy)
        return images


@dataclass(frozen=True)
class Query:
    """PiCO's query: resized crop, flip, colour jitter, sometimes grey."""

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> tuple[Any, ...]:
        box = draws.box(b, h, w, generator)
        flip = draws.coin(b, generator)
        jitter = draws.jitter(b, generator)
        becomes_grey = draws.coin(b, generator, 0.2)
        return box, flip, jitter, becomes_grey

    def apply(self, images: Tensor, draw: tuple[Any, ...]) -> Tensor:
        box, flip, jitter, becomes_grey = draw
        is_jittered, kinds, factors, turn = jitter
        images = resized_crop(images, box, flip)
        for kind, factor in zip(kinds.unbind(), factors.unbind(), strict=True):
            images = enhance(images, kind, factor)
        images = torch.where(is_jittered[:, None, None, None], hue(images, turn), images)
        grey_images = grey(images.float()).to(torch.uint8)
        return torch.where(becomes_grey[:, None, None, None], grey_images, images)


@dataclass(frozen=True)
class Key:
    """PiCO's key: resized crop, flip, RandAugment and the hole that ends it."""

    policy: RandAugment
    colour: Tensor  # [3] of the hole

    def draw(self, b: int, h: int, w: int, generator: torch.Generator) -> tuple[Any, ...]:
        box = draws.box(b, h, w, generator)
        flip = draws.coin(b, generator)
        policy = self.policy.draw(b, generator)
        hole = draws.cutout_up_to(b, 0.5, h, w, generator)
        return box, flip, policy, hole

    def apply(self, images: Tensor, draw: tuple[Any, Tensor, Tensor, draws.Hole]) -> Tensor:
        box, flip, policy, hole = draw
        images = resized_crop(images, box, flip)
        images = self.policy.apply(images, policy)
        return erase(images, *hole, self.colour)


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
        """Describe the views in words that a checkpoint can compare."""
        names = []
        for view, count in self.kinds:
            name = f"{count} {type(view).__name__}"
            flipped = getattr(view, "flipped", 0.5)
            if flipped != 0.5:
                name += f", {flipped:g} flipped"
            names.append(name)
        return names

    @property
    def count(self) -> int:
        """Return the number of views of an image."""
        return sum(count for _, count in self.kinds)

    @property
    def channels(self) -> int:
        """Return the number of channels of an image."""
        return len(self.scale)

    @property
    def size(self) -> int | None:
        """Return the side of the square images that the policies' maps are for; None where there is no policy."""
        for view, _ in self.kinds:
            if isinstance(view, (Strong, Key)) and view.policy:
                return view.policy.size
        return None

    @property
    def smallest(self) -> int:
        """Return the least side of an image: crops reach into a frame that mirrors `pad` pixels, the edge not among them."""
        pads = [view.pad for view, _ in self.kinds if isinstance(view, (Weak, Strong))]
        return 1 + max(pads, default=0)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return self.apply(images, self.draw(images, generator))

    def draw(self, images: Tensor, generator: torch.Generator) -> tuple[Any, ...]:
        """Draw all random numbers, in the order of the views."""
        b, _, h, w = images.shape
        return tuple(view.draw(count * b, h, w, generator) for view, count in self.kinds)

    def apply(self, images: Tensor, draw: tuple[Any, ...]) -> Tensor:
        """Return the views for these draws; no random number is used."""
        views_of_kind = []
        for (view, count), draw_of_view in zip(self.kinds, draw, strict=True):
            repeated = images.expand(count, *images.shape).flatten(0, 1)
            views_of_kind.append(view.apply(repeated, draw_of_view))
        channels_last = torch.cat(views_of_kind).movedim(1, -1)
        levels = channels_last.to(torch.float32, memory_format=torch.contiguous_format)
        normalised = torch.addcmul(self.offset, levels, self.scale).to(self.dtype)
        return normalised.movedim(-1, 1).view(self.count, *images.shape)


class Pictures(NamedTuple):
    """Facts about a data set that its views depend on."""

    size: int
    mean: tuple[float, ...]  # per channel, of levels scaled to 0 ... 1
    std: tuple[float, ...]
    weak: bool = False  # whether the first view of POP is cropped too

    @property
    def colour(self) -> bool:
        """Return whether images have colours."""
        return len(self.mean) == 3


DATASETS = {
    "mnist": Pictures(28, (0.1307,), (0.3081,)),
    "kmnist": Pictures(28, (0.5,), (0.5,), weak=True),
    "fashion-mnist": Pictures(28, (0.1307,), (0.3081,), weak=True),
    "cifar10": Pictures(32, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": Pictures(32, (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
}


def _strong(of: Pictures, device: torch.device | str, flipped: float = 0.5) -> Strong:
    hole = of.size // 2
    if of.size in (28, 32):
        hole = HOLE
    policy = None
    if of.colour:
        policy = autoaugment(of.size, device)
    return Strong(policy, flipped, round(of.size / 8), hole)


def _pop(of: Pictures, device: torch.device | str, flipped: float = 0.5) -> Kinds:
    first: View = Plain()
    if of.weak:
        first = Weak(flipped, round(of.size / 8))
    return ((first, 1), (_strong(of, device, flipped), 2))


def _pico(of: Pictures, device: torch.device | str) -> Kinds:
    """Return query and key; of grey images, POP's view 0 and view 1."""
    if not of.colour:
        (first, _), (strong, _) = _pop(of, device)
        return ((first, 1), (strong, 1))
    colour = torch.tensor((125, 123, 114), dtype=torch.uint8).to(device)
    key = Key(randaugment(of.size, device=device), colour)
    return ((Query(), 1), (key, 1))


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
    """Return the views of a recipe for a data set, or for other pictures, with all tables on the device.

    "plain" is one view, normalised only; "pop" and "rcr" are three; "upright" is "pop", never flipped; "pico" query and key.

    >>> images = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
    >>> views("pop", "cifar10")(images, torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5, 3, 32, 32])
    """
    if recipe not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}; got {recipe!r}.")
    if isinstance(dataset, str):
        if dataset not in DATASETS:
            raise ValueError(f"dataset must be one of {', '.join(DATASETS)} to have views; got {dataset!r}.")
        dataset = DATASETS[dataset]
    kinds = RECIPES[recipe](dataset, device)
    mean = torch.tensor(dataset.mean)
    std = torch.tensor(dataset.std)
    scale = 1 / (255 * std)
    offset = -mean / std
    return Views(kinds, scale.to(device), offset.to(device), dtype)
