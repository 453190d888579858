"""The paper's tables and figures as data: which systems, on which sets, trained and chosen how."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from oneof.methods import CAVL, CC, CLPL, LWS, RC, RCR, CLPLSoftmax, Method, PiCO, Proden, Valen
from oneof.networks import GeneratorMLP, LeNet, Linear, Network
from oneof.purify import Pop, PopPrinted, PopRatio, Purify
from oneof.training.problem import Training

REAL = ("lost", "birdsong", "msrcv2", "mirflickr", "malagasy", "soccer", "yahoo")
IMAGES = ("mnist", "kmnist", "fashion-mnist", "cifar10", "cifar100")


@dataclass(frozen=True)
class System:
    """A row of a table: a loss, with or without purification."""

    title: str  # as the paper's row is called, but LWS for LW
    method: Method
    purify: Purify | None = None


@dataclass(frozen=True)
class Protocol:
    """How the trials of a cell are split, trained and searched; the same for every system."""

    network: Network
    training: Training
    scaling: str = "feature"  # fitted on the rows that are trained on
    test: float = 0.2  # of all rows, where the publisher has no test part
    held_out: float = 0.1  # of the rest; their sets (or, for the oracle, their labels) choose the setting
    lr: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    weight_decay: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    sets: str = "the set's own"  # where the candidates come from

    @property
    def grid(self) -> list[tuple[float, float]]:
        """All settings (lr, weight_decay)."""
        return list(product(self.lr, self.weight_decay))


@dataclass(frozen=True)
class OnImages:
    """How a table's rows on images are obtained: they need a GPU and sets that are drawn first."""

    how: str
    systems: Mapping[str, System]
    protocol: Protocol


@dataclass(frozen=True)
class Table:
    """A table of the paper: systems by data sets."""

    title: str
    datasets: tuple[str, ...]
    systems: Mapping[str, System]  # by the name that the command line takes
    images: OnImages | None = None
    pairs: Mapping[str, str] = field(default_factory=dict)  # a system with POP -> the same without

    def system(self, name: str, dataset: str) -> System:
        return self.systems[name] if dataset in REAL or self.images is None else self.images.systems[name]

    def protocol(self, dataset: str) -> Protocol:
        return TABULAR if dataset in REAL or self.images is None else self.images.protocol


TABULAR = Protocol(Linear(), Training(epochs=200, batch=100))
FLAT = Protocol(  # MNIST-like images as rows of pixels, as Tables 3 and 5 must have had them
    GeneratorMLP(),
    Training(epochs=30, batch=256),
    scaling="global",
    lr=(0.03, 0.1),
    weight_decay=(1e-4, 1e-3),
    sets="drawn by a classifier trained for 200 epochs",
)

AUGMENTED = Protocol(  # three views of every image; CIFAR's networks are wide residual ones
    LeNet(), Training(epochs=50, batch=256), scaling="none", lr=(0.05,), weight_decay=(1e-3,), sets=FLAT.sets
)


@dataclass(frozen=True)
class Recipe:
    """How a system of Table 1 trains on images; the schedule is a cosine for all."""

    method: Method
    views: str = "pop"  # of `oneof.data.augment.views.RECIPES`
    lr: float = 0.05
    weight_decay: float = 1e-3
    batch: int = 256


