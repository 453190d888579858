"""What compiled networks do otherwise is the same function: block convolutions, one-pass normalisation, our own gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneof.networks import LeNet, ResNet32, WideResNet, narrow
from oneof.networks.blocks import convolve_blocks, image, windows_times
from oneof.networks.narrow import Normalisation, weight_gradient

NETWORKS = {
    "lenet": (LeNet(), (1, 12, 8)),
    "lenet on an odd size": (LeNet(), (1, 10, 9)),
    "wide": (WideResNet(10), (3, 8, 12)),
    "wide on an odd size": (WideResNet(10), (3, 9, 8)),
    "resnet": (ResNet32(), (3, 8, 8)),
}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.get_default_dtype())


def compiled(module):
    """Traced as for the compiler, then run as it stands: what is tested is the way taken, not the compiler."""
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", dynamic=False)


def trained(network, shape, wrap):
    """Logits, gradients and statistics of the second of two forwards."""
    torch.manual_seed(0)
    module = network(shape, 5)
    called = wrap(module)
    called(random(6, *shape))
    logits = called(random(6, *shape, seed=1))
    gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
    return logits, *gradients, *(buffer for buffer in module.buffers() if buffer.dim())


@pytest.mark.parametrize("function", [windows_times, convolve_blocks])
@pytest.mark.parametrize(("size", "before", "after"), [(3, 3, 16), (5, 1, 20), (5, 20, 7)])
@pytest.mark.usefixtures("double")
def test_blocks_hold_the_pixels_of_a_convolution(function, size, before, after):
    x, weight = random(2, before, 8, 12), random(after, before, size, size, seed=1)
    torch.testing.assert_close(image(function(x, weight)), F.conv2d(x, weight, padding=size // 2))


@pytest.mark.parametrize(("network", "shape"), NETWORKS.values(), ids=NETWORKS)
@pytest.mark.usefixtures("double")
def test_a_compiled_network_is_the_same_function(network, shape):
    for plain, fast in zip(trained(network, shape, lambda m: m), trained(network, shape, compiled), strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


def test_lenet_agrees_in_single_precision():
    network, shape = NETWORKS["lenet"]
    for plain, fast in zip(trained(network, shape, lambda m: m), trained(network, shape, compiled), strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("network", "shape"), NETWORKS.values(), ids=NETWORKS)
def test_names_are_those_of_torch_layers(network, shape):
    own = network(shape, 5)
    kinds = {type(layer).__mro__[1] for layer in own.modules() if type(layer).__module__.endswith(".narrow")}
    assert kinds <= {nn.Conv2d, nn.BatchNorm2d}
    assert all(name.rpartition(".")[2] in ("weight", "bias") for name, _ in own.named_parameters())


def test_a_known_mean_far_from_zero_costs_no_precision():
    x = random(8, 2, 16, 16) + 1000
    plain, fast = nn.BatchNorm2d(2), Normalisation(2)
    for norm in (plain, fast):
        norm.running_mean.fill_(999.0)
    torch.testing.assert_close(compiled(fast)(x), plain(x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fast.running_var, plain.running_var)


def test_a_constant_channel_is_normalised_to_its_bias():
    fast = Normalisation(1)
    out = compiled(fast)(torch.full((4, 1, 8, 8), 777.7))
    assert out.isfinite().all()


def test_evaluation_uses_the_statistics_as_they_are():
    fast, x = Normalisation(3), random(4, 3, 4, 4) * 3 + 2
    compiled(fast)(x)
    fast.eval()
    torch.testing.assert_close(compiled(fast)(x), fast(x))


@pytest.mark.usefixtures("double")
def test_the_parts_of_a_gradient_of_weights_are_put_together(monkeypatch):
    def in_two_parts(x, gradient):
        windows = F.unfold(x, 3, padding=1).view(len(x), x.shape[1], 3, 3, -1)
        whole = torch.einsum("nirsp,nop->rsio", windows, gradient.flatten(2)).flatten(1, 2)
        filled = F.pad(whole, (0, 0, 0, x.shape[1]), value=torch.nan)  # a fourth column that does not count
        return torch.stack((0.25 * filled, 0.75 * filled))

    monkeypatch.setattr(narrow, "weight_gradient", in_two_parts)
    x, weight = random(2, 16, 6, 4).requires_grad_(), random(32, 16, 3, 3, seed=1).requires_grad_()
    y = F.conv2d(x, weight, padding=1)
    wanted = torch.autograd.grad(y.square().sum(), (x, weight))
    found = torch.autograd.grad(narrow._Narrow.apply(x, weight).square().sum(), (x, weight))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize(("before", "after", "side"), [(32, 32, 32), (16, 32, 32), (16, 16, 8)])
def test_our_gradient_of_weights_is_torchs(before, after, side):
    x, gradient = (
        random(5, channels, side, side, seed=channels).cuda().bfloat16().to(memory_format=torch.channels_last)
        for channels in (before, after)
    )
    weight = torch.zeros(after, before, 3, 3, device="cuda", requires_grad=True)
    (wanted,) = torch.autograd.grad(F.conv2d(x.float(), weight, padding=1), weight, gradient.float())
    parts = weight_gradient(x, gradient).sum(0)[:, : 3 * before]
    found = parts.unflatten(1, (3, -1)).permute(3, 2, 0, 1)
    assert (found - wanted).norm() / wanted.norm() < 1e-3


@pytest.mark.gpu
def test_a_network_compiled_for_the_card_agrees_within_bfloat16():
    torch.manual_seed(0)
    module = WideResNet(10)((3, 32, 32), 10).cuda().to(memory_format=torch.channels_last)
    x = random(64, 3, 32, 32).cuda().to(memory_format=torch.channels_last)
    found = []
    for called, dtype in ((module, torch.float32), (torch.compile(module, dynamic=False), torch.bfloat16)):
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            logits = called(x.to(dtype)).float()
        found.append((logits, *torch.autograd.grad(logits.square().sum(), list(module.parameters()))))
    for plain, fast in zip(*found, strict=True):
        assert (fast - plain).norm() <= 0.1 * plain.norm()
