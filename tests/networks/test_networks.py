"""Networks: shapes, sizes counted by hand, and every way in which the engine calls them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from oneof.networks import MLP, Backbone, Classifier, GeneratorMLP, LeNet, Linear, ResNet32, WideResNet
from oneof.networks.resnet import BasicBlock
from oneof.networks.wide_resnet import PreActivation


def small_body():
    """A user's own module: maps [b, 6, h, w], batch normalisation, no head."""
    return nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU())


IMAGE, CLASSES = (3, 8, 8), 5
NETWORKS = {
    "linear": (Linear(), 192),
    "mlp": (MLP((12, 7)), 7),
    "generator": (GeneratorMLP(), 303),
    "lenet": (LeNet(), 500),
    "wide": (WideResNet(), 128),
    "resnet": (ResNet32(), 64),
    "backbone": (Backbone(small_body), 6),
}
every = pytest.mark.parametrize(("network", "width"), NETWORKS.values(), ids=NETWORKS)


def build(network, shape=IMAGE, seed=0):
    torch.manual_seed(seed)
    return network(shape, CLASSES)


def batch(shape=IMAGE, b=6):
    return torch.randn(b, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.get_default_dtype())


def count(module):
    return sum(p.numel() for p in module.parameters())


# ------------------------------------------------------------------------------------------------------------ what they are


@every
def test_a_classifier_is_a_head_on_features(network, width):
    net, x = build(network).eval(), batch()
    features = net.body(x)
    assert isinstance(net, Classifier)
    assert features.shape == (6, width)
    assert net.width == width == net.head.in_features
    assert torch.equal(net(x), features @ net.head.weight.T + net.head.bias)


@every
def test_the_seed_decides_the_weights(network, width):
    states = [build(network, seed=seed).state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


@pytest.mark.parametrize("network", [Linear(), MLP((4,)), GeneratorMLP(), LeNet(), WideResNet(10, 1), ResNet32()])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 4, 4), (2, 10, 6)])
def test_channels_and_sizes_are_read_from_the_shape(network, shape):
    assert build(network, shape)(batch(shape, b=3)).shape == (3, CLASSES)


@pytest.mark.parametrize(("network", "width"), [(Linear(), 9), (MLP((4,)), 4), (GeneratorMLP((8, 7)), 7)])
def test_tables_need_no_flattening(network, width):
    net = build(network, (9,))
    assert net.width == width
    assert net(batch((9,))).shape == (6, CLASSES)
    assert not any(isinstance(module, nn.Flatten) for module in net.modules())


def test_the_features_of_a_linear_model_are_its_input():
    assert torch.equal(build(Linear(), (9,)).body(batch((9,))), batch((9,)))
    assert torch.equal(build(Linear()).body(batch()), batch().flatten(1))


def test_mlp_counts():
    assert count(MLP((32, 16))((64,), 10)) == 65 * 32 + 33 * 16 + 17 * 10
    assert count(Linear()((1, 28, 28), 10)) == 7850


def test_generator_counts():
    weights = 784 * 300 + 300 * 301 + 301 * 302 + 302 * 303
    norms = 2 * (300 + 301 + 302 + 303)
    assert count(GeneratorMLP()((1, 28, 28), 10)) == weights + norms + 303 * 10 + 10 == 513_360


def test_lenet_counts():
    convolutions = 25 * 1 * 20 + 25 * 20 * 50
    affine = 50 * 7 * 7 * 500
    norms = 2 * (20 + 50 + 500)
    assert count(LeNet()((1, 28, 28), 10)) == convolutions + affine + norms + 500 * 10 + 10 == 1_256_650


def wide_count(widths, blocks, classes):
    """A stage: its first block's norm and convolution read the width before; a 1x1 shortcut where the width changes."""
    total = 9 * 3 * widths[0]
    for before, after in itertools.pairwise(widths):
        first = 2 * before + 9 * before * after + 2 * after + 9 * after * after
        rest = (blocks - 1) * (2 * after + 9 * after * after + 2 * after + 9 * after * after)
        total += first + rest + (before * after if before != after else 0)
    return total + 2 * widths[-1] + widths[-1] * classes + classes


