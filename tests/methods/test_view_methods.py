"""RCR, PiCO and VALEN: every term against the float64 reference, the contract of a step, and that each learns."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import reference
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from oneof.candidates.generate import Flip, generate
from oneof.methods import METHODS, RCR, Batch, Method, PiCO, Proden, Valen
from oneof.methods.pico import move_prototypes
from oneof.methods.rcr import divergence
from oneof.methods.valen import (
    ValenMemory,
    adjacency,
    concentration,
    divergence_from_flat,
    draw,
    graph_error,
    nearest,
    shares,
)
from oneof_paper.synthetic import mixture

T, B, C, D, WIDTH = 1, 10, 5, 4, 6
SMALL = {
    "rcr": RCR(ramp=8),
    "pico": PiCO(queue=16, embedding=3, epochs=20),
    "valen": Valen(warm_up=2, kappa=0.7),
}
every_method = pytest.mark.parametrize("name", SMALL)
early_and_late = pytest.mark.parametrize("epoch", [0, 4])  # before and after PiCO's start and VALEN's warm-up
double = pytest.mark.usefixtures("double")


class Backbone(nn.Module):
    """What the protocol asks of a network: body, width and head."""

    def __init__(self, body, width, c=C):
        super().__init__()
        self.body, self.width, self.head = body, width, nn.Linear(width, c)

    def forward(self, x):
        return self.head(self.body(x))


class SoloNet:
    """The protocol Net, by vmap over networks of one architecture."""

    def __init__(self, modules):
        self.module = copy.deepcopy(modules[0])
        self.parameters, self.buffers = stack_module_state(modules)
        self.weights = {name: p.detach() for name, p in self.parameters.items()}

    def __call__(self, x, part="", weights=None):
        buffers = self.buffers if weights is None else {name: b.clone() for name, b in self.buffers.items()}
        prefix = f"{part}." if part else ""
        state = {**(self.parameters if weights is None else weights), **buffers}
        inside = {name.removeprefix(prefix): w for name, w in state.items() if name.startswith(prefix)}
        module = self.module.get_submodule(part)
        return vmap(lambda own, x: functional_call(module, own, (x,)))(inside, x)

    def fused(self, function, *inputs):
        return function(*inputs)

    def gradients(self, loss):
        return torch.autograd.grad(loss, list(self.parameters.values()))  # fails where a weight has no part in the loss


def backbones(t, d=D, c=C, width=WIDTH):
    """t small networks with BN."""
    return [Backbone(nn.Sequential(nn.Linear(d, width), nn.BatchNorm1d(width), nn.ReLU()), width, c) for _ in range(t)]


def generators(t):
    return [torch.Generator().manual_seed(50 + i) for i in range(t)]


def setting(method, t=T, epoch=0, seed=0):
    """A net, views [v, t, b, d], a batch with arbitrary memory, and what is shared, with arbitrary prototypes and queue."""
    torch.manual_seed(seed)
    net = SoloNet([method.network(module, C, (D,)) for module in backbones(t)])
    candidates = torch.rand(t, B, C) < 0.4
    candidates[..., 0] |= ~candidates.any(-1)
    candidates[:, 1] = True
    memory = method.init(candidates)
    if isinstance(memory, tuple):
        numbers = torch.stack([torch.randperm(40)[:B] for _ in range(t)])[..., None]
        memory = ValenMemory(torch.rand(t, B, C), torch.rand(t, B, C), numbers, torch.randint(40, (t, B, 3)))
    else:
        memory = torch.rand(t, B, C)
    shared = method.shared(net)
    if shared:
        labels = torch.randint(-1, C, shared[2].shape)
        shared = (torch.randn_like(shared[0]), shared[1], labels, shared[3] + 9, *(w + 0.1 for w in shared[4:]))
    batch = Batch(candidates, memory, torch.tensor(epoch), generators(t))
    return net, torch.randn(method.views, t, B, D), batch, shared


def restart(batch):
    return batch._replace(generators=generators(len(batch.generators)))


def tensors(memory):
    return list(memory) if isinstance(memory, tuple) else [memory]


def same(got, expected, atol=1e-10):
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=atol)


# ------------------------------------------------------------------------------------------------ against the reference


@double
@pytest.mark.parametrize(("epoch", "lam"), [(0, 0.0), (2, 0.5), (4, 1.0), (8, 2.0), (80, 2.0)])
def test_rcr_agrees_with_the_reference(epoch, lam):
    method = RCR(lam=2.0, ramp=8)
    net, views, batch, shared = setting(method, epoch=epoch)
    seen = net(views.movedim(0, 1).flatten(1, 2))[0].detach().view(3, B, C).numpy()
    step = method.step(net, views, batch, shared)
    S = batch.candidates[0].numpy()
    same(step.loss[0].detach(), reference.rcr_loss(list(seen), S, batch.memory[0].numpy(), lam))
    same(step.memory[0], reference.rcr_update(list(seen), S))
    same(step.logits[0], seen[0])


@double
def test_divergence_takes_zero_times_log_zero_for_zero():
    logits = torch.tensor([1.0, 2.0, 5.0]).log()
    same(divergence(logits, torch.tensor([0.0, 1.0, 0.0])), np.log(4))


@double
@pytest.mark.parametrize("epoch", [0, 1, 5, 30])
def test_pico_agrees_with_the_reference(epoch):
    method = replace(SMALL["pico"], prototype_momentum=0.5)  # so that a batch turns prototypes visibly
    net, views, batch, shared = setting(method, epoch=epoch)
    prototypes, queue, queue_labels, _, *keys = (one[0].numpy() for one in shared)
    trailing = {
        name: torch.as_tensor(0.999 * old + 0.001 * new.numpy())
        for (name, new), old in zip(net.weights.items(), keys, strict=True)
    }
    z, q = (one[0].detach().numpy() for one in net(views[0]))
    k = net(views[1], weights=trailing)[1][0].numpy()
    S = batch.candidates[0].numpy()
    y = np.array([reference.best(z[i], reference.members(S[i])) for i in range(B)])
    w = reference.restrict(batch.memory[0].numpy(), S)
    if epoch >= 1:
        phi = 0.95 - 0.15 * min((epoch - 1) / 20, 1)
        w = reference.pico_weights(w, q, prototypes, S, phi)
        labels = np.concatenate([y, y, queue_labels])
        contrast = reference.supcon_loss(q, np.concatenate([q, k, queue]), y, labels)
    else:
        contrast = reference.info_nce(q, k, queue)
    step = method.step(net, views, batch, shared)
    same(step.loss[0].detach(), reference.proden_loss(z, S, w) + 0.5 * contrast)
    same(step.memory[0], w)
    same(step.shared[0][0], reference.pico_prototypes(prototypes, q, y, 0.5))
    for got, name in zip(step.shared[4:], net.weights, strict=True):
        same(got, trailing[name])


@double
@pytest.mark.parametrize("epoch", [0, 2])
def test_valen_agrees_with_the_reference(epoch):
    method = SMALL["valen"]
    net, views, batch, shared = setting(method, epoch=epoch)
    logits, a = (one.detach() for one in net(views[0]))
    z, S, memory = logits[0].numpy(), batch.candidates[0].numpy(), [one[0].numpy() for one in batch.memory]
    step = method.step(net, views, batch, shared)
    after = ValenMemory(*step.memory)
    same(after.o[0], reference.proden_update(z, S))
    if epoch < method.warm_up:
        same(step.loss[0].detach(), reference.proden_loss(z, S, memory[0]))
        same(after.d, after.o)
        return
    d = shares(draw(concentration(a, batch.candidates, method.floor), generators(T)))
    x_hat = net(d, part="decoder")[0].detach().numpy()
    graph = np.array([[(i == j or memory[2][j, 0] in memory[3][i]) / 4 for j in range(B)] for i in range(B)])
    d = d[0].numpy()
    prior = np.clip(np.exp(a[0].numpy() / 4), 0.01, 30)
    rebuilt = 0.01 * reference.mse(x_hat, views[0, 0].numpy()) + 0.01 * reference.bce_with_logits(d, S)
    expected = (
        rebuilt
        + reference.valen_graph_term(d, graph)
        + 0.1 * reference.dirichlet_kl_to_uniform(prior).mean()
        + 5 * reference.proden_loss(a[0].numpy(), S, memory[0]).mean()
        + reference.proden_loss(z, S, memory[1]).mean()
    )
    same(step.loss.mean().detach(), expected)
    same(after.d[0], 0.7 * reference.restrict(d, S) + 0.3 * reference.restrict(memory[0], S))
    assert torch.equal(after.row, batch.memory.row)
    assert torch.equal(after.neighbours, batch.memory.neighbours)


@double
@pytest.mark.parametrize("epoch", [0, 2])
def test_valen_of_several_views_is_the_mean_of_each_and_remembers_the_first(epoch):
    method = SMALL["valen"]
    _, _, batch, shared = setting(method, epoch=epoch)
    without_statistics = [Backbone(nn.Sequential(nn.Linear(D, WIDTH), nn.ReLU()), WIDTH) for _ in range(T)]
    net = SoloNet([method.network(module, C, (D,)) for module in without_statistics])
    views = torch.randn(3, T, B, D)
    together = method.step(net, views, restart(batch), shared)
    again = restart(batch)  # each view draws where the one before it stopped
    apart = [method.step(net, view[None], again, shared) for view in views]
    same(together.loss.detach(), torch.stack([step.loss.detach() for step in apart]).mean(0))
    same(together.logits, apart[0].logits)
    for got, wished in zip(together.memory, apart[0].memory, strict=True):
        same(got, wished)


@double
def test_valen_terms_agree_with_the_reference():
    a, alpha, d = torch.randn(B, C), torch.rand(B, C) * 5 + 0.01, torch.rand(1, B, C)
    candidates = torch.eye(C, dtype=torch.bool)[torch.arange(B) % C] | (torch.rand(B, C) < 0.3)
    same(concentration(a, candidates, 0.01), reference.valen_concentration(a.numpy(), candidates.numpy()))
    same(divergence_from_flat(alpha), reference.dirichlet_kl_to_uniform(alpha.numpy()))
    graph = torch.rand(1, B, B)
    same(graph_error(d, graph).mean(), reference.valen_graph_term(d[0].numpy(), graph[0].numpy()))


# ------------------------------------------------------------------------------------------------------ parts of the three


@double
@pytest.mark.parametrize("seed", range(4))
def test_prototypes_move_as_one_sample_after_the_other_would(seed):
    torch.manual_seed(seed)
    prototypes, q, labels = torch.randn(2, C, 3), torch.randn(2, 40, 3), torch.randint(C - 1, (2, 40))
    got = move_prototypes(prototypes, q, labels, 0.9)  # the last class gets no sample
    for t in range(2):
        same(got[t], reference.pico_prototypes(prototypes[t].numpy(), q[t].numpy(), labels[t].numpy(), 0.9))
    assert (move_prototypes(torch.zeros(1, C, 3), q[:1], labels[:1], 0.9)[0, -1] == 0).all()


@double
@pytest.mark.parametrize("queue", [16, 25, 4])  # wraps around; holds several batches; is smaller than one
def test_queue_holds_the_newest_keys(queue):
    method = replace(SMALL["pico"], queue=queue)
    net, _, batch, _ = setting(method)
    shared, written = method.shared(net), []
    same(shared[1].norm(dim=-1), np.ones((T, queue)))
    assert (shared[2] == -1).all()
    for _ in range(3):
        views = torch.randn(2, T, B, D)
        shared = method.step(net, views, batch, shared).shared
        key = net(views[1], weights=dict(zip(net.weights, shared[4:], strict=True)))[1]
        label = torch.where(batch.candidates, net(views[0])[0], -torch.inf).argmax(-1)
        written += [*torch.cat([key[0], label[0, :, None]], -1)]
    newest_last = torch.cat([shared[1], shared[2][..., None]], -1)[0].roll(-int(shared[3]), 0)
    same(newest_last, torch.stack(written[-queue:]))
    assert (shared[3] < queue).all()


def test_keys_move_no_statistics_of_the_network():
    method = SMALL["pico"]
    net, views, batch, shared = setting(method)
    other = copy.deepcopy(net)
    other(views[0])
    method.step(net, views, batch, shared)
    assert net.buffers
    for name, buffer in net.buffers.items():
        assert torch.equal(buffer, other.buffers[name]), name


def test_first_keys_are_a_copy_of_the_network():
    method = SMALL["pico"]
    net, *_ = setting(method)
    shared = method.shared(net)
    for key, weight in zip(shared[4:], net.weights.values(), strict=True):
        assert torch.equal(key, weight)
        assert key.data_ptr() != weight.data_ptr()


@double
@pytest.mark.parametrize("block", [1, 7, 30, 64])
def test_blocked_neighbours_equal_brute_force(block):
    torch.manual_seed(block)
    x = torch.randn(30, 5) + 100
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    assert torch.equal(nearest(x, 3, block), distance.argsort(-1)[:, :3])


def test_graph_is_built_once_when_the_warm_up_ends():
    method, x = SMALL["valen"], torch.randn(2, 12, D)
    memory = method.init(torch.ones(2, 12, C, dtype=torch.bool))
    assert torch.equal(memory.row[1, :, 0], torch.arange(12))
    assert torch.equal(memory.neighbours, memory.row.expand(-1, -1, 3))
    kept, _ = method.refresh(None, lambda: pytest.fail("not needed"), memory, (), 1)
    assert kept is memory
    built, _ = method.refresh(None, lambda: x, tuple(memory), (), 2)
    assert torch.equal(built.neighbours[1], nearest(x[1], 3))
    assert torch.equal(built.o, memory.o)
    later, _ = method.refresh(None, lambda: pytest.fail("not needed"), tuple(built), (), 3)
    assert torch.equal(later[1], built[1])


def test_adjacency_is_the_batch_part_of_the_normalised_graph():
    own, neighbours = torch.tensor([[[7], [2], [5]]]), torch.tensor([[[2, 9], [5, 7], [8, 9]]])
    third = 1 / 3
    same(adjacency(own, neighbours), [[[third, third, 0], [third, third, third], [0, 0, third]]], atol=1e-7)


def test_draws_are_of_the_dirichlet_and_carry_a_gradient():
    alpha = torch.tensor([4.0, 2.0, 0.5]).repeat(1, 40000, 1).requires_grad_()
    d = shares(draw(alpha, generators(1)))
    same(d.detach().sum(-1), np.ones((1, 40000)), atol=1e-5)
    same(d.detach().mean((0, 1)), np.array([4.0, 2.0, 0.5]) / 6.5, atol=5e-3)
    (gradient,) = torch.autograd.grad(d[..., 0].sum(), alpha)
    # E d_0 = a_0 / sum(a): its derivatives are (sum - a_0) / sum^2 and - a_0 / sum^2
    same(gradient.mean((0, 1)), np.array([2.5, -4.0, -4.0]) / 6.5**2, atol=5e-3)
    assert torch.equal(d, shares(draw(alpha, generators(1))))


def test_draws_at_the_floor_stay_finite():
    alpha = torch.full((1, 20000, 10), 1e-2)
    alpha[..., 0] = 0.5
    alpha.requires_grad_()
    d = shares(draw(alpha, generators(1)))
    (gradient,) = torch.autograd.grad(d.square().sum(), alpha)
    same(d.detach().sum(-1), np.ones((1, 20000)), atol=1e-5)
    assert gradient.isfinite().all()


@double
def test_denominator_of_the_concentration_is_a_constant():
    """With it, the gradient of the sum over S would vanish."""
    a = torch.randn(1, C).requires_grad_()
    candidates = torch.tensor([[True, True, False, False, False]])
    p = a.softmax(-1)
    expected = torch.autograd.grad((p * candidates).sum() / (p * candidates).sum().detach(), a)[0]
    same(torch.autograd.grad(concentration(a, candidates, 0.01).sum(), a)[0], expected)


# ---------------------------------------------------------------------------------------------------- the contract of a step


@double
@every_method
@early_and_late
def test_memory_off_the_mask_has_no_effect(name, epoch):
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    first = method.step(net, views, batch, shared)
    changed = [
        torch.where(batch.candidates, one, 7.0) if one.is_floating_point() else one for one in tensors(batch.memory)
    ]
    memory = ValenMemory(*changed) if isinstance(batch.memory, tuple) else changed[0]
    second = method.step(net, views, restart(batch)._replace(memory=memory), shared)
    assert torch.equal(first.loss, second.loss)
    for one, other in zip(tensors(first.memory), tensors(second.memory), strict=True):
        assert torch.equal(one, other)


@double
@every_method
@early_and_late
def test_removed_labels_stay_out_and_lost_weight_falls_back_to_uniform(name, epoch):
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    left = torch.zeros_like(batch.candidates).scatter(-1, batch.candidates.int().argmax(-1, keepdim=True), True)
    gone = [torch.where(left, 0.0, 1.0) if one.is_floating_point() else one for one in tensors(batch.memory)]
    memory = ValenMemory(*gone) if isinstance(batch.memory, tuple) else gone[0]
    step = method.step(net, views, batch._replace(candidates=left, memory=memory), shared)
    assert step.loss.isfinite().all()
    for weights in tensors(step.memory)[:2]:
        same(weights[0], left[0].double())


@every_method
@early_and_late
def test_inputs_are_not_written_to(name, epoch):
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    given = [views, batch.candidates, batch.epoch, *tensors(batch.memory), *shared, *net.weights.values()]
    copies = [tensor.clone() for tensor in given]
    method.step(net, views, batch, shared)
    for tensor, before in zip(given, copies, strict=True):
        assert torch.equal(tensor, before)


@double
@every_method
@early_and_late
def test_trials_are_independent(name, epoch):
    method = SMALL[name]
    torch.manual_seed(3)
    modules = [method.network(module, C, (D,)) for module in backbones(3)]
    _, views, batch, shared = setting(method, t=3, epoch=epoch)
    together = method.step(SoloNet(modules), views, batch, shared)
    for t in range(3):
        part = slice(t, t + 1)
        memory = [one[part] for one in tensors(batch.memory)]
        alone = Batch(
            batch.candidates[part],
            tuple(memory) if isinstance(batch.memory, tuple) else memory[0],
            batch.epoch,
            generators(3)[part],
        )
        step = method.step(SoloNet(modules[part]), views[:, part], alone, tuple(one[part] for one in shared))
        same(step.loss[0].detach(), together.loss[t].detach())
        same(step.logits[0], together.logits[t])
        for one, all_ in zip(
            [*tensors(step.memory), *step.shared], [*tensors(together.memory), *together.shared], strict=True
        ):
            same(one[0], all_[t])


@every_method
@early_and_late
def test_every_weight_has_a_gradient_and_nothing_remembered_has(name, epoch):
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    step = method.step(net, views, batch, shared)
    assert step.loss.shape == (T, B)
    assert all(gradient.isfinite().all() for gradient in net.gradients(step.loss.mean()))
    assert not any(one.requires_grad for one in [step.logits, *tensors(step.memory), *step.shared])
    before = [*tensors(batch.memory), *shared]
    assert [one.shape for one in [*tensors(step.memory), *step.shared]] == [one.shape for one in before]
    assert [one.dtype for one in [*tensors(step.memory), *step.shared]] == [one.dtype for one in before]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch hides this one, unless warnings are errors
@pytest.mark.parametrize("name", ["pico", "valen"])
@early_and_late
def test_what_is_fused_is_one_graph_that_gives_the_same(name, epoch):
    """Compiled for a GPU a step must neither break in two nor change; here torch's tracing stands in for its compiler."""
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    plain = method.step(net, views, restart(batch), shared)
    net.fused = lambda function, *inputs: torch.compile(function, backend="aot_eager", fullgraph=True)(*inputs)
    fused = method.step(net, views, restart(batch), shared)
    torch.testing.assert_close(fused, plain)
    torch.testing.assert_close(net.gradients(fused.loss.sum()), net.gradients(plain.loss.sum()))


