"""Networks trained on pictures: PRODEN with POP late in the training, each network leaving out rows that it is asked about afterwards."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.augment.views import Pictures, views
from oneof.data.images import Pixels
from oneof.data.on_disk import RowsOnDisk
from oneof.data.splits import split_rows
from oneof.learners.config import Space
from oneof.learners.networks import Found
from oneof.learners.scaled_rows import Search, seed_of
from oneof.methods import Proden
from oneof.networks.named import network_of
from oneof.purify import Pop
from oneof.storage.did_you_mean import did_you_mean
from oneof.training.device import best_device, free_memory
from oneof.training.fit import fit
from oneof.training.threads import threads_for, torch_threads
from oneof.training.trials import Training, Trial

Mask = NDArray[np.bool_]
VIEWS = {"upright": "upright", "natural": "pop", "none": "plain"}
"""What pictures may become in training, and the recipe of `oneof.data.augment` for it."""
LR, WEIGHT_DECAY, BATCH = 0.05, 1e-3, 256  # of the paper, for images
_MANY = 20_000  # pictures; of more, one network that leaves out a tenth has seen enough
_SEEN = 30_000  # pictures that a CPU shows each network in all, about: some minutes


@dataclass(frozen=True)
class OnPictures:
    """How networks are trained on pictures."""

    network: str | None = None  # of `oneof.networks.named`; None: by size and device
    views: str = "upright"  # of VIEWS
    networks: int | None = None  # None: three, or one for many pictures on a GPU

    def __post_init__(self) -> None:
        network_of(self.network or "lenet")  # a name that nobody knows is told before all else
        if self.views not in VIEWS:
            near = did_you_mean(self.views, VIEWS)
            raise ValueError(f"views must be one of {', '.join(VIEWS)}; got {self.views!r}.{near}")


BY_SIZE = OnPictures()


class Plan(NamedTuple):
    """What is trained, in numbers."""

    network: str
    views: str
    networks: int
    parts: int  # of the rows, each left out by other networks
    epochs: int
    batch: int
    lr: float = LR
    weight_decay: float = WEIGHT_DECAY


def plan_for(how: OnPictures, space: Space, n: int, pixels: Pixels, device: torch.device) -> Plan:
    """What suits n pictures on a device: the benchmark's numbers on a GPU, what ends in minutes on a CPU."""
    card = device.type == "cuda"
    small = pixels.channels == 1 and pixels.side <= 32
    networks = how.networks or (1 if n > _MANY else 3)
    parts = max(networks, 3) if networks > 1 else 10
    rows = max(1, n - n // parts)
    most = int(np.clip(rows // 20, 16, BATCH))
    even = -(-rows // -(-rows // most))  # no last batch of a few rows
    network = how.network or ("wrn" if card and not small else "lenet")
    epochs = space.epochs or (100 if card else int(np.clip(_SEEN // n, 5, 60)))
    return Plan(network, how.views, networks, parts, epochs, even if most < BATCH or rows % BATCH == 1 else BATCH)


def streamed(n: int, pixels: Pixels, asked: bool | None) -> bool:
    """Should the levels of n pictures stay in a file? Where that is not said: if they take more than half of the memory that is free."""
    free = min(map(free_memory, (torch.device("cpu"), best_device())))
    return 2 * n * math.prod(pixels.shape) > free if asked is None else asked


def train_on_pictures(
    x: NDArray[np.uint8], sets: Mask, asked: Search, how: OnPictures, pixels: Pixels, blank: Mask
) -> Found:
    """Train networks on levels x [n, d] with sets [n, c]; rows that are blank [n] are not trained on.

    Levels that are a file of a run's stay there, and batches are read from it.
    """
    device, rows = torch.device(asked.device), np.flatnonzero(~blank)
    plan = plan_for(how, asked.space, len(rows), pixels, device)
    images, dtype = x.reshape(-1, *pixels.shape), torch.bfloat16 if device.type == "cuda" else torch.float32
    splits = split_rows(rows, plan.parts, asked.groups, asked.seed + 1)
    starts = [*asked.starts.get((), []), *[None] * plan.networks]
    trials = [
        Trial(seed_of(asked.seed, i), *splits[i % len(splits)], None, plan.lr, plan.weight_decay, start=starts[i])
        for i in range(plan.networks)
    ]
    some: Any = images[rows[:: max(1, len(rows) // 5000)]] / np.float32(255)  # some thousands tell enough of all
    mean, deviation = (tuple(one.tolist()) for one in (some.mean((0, 2, 3)), np.maximum(some.std((0, 2, 3)), 0.01)))
    method = Proden() if asked.space.method == Space.method else asked.space.method  # as the benchmark, unless asked
    recipe = views(VIEWS[plan.views], Pictures(pixels.side, mean, deviation), device=device, dtype=dtype)
    step_cells = plan.batch * recipe.count * math.prod(pixels.shape)
    with torch_threads(asked.threads or threads_for(step_cells)):
        fitted = fit(
            RowsOnDisk(str(x.filename)) if isinstance(x, np.memmap) else images, sets, trials=trials, method=method,
            purify=None if asked.space.purify is None else late(plan.epochs), network=network_of(plan.network),
            training=Training(plan.epochs, plan.batch), views=recipe, prior=asked.prior, device=device,
            n_jobs=asked.processes, progress=asked.progress,
            checkpoint=None if asked.checkpoint is None else Path(asked.checkpoint) / "pictures",
        )  # fmt: skip
    return Found((fitted,), [], [plan], sets, None, None, [])


def late(epochs: int) -> Pop:
    """POP in the last fifth of the training, when networks know enough to remove little that is true."""
    interval, warm_up = max(1, epochs // 20), round(0.8 * epochs)
    events = len(range(warm_up, epochs, interval))
    return Pop(warm_up, interval, interval, True, 0.95, 0.1, 0.85 / max(1, round(0.8 * (events - 1))))
