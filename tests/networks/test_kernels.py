"""The Triton kernels, run by Triton's interpreter on a CPU; test_card.py has them on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from oneof.data.augment.views import Pictures, views
from oneof.networks import WideResNet
from oneof.networks.cuda import layers
from oneof.networks.cuda import views as fast_views
from oneof.networks.cuda.views import apply_by_kernels


def test_a_program_of_kernels_is_its_modules():
    """In a process of its own: Triton reads how it is to run when it is imported."""
    pytest.importorskip("triton", reason="Triton is not installed; it comes with torch for CUDA")
    ran = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def results(fast: bool) -> tuple[torch.Tensor, ...]:
    """Logits, gradients, logits in evaluation and statistics, after a first forward."""
    torch.manual_seed(0)
    module = WideResNet(10)((3, 8, 8), 5).to(memory_format=torch.channels_last)
    body = module.body.fused if fast and module.body.use_kernels() else module.body
    x = torch.randn(6, 3, 8, 8)
    module.head(body(x))
    logits = module.head(body(2 * x + 1))
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    module.eval()
    return logits, *gradients, module.head(body(x)), *(buffer for buffer in module.buffers() if buffer.dim())


def differences() -> list[float]:
    """Of views by kernels and by torch, in levels; both round twice here."""
    torch.addcmul = lambda one, two, three: one + two * three
    found = []
    for kind, of in (("pop", Pictures(9, (0.5,) * 3, (0.2,) * 3, weak=True)), ("upright", Pictures(9, (0.5,), (0.2,)))):
        seen = views(kind, of)
        images = torch.randint(256, (4, seen.channels, 9, 9), dtype=torch.uint8)
        images[0] = images[0] // 4 + 60
        drawn = seen.draw(images, torch.Generator().manual_seed(0))
        if seen.size:  # so that every operation has its turn
            shift, hole, _ = drawn[1]
            drawn = (drawn[0], (shift, hole, torch.randint(150, (2, 8))))
        difference = apply_by_kernels(seen, images, drawn) - seen.apply(images, drawn)
        found.append(float(difference.abs().max() / seen.scale.max()))
    return found


if __name__ == "__main__":
    layers.PROGRAMS, layers.PARTS, layers.ELEMENTS = 4, 5, 512  # so that every loop goes round
    for plain, fast in zip(results(fast=False), results(fast=True), strict=True):
        assert (fast - plain).norm() <= 1e-4 * plain.norm()
    fast_views.PIXELS = 32
    assert max(differences()) < 0.01