@every_method
@early_and_late
def test_finite_at_extreme_logits(name, epoch):
    """Body and head are the identity, so that x is the logits, and a of VALEN."""
    method = SMALL[name]
    backbone = Backbone(nn.Identity(), C)
    backbone.head.load_state_dict({"weight": torch.eye(C), "bias": torch.zeros(C)})
    net = SoloNet([method.network(backbone, C, (C,))])
    _, _, batch, _ = setting(method, epoch=epoch)
    views = 80 * torch.randn(method.views, T, B, C).sign()
    step = method.step(net, views, batch, method.shared(net))
    same(step.logits, views[0])
    assert step.loss.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in net.gradients(step.loss.mean()))
    assert all(one.isfinite().all() for one in tensors(step.memory))


@every_method
@early_and_late
def test_half_precision_forwards_keep_the_tables_in_single(name, epoch):
    method = SMALL[name]
    net, views, batch, shared = setting(method, epoch=epoch)
    with torch.autocast("cpu", torch.bfloat16):
        step = method.step(net, views, batch, shared)
    assert step.loss.dtype == torch.float32
    assert all(gradient.isfinite().all() for gradient in net.gradients(step.loss.mean()))
    before = [*tensors(batch.memory), *shared]
    assert [one.dtype for one in [*tensors(step.memory), *step.shared]] == [one.dtype for one in before]


