"""Our kernels on the card, and the loop on it; what of this a CPU can check is in test_fast_networks.py and test_kernels.py."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from oneof.data.augment import views
from oneof.methods import RCR, PiCO, Proden, Valen
from oneof.networks import LeNet, WideResNet
from oneof.networks.cuda.views import apply_by_kernels
from oneof.purify import Pop
from oneof.training.average import decay_at
from oneof.training.device import prewarm_gpu
from oneof.training.loop import begin, steps
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inductor's own
    pytest.mark.filterwarnings("ignore:The .grad attribute"),  # torch hides this one, unless warnings are errors
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings(
        "ignore:There is a performance drop because we have not yet implemented the batching rule"
    ),
]


def compiled(module):
    return torch.compile(module, dynamic=False)


def with_kernels(module):
    assert module.body.use_kernels()
    return module


def gradients(module, called, x, labels, dtype):
    """Logits and all gradients of the cross-entropy."""
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        logits = called(x.to(dtype)).float()
    return logits, *torch.autograd.grad(F.cross_entropy(logits, labels), list(module.parameters()))


def distances(found, exact):
    return [((one - right).norm() / right.norm()).item() for one, right in zip(found, exact, strict=True)]


WAYS = {
    "LeNet, compiled": (LeNet(), (1, 28, 28), 768, compiled),
    "WRN-10-2, torch's layers compiled": (WideResNet(10), (3, 32, 32), 64, compiled),
    "WRN-10-2, our kernels": (WideResNet(10), (3, 32, 32), 64, with_kernels),
    "WRN-28-2, our kernels": (WideResNet(), (3, 32, 32), 768, with_kernels),
    "WRN-16-1, our kernels, a ragged batch": (WideResNet(16, 1), (3, 32, 32), 75, with_kernels),
    "WRN-10-2, our kernels, odd images": (WideResNet(10), (1, 27, 22), 100, with_kernels),
}


@pytest.mark.parametrize(("network", "shape", "n", "fast"), WAYS.values(), ids=WAYS)
def test_a_fast_network_is_as_exact_as_bfloat16_allows(network, shape, n, fast):
    """Weight by weight its gradients are as far from float32 as those of torch's layers in bfloat16.

    Normalisation makes that far: small differences early in a network change which units are on later.
    """
    torch.manual_seed(0)
    module = network(shape, 10).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(n, *shape, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (n,), device="cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = gradients(module, module, x, labels, torch.float32)
    plain = distances(gradients(module, module, x, labels, torch.bfloat16), exact)
    fast = distances(gradients(module, fast(module), x, labels, torch.bfloat16), exact)
    print("\n" + "\n".join(f"{one:.4f} {two:.4f}" for one, two in zip(plain, fast, strict=True)))
    for by_layers, by_us in zip(plain, fast, strict=True):
        assert by_us <= 1.3 * by_layers + 0.02


def test_statistics_and_evaluation_follow():
    torch.manual_seed(0)
    module = WideResNet(10)((3, 32, 32), 10).cuda().to(memory_format=torch.channels_last)
    other = copy.deepcopy(module)
    called = with_kernels(other)
    x = torch.randn(64, 3, 32, 32, device="cuda").bfloat16().to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        for _ in range(3):
            module(x), called(x)
        for name, buffer in module.named_buffers():
            if buffer.dim():
                torch.testing.assert_close(other.get_buffer(name), buffer, rtol=2e-2, atol=2e-2)
        module.eval(), other.eval()
        torch.testing.assert_close(called(x).float(), module(x).float(), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("kind", ["pop", "rcr", "upright", "plain"])
@pytest.mark.parametrize("name", ["cifar10", "mnist", "fashion-mnist"])
def test_views_by_kernels_have_the_levels_of_the_others(name, kind):
    """All but fewer than one in ten thousand: a sum may be rounded once or twice before it is cut off to a level."""
    seen = views(kind, name, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    side = 32 if name == "cifar10" else 28
    shape = (64, seen.channels, side, side)
    images = torch.randint(256, shape, dtype=torch.uint8, device="cuda", generator=generator)
    images[:16] = images[:16] // 4 + 60  # for operations that stretch what is narrow
    images[16] = 77
    for _ in range(20):
        drawn = seen.draw(images, generator)
        plain, fast = seen.apply(images, drawn), apply_by_kernels(seen, images, drawn)
        assert fast.shape == plain.shape
        assert fast.flatten(0, 1).stride() == plain.flatten(0, 1).stride()
        other = (fast - plain).abs() > 0.5 * seen.scale.max()
        assert other.float().mean() < 1e-4


def test_what_training_needs_is_loaded_in_a_thread():
    thread = prewarm_gpu(torch.device("cuda"))
    thread.join(60)  # it alone: a thread that native code started cannot be joined
    assert not thread.is_alive()
    assert "triton" in sys.modules


def posed(name, network, n, epochs, average=0.0):
    shape = (3, 32, 32) if name == "cifar10" else (1, 28, 28)
    rng, device = np.random.default_rng(0), torch.device("cuda")
    x = rng.integers(0, 256, size=(n, *shape), dtype=np.uint8)
    sets = rng.random((n, 10)) < 0.3
    sets[np.arange(n), rng.integers(10, size=n)] = True
    seen = views("pop", name, device=device, dtype=torch.bfloat16)
    held_out = np.arange(200)
    trial = Trial(held_out=held_out, test=held_out)
    training = Training(epochs, 256, average=average)
    problem = make_training_data(
        x, sets, [trial], Proden(), Pop(warm_up=1, interval=2, window=1), training, seen, sets.argmax(1), device
    )
    return problem, begin(problem, build(lambda: network(shape, 10), [0], device, problem.compile_batch), [0])


@pytest.mark.parametrize(
    ("name", "network", "worth", "average"),
    [
        ("mnist", LeNet(), 0, 0.0),
        ("mnist", LeNet(), 10**9, 0.0),
        ("cifar10", WideResNet(10), 0, 0.0),
        ("cifar10", WideResNet(10), 0, 0.99),
    ],
)
def test_a_step_waits_for_nothing(monkeypatch, name, network, worth, average):
    """Once warm, no batch makes the host wait for the device, compiled or not."""
    monkeypatch.setattr("oneof.training.training_data.WORTH_COMPILING", worth)
    problem, state = posed(name, network, 2000, 8, average)
    run, batches = steps(problem, state), 8
    for _ in range(7 * (batches + 1) + 1):  # seven epochs with their records, then what an epoch draws beforehand
        next(run)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(batches - 1):
            assert next(run) is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert next(run)["accuracy"] is not None


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_captured_evaluation_sees_the_network_as_it_is_now(monkeypatch, average):
    monkeypatch.setattr("oneof.training.training_data.WORTH_COMPILING", 0)
    problem, state = posed("mnist", LeNet(), 1000, 7, average)
    for record in (step for step in steps(problem, state) if step is not None):
        logits = problem.logits(state.predictor, problem.test)
        right = (logits.argmax(-1) == problem.labels[problem.test]).float().mean(-1)
        torch.testing.assert_close(record["accuracy"], right)


@pytest.mark.parametrize(("name", "network"), [("mnist", LeNet()), ("cifar10", WideResNet(10))])
def test_a_captured_average_follows_the_network(name, network):
    problem, state = posed(name, network, 1024, 3, average=0.9)
    expected = {tensor_name: tensor.clone() for tensor_name, tensor in state.stack.tensors.items()}
    n_steps = 0
    for record in steps(problem, state):
        if record is not None:
            continue
        decay = decay_at(0.9, n_steps // 4 * 4)  # four steps an epoch
        for tensor_name, tensor in state.stack.tensors.items():
            if tensor.is_floating_point():
                expected[tensor_name] = torch.lerp(tensor, expected[tensor_name], decay)
        n_steps += 1
    assert n_steps == 12
    for tensor_name, tensor in state.average.tensors.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, expected[tensor_name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("method", "kind"), [(PiCO(queue=512), "pico"), (Valen(warm_up=1), "plain"), (RCR(), "rcr")])
def test_methods_on_views_take_the_kernels_too(monkeypatch, method, kind):
    """Body, encoder and key network run by kernels, and the first losses are those of torch's layers."""
    monkeypatch.setattr("oneof.training.training_data.WORTH_COMPILING", 0)
    found = []
    for kernels in (False, True):
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, size=(512, 3, 32, 32), dtype=np.uint8)
        sets = np.eye(10, dtype=bool)[rng.integers(10, size=512)] | (rng.random((512, 10)) < 0.3)
        device = torch.device("cuda")
        seen = views(kind, "cifar10", device=device, dtype=torch.bfloat16)
        problem = make_training_data(x, sets, [Trial()], method, None, Training(3, 256), seen, None, device)
        make = lambda: method.network(WideResNet(10)((3, 32, 32), 10), 10, (3, 32, 32))  # noqa: E731
        state = begin(problem, build(make, [0], device, problem.compile_batch if kernels else -1), [0])
        programs = [part.fused for part in state.stack.module.modules() if hasattr(part, "fused")]
        assert all((program is not None) == kernels for program in programs)
        found.append([float(record["loss"]) for record in steps(problem, state) if record is not None])
    assert found[1] == pytest.approx(found[0], rel=2e-3)
