"""The Triton kernels, run by Triton's interpreter on a CPU; test_card.py has them on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from oneof.networks import WideResNet
from oneof.networks.cuda import layers


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
    body = module.body.program if fast and module.body.use_kernels() else module.body
    x = torch.randn(6, 3, 8, 8)
    module.head(body(x))
    logits = module.head(body(2 * x + 1))
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    module.eval()
    return logits, *gradients, module.head(body(x)), *(buffer for buffer in module.buffers() if buffer.dim())


if __name__ == "__main__":
    layers.PROGRAMS, layers.PARTS, layers.ELEMENTS = 4, 5, 512  # so that every loop goes round
    for plain, fast in zip(results(fast=False), results(fast=True), strict=True):
        assert (fast - plain).norm() <= 1e-4 * plain.norm()
