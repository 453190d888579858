"""What a run on images is: recipe, views, POP's schedule, network; `oneof paper table` and benchmarks/accuracy/images.py read this page."""

from dataclasses import dataclass
from typing import Any

from oneof.methods import RCR, CLPLSoftmax, Method, PiCO, Valen
from oneof.networks import LeNet, Network, WideResNet
from oneof.purify import Pop, PopPrinted, Purify
from oneof.storage.rows import Row
from oneof.training.trials import Training
from oneof_paper.experiments import LOSSES, TABLES

KEY = ("dataset", "difficulty", "system", "variant", "seed", "epochs", "second_forward")  # what sets two rows apart
EPOCHS = {"cifar10": 100, "cifar100": 100}  # of the tables; MNIST-like images have 50
SMALL: Any = {"images": 60, "epochs": 5, "batch": 12, "difficulty": "tiny"}  # to see that a run runs, on a CPU


def key_of(row: Row) -> tuple[Any, ...]:
    """Return what sets a row apart from others; rows from before a name of KEY was written have it empty."""
    return tuple(row.get(name, "") for name in KEY)


@dataclass(frozen=True)
class Recipe:
    """How a loss trains on images; the schedule is a cosine for all."""

    method: Method
    views: str = "pop"  # of `oneof.data.augment.views.RECIPES`
    lr: float = 0.05
    weight_decay: float = 1e-3
    batch: int = 256


def recipe(title: str, dataset: str, epochs: int, *, authors: bool = True) -> Recipe:
    """What a loss of Table 1 is on a data set; RCR, PiCO, VALEN with their authors' numbers or those of the others."""
    colour: Any = {"gamma": 10.0, "kappa": 0.2} if dataset.startswith("cifar") else {}
    if title == "RCR":
        # its authors train 200 epochs, in the first half of which its second term rises
        return Recipe(RCR(ramp=epochs / 2), "rcr", 0.1, 1e-4, 64) if authors else Recipe(RCR(ramp=5.0), "rcr")
    if title == "PiCO":
        return Recipe(PiCO(epochs=epochs), "pico", lr=0.01 if authors else 0.05)
    if title == "VALEN" and not authors:
        return Recipe(Valen(**colour, warm_up=max(1, epochs // 5)), "plain")
    if title == "VALEN":
        return Recipe(Valen(**colour), "plain") if colour else Recipe(Valen(), "plain", 0.01, 1e-4)
    return Recipe({**LOSSES, "CLPL (softmax)": CLPLSoftmax()}[title])


def timing(epochs: int, start: float, every: float) -> tuple[int, int, int]:
    """Of shares of a training: epochs before POP's first event and from one to the next; events until the threshold's end."""
    warm_up, interval = round(start * epochs), max(1, int(every * epochs))
    return warm_up, interval, max(1, round(0.8 * (len(range(warm_up, epochs, interval)) - 1)))


def pop(epochs: int, *, start: float = 0.8, first: float = 0.95, last: float = 0.1, every: float = 0.05, printed: bool = False) -> Purify:  # fmt: skip
    """POP for a length of training: late, since early removal costs true labels that never return. Printed: `last` is the floor."""
    warm_up, interval, steps = timing(epochs, start, every)
    if printed:
        return PopPrinted(warm_up, e0=first, e_end=last, e_s=0.05)
    return Pop(warm_up, interval, interval, True, first, last, (first - last) / steps)


@dataclass(frozen=True)
class Run:
    """One trial on images."""

    dataset: str
    difficulty: str  # of sets.DIFFICULTIES
    system: str
    seed: int
    epochs: int
    variant: str = (
        ""  # joined by "-": upright (never flipped), bare (plain view), authors (their numbers), augmented, schedule
    )
    images: int | None = None  # of the training part; None: all
    batch: int | None = None  # None: the recipe's

    trials = 1

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEY)

    @property
    def loss(self) -> str:
        """The system without POP: "POP" itself is PRODEN's loss with it."""
        return {"POP": "PRODEN", "supervised": "PRODEN"}.get(self.system, self.system.removesuffix("+POP"))

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
        """Which views the forward after a step has, where memory is taken from it and there are several; else nothing."""
        taken = self.method.after_step or self.training.alters_input
        return "all views" if taken and self.views != "plain" else ""

    @property
    def training(self) -> Training:
        return Training(self.epochs, self.batch or self.recipe.batch)

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def purify(self) -> Purify | None:
        return pop(self.epochs, printed="printed" in self.variant) if self.system.endswith("POP") else None

    @property
    def network(self) -> Network:
        small = {} if self.images is None else {"depth": 10, "widen": 1}
        return WideResNet(**small) if self.dataset.startswith("cifar") else LeNet()


def run_of(number: int, name: str, dataset: str, seed: int) -> Run:
    """The run that fills a cell of Table 1 or 3: sets of a classifier trained to the end, views as released or (Table 3) none.

    >>> run_of(1, "pop-printed", "cifar10", 100).variant, run_of(3, "cc+pop", "cifar10", 100).variant
    ('printed-last', 'bare-last')
    """
    system = TABLES[number].systems[name]
    title = system.title.removesuffix(" as printed")
    words = ["bare" if number == 3 else "authors" if title in ("RCR", "PiCO", "VALEN") else ""]
    words += (
        ["augmented"] if title == "VALEN" else []
    )  # its authors have one plain view, the paper's Table 1 the views of all
    words += ["printed-last" if title != system.title else "last"] if system.purify else []
    title = "POP" if title == "PRODEN+POP" else title
    return Run(dataset, "saturated", title, seed, EPOCHS.get(dataset, 50), "-".join(filter(None, words)))
