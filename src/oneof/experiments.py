"""The paper's tables and figures as data: which systems, on which sets, trained and chosen how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from oneof.methods import CAVL, CC, CLPL, LWS, RC, RCR, Method, PiCO, Proden, Valen
from oneof.networks import Linear, Network
from oneof.problem import Training
from oneof.purify import Pop, PopRatio, Purify

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

    network: Network = Linear()  # noqa: RUF009 - frozen
    training: Training = Training(epochs=200, batch=100)  # noqa: RUF009 - frozen
    scaling: str = "feature"  # fitted on the rows that are trained on
    test: float = 0.2  # of all rows
    held_out: float = 0.1  # of the rest; their sets (or, for the oracle, their labels) choose the setting
    lr: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    weight_decay: tuple[float, ...] = (1e-4, 1e-3, 1e-2)

    @property
    def grid(self) -> list[tuple[float, float]]:
        """All settings (lr, weight_decay)."""
        return list(product(self.lr, self.weight_decay))


@dataclass(frozen=True)
class Table:
    """A table of the paper: systems by data sets."""

    title: str
    systems: Mapping[str, System]  # by the name that the command line takes
    datasets: tuple[str, ...]
    protocol: Protocol = Protocol()
    on_images: str = ""  # how the rows on images are obtained
    pairs: Mapping[str, str] = field(default_factory=dict)  # a system with POP -> the same without


LOSSES: dict[str, Method] = {"PRODEN": Proden(), "RC": RC(), "CC": CC(), "LWS": LWS(), "CAVL": CAVL(), "CLPL": CLPL()}

# Late and cautious, the same for every loss: docs/decisions/0007-pop-in-the-tables.md has how it was chosen on seeds 0-9.
LATE = Pop(warm_up=80, interval=5, window=5, e0=0.95, e_end=0.3, e_s=0.05)

POP = System("POP", Proden(), LATE)  # the paper's POP is PRODEN's loss with purification
ALONE = {title.lower(): System(title, method) for title, method in LOSSES.items()}
WITH_POP = {f"{name}+pop": System(f"{one.title}+POP", one.method, LATE) for name, one in ALONE.items()}
EACH_WITH_AND_WITHOUT = {
    name: system for one in ALONE for name, system in ((one, ALONE[one]), (f"{one}+pop", WITH_POP[f"{one}+pop"]))
}
PAIRS = {f"{one.title}+POP": one.title for one in ALONE.values()}
WARM_UPS = {
    f"warm-up-{epochs}": System(f"warm-up {epochs}", Proden(), Pop(epochs, e0=0.95, e_end=0.3, e_s=0.05))
    for epochs in (0, 1, 5, 10, 15, 20)
}
VALEN = System("VALEN", Valen())
BY_SCRIPT = "python benchmarks/images.py --plan {plan}, on a GPU"

TABLES: dict[int, Table] = {
    1: Table(
        "Images, with augmentation",
        {"pop": POP, "valen": VALEN, "rcr": System("RCR", RCR()), "pico": System("PiCO", PiCO()), **ALONE},
        IMAGES,
        on_images=BY_SCRIPT.format(plan="mnist-like"),
    ),
    2: Table("Real-world sets, linear model", {"pop": POP, "valen": VALEN, **ALONE}, REAL),
    3: Table(
        "Images, no augmentation: each loss alone and with POP",
        EACH_WITH_AND_WITHOUT,
        IMAGES,
        on_images=BY_SCRIPT.format(plan="table3"),
        pairs=PAIRS,
    ),
    4: Table("Real-world sets: each loss alone and with POP", EACH_WITH_AND_WITHOUT, REAL, pairs=PAIRS),
    5: Table(
        "Warm-up epochs before the first purification",
        WARM_UPS,
        ("lost", "birdsong", "msrcv2", "soccer", "yahoo", "kmnist", "fashion-mnist"),
        on_images=BY_SCRIPT.format(plan="table5"),
    ),
}
CHARACTERISTICS = {6: IMAGES, 7: REAL}  # the appendix: rows, features, classes and average set size of each set


@dataclass(frozen=True)
class Sensitivity:
    """A figure: one number of a rule varied while the others stay."""

    dataset: str
    rule: Purify
    values: Mapping[str, tuple[float, ...]]  # a field of the rule -> what it is set to
    lr: float = 0.1
    weight_decay: float = 1e-2
    protocol: Protocol = Protocol()


SENSITIVITY: dict[str, Sensitivity] = {
    "margin": Sensitivity(
        "lost",
        LATE,
        {
            "e0": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
            "e_end": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
            "e_s": (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4),
        },
    ),
    "ratio": Sensitivity(
        "lost",
        PopRatio(warm_up=80, theta=1e-2, inc=0.3),
        {
            "theta": (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
            "inc": (1e-3, 1e-2, 0.03, 0.1, 0.3, 0.6, 1.0),
        },
    ),
}
REGION = Sensitivity("lost", LATE, {})  # the purified region by epoch, at the same setting
