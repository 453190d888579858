"""What `images.py` does: which trials, and by which schedules POP purifies in them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any

from on_images.posteriors import FairProden, ProdenSeenByAll, TrailingProden

from oneof.methods import Method
from oneof.methods.proden import BalancedProden
from oneof.paper.experiments import Recipe, recipe
from oneof.purify import Pop, PopPrinted, PopRatio, Purify
from oneof.training.problem import Training

KEY = ("dataset", "difficulty", "system", "variant", "seed", "epochs")
CHARACTERS = ("mnist", "kmnist")  # which have no mirror images
LIKES = ("fashion-mnist", "kmnist", "mnist")
ON_VIEWS = ("RCR", "PiCO", "VALEN")  # whose authors have settings of their own
PLAIN_LOSSES = ("RC", "CC", "LWS", "CAVL", "CLPL")
BASES = (  # what a run may be before any purification; a variant names them, then the schedule: "upright-fair-last"
    "upright",  # views are never flipped
    "bare",  # one view, normalised only: no augmentation
    "authors",  # RCR, PiCO and VALEN with their authors' numbers
    "balanced",  # weights are corrected for how much each label has gathered
    "fair",  # ... and so is the posterior that POP observes
    "trailing",  # weights follow, and POP observes, a network that trails behind
    "mixup",  # Beta(0.3, 0.3)
    "swift",  # learning rate 0.1 in place of 0.05
)


@dataclass(frozen=True)
class Schedule:
    """How POP purifies, in shares of the training's length.

    Early removal costs true labels that never return (RECIPES 5.6, 5.7), so all but `early` let half of the training pass.
    """

    start: float = 0.5  # of the epochs pass before the first event
    first: float = 0.95  # threshold there
    last: float = 0.1  # ... and when four fifths of the events are over
    every: float = 0.05  # of the epochs from one event to the next, and as many in the window
    printed: bool = False  # Algorithm 1 as printed, a round every epoch; `last` is then its floor, and it falls by 0.05
    ratio: bool = False  # the released code's rule; `first` and `last` are then its theta
    every_round: bool = True  # else the threshold waits for a quiet round
    all_views: bool = False  # POP observes all views, not the first alone


SCHEDULES = {
    "early": Schedule(0.2),
    "late": Schedule(),
    "late-strict": Schedule(first=0.99, last=0.6),
    "ratio-late": Schedule(first=1e-3, last=0.4, ratio=True),
    "last": Schedule(0.8),
    "sure": Schedule(first=0.999, last=0.9),
    "wide": Schedule(every=0.1),
    "views": Schedule(all_views=True),
    "quiet": Schedule(first=1e-3, last=0.4, every=0.02, ratio=True, every_round=False),
}
PRINTED = {"printed": Schedule(0.2, printed=True), "printed-last": Schedule(0.8, printed=True)}
SENSITIVE = {f"first-{value}": Schedule(0.8, first=value) for value in (0.5, 0.7, 0.9, 0.99)}
SENSITIVE |= {f"end-{value}": Schedule(0.8, last=value) for value in (0.3, 0.5, 0.7, 0.9)}
FAIR = ("fair-last", "fair-late-strict", "fair-sure", "fair-quiet")
CHOSEN = "fair-quiet"  # of these, by covering rate; a test holds that
SEARCHED = [*(name for name in SCHEDULES if name != "early"), "balanced-late", "balanced-last"]


@dataclass(frozen=True)
class Run:
    """One trial to be done."""

    dataset: str
    difficulty: str  # of sets.DIFFICULTIES; "clean" for true labels
    system: str
    seed: int
    epochs: int
    variant: str = ""  # of BASES any, joined by "-"; for POP a schedule follows
    images: int | None = None  # of the training part; None: all
    batch: int | None = None  # None: the recipe's

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEY)

    @property
    def bases(self) -> list[str]:
        return bases_of(self.variant)

    @property
    def schedule(self) -> Schedule:
        return (SCHEDULES | PRINTED | SENSITIVE)[
            "-".join(self.variant.split("-")[len(self.bases) :])
        ]  # after the bases

    @property
    def loss(self) -> str:
        """The system without POP: "POP" itself is PRODEN's loss with it."""
        return {"POP": "PRODEN", "supervised": "PRODEN"}.get(self.system, self.system.removesuffix("+POP"))

    @property
    def recipe(self) -> Recipe:
        return recipe(self.loss, self.dataset, self.epochs, authors="authors" in self.bases)

    @property
    def trunk(self) -> tuple[Any, ...]:
        """Equal for runs that are one until the first of them purifies."""
        own = (self.loss, *self.bases, self.system == "supervised")
        return self.dataset, self.difficulty, own, self.seed, self.epochs, self.images, self.batch

    @property
    def views(self) -> str:
        bare = "plain" if "bare" in self.bases else self.recipe.views
        return "upright" if "upright" in self.bases else bare

    @property
    def lr(self) -> float:
        return 0.1 if "swift" in self.bases else self.recipe.lr

    @property
    def training(self) -> Training:
        mixup = 0.3 if "mixup" in self.bases else 0.0
        return Training(self.epochs, self.batch or self.recipe.batch, mixup=mixup)

    @property
    def method(self) -> Method:
        if "trailing" in self.bases:
            return TrailingProden(balance=float("fair" in self.bases))
        if "fair" in self.bases:
            return FairProden()
        if "balanced" in self.bases:
            return BalancedProden(balance=1.0)
        return ProdenSeenByAll() if self.purify and self.schedule.all_views else self.recipe.method

    @property
    def purify(self) -> Purify | None:
        return pop(self.schedule, self.epochs) if self.system.endswith("POP") else None