def recipe(title: str, dataset: str, epochs: int, *, authors: bool = True) -> Recipe:
    """What a system of Table 1 is on a data set, for a length of training.

    RCR, PiCO and VALEN have their authors' numbers, or else those that all others have: the paper's own. The authors of RCR train 200
    epochs, in the first half of which its second term rises.
    """
    colour: Any = {"gamma": 10.0, "kappa": 0.2} if dataset.startswith("cifar") else {}
    if title == "RCR":
        return Recipe(RCR(ramp=epochs / 2), "rcr", 0.1, 1e-4, 64) if authors else Recipe(RCR(ramp=5.0), "rcr")
    if title == "PiCO":
        return Recipe(PiCO(epochs=epochs), "pico", lr=0.01 if authors else 0.05)
    if title == "VALEN" and not authors:
        return Recipe(Valen(**colour, warm_up=max(1, epochs // 5)), "plain")
    if title == "VALEN":
        return Recipe(Valen(**colour), "plain") if colour else Recipe(Valen(), "plain", 0.01, 1e-4)
    return Recipe({**LOSSES, "CLPL (softmax)": CLPLSoftmax()}[title])


# Late and cautious, the same for every loss: docs/decisions/0010-pop-in-the-tables.md has how it was chosen on seeds 0-9.
LATE = Pop(warm_up=80, interval=5, window=5, e0=0.95, e_end=0.3, e_s=0.05)
PRINTED = PopPrinted(warm_up=LATE.warm_up, e0=LATE.e0, e_end=LATE.e_end, e_s=LATE.e_s)
QUICK = replace(LATE, warm_up=12, interval=2, window=2, e_s=0.1)  # the same way in fewer epochs

LOSSES: dict[str, Method] = {"PRODEN": Proden(), "RC": RC(), "CC": CC(), "LWS": LWS(), "CAVL": CAVL(), "CLPL": CLPL()}
ALONE = {title.lower(): System(title, method) for title, method in LOSSES.items()}
OTHERS = {"valen": System("VALEN", Valen()), "rcr": System("RCR", RCR()), "pico": System("PiCO", PiCO())}
ON_TABLES = {"valen": System("VALEN", Valen(beta=0.01, gamma=20.0, reconstruction=1.0))}  # its authors' numbers there
PAIRS = {f"{title}+POP": title for title in LOSSES}


def headline(rule: Purify) -> dict[str, System]:
    """The paper's POP, which is PRODEN's loss with purification: as we run it, and Algorithm 1 as printed."""
    return {"pop": System("POP", Proden(), rule), "pop-printed": System("POP as printed", Proden(), PRINTED)}


def each_with_and_without(rule: Purify) -> dict[str, System]:
    """Every loss alone, and with POP."""
    systems: dict[str, System] = {}
    for name, alone in ALONE.items():
        systems |= {name: alone, f"{name}+pop": System(f"{alone.title}+POP", alone.method, rule)}
    return systems


def warm_ups(rule: Purify) -> dict[str, System]:
    """POP with its first round after so many epochs."""
    counts = (0, 1, 5, 10, 15, 20)
    return {f"warm-up-{n}": System(f"warm-up {n}", Proden(), replace(rule, warm_up=n)) for n in counts}


TABLES: dict[int, Table] = {
    1: Table(
        "Images, with augmentation",
        IMAGES,
        {**headline(LATE), **OTHERS, **ALONE},
        OnImages("benchmarks/accuracy/images.py, whose plans have PRODEN and POP on four sets, RCR, PiCO and VALEN on two", {**headline(LATE), **OTHERS, **ALONE}, AUGMENTED),
    ),
    2: Table("Real-world sets, linear model", REAL, {**headline(LATE), **ON_TABLES, **ALONE}),
    3: Table(
        "Images, no augmentation: each loss alone and with POP",
        IMAGES,
        each_with_and_without(QUICK),
        OnImages("python benchmarks/accuracy/image_tables.py --table 3", each_with_and_without(QUICK), FLAT),
        PAIRS,
    ),
    4: Table(
        "Real-world sets: each loss alone and with POP",
        REAL,
        {**each_with_and_without(LATE), "proden+pop-printed": System("PRODEN+POP as printed", Proden(), PRINTED)},
        pairs=PAIRS,
    ),
    5: Table(
        "Epochs of warm-up before POP's first round",
        ("lost", "birdsong", "msrcv2", "soccer", "yahoo", "kmnist", "fashion-mnist"),
        warm_ups(LATE),
        OnImages("python benchmarks/accuracy/image_tables.py --table 5", warm_ups(QUICK), FLAT),
    ),
}  # fmt: skip
CHARACTERISTICS = {6: IMAGES, 7: REAL}  # the appendix: rows, features, classes and average set size of each set


@dataclass(frozen=True)
class Sensitivity:
    """A figure: one number of a rule varied while the others stay."""

    dataset: str
    rule: Purify
    values: Mapping[str, tuple[float, ...]]  # a field of the rule -> what it is set to
    lr: float = 0.1
    weight_decay: float = 1e-2


MARGIN = {
    "e0": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
    "e_end": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
    "e_s": (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4),
}
RATIO = {
    "theta": (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
    "inc": (1e-3, 1e-2, 0.03, 0.1, 0.3, 0.6, 1.0),
}
SENSITIVITY: dict[str, Sensitivity] = {
    "margin": Sensitivity("lost", LATE, MARGIN),
    "ratio": Sensitivity("lost", PopRatio(warm_up=80, theta=1e-2, inc=0.3), RATIO),
    "margin-cifar10": Sensitivity(
        "cifar10", replace(LATE, warm_up=60), MARGIN, lr=0.05, weight_decay=1e-3
    ),  # waits for GPU hours
}
REGION = Sensitivity("lost", LATE, {})  # the purified region by epoch: nothing is varied
