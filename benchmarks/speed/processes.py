"""Two processes against one: seconds of an epoch, and whether they end with the same.

    python benchmarks/speed/processes.py [--rows 20000] [--width 512]
    python benchmarks/speed/processes.py --whole [--rows 100000] [--features 20]
    python benchmarks/speed/processes.py --images [--rows 64] [--device cuda [--timed 2048] [--compiled]]

PRODEN + POP on a table of 64 features and 50 classes, batches of 512, one thread a process. Starting processes takes seconds, so an
epoch's time is that of a long run less that of a short one, over the epochs between. Only the ratio means anything.

--whole: all that `oneof fit` does between reading and writing (10 classes), the start of processes included.

--images: PRODEN, POP, RCR, PiCO and VALEN on images of 28 x 28: how far two processes end from one, and one process from itself where its
first weights were changed by a rounding. In float32 a rounding flips ReLUs and maxima of LeNet here and there, which training amplifies; a
network of the same layers without kinks has none to flip. With --device cuda also the seconds of an epoch of so many images (--timed). There one
process runs as two do, neither compiled nor by our kernels, unless --compiled says so. Where there are fewer GPUs than processes they share.
"""

from __future__ import annotations

import argparse
import itertools
import time
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from oneof.candidates.mask import Candidates
from oneof.data.augment import views
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble import pipeline
from oneof.learners.base import Resources
from oneof.methods import METHODS, Method
from oneof.networks import MLP, Classifier, LeNet, Network
from oneof.purify import Pop
from oneof.training import training_data
from oneof.training.fit import fit
from oneof.training.processes import ProcessGroup, run_distributed
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

CLASSES, SHORT, LONG = 50, 2, 8


def run(rows: int, width: int, epochs: int, processes: int) -> tuple[float, Fit]:
    data = mixture(n=rows + 5_000, d=64, c=CLASSES, separation=4.0, seed=0)
    sets = np.eye(CLASSES, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows + 5_000, CLASSES)) < 0.05)
    trial = Trial(lr=0.1, rows=np.arange(rows), test=np.arange(rows, rows + 5_000))
    start = time.perf_counter()
    fitted = fit(
        data.x.astype(np.float32), sets, trials=[trial], labels=data.labels, network=MLP((width, width)), n_jobs=processes,
        purify=Pop(warm_up=1, interval=1, window=1), training=Training(epochs, 512),
    )  # fmt: skip
    return time.perf_counter() - start, fitted


def whole(rows: int, features: int) -> None:
    data = mixture(n=rows, d=features, c=10, separation=4.0, seed=0)
    sets = np.eye(10, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows, 10)) < 0.15)
    names = tuple(f"x{k}" for k in range(features))
    encoding = Encoding(names, (0.0,) * features, (), {}, ())
    classes = np.array([str(j) for j in range(10)])
    examples = Dataset.build(data.x.astype(np.float32), Candidates(sets, classes), encoding)
    seconds = []
    tables = []
    for processes in (1, 2):
        start = time.perf_counter()
        resources = Resources("cpu", n_jobs=processes, memory=2**30)
        tables.append(pipeline.fit(examples, resources=resources).purified)
        seconds.append(time.perf_counter() - start)
        print(f"{processes} process(es): {seconds[-1]:.1f} s for {rows:,} rows x {features} features", flush=True)
    print(f"two against one: {seconds[0] / seconds[1]:.2f} x as fast", end="")
    for column, name in (("kept", "sets"), ("label", "labels")):
        one, two = (table[column].to_pylist() for table in tables)
        differing = sum(a != b for a, b in zip(one, two, strict=True))
        print(f"; {name} differ in {differing} of {rows:,} rows", end="")
    print()


class Images(NamedTuple):
    """What is compared on images."""

    rows: int
    device: str
    timed: int  # images of which an epoch is timed; 0: none is
    compiled: bool


def images(asked: Images, group: ProcessGroup) -> None:
    """Two processes, of which the first compares what both do with what it does alone; both begin at the first weights of one."""
    torch.set_num_threads(1)
    card = asked.device != "cpu"
    torch.backends.cudnn.allow_tf32 = False
    networks = (LeNet(),) if card else (LeNet(), Smooth())
    for dtype, network, name in itertools.product((torch.float64, torch.float32), networks, SEEN):
        torch.set_default_dtype(dtype)
        torch.manual_seed(0)
        first = _method(name).network(network((1, 28, 28), 10), 10, (1, 28, 28)).state_dict()
        nudge = torch.finfo(dtype).eps / 2
        near = {key: w * (1 + nudge * torch.randn_like(w)) if w.is_floating_point() else w for key, w in first.items()}
        few = Job(name, asked.device, network, asked.rows, 16, 12 if name == "valen" else 4, asked.compiled)
        two = on_images(few, first, group.size)
        if group.rank == 0:
            one, other = (on_images(few, start, 1) for start in (first, near))
            which = f"{str(dtype)[6:]}, {type(network).__name__}, {name}"
            print(f"{which}: two against one {apart(two, one)}; nudged {apart(other, one)}", flush=True)
    if asked.timed:
        torch.set_default_dtype(torch.float32)
        for name in SEEN:
            _time_an_epoch(name, asked, group)