def bases_of(variant: str) -> list[str]:
    return list(takewhile(BASES.__contains__, variant.split("-")))


def pop(schedule: Schedule, epochs: int) -> Purify:
    """POP's numbers for a length of training."""
    interval = max(1, int(schedule.every * epochs))
    warm_up = round(schedule.start * epochs)
    steps = max(1, round(0.8 * (len(range(warm_up, epochs, interval)) - 1)))
    first, last = schedule.first, schedule.last
    if schedule.printed:
        return PopPrinted(warm_up, e0=first, e_end=last, e_s=0.05)
    if schedule.ratio:
        # just below its end, so that rounding cannot add a step
        inc = (last / first) ** (1 / steps) - 1
        return PopRatio(
            warm_up, interval, interval, schedule.every_round, first, 0.97 * last, inc, quiet=1e-4 if schedule.every_round else 1e-3
        )  # fmt: skip
    return Pop(warm_up, interval, interval, True, first, last, (first - last) / steps)


# ------------------------------------------------------------------------------------------------------------- the plans


def together(name: str, difficulty: str, seed: int, epochs: int, variants: list[str]) -> list[Run]:
    """POP by these variants, each after PRODEN that begins as it does, in an order in which they share beginnings."""
    runs = []
    for bases, same in groupby(sorted(variants, key=bases_of), key=bases_of):
        runs.append(Run(name, difficulty, "PRODEN", seed, epochs, "-".join(bases)))
        runs += [Run(name, difficulty, "POP", seed, epochs, one) for one in same]
    return runs


def schedules() -> list[Run]:
    """Which schedule of POP, judged by held-out sets alone; seed 0."""
    return [
        run
        for difficulty in ("20", "saturated")
        for name in LIKES[:2]
        for run in together(name, difficulty, 0, 50, SEARCHED)
    ]


def suited(variant: str, dataset: str) -> str:
    """A variant as it is for a data set: characters are not flipped."""
    return f"upright-{variant}".strip("-") if dataset in CHARACTERS else variant


def bases() -> list[Run]:
    """What PRODEN should be before POP purifies; seed 0. On Fashion's hard sets all, elsewhere those that were kept after them."""
    tried = {
        ("fashion-mnist", "20"): [f"{base}-last" for base in ("balanced-mixup", "fair", "fair-trailing", "mixup", "swift", "trailing")],
        ("fashion-mnist", "saturated"): ["fair-last", "swift-last"],
        ("kmnist", "20"): ["upright-last", "upright-fair-last", "upright-swift-last"],
        ("kmnist", "saturated"): ["upright-last", "upright-fair-last"],
    }  # fmt: skip
    return [run for cell, variants in tried.items() for run in together(*cell, 0, 50, variants)]


def fair() -> list[Run]:
    """Which schedule on balanced PRODEN, judged by held-out sets alone; seed 0."""
    return [
        run
        for difficulty in ("20", "saturated")
        for name in LIKES
        for run in together(name, difficulty, 0, 50, [suited(one, name) for one in FAIR])
    ]


def mnist_like() -> list[Run]:
    """Seed by seed, so that what is there when time ends is balanced."""
    runs = []
    for seed in range(100, 105):
        for difficulty in ("20", "saturated"):
            for name in LIKES:
                runs += together(name, difficulty, seed, 50, [suited("last", name), suited(CHOSEN, name)])
        for name in LIKES:
            runs.append(Run(name, "clean", "supervised", seed, 50, suited("", name)))
    return runs


def methods() -> list[Run]:
    """RCR, PiCO and VALEN with the settings of all others."""
    runs = [Run("fashion-mnist", "20", system, 100, 50) for system in ON_VIEWS]
    return runs + [Run("cifar10", "saturated", system, 100, 150) for system in ON_VIEWS]


# ------------------------------------------------------------------------------- Table 1 whole, one seed: in order of value


