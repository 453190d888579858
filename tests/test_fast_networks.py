"""What a compiled LeNet does otherwise is the same function: its convolutions go block by block."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from oneof.networks import LeNet, WideResNet
from oneof.networks.blocks import convolve_blocks, windows_times

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


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.parametrize(("network", "shape"), [(LeNet(), (1, 28, 28)), (WideResNet(10), (3, 32, 32))])
def test_a_network_compiled_for_the_card_is_as_exact_as_bfloat16_allows(network, shape):
    """Its distance from float32 is that of the same layers in bfloat16, weight by weight."""
    torch.manual_seed(0)
    module = network(shape, 10).cuda().to(memory_format=torch.channels_last)
    x = random(64, *shape).cuda().to(memory_format=torch.channels_last)
    ways = ((module, torch.float32), (module, torch.bfloat16), (torch.compile(module, dynamic=False), torch.bfloat16))
    found = []
    for called, dtype in ways:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            logits = called(x.to(dtype)).float()
        found.append((logits, *torch.autograd.grad(logits.square().sum(), list(module.parameters()))))
    exact, plain, fast = found
    far = [
        [((one - right).norm() / right.norm()).item() for one, right in zip(way, exact, strict=True)]
        for way in (plain, fast)
    ]
    for by_layers, by_compiler in zip(*far, strict=True):
        assert by_compiler <= 1.5 * by_layers + 0.02