@pytest.mark.parametrize("classes", [10, 100])
def test_wide_resnet_counts(classes):
    assert count(WideResNet()((3, 32, 32), classes)) == wide_count((16, 32, 64, 128), 4, classes)
    assert count(WideResNet(16, 1)((3, 32, 32), classes)) == wide_count((16, 16, 32, 64), 2, classes)
    assert wide_count((16, 32, 64, 128), 4, 10) == 1_467_610


def test_resnet_counts():
    first = 9 * 3 * 16 + 2 * 16
    blocks = [2 * 9 * 16 * 16 + 4 * 16] * 5
    for before, after in [(16, 32), (32, 64)]:
        blocks.append(9 * before * after + 9 * after * after + 4 * after + before * after + 2 * after)
        blocks += [2 * 9 * after * after + 4 * after] * 4
    assert count(ResNet32()((3, 32, 32), 10)) == first + sum(blocks) + 64 * 10 + 10 == 466_906


# ---------------------------------------------------------------------------------------------- against the bare operations


def normed(x, norm):
    """Batch normalisation in train mode, written out."""
    axes = [0, 2, 3] if x.dim() == 4 else [0]
    shape = (1, -1, 1, 1) if x.dim() == 4 else (1, -1)
    centred = x - x.mean(axes, keepdim=True)
    scaled = centred / (centred.square().mean(axes, keepdim=True) + 1e-5).sqrt()
    return scaled * norm.weight.view(shape) + norm.bias.view(shape)


def shake(module):
    """Norms start as the identity; give each its own scale and shift, so that leaving one out is seen."""
    for p in module.parameters():
        if p.dim() == 1:
            p.data.add_(torch.rand_like(p))
    return module


@pytest.mark.usefixtures("double")
def test_lenet_is_its_formula():
    net, x = shake(build(LeNet(), (1, 12, 8))), batch((1, 12, 8))
    conv1, norm1, conv2, norm2, affine, norm3 = [m for m in net.body if next(m.parameters(), None) is not None]
    z = F.max_pool2d(normed(F.conv2d(x, conv1.weight, padding=2), norm1).relu(), 2)
    z = F.max_pool2d(normed(F.conv2d(z, conv2.weight, padding=2), norm2).relu(), 2)
    z = normed(z.flatten(1) @ affine.weight.T, norm3).relu()
    torch.testing.assert_close(net(x), z @ net.head.weight.T + net.head.bias)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("before", "after", "stride"), [(4, 4, 1), (4, 6, 1), (4, 6, 2)])
def test_a_wide_block_is_its_formula(before, after, stride):
    """The shortcut, where there is one, reads the normalised and rectified input."""
    torch.manual_seed(0)
    block, x = shake(PreActivation(before, after, stride)), batch((before, 6, 6))
    active = normed(x, block.norm1).relu()
    z = F.conv2d(active, block.convolution1.weight, stride=stride, padding=1)
    z = F.conv2d(normed(z, block.norm2).relu(), block.convolution2.weight, padding=1)
    kept = x if before == after else F.conv2d(active, block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), kept + z)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("after", "stride"), [(4, 1), (6, 2)])
def test_a_basic_block_is_its_formula(after, stride):
    torch.manual_seed(0)
    block, x = shake(BasicBlock(4, after, stride)), batch((4, 6, 6))
    z = normed(F.conv2d(x, block.convolution1.weight, stride=stride, padding=1), block.norm1).relu()
    z = normed(F.conv2d(z, block.convolution2.weight, padding=1), block.norm2)
    kept = x if stride == 1 else normed(F.conv2d(x, block.shortcut[0].weight, stride=2), block.shortcut[1])
    torch.testing.assert_close(block(x), (kept + z).relu())


def test_stages_halve_the_image_twice():
    sizes = []
    for network, blocks in [(WideResNet(), PreActivation), (ResNet32(), BasicBlock)]:
        net = network((3, 32, 32), 10)
        for module in net.modules():
            if isinstance(module, blocks):
                module.register_forward_hook(lambda *call: sizes.append(tuple(call[2].shape[1:])))
        net(batch((3, 32, 32), b=2))
    wide = [(32, 32, 32)] * 4 + [(64, 16, 16)] * 4 + [(128, 8, 8)] * 4
    assert sizes == wide + [(16, 32, 32)] * 5 + [(32, 16, 16)] * 5 + [(64, 8, 8)] * 5


