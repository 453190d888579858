"""The paper's tables and figures as data: which systems, on which sets, trained and chosen how."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from oneof.methods import CAVL, CC, CLPL, LWS, RC, RCR, Method, PiCO, Proden, Valen
from oneof.networks import GeneratorMLP, Linear, Network
from oneof.purify import Pop, PopPrinted, Purify
from oneof.training.trials import Training

REAL = ("lost", "birdsong", "msrcv2", "mirflickr", "malagasy", "soccer", "yahoo")
IMAGES = ("mnist", "kmnist", "fashion-mnist", "cifar10", "cifar100")


@dataclass(frozen=True)
class System:
    """A row of a table: a loss, with or without purification. On images a run has numbers of its own: `images.Run`."""

    title: str  # as the paper's row is called, but LWS for LW
    method: Method
    purify: Purify | None = None
    variants: tuple[Method, ...] = ()  # other forms of the loss, which are searched as settings are

    @property
    def methods(self) -> tuple[Method, ...]:
        """All forms of the loss."""
        return (self.method, *self.variants)


class Setting(NamedTuple):
    """What is searched for a system on a data set."""

    lr: float
    weight_decay: float
    scaling: str


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
    other_scalings: tuple[str, ...] = field(default=(), metadata={"since": "0.2"})  # searched beside `scaling`

    @property
    def grid(self) -> list[Setting]:
        """All settings."""
        scalings = (self.scaling, *self.other_scalings)
        return [Setting(lr, decay, scaling) for scaling, lr, decay in product(scalings, self.lr, self.weight_decay)]


@dataclass(frozen=True)
class Table:
    """A table of the paper: systems by data sets."""

    title: str
    datasets: tuple[str, ...]
    systems: Mapping[str, System]  # by the name that the command line takes
    flat: Mapping[str, System] = field(default_factory=dict)  # the same where MNIST-like images are rows of pixels
    pairs: Mapping[str, str] = field(default_factory=dict)  # a system with POP -> the same without

    def system(self, name: str, dataset: str) -> System:
        return (self.flat if self.protocol(dataset) is FLAT else self.systems)[name]

    def protocol(self, dataset: str) -> Protocol | None:
        """How settings are searched; None where each system has one, `images.run_of`."""
        if dataset in REAL:
            return TABULAR
        return FLAT if self.flat and not dataset.startswith("cifar") else None


TABULAR = Protocol(Linear(), Training(epochs=200, batch=100))
WIDE = replace(  # no optimum lies on an edge of it, as many do of TABULAR
    TABULAR, lr=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0), weight_decay=(1e-5, 1e-4, 1e-3, 1e-2, 0.1), other_scalings=("global",)
)  # fmt: skip
FLAT = Protocol(  # MNIST-like images as rows of pixels, as Tables 3 and 5 must have had them
    GeneratorMLP(), Training(epochs=30, batch=256), scaling="global", lr=(0.03, 0.1), weight_decay=(1e-4, 1e-3),
    sets="drawn by a classifier trained for 200 epochs",
)  # fmt: skip


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
    1: Table("Images, with augmentation", IMAGES, {**headline(LATE), **OTHERS, **ALONE}),
    2: Table("Real-world sets, linear model", REAL, {**headline(LATE), **ON_TABLES, **ALONE}),
    3: Table("Images, no augmentation: each loss alone and with POP", IMAGES, each_with_and_without(QUICK),
             each_with_and_without(QUICK), PAIRS),
    4: Table("Real-world sets: each loss alone and with POP", REAL, {**each_with_and_without(LATE),
             "proden+pop-printed": System("PRODEN+POP as printed", Proden(), PRINTED)}, pairs=PAIRS),
    5: Table("Epochs of warm-up before POP's first round", ("lost", "birdsong", "msrcv2", "soccer", "yahoo", "kmnist",
             "fashion-mnist"), warm_ups(LATE), warm_ups(QUICK)),
}  # fmt: skip
CHARACTERISTICS = {6: IMAGES, 7: REAL}  # the appendix: rows, features, classes and average set size of each set
