"""What fast networks do otherwise is the same function: a compiled LeNet goes block by block, WRN is a program of kernels."""

from __future__ import annotations

import pytest
import torch
from kernels import WAYS
from torch.nn import functional as F

from oneof.networks import LeNet, WideResNet
from oneof.networks.cuda import layers
from oneof.networks.lenet import convolve_blocks, windows_times

SHAPES = [(1, 12, 8), (1, 10, 9)]  # the second is odd: the plain way is taken


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.get_default_dtype())


def compiled(module):
    """Traced as for the compiler, then run as it stands: what is tested is the way taken, not the compiler."""
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", dynamic=False)


def trained(shape, wrap):
    """Logits, gradients and statistics of the second of two forwards."""
    torch.manual_seed(0)
    module = LeNet()(shape, 5)
    called = wrap(module)
    called(random(6, *shape))
    logits = called(random(6, *shape, seed=1))
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    return logits, *gradients, *(buffer for buffer in module.buffers() if buffer.dim())


def image(y):
    """Blocks [n, h/2, w/2, 4, o] as an image [n, o, h, w]."""
    n, h, w, _, o = y.shape
    return y.view(n, h, w, 2, 2, o).permute(0, 5, 1, 3, 2, 4).reshape(n, o, 2 * h, 2 * w)


@pytest.mark.parametrize("function", [windows_times, convolve_blocks])
@pytest.mark.parametrize(("size", "before", "after"), [(3, 3, 16), (5, 1, 20), (5, 20, 7)])
@pytest.mark.usefixtures("double")
def test_blocks_hold_the_pixels_of_a_convolution(function, size, before, after):
    x, weight = random(2, before, 8, 12), random(after, before, size, size, seed=1)
    torch.testing.assert_close(image(function(x, weight)), F.conv2d(x, weight, padding=size // 2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("double")
def test_a_compiled_network_is_the_same_function(shape):
    for plain, fast in zip(trained(shape, lambda m: m), trained(shape, compiled), strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


def test_it_agrees_in_single_precision():
    for plain, fast in zip(trained(SHAPES[0], lambda m: m), trained(SHAPES[0], compiled), strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------- the residual network's program of kernels


@pytest.fixture
def without_kernels(monkeypatch):
    """Torch's arithmetic in place of every kernel: what is tested is the order in which they are used, and on what."""
    for way in WAYS.values():
        for name, by_torch in way.items():
            if callable(by_torch):
                monkeypatch.setattr(layers, name, by_torch)
    monkeypatch.setattr(layers, "in_float32", lambda found: found)


def program(module):
    """The body's program, without the rounding to bfloat16 that comes before it."""
    assert module.body.use_kernels()
    return module.body.fused


@pytest.mark.parametrize(
    ("network", "shape"), [(WideResNet(10), (3, 8, 12)), (WideResNet(16, 1), (1, 8, 8)), (WideResNet(10), (3, 9, 10))]
)
@pytest.mark.usefixtures("double", "without_kernels")
def test_the_program_of_a_residual_network_is_its_modules(network, shape):
    found = []
    for fast in (False, True):
        torch.manual_seed(0)
        module = network(shape, 5).to(memory_format=torch.channels_last)
        body = program(module) if fast else module.body
        module.head(body(random(6, *shape)))
        logits = module.head(body(random(6, *shape, seed=1)))
        gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
        module.eval()
        seen = module.head(body(random(6, *shape, seed=2)))
        found.append((logits, *gradients, seen, *(buffer for buffer in module.buffers() if buffer.dim())))
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-8, atol=1e-9)


def test_widths_that_are_no_powers_of_two_have_no_program():
    assert not WideResNet(10, 3)((3, 8, 8), 5).body.use_kernels()


@pytest.mark.usefixtures("double")
def test_a_paired_convolution_is_the_convolution():
    x, weight = random(2, 4, 6, 5), random(7, 5, 3, 3, seed=1)  # images [n, h, w, c]
    paired = layers.convolve(F.pad(x, (0, 0, 1, 1)), layers.pair_pixels(weight), 1)
    plain = F.conv2d(x.permute(0, 3, 1, 2), weight, padding=1).permute(0, 2, 3, 1)
    torch.testing.assert_close(paired, plain)
