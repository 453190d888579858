"""Runs on images: recipe, views, POP's schedule and network. `oneof paper table` and benchmarks/accuracy/images.py share them."""

from dataclasses import dataclass
from typing import Any

from oneof.methods import RCR, CLPLSoftmax, LWSCrossEntropy, Method, PiCO, Valen
from oneof.networks import LeNet, Network, WideResNet
from oneof.purify import Pop, PopPrinted, Purify
from oneof.storage.rows import Row
from oneof.training.trials import Training
from oneof_paper.experiments import LOSSES, TABLES

KEY = ("dataset", "difficulty", "system", "variant", "seed", "epochs", "second_forward")  # tells two rows apart
OTHER_FORMS: dict[str, Method] = {
    "CLPL (softmax)": CLPLSoftmax(),
    "LWS (cross-entropy)": LWSCrossEntropy(),
}  # of losses
EPOCHS = {"cifar10": 100, "cifar100": 100}  # of the tables; MNIST-like images have 50
SMALL: Any = {"images": 60, "epochs": 5, "batch": 12, "difficulty": "tiny"}  # to see that a run works, on a CPU


def key_of(row: Row) -> tuple[Any, ...]:
    """Return the values of KEY; older rows, which lack one of them, have an empty string there."""
    return tuple(row.get(name, "") for name in KEY)


@dataclass(frozen=True)
class Recipe:
    """How a loss is trained on images; the schedule is a cosine for all."""

    method: Method
    views: str = "pop"  # of `oneof.data.augment.views.RECIPES`
    lr: float = 0.05
    weight_decay: float = 1e-3
    batch: int = 256


def recipe(title: str, dataset: str, epochs: int, *, authors: bool = True) -> Recipe:
    """Return the recipe of a loss of Table 1; RCR, PiCO and VALEN with their authors' numbers or with those of the other losses."""
    if title == "RCR" and authors:
        # Its authors train for 200 epochs; the weight of its second term rises during the first half.
        return Recipe(RCR(ramp=epochs / 2), "rcr", 0.1, 1e-4, 64)
    if title == "RCR":
        return Recipe(RCR(ramp=5.0), "rcr")
    if title == "PiCO":
        return Recipe(PiCO(epochs=epochs), "pico", lr=0.01 if authors else 0.05)
    if title == "VALEN":
        return _valen_recipe(dataset, epochs, authors)
    if title in OTHER_FORMS:
        return Recipe(OTHER_FORMS[title])
    return Recipe(LOSSES[title])


def _valen_recipe(dataset: str, epochs: int, authors: bool) -> Recipe:
    """Return the recipe of VALEN, whose authors have other numbers for images in colour."""
    in_colour = dataset.startswith("cifar")
    weights: Any = {"gamma": 10.0, "kappa": 0.2} if in_colour else {}
    if not authors:
        return Recipe(Valen(**weights, warm_up=max(1, epochs // 5)), "plain")
    if in_colour:
        return Recipe(Valen(**weights), "plain")
    return Recipe(Valen(), "plain", 0.01, 1e-4)


def timing(epochs: int, start: float, every: float) -> tuple[int, int, int]:
    """Turn shares of a training into POP's schedule.

    Returns the epochs before POP's first round, the epochs from one round to the next, and the rounds until the threshold has reached
    its end.
    """
    warm_up = round(start * epochs)
    interval = max(1, int(every * epochs))
    rounds = len(range(warm_up, epochs, interval))
    steps = max(1, round(0.8 * (rounds - 1)))
    return warm_up, interval, steps


def pop(
    epochs: int,
    *,
    start: float = 0.8,
    first: float = 0.95,
    last: float = 0.1,
    every: float = 0.05,
    printed: bool = False,
) -> Purify:
    """Return POP for a length of training: late, since a true label that is removed early never returns.

    With `printed` it is Algorithm 1 as printed, and `last` is the smallest threshold.
    """
    warm_up, interval, steps = timing(epochs, start, every)
    if printed:
        return PopPrinted(warm_up, e0=first, e_end=last, e_s=0.05)
    return Pop(warm_up, interval, interval, True, first, last, (first - last) / steps)


@dataclass(frozen=True)
class ImageRun:
    """One trial on images."""

    dataset: str
    difficulty: str  # of image_sets.DIFFICULTIES
    system: str
    seed: int
    epochs: int
    # Words joined by "-": upright (no flips), bare (one plain view), authors (their numbers), augmented, and POP's schedule.
    variant: str = ""
    images: int | None = None  # of the training part; None: all
    batch: int | None = None  # None: the recipe's

    trials = 1

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEY)

    @property
    def loss(self) -> str:
        """Return the system without POP; the paper's "POP" is PRODEN's loss with it."""
        if self.system in ("POP", "supervised"):
            return "PRODEN"
        return self.system.removesuffix("+POP")

    @property
    def recipe(self) -> Recipe:
        return recipe(self.loss, self.dataset, self.epochs, authors="authors" in self.variant)

    @property
    def views(self) -> str:
        if "upright" in self.variant:
            return "upright"
        if "bare" in self.variant:
            return "plain"
        if "augmented" in self.variant:
            return "pop"
        return self.recipe.views

    @property
    def lr(self) -> float:
        return self.recipe.lr

    @property
    def weight_decay(self) -> float:
        return self.recipe.weight_decay

    @property
    def second_forward(self) -> str:
        """Return which views the forward after a step has, if memory is taken from it and there are several; else nothing."""
        has_second_forward = self.method.after_step or self.training.alters_input
        return "all views" if has_second_forward and self.views != "plain" else ""

    @property
    def training(self) -> Training:
        return Training(self.epochs, self.batch or self.recipe.batch)

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def purify(self) -> Purify | None:
        if not self.system.endswith("POP"):
            return None
        return pop(self.epochs, printed="printed" in self.variant)

    @property
    def network(self) -> Network:
        if not self.dataset.startswith("cifar"):
            return LeNet()
        if self.images is None:
            return WideResNet()
        return WideResNet(depth=10, widen=1)


def run_of(number: int, name: str, dataset: str, seed: int) -> ImageRun:
    """Return the run that fills a cell of Table 1 or 3.

    Its sets are drawn by a classifier trained to the end; its views are those of the released code, or in Table 3 one plain view.

    >>> run_of(1, "pop-printed", "cifar10", 100).variant, run_of(3, "cc+pop", "cifar10", 100).variant
    ('printed-last', 'bare-last')
    """
    system = TABLES[number].systems[name]
    title = system.title.removesuffix(" as printed")
    words = []
    if number == 3:
        words.append("bare")
    elif title in ("RCR", "PiCO", "VALEN"):
        words.append("authors")
    if title == "VALEN":
        words.append("augmented")  # its authors have one plain view, the paper's Table 1 the same views for all
    if system.purify is not None:
        words.append("last" if title == system.title else "printed-last")
    if title == "PRODEN+POP":
        title = "POP"
    return ImageRun(dataset, "saturated", title, seed, EPOCHS.get(dataset, 50), "-".join(words))