class NoValueIsRead(TorchDispatchMode):
    """Fails where a tensor's value decides something in Python: on a GPU that waits for the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default
        assert func is not torch.ops.aten.nonzero.default
        return func(*args, **(kwargs or {}))


@every_method
def test_a_step_does_not_wait_for_a_value(name):
    method = SMALL[name]
    net, views, batch, shared = setting(method)
    with NoValueIsRead():
        step = method.step(net, views, batch, shared)
        net.gradients(step.loss.mean())
    with NoValueIsRead(), pytest.raises(AssertionError):
        bool(step.loss.mean() > 0)


# ------------------------------------------------------------------------------------------------------- the default step

WRITES_LOSS = [name for name, kind in METHODS.items() if kind.step is Method.step]


def test_only_the_three_write_a_step():
    assert set(METHODS) - set(WRITES_LOSS) == set(SMALL)


@double
@pytest.mark.parametrize("name", WRITES_LOSS)
@pytest.mark.parametrize("t", [1, 2])
def test_default_step_is_the_mean_over_views(name, t):
    method = METHODS[name]()
    _, _, batch, _ = setting(Proden(), t=t)
    batch = batch._replace(memory=() if method.init(batch.candidates) == () else batch.memory)
    net, views = SoloNet([Backbone(nn.Tanh(), D) for _ in range(t)]), torch.randn(3, t, B, D)
    step = method.step(net, views, batch, ("kept",))
    losses = [method.loss(net(view), batch.candidates, batch.memory) for view in views]
    same(step.loss.detach(), torch.stack(losses).mean(0).detach())
    same(step.logits, net(views[0]).detach())
    for got, expected in zip(
        tensors(step.memory), tensors(method.update(step.logits, batch.candidates, batch.memory)), strict=True
    ):
        assert torch.equal(got, expected)
    assert step.shared == ("kept",)


def test_default_step_takes_the_logits_of_a_tuple():
    net, views, batch, _ = setting(SMALL["pico"])
    assert torch.equal(Proden().step(net, views[:1], batch, ()).logits, net(views[0])[0])


def test_by_default_network_and_tables_stay_as_they_are():
    module, table = backbones(1)[0], torch.zeros(1, 3, C)
    assert Proden().network(module, C, (D,)) is module
    assert Proden().shared(SoloNet([module])) == ()
    assert Proden().refresh(None, lambda: pytest.fail("not needed"), table, (), 0) == (table, ())


# -------------------------------------------------------------------------------------------------------------- learning


def train(method, x, candidates, *, epochs, width=32, noise=0.3, lr=0.05, batch=50):
    """The smallest loop that keeps the protocol: views are x with noise, all but the first."""
    torch.manual_seed(0)
    n, c = candidates.shape
    module = Backbone(nn.Sequential(nn.Linear(x.shape[1], width), nn.ReLU()), width, c)
    net = SoloNet([method.network(module, c, x.shape[1:])])
    optimizer = torch.optim.SGD(net.parameters.values(), lr=lr, momentum=0.9)
    memory, shared, draws = method.init(candidates[None]), method.shared(net), generators(1)
    for epoch in range(epochs):
        with torch.no_grad():
            memory, shared = method.refresh(net, lambda: net(x[None], part="body"), memory, shared, epoch)
        for rows in torch.randperm(n).split(batch):
            views = torch.stack([x[rows] + noise * (v > 0) * torch.randn_like(x[rows]) for v in range(method.views)])
            rowwise = [one[:, rows] for one in tensors(memory)]
            given = Batch(
                candidates[None, rows],
                tuple(rowwise) if isinstance(memory, tuple) else rowwise[0],
                torch.tensor(epoch),
                draws,
            )
            step = method.step(net, views[:, None], given, shared)
            optimizer.zero_grad()
            step.loss.mean().backward()
            optimizer.step()
            shared = step.shared
            for table, new in zip(tensors(memory), tensors(step.memory), strict=True):
                table[:, rows] = new
    return net, memory


@pytest.mark.parametrize(
    ("method", "epochs"),
    [(RCR(ramp=5), 15), (PiCO(queue=256, embedding=16, epochs=15), 15), (Valen(warm_up=3), 15)],
    ids=["rcr", "pico", "valen"],
)
def test_learns_a_mixture(method, epochs):
    data = mixture(n=600, d=6, c=C, separation=1.5, seed=4)
    x, candidates = torch.as_tensor(data.x, dtype=torch.float32), generate(data.labels, C, Flip(rate=0.5), seed=5)
    net, memory = train(method, x, torch.as_tensor(candidates), epochs=epochs)
    labels = torch.as_tensor(data.labels)
    bayes = (torch.as_tensor(data.posterior).argmax(-1) == labels).float().mean()
    accuracy = (net(x[None])[0][0] if method.views != 3 else net(x[None])[0]).argmax(-1).eq(labels).float().mean()
    resolved = tensors(memory)[0][0].argmax(-1).eq(labels).float().mean()
    assert accuracy > bayes - 0.05
    assert resolved > bayes - 0.05
    assert accuracy > 0.85


# ---------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RCR(ramp=0), "ramp must be positive; got 0."),
        (lambda: PiCO(temperature=0.0), "temperature must be positive; got 0.0."),
        (lambda: PiCO(queue=0), "queue must be positive; got 0."),
        (lambda: PiCO(epochs=-1), "epochs must be positive; got -1."),
        (
            lambda: Valen().init(torch.ones(1, 3, 2, dtype=torch.bool)),
            "neighbours must lie between 1 and the training rows less one \\(2\\); got 3.",
        ),
    ],
)
def test_errors_say_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_of_numbers_is_refused_in_words(name, dtype):
    method = SMALL[name]
    net, views, batch, shared = setting(method)
    with pytest.raises(TypeError, match=rf"candidates must be a mask.*of bool; got Tensor of {dtype}"):
        method.step(net, views, batch._replace(candidates=batch.candidates.to(dtype)), shared)
    with pytest.raises(TypeError, match="candidates must be a mask"):
        method.init(batch.candidates.to(dtype))
