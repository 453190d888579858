"""Seconds per epoch of POP on images, ours against a plain PyTorch pipeline; meant for a GPU, runs tiny on a CPU.

    python benchmarks/speed/epoch.py                    # both shapes, ours and the plain pipeline
    python benchmarks/speed/epoch.py --methods          # RCR, PiCO and VALEN too
    python benchmarks/speed/epoch.py --only ours --profile

Ours: `oneof.fit` as it is; the first epoch compiles and captures (before it, `posing` makes the data and starts CUDA), steady ones are reported. A network without kernels is compiled for a long run alone: `--length 12` is a short one. Evaluation is of 15,000 images, as an
epoch has in the paper's setting (5,000 held out, 10,000 test), and is not part of the epoch. Plain: DataLoader with 8 workers,
Pillow transforms, float32, three forwards, PRODEN's table on the device; its transforms are only what the views need, so on
MNIST, where they are a few slices, it is faster than the authors' loop. Images are random bytes; only time is measured. The floor: every output element of a convolution or linear layer is moved
13 times in bfloat16 (forward: written, read for BN statistics, read and written by BN-ReLU, read by the next layer; backward:
gradient written, read twice by convolution's two gradients, its input read once, BN's backward reads two tensors twice and
writes one), over the copy bandwidth that is measured here.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from oneof.data.augment import views
from oneof.methods import RCR, Method, PiCO, Proden, Valen
from oneof.networks import LeNet, WideResNet
from oneof.purify import Pop
from oneof.training.device import CudaGraphRunner
from oneof.training.events import run_event
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.state import State
from oneof.training.training_data import TrainingData, make_training_data
from oneof.training.trials import Training, Trial
from oneof_paper.results import origin

SHAPES = {
    "cifar10": (45_000, (3, 32, 32), WideResNet()),
    "mnist": (54_000, (1, 28, 28), LeNet()),
}
PASSES = 13
LENGTH = 500  # epochs of the paper, of which the first are run


def data(name: str, tiny: bool) -> tuple[np.ndarray, np.ndarray]:
    n, shape, _ = SHAPES[name]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(600 if tiny else n, *shape), dtype=np.uint8)
    sets = rng.random((len(x), 10)) < 0.3
    sets[np.arange(len(x)), rng.integers(10, size=len(x))] = True
    return x, sets


def posed(
    name: str, device: torch.device, method: Method, kind: str, rule: Pop | None, length: int = LENGTH
) -> tuple[TrainingData, State]:
    x, sets = data(name, device.type == "cpu")
    seen = views(kind, name, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
    problem = make_training_data(x, sets, [Trial()], method, rule, Training(length, 256), seen, None, device)
    make = lambda: method.network(SHAPES[name][2](x.shape[1:], 10), 10, x.shape[1:])  # noqa: E731
    return problem, begin(problem, build(make, [0], device, problem.compile_batch), [0])


def timed(run: Iterator[object], count: int, device: torch.device) -> list[float]:
    """Seconds of each of so many epochs."""
    took, start = [], time.perf_counter()
    for _ in range(count):
        next(run)
        wait(device)
        took.append(time.perf_counter() - start)
        start = time.perf_counter()
    return took


def on_views(name: str, device: torch.device, pop: float, profile: bool) -> dict[str, float]:
    """A steady epoch of each method that compares views or has a second network, in epochs of POP."""
    found = {}
    for method, kind in ((RCR(), "rcr"), (PiCO(start=0), "pico"), (Valen(warm_up=1), "plain")):
        run = epochs(*posed(name, device, method, kind, None))
        took = timed(run, 6, device)
        title = type(method).__name__
        found[title] = float(np.median(took[3:])) / pop
        print(f"{name}: {title} {[round(t, 3) for t in took]} s", flush=True)
        if profile:
            show(run, device)
    return found


def show(run: Iterator[object], device: torch.device) -> None:
    """What the kernels of the next epoch take."""
    with torch.profiler.profile() as trace:
        next(run)
        wait(device)
    print(trace.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=70))


def ours(name: str, device: torch.device, count: int, length: int, profile: bool) -> dict[str, float]:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    problem, state = posed(name, device, Proden(), "pop", Pop(warm_up=2, interval=2, window=2), length)
    posing = time.perf_counter() - start
    run = epochs(problem, state)
    took = timed(run, count - 1, device)
    if profile:
        show(run, device)
    steady = float(np.median(took[4:] or took))
    purifying, seeing = purification(problem, state, device), evaluation(problem, state, device)
    print(f"{name}: ours {[round(t, 3) for t in took]} s", flush=True)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return {
        "ours": steady,
        "posing": posing,
        "first_epoch": took[0],
        "images_per_second": problem.rows.shape[1] * 3 / steady,
        "purification": purifying,
        "purification_share": purifying / steady,
        "evaluation": seeing,
        "peak_GiB": peak,
    }


def purification(problem, state, device) -> float:
    """Seconds of an event at which labels fall: as given again, with random posteriors observed."""
    given, seen = problem.training_candidates(), torch.rand_like(state.pop.posterior_sum)
    took = []
    for _ in range(10):
        before = state.pop._replace(posterior_sum=seen.clone(), threshold=torch.full_like(state.pop.threshold, 0.1))
        sets = given.clone()
        wait(device)
        start = time.perf_counter()
        removed, _ = run_event(problem.purify, sets, before, problem.group, seen.numel())
        wait(device)
        took.append(time.perf_counter() - start)
    assert removed.sum() > 0, "an event must remove labels, or it is not the one to time"
    return float(np.median(took))


def evaluation(problem, state, device) -> float:
    """Seconds for the logits of 15,000 images, captured as the loop captures them."""
    replay, rows = CudaGraphRunner(device.type == "cuda", state.generators), problem.rows[:, :15_000]
    for _ in range(CudaGraphRunner.warm_up + 2):
        replay("rows", partial(problem.logits, state.stack), rows)
    wait(device)
    start = time.perf_counter()
    replay("rows", partial(problem.logits, state.stack), rows)
    wait(device)
    return time.perf_counter() - start


class Pictures(torch.utils.data.Dataset):
    """Images as Pillow sees them: one plain view and two strong ones."""

    def __init__(self, x: np.ndarray, name: str) -> None:
        self.x, self.name = x, name

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int):
        from PIL import Image, ImageOps

        image = Image.fromarray(self.x[i].transpose(1, 2, 0).squeeze())
        return (*[self.normal(view) for view in (image, self.strong(image, ImageOps), self.strong(image, ImageOps))], i)

    def strong(self, image, ops):
        from PIL import ImageEnhance

        rng = np.random
        if rng.rand() < 0.5:
            image = ops.mirror(image)
        padded = np.pad(np.asarray(image), [(4, 4), (4, 4)] + [(0, 0)] * (np.asarray(image).ndim - 2), mode="reflect")
        top, left, side = rng.randint(9), rng.randint(9), image.size[0]
        pixels = padded[top : top + side, left : left + side].copy()
        y, x = rng.randint(side), rng.randint(side)
        pixels[max(0, y - 8) : y + 8, max(0, x - 8) : x + 8] = 0
        from PIL import Image

        image = Image.fromarray(pixels)
        if self.name == "cifar10":  # two operations, as an AutoAugment sub-policy has
            for operation in rng.randint(6, size=2):
                if rng.rand() < 0.6:
                    image = [
                        lambda i: i.transform(i.size, Image.Transform.AFFINE, (1, 0.2, 0, 0, 1, 0)),
                        lambda i: i.rotate(15),
                        ops.equalize,
                        ops.autocontrast,
                        lambda i: ImageEnhance.Color(i).enhance(1.4),
                        lambda i: ImageEnhance.Sharpness(i).enhance(1.4),
                    ][operation](image)
        return image

    def normal(self, image) -> torch.Tensor:
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy((pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)) - 0.5) / 0.25


def plain(name: str, device: torch.device) -> float:
    x, sets = data(name, device.type == "cpu")
    network = SHAPES[name][2](x.shape[1:], 10).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    mask = torch.as_tensor(sets, device=device)
    weights = mask.float() / mask.sum(1, keepdim=True)
    workers = 8 if device.type == "cuda" else 0
    loader = torch.utils.data.DataLoader(Pictures(x, name), batch_size=256, shuffle=True, num_workers=workers)
    took = []
    for _ in range(2 if device.type == "cuda" else 1):
        wait(device)
        start = time.perf_counter()
        for *three, at in loader:
            three, at = [view.to(device) for view in three], at.to(device)
            logits = [network(view) for view in three]
            loss = sum(-(weights[at] * z.log_softmax(1)).sum(1).mean() for z in logits) / 3
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                weights[at] = logits[0].masked_fill(~mask[at], -torch.inf).softmax(1)
        wait(device)
        took.append(time.perf_counter() - start)
    print(f"{name}: plain pipeline {[round(t, 2) for t in took]} s", flush=True)
    return min(took)


def floor(name: str, device: torch.device) -> float:
    """Seconds per epoch if memory traffic were all."""
    n, shape, network = SHAPES[name]
    outputs = []
    module = network(shape, 10)
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(lambda _, __, output: outputs.append(output[0].numel()))
    module.eval()(torch.zeros(1, *shape))
    return 3 * n * sum(outputs) * PASSES * 2 / copy_bandwidth(device)


def copy_bandwidth(device: torch.device) -> float:
    size = 2**30 if device.type == "cuda" else 2**26
    one, other = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    other.copy_(one)
    wait(device)
    start = time.perf_counter()
    for _ in range(10):
        other.copy_(one)
    wait(device)
    return 20 * size / (time.perf_counter() - start)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="cifar10,mnist")
    parser.add_argument("--only", choices=["ours", "plain"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--length", type=int, default=LENGTH, help="epochs of the run, of which --epochs are timed")
    parser.add_argument("--methods", action="store_true", help="RCR, PiCO and VALEN too, in epochs of POP")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    figures = origin(str(device)) | ({"commit": chosen.commit} if chosen.commit else {})
    for name in chosen.shapes.split(","):
        row: dict[str, float] = {}
        if chosen.only != "plain":
            row |= ours(name, device, chosen.epochs, chosen.length, chosen.profile)
            row["floor"] = floor(name, device)
            row["floor_share"] = row["floor"] / row["ours"]
        if chosen.methods:
            row |= on_views(name, device, row["ours"], chosen.profile)
        if chosen.only != "ours":
            row["plain"] = plain(name, device)
        if chosen.only is None:
            row["times_faster"] = row["plain"] / row["ours"]
        figures[name] = {key: round(value, 5) for key, value in row.items()}
        print(name, figures[name], flush=True)
        if chosen.out:
            chosen.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