def saturated() -> list[Run]:
    """Every system on CIFAR-10 with the paper's kind of sets, 100 epochs; the costly ones last."""
    runs = together("cifar10", "saturated", 100, 100, ["last", "printed-last"])
    runs += [Run("cifar10", "saturated", loss, 100, 100) for loss in PLAIN_LOSSES]
    runs += [Run("cifar10", "saturated", "RCR", 100, 100, one) for one in ("authors", "")]
    runs.append(Run("cifar10", "saturated", "CLPL (softmax)", 100, 100))
    return runs + [Run("cifar10", "saturated", system, 100, 100, "authors") for system in ("VALEN", "PiCO")]


def hard() -> list[Run]:
    """RCR and PiCO where most top wrong labels stand in the sets; POP and PRODEN of that length beside them."""
    runs = [Run("cifar10", "20", "RCR", 100, 100), Run("cifar10", "20", "PiCO", 100, 100, "authors")]
    return [
        *runs,
        Run("cifar10", "20", "RCR", 100, 100, "authors"),
        *together("cifar10", "20", 100, 100, ["last", "printed-last"]),
    ]


def lenet() -> list[Run]:
    """MNIST-like images: both difficulties; the released recipe's flips, and upright views for characters."""
    runs = []
    for difficulty in ("saturated", "20"):
        for name in LIKES:
            for base in ("", "upright") if name in CHARACTERS else ("",):
                runs += together(
                    name, difficulty, 100, 50, [f"{base}-{one}".strip("-") for one in ("last", "printed-last")]
                )
                runs += [Run(name, difficulty, loss, 100, 50, base) for loss in PLAIN_LOSSES]
            runs += [Run(name, difficulty, system, 100, 50, "authors") for system in ON_VIEWS]
    return runs


def cifar100() -> list[Run]:
    """Sets of rate 0.04, drawn by a classifier of their own, which is trained first."""
    runs = together("cifar100", "saturated", 100, 100, ["last", "printed-last"])
    return runs + [
        Run("cifar100", "saturated", *one)
        for one in (("CC", 100, 100), ("RCR", 100, 100), ("RCR", 100, 100, "authors"))
    ]


def printed() -> list[Run]:
    """Algorithm 1 as printed with its early warm-up, a fifth of the training, beside PRODEN."""
    runs = [run for name in LIKES for run in together(name, "saturated", 100, 50, [suited("printed", name)])]
    return runs + together("cifar10", "saturated", 100, 100, ["printed"])


def generator() -> list[Run]:
    """PRODEN and POP on sets by the printed generator, tuned to the printed averages: MNIST's 8.71 too."""
    return [run for name in LIKES for run in together(name, "printed", 100, 50, [suited("last", name)])]


def sensitivity() -> list[Run]:
    """The paper's figure on CIFAR-10: five points for the first threshold and five for the last; 60 epochs, one beginning."""
    return together("cifar10", "saturated", 100, 60, ["last", *SENSITIVE])


def bare() -> list[Run]:
    """Table 3 on CIFAR-10: one plain view, each loss alone and with POP."""
    runs = together("cifar10", "saturated", 100, 100, ["bare-last"])
    for loss in PLAIN_LOSSES:
        runs += [
            Run("cifar10", "saturated", loss, 100, 100, "bare"),
            Run("cifar10", "saturated", f"{loss}+POP", 100, 100, "bare-last"),
        ]
    return runs


def cifar() -> list[Run]:
    """Difficulties in turn, so that two processes (`--part`) make the sets of one each."""
    runs = []
    for seed in (100, 101):
        for difficulty in ("saturated", "20"):
            runs += together("cifar10", difficulty, seed, 150, ["last"])
    return runs + [Run("cifar10", "clean", "supervised", seed, 150) for seed in (100, 101)]


def tiny() -> list[Run]:
    """A look at every part on a CPU: 60 images, four epochs."""
    systems = (("PRODEN", ""), ("POP", "late"), ("POP", "ratio-late"), ("POP", "views"))
    systems += (
        ("PRODEN", "balanced"),
        ("POP", "balanced-late"),
        ("POP", "upright-fair-trailing-late"),
        ("supervised", ""),
    )
    return [Run("mnist", "clean" if s == "supervised" else "tiny", s, 0, 4, one, 60, batch=6) for s, one in systems]


PLANS = {
    "schedules": schedules,
    "bases": bases,
    "fair": fair,
    "mnist-like": mnist_like,
    "methods": methods,
    "cifar": cifar,
    "saturated": saturated,
    "hard": hard,
    "lenet": lenet,
    "cifar100": cifar100,
    "printed": printed,
    "generator": generator,
    "sensitivity": sensitivity,
    "bare": bare,
    "tiny": tiny,
}