def test_weights_of_convolutions_have_the_deviation_of_their_fan_out():
    net = build(WideResNet(), (3, 32, 32))
    for conv in [m for m in net.modules() if isinstance(m, nn.Conv2d)]:
        wanted = (2 / (conv.out_channels * conv.kernel_size[0] ** 2)) ** 0.5
        assert conv.weight.std().item() == pytest.approx(wanted, rel=0.15)
    assert not net.head.bias.any()


# ----------------------------------------------------------------------------------------------- how the engine calls them


@every
def test_gradients_reach_every_weight(network, width):
    net = build(network)
    net(batch()).square().sum().backward()
    for name, p in net.named_parameters():
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name


@every
def test_evaluation_moves_no_statistics_and_looks_at_one_example_at_a_time(network, width):
    net, x = build(network), batch()
    start = {name: b.clone() for name, b in net.named_buffers()}
    net(x)
    trained = {name: b.clone() for name, b in net.named_buffers()}
    assert all(not torch.equal(start[name], trained[name]) for name in start)
    net.eval()
    alone = torch.cat([net(x[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(net(x), alone, atol=1e-5, rtol=1e-4)
    assert all(torch.equal(b, trained[name]) for name, b in net.named_buffers())


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("mode", ["train", "eval"])
@every
def test_stacked_networks_equal_each_alone(network, width, mode):
    """Logits, statistics and gradients of three trials under vmap, each with its own weights and its own images."""
    nets = [shake(build(network, seed=seed)).train(mode == "train") for seed in range(3)]
    x = torch.stack([batch() + t for t in range(3)])
    weights, buffers = stack_module_state(nets)
    logits = vmap(lambda w, b, x: functional_call(nets[0], (w, b), (x,)), randomness="different")(weights, buffers, x)
    gradients = torch.autograd.grad(logits.square().sum(), list(weights.values()))
    for t, net in enumerate(nets):
        alone = net(x[t])
        torch.testing.assert_close(logits[t], alone)
        for g, together in zip(torch.autograd.grad(alone.square().sum(), net.parameters()), gradients, strict=True):
            torch.testing.assert_close(together[t], g, rtol=1e-7, atol=1e-8)
        for name, buffer in net.named_buffers():
            torch.testing.assert_close(buffers[name][t], buffer)


@every
def test_channels_last_changes_nothing_but_the_layout(network, width):
    net, x = build(network), batch()
    plain = net(x)
    again = build(network).to(memory_format=torch.channels_last)
    torch.testing.assert_close(again(x.to(memory_format=torch.channels_last)), plain, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("network", [WideResNet(10, 1), ResNet32()], ids=["wide", "resnet"])
def test_channels_last_holds_from_block_to_block(network):
    net, layouts = build(network).to(memory_format=torch.channels_last), []
    for module in net.modules():
        if isinstance(module, (PreActivation, BasicBlock)):
            module.register_forward_hook(
                lambda *call: layouts.append(call[2].is_contiguous(memory_format=torch.channels_last))
            )
    net(batch().to(memory_format=torch.channels_last))
    assert len(layouts) in (3, 15)
    assert all(layouts)


@every
def test_half_precision_runs_forward_and_back(network, width):
    net, x = build(network), batch()
    exact = build(network)(x)
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(x)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), exact, atol=0.25, rtol=0.1)
    logits.float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own compiler still uses torch.jit
@every
def test_compiles_without_a_break(network, width):
    net, x = build(network), batch()
    compiled = torch.compile(build(network), fullgraph=True)
    logits, exact = compiled(x), net(x)
    torch.testing.assert_close(logits, exact, atol=1e-4, rtol=1e-3)
    got = torch.autograd.grad(logits.square().sum(), list(compiled.parameters()))
    for g, wanted in zip(got, torch.autograd.grad(exact.square().sum(), list(net.parameters())), strict=True):
        torch.testing.assert_close(g, wanted, atol=1e-3, rtol=1e-2)


# ------------------------------------------------------------------------------------------------------------- backbones


def test_a_backbone_is_left_as_it_was_made():
    """Looking for the width moves no statistics and draws no number; a part frozen in eval mode stays so."""
    body = small_body()
    body[1].eval()
    before = {name: value.clone() for name, value in body.state_dict().items()}
    torch.manual_seed(0)
    wanted = nn.Linear(6, CLASSES).weight
    torch.manual_seed(0)
    net = Backbone(lambda: body)(IMAGE, CLASSES)
    assert [m.training for m in body] == [True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in body.state_dict().items())
    assert torch.equal(net.head.weight, wanted)
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_maps_are_averaged_and_rows_are_not():
    maps = Backbone(small_body)(IMAGE, CLASSES).eval()
    torch.testing.assert_close(maps.body(batch()), maps.body[0](batch()).mean((2, 3)))
    body = nn.Linear(9, 4)
    assert Backbone(lambda: body)((9,), CLASSES).body is body


def test_a_backbone_may_have_no_weights_or_other_ones():
    assert Backbone(nn.Flatten)(IMAGE, CLASSES).width == 192
    assert Backbone(lambda: nn.Linear(9, 4).double())((9,), CLASSES).width == 4


def test_timm_models_are_backbones():
    timm = pytest.importorskip("timm", reason="timm is not installed; it comes with the extra `vision`")
    network = Backbone(lambda: timm.create_model("resnet18", num_classes=0, pretrained=False))
    net = build(network, (3, 32, 32))
    assert net.width == 512
    assert net(batch((3, 32, 32), b=2)).shape == (2, CLASSES)


# ---------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("network", [LeNet(), WideResNet(), ResNet32()])
@pytest.mark.parametrize("shape", [(64,), (28, 28), (1, 3, 32, 32)])
def test_images_must_have_three_axes(network, shape):
    name, given = type(network).__name__, str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(
        ValueError,
        match=rf"^{name} needs images \[channels, height, width\]; got shape {given}\. "
        r"Reshape x to \[n, channels, height, width\], or use MLP\.$",
    ):
        network(shape, 10)


@pytest.mark.parametrize("network", [LeNet(), WideResNet(), ResNet32()])
def test_channels_come_first(network):
    with pytest.raises(
        ValueError,
        match=r"needs images \[channels, height, width\] of at least 4 x 4 pixels; got shape \(28, 28, 1\)\. "
        r"Put the channels first, or use MLP\.$",
    ):
        network((28, 28, 1), 10)


@pytest.mark.parametrize("depth", [4, 27, -2])
def test_depth_of_a_wide_resnet(depth):
    with pytest.raises(ValueError, match=rf"depth must be 6 n \+ 4 \(10, 16, 22, 28, \.\.\.\); got {depth}\."):
        WideResNet(depth=depth)


def test_width_of_a_wide_resnet():
    with pytest.raises(ValueError, match=r"widen must be at least 1; got 0\."):
        WideResNet(widen=0)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


@pytest.mark.parametrize(
    ("make", "given"), [(nn.Identity, r"shape \(1, 3, 8\)"), (Pair, "tuple"), (lambda: nn.Flatten(0), r"shape \(24,\)")]
)
def test_a_backbone_must_give_features(make, given):
    with pytest.raises(
        ValueError,
        match=rf"a backbone must give features \[b, width\] or \[b, width, h, w\]; got {given} for a batch of one\. Wrap it",
    ):
        Backbone(make)((3, 8), 10)


def test_lenet_draws_its_weights_in_the_order_of_its_layers():
    torch.manual_seed(0)
    net = LeNet()((1, 28, 28), 10)
    torch.manual_seed(0)
    wished = [
        nn.Conv2d(1, 20, 5, padding=2, bias=False),
        nn.Conv2d(20, 50, 5, padding=2, bias=False),
        nn.Linear(2450, 500, bias=False),
        nn.Linear(500, 10),
    ]
    drawn = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for own, other in zip(drawn, wished, strict=True):
        assert torch.equal(own.weight, other.weight)