def _time_an_epoch(name: str, asked: Images, group: ProcessGroup) -> None:
    """A long run less a short one, over the epochs between; VALEN's after its warm-up."""
    begun = METHODS["valen"]().warm_up if name == "valen" else 0
    jobs = [
        Job(name, asked.device, LeNet(), asked.timed, 256, begun + epochs, asked.compiled) for epochs in (SHORT, LONG)
    ]
    two = [on_images(job, None, group.size) for job in jobs]
    if group.rank == 0:
        one = [on_images(job, None, 1) for job in jobs]
        alone, both = ((long.seconds - short.seconds) / (LONG - SHORT) for short, long in (one, two))
        print(f"{name}, {asked.timed} images: {alone:.3f} s an epoch in one process, ", end="")
        print(f"{both:.3f} in {group.size}; {apart(two[1], one[1])}", flush=True)


def _set_precision(job: Job, processes: int) -> None:
    """On a GPU one process runs as several do, unless it may be compiled; in double precision both run in nothing less."""
    double = torch.get_default_dtype() == torch.float64
    torch._dynamo.config.disable = double or not job.compiled
    plain = processes == 1 and not job.compiled
    training_data.images_per_forward = (lambda *given: 0) if double else (lambda *given: -1) if plain else TOGETHER


class Smooth:
    """LeNet without kinks."""

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        smooth = {nn.ReLU: nn.SiLU(), nn.MaxPool2d: nn.AvgPool2d(2)}
        built = LeNet()(shape, classes)
        body = nn.Sequential(*(smooth.get(type(layer), layer) for layer in built.body))
        return Classifier(body, built.width, classes)


SEEN = {"proden": "pop", "pop": "pop", "rcr": "rcr", "pico": "pico", "valen": "plain"}  # method, views
TOGETHER = training_data.images_per_forward


class Job(NamedTuple):
    """A run on images."""

    name: str
    device: str
    network: Network
    rows: int
    batch: int
    epochs: int
    compiled: bool


class End(NamedTuple):
    """Where a run ended."""

    probabilities: torch.Tensor
    candidates: torch.Tensor
    seconds: float


def _method(name: str) -> Method:
    return METHODS["proden" if name == "pop" else name]()


def on_images(job: Job, start: dict[str, torch.Tensor] | None, processes: int) -> End:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 10, job.rows)
    x = (draws.integers(0, 256, (10, 1, 28, 28))[labels] * 0.5 + draws.integers(0, 128, (job.rows, 1, 28, 28))).astype(
        np.uint8
    )
    sets = np.eye(10, dtype=bool)[labels] | (draws.random((job.rows, 10)) < 0.3)
    dtype = torch.get_default_dtype()
    dtype = torch.bfloat16 if job.device != "cpu" and dtype == torch.float32 else dtype
    if job.device != "cpu":
        _set_precision(job, processes)
    begin = time.perf_counter()
    fitted = fit(
        x, sets, method=_method(job.name), network=job.network, trials=[Trial(start=start)], device=job.device,
        views=views(SEEN[job.name], "mnist", dtype=dtype, device=job.device), n_jobs=processes,
        purify=None if job.name == "proden" else Pop(warm_up=1, interval=1, window=1), training=Training(job.epochs, job.batch),
    )  # fmt: skip
    if job.device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return End(fitted.probabilities(x).cpu(), fitted.candidates.cpu(), seconds)


def apart(ours: End, theirs: End) -> str:
    """Two ends of a run, and how long the first took."""
    labels = (ours.probabilities.argmax(-1) != theirs.probabilities.argmax(-1)).sum().item()
    sets = (ours.candidates != theirs.candidates).sum().item()
    most = (ours.probabilities - theirs.probabilities).abs().max().item()
    return f"probabilities {most:.0e} apart, {labels} labels, {sets} candidates ({ours.seconds:.1f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--timed", type=int)
    parser.add_argument("--compiled", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.images:
        timed = (0 if asked.device == "cpu" else 2048) if asked.timed is None else asked.timed
        run_distributed(partial(images, Images(asked.rows or 64, asked.device, timed, asked.compiled)), 2)
    elif asked.whole:
        whole(asked.rows or 100_000, asked.features)
    else:
        epoch(asked.rows or 20_000, asked.width)


def epoch(rows: int, width: int) -> None:
    seconds, ends = {}, {}
    for processes in (1, 2):
        short, _ = run(rows, width, SHORT, processes)
        long, ends[processes] = run(rows, width, LONG, processes)
        seconds[processes] = (long - short) / (LONG - SHORT)
        print(
            f"{processes} process(es): {seconds[processes]:.2f} s an epoch; {long:.1f} s for {LONG} epochs, start included",
            flush=True,
        )
    one, two = ends[1], ends[2]
    apart = (one.candidates != two.candidates).sum().item()
    print(f"two against one: {seconds[1] / seconds[2]:.2f} x as fast")
    print(f"accuracy {one.history['accuracy'][-1].item():.4f} and {two.history['accuracy'][-1].item():.4f}; ", end="")
    print(
        f"{len(one.removals.row):,} and {len(two.removals.row):,} labels removed, sets differ in {apart} of {one.candidates.numel():,} entries (float32)"
    )


if __name__ == "__main__":
    main()
