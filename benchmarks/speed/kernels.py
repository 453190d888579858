"""What each hand-written kernel saves: an epoch of WRN-28-2 by POP with all of them, and with one at a time done by torch.

    python benchmarks/speed/kernels.py --out results/kernels-h200.json

torch's ways are the fastest that it has for the task: batch normalisation's own kernels for statistics and gradients, cuDNN for
convolutions. "torch's layers" is the network without our program, compiled; views are timed compiled and as they are. Ways take turns, twice; the least of their steady epochs counts.
Images are random bytes: only time is measured. tests/networks/test_fast_networks.py holds that torch's ways are the same function.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from epoch import posed, timed
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.methods import Proden
from oneof.networks.cuda import layers
from oneof.networks.wide_resnet import WideResNetBody
from oneof.purify import Pop
from oneof.training.loop import epochs
from oneof_paper.results import origin

SETTINGS = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # what aten wants: no bias, stride, padding, dilation ...


def channels_first(x: Tensor) -> Tensor:
    return x.contiguous().permute(0, 3, 1, 2)


# ------------------------------------------------------------------------------------------------ the same, done by torch


def moments(room: object, layer: nn.BatchNorm2d, x: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    summed = x if kept is None else x + kept
    if x.is_cuda:
        mean, inverse = torch.batch_norm_stats(channels_first(summed), layer.eps)
        variance = inverse**-2 - layer.eps
    else:
        variance, mean = torch.var_mean(summed, (0, 1, 2), correction=0)
        inverse = (variance + layer.eps).rsqrt()
    count = summed[..., 0].numel()
    layer.running_mean.lerp_(mean, layer.momentum)
    layer.running_var.lerp_(variance * (count / (count - 1)), layer.momentum)
    scale = layer.weight.detach() * inverse
    return summed, torch.stack((mean, inverse, scale, layer.bias.detach() - mean * scale))


def normalised(x: Tensor, norm: Tensor) -> Tensor:
    mean, inverse, scale, shift = norm
    if not x.is_cuda:
        return x * scale + shift
    return torch.batch_norm_elemt(channels_first(x), scale / inverse, shift + mean * scale, mean, inverse, 0.0).permute(
        0, 2, 3, 1
    )


def rectify(x: Tensor, norm: Tensor, frame: bool) -> Tensor:
    y = normalised(x, norm).relu_()
    return F.pad(y, (0, 0, 1, 1)) if frame else y


def rectify_backward(room, x, gradient, norm, kept, out, again) -> Tensor:
    mean, inverse, scale, _ = norm
    g = gradient if gradient.shape[2] == x.shape[2] else gradient[:, :, 1:-1]
    g = g.masked_fill(normalised(x, norm) <= 0, 0)
    if x.is_cuda:
        y, g, gamma, count = channels_first(x), channels_first(g), scale / inverse, len(x) * x[0, ..., 0].numel()
        plain, along, for_gamma, for_beta = torch.batch_norm_backward_reduce(
            g, y, mean, inverse, gamma, True, True, True
        )
        counts = torch.full((1,), count, dtype=torch.int32, device=x.device)
        d = torch.batch_norm_backward_elemt(g, y, mean, inverse, gamma, plain, along, counts).permute(0, 2, 3, 1)
    else:
        normal = (x - mean) * inverse
        for_beta, for_gamma = g.sum((0, 1, 2)), (g * normal).sum((0, 1, 2))
        count = g[..., 0].numel()
        d = scale * (g - for_beta / count - normal * for_gamma / count)
    out.copy_(d if kept is None else d + kept)
    if again is not None:
        again.copy_(out)
    return torch.stack((for_beta, for_gamma))


def narrow_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    inner, like = x[:, :, 1:-1], torch.empty(gradient.shape[3], x.shape[3], 3, 3, dtype=x.dtype, device=x.device)
    back = torch.ops.aten.convolution_backward
    return back(channels_first(gradient), channels_first(inner), like, *SETTINGS, [False, True, False])[1]


WAYS = {  # of the kernels: what of `layers` stands in their place
    "moments": {"moments": moments},
    "rectify": {"rectify": rectify},
    "rectified_sums, rectified_gradient": {"rectify_backward": rectify_backward},
    "narrow_gradient": {"_narrow_gradient": narrow_gradient},
    "pairs (rectify's frame, narrow_gradient)": {"NARROW": 0, "FEW": 0},
    "shift, operate: views not compiled": {},
    "shift, operate: views compiled": {},
    "torch's layers": {},
}


@contextmanager
def without(kernel: str) -> Iterator[None]:
    """While this lasts, the kernel's work is done by torch."""
    from oneof.networks.cuda import accelerate, fused
    from oneof.training import training_data

    def swap(place: object, name: str, value: object) -> tuple[object, str, object]:
        before = getattr(place, name)
        setattr(place, name, value)
        return place, name, before

    changed = [swap(fused if name.isupper() else layers, name, value) for name, value in WAYS.get(kernel, {}).items()]
    if kernel.endswith("views compiled"):
        changed.append(swap(accelerate, "have_kernels", lambda views: False))
    if kernel.endswith("views not compiled"):
        changed.append(swap(training_data, "accelerate_views", lambda views, batch: views))
    if kernel == "torch's layers":
        changed.append(swap(WideResNetBody, "use_kernels", lambda self: False))
    try:
        yield
    finally:
        for one in changed:
            swap(*one)


def seconds(kernel: str, count: int) -> float:
    """The least of the steady epochs."""
    with without(kernel):
        device = torch.device("cuda")
        run = epochs(*posed("cifar10", device, Proden(), "pop", Pop(warm_up=2, interval=2, window=2)))
        took = timed(run, count, device)
    print(f"{kernel or 'ours'}: {[round(one, 3) for one in took]} s", flush=True)
    return float(np.min(took[2:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4, help="of each way in each turn; the first two do not count")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This needs a GPU: kernels are timed on it.")
    torch.backends.cudnn.benchmark = True
    figures = origin("cuda") | ({"commit": chosen.commit} if chosen.commit else {})
    least: dict[str, float] = {}
    for turn in range(2):
        for kernel in ["", *WAYS]:
            if turn and kernel in ("torch's layers", "shift, operate: views compiled"):
                continue  # compiling takes longer than all others
            least[kernel] = min(least.get(kernel, np.inf), seconds(kernel, chosen.epochs))
            others = {name: took for name, took in least.items() if name}
            saved = {
                name: {"epoch": round(took, 4), "saved": round(1 - least[""] / took, 4)}
                for name, took in others.items()
            }
            figures |= {"ours": round(least[""], 4), "turns": turn + 1, "without": saved}
            if chosen.out:  # after each, since a machine may be lent for a while only
                chosen.out.write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
