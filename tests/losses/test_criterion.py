"""CandidateLoss: what it takes, what it remembers, what it refuses, and that it can be saved, moved and resumed."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

import oneof
from oneof import CandidateLoss
from oneof.candidates.mask import posterior, uniform
from oneof.losses import frozen_statistics
from oneof.methods import METHODS, RC, Method, PiCO, Proden, Valen
from oneof.networks import MLP

N, C = 12, 4
MASK = torch.rand(N, C, generator=torch.Generator().manual_seed(0)) < 0.5
MASK[torch.arange(N), torch.arange(N) % C] = True
ONE_VIEW = [name for name, kind in METHODS.items() if kind.step is Method.step]


def logits_of(b, seed=0, views=None):
    shape = (b, C) if views is None else (views, b, C)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("name", ONE_VIEW)
def test_loss_and_memory_are_the_method_s(name):
    method = METHODS[name]()
    criterion = CandidateLoss(name, MASK, reduction="none")
    index = torch.tensor([3, 0, 7])
    logits = logits_of(3)
    before = copy.deepcopy(criterion.memory)
    rows = before[index] if isinstance(before, torch.Tensor) else ()
    losses = criterion(logits, index)
    torch.testing.assert_close(losses, method.loss(logits, MASK[index], rows))
    if method.after_step:
        assert torch.equal(criterion.memory, before)
        criterion.update(logits, index)
    if isinstance(before, torch.Tensor):
        before[index] = method.update(logits.detach(), MASK[index], rows)
        torch.testing.assert_close(criterion.memory, before)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions(reduction):
    index = torch.tensor([0, 1, 2])
    each = CandidateLoss("cc", MASK, reduction="none")(logits_of(3), index)
    loss = CandidateLoss("cc", MASK, reduction=reduction)(logits_of(3), index)
    torch.testing.assert_close(loss, getattr(each, reduction)())


def test_several_views_give_the_mean_loss_and_the_memory_of_view_0():
    criterion = CandidateLoss("proden", MASK, reduction="none")
    logits = logits_of(3, views=2)
    index = torch.tensor([4, 5, 6])
    losses = criterion(logits, index)
    each = [CandidateLoss("proden", MASK, reduction="none")(view, index) for view in logits]
    torch.testing.assert_close(losses, torch.stack(each).mean(0))
    torch.testing.assert_close(criterion.memory[index], posterior(logits[0].detach(), MASK[index]))


@pytest.mark.parametrize(
    "form",
    [
        lambda mask: mask.float(),
        lambda mask: mask.to(torch.bfloat16),
        lambda mask: mask.numpy(),
        lambda mask: mask.numpy().astype(int),
        lambda mask: mask.float().to_sparse(),
        lambda mask: mask.float().to_sparse_csr(),
        lambda mask: scipy.sparse.csr_array(mask.numpy()),
        lambda mask: oneof.read([row.nonzero().squeeze(1).tolist() for row in mask], classes=range(C)),
    ],
    ids=["float", "bfloat16", "array", "int", "coo", "csr", "scipy", "read"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_masks_in_every_form(form):
    assert torch.equal(CandidateLoss("cc", form(MASK)).candidates, MASK)


def test_the_mask_given_is_not_written_to():
    mask = MASK.clone()
    criterion = CandidateLoss("cc", mask)
    criterion.candidates[0] = True
    assert torch.equal(mask, MASK)


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        (torch.full((2, 3), 0.3), r"only 0 and 1.*row 0, column 0"),
        (torch.tensor([[True, False], [False, False]]), r"row 1"),
        ([[0, 1], [1]], r"oneof\.read"),
        (torch.ones(3, dtype=torch.bool), r"\[n, c\]"),
        (torch.ones(3, 1, dtype=torch.bool), r"two classes"),
    ],
)
def test_what_is_no_mask_is_refused(candidates, words):
    with pytest.raises((TypeError, ValueError), match=words):
        CandidateLoss("cc", candidates)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "prodn"}, "Did you mean 'proden'"),
        ({"method": Proden}, r"Proden\(\)"),
        ({"method": 3}, "int"),
        ({"method": "cc", "reduction": "average"}, "mean, sum, none"),
        ({"method": "proden", "prior": np.ones((2, 2))}, rf"\[{N}, {C}\]"),
        ({"method": "proden", "prior": -np.ones((N, C))}, "from 0 on"),
        ({"method": "pico"}, "network="),
        ({"method": "valen", "network": MLP()((3,), C)}, "input_shape="),
        ({"method": "pico", "network": nn.Linear(3, C), "input_shape": (3,)}, "body"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        CandidateLoss(candidates=MASK, **arguments)


@pytest.mark.parametrize(
    ("logits", "index", "words"),
    [
        (torch.zeros(2, C + 1), [0, 1], rf"\[b, {C}\]"),
        (torch.zeros(C), [0], rf"\[b, {C}\]"),
        (torch.zeros(2, C), [0], "2 rows"),
        (torch.zeros(2, C), [0.0, 1.0], "float"),
        (torch.zeros(2, C), [0, N], rf"from 0 to {N - 1}.*got {N} at position 1"),
        (torch.zeros(2, C), [-1, 0], "got -1 at position 0.*ignore_index"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_nothing_written(logits, index, words):
    criterion = CandidateLoss("proden", MASK)
    with pytest.raises((ValueError, IndexError), match=words):
        criterion(logits.requires_grad_(), torch.tensor(index))
    assert torch.equal(criterion.memory, uniform(MASK))


def test_of_an_index_that_stands_twice_the_last_row_is_remembered():
    criterion = CandidateLoss("proden", MASK)
    logits = logits_of(4)
    criterion(logits, torch.tensor([5, 2, 5, 5]))
    torch.testing.assert_close(criterion.memory[5], posterior(logits[3].detach(), MASK[5]))


def test_rows_to_ignore_have_no_loss_no_gradient_and_no_memory():
    criterion = CandidateLoss("proden", MASK, ignore_index=-1)
    logits = logits_of(3)
    loss = criterion(logits, torch.tensor([2, -1, 7]))
    loss.backward()
    others = CandidateLoss("proden", MASK)
    torch.testing.assert_close(loss, others(logits[[0, 2]], torch.tensor([2, 7])))
    assert torch.equal(criterion.memory, others.memory)
    assert logits.grad[1].abs().max() == 0
    assert logits.grad[0].abs().max() > 0


def test_a_batch_of_nothing_but_rows_to_ignore_has_loss_zero():
    logits = logits_of(2)
    loss = CandidateLoss("rcr", MASK, ignore_index=-100)(logits[None].expand(3, 2, C), torch.tensor([-100, -100]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad.abs().max() == 0


@pytest.mark.parametrize("mode", ["eval", "no_grad"])
def test_evaluation_remembers_nothing(mode):
    criterion = CandidateLoss("proden", MASK).train(mode != "eval")
    with torch.set_grad_enabled(mode != "no_grad"):
        loss = criterion(logits_of(3), torch.tensor([0, 1, 2]))
    assert torch.isfinite(loss)
    assert torch.equal(criterion.memory, uniform(MASK))


def test_update_in_evaluation_mode_writes_nothing():
    criterion = CandidateLoss("rc", MASK).eval()
    criterion.update(logits_of(3), torch.tensor([0, 1, 2]))
    assert torch.equal(criterion.memory, uniform(MASK))


def test_after_step_leaves_memory_to_update():
    criterion = CandidateLoss("proden", MASK, after_step=True)
    index = torch.tensor([0, 1, 2])
    criterion(logits_of(3), index)
    assert torch.equal(criterion.memory, uniform(MASK))
    criterion.update(logits_of(3, seed=1), index)
    torch.testing.assert_close(criterion.memory[index], posterior(logits_of(3, seed=1).detach(), MASK[index]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ONE_VIEW)
def test_half_precision_is_computed_in_float32(name, dtype):
    half = logits_of(3).detach().to(dtype).requires_grad_()
    index = torch.tensor([0, 1, 2])
    criterion = CandidateLoss(name, MASK)
    with torch.autocast("cpu", torch.bfloat16):
        loss = criterion(half, index)
    loss.backward()
    assert loss.dtype == torch.float32
    assert half.grad.dtype == dtype
    full = CandidateLoss(name, MASK)
    torch.testing.assert_close(loss, full(half.detach().float().requires_grad_(), index))


def test_gradient_accumulation_sums_the_gradients():
    net = nn.Linear(3, C)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    CandidateLoss("proden", MASK)(net(x), torch.arange(6)).backward()
    whole = net.weight.grad.clone()
    net.zero_grad()
    criterion = CandidateLoss("proden", MASK)
    for rows in torch.arange(6).split(2):
        (criterion(net(x[rows]), rows) / 3).backward()
    torch.testing.assert_close(net.weight.grad, whole)


def test_a_prior_multiplies_into_the_weights():
    counts = MASK.numpy() * np.arange(1, C + 1)
    criterion = CandidateLoss("proden", MASK, counts)
    expected = torch.tensor(counts / counts.sum(1, keepdims=True), dtype=torch.float32)
    torch.testing.assert_close(criterion.memory, expected)
    criterion(torch.zeros(N, C, requires_grad=True), torch.arange(N))
    torch.testing.assert_close(criterion.memory, expected)
    sparse = CandidateLoss("proden", MASK, scipy.sparse.csr_array(counts))
    assert torch.equal(sparse.memory, CandidateLoss("proden", MASK, torch.tensor(counts)).memory)


def test_a_prior_that_is_not_used_is_said(caplog):
    CandidateLoss("cc", MASK, np.ones((N, C)))
    assert "does not use the prior" in caplog.text


@dataclass(frozen=True)
class Naive(Method):
    """Every candidate counts alike."""

    def loss(self, logits, candidates, memory):
        return -(candidates * logits.log_softmax(-1)).sum(-1) / candidates.sum(-1)


def test_a_method_of_one_s_own():
    criterion = CandidateLoss(Naive(), MASK)
    logits = logits_of(2)
    expected = Naive().loss(logits, MASK[:2], ()).mean()
    torch.testing.assert_close(criterion(logits, torch.tensor([0, 1])), expected)
    assert criterion.memory == ()


def network_and_criterion(name):
    """A network, its criterion and a function that gives the loss of a batch, for any method."""
    torch.manual_seed(0)
    net = MLP(hidden=(5,))((3,), C)
    small = {"pico": PiCO(queue=8, embedding=3), "valen": Valen(warm_up=1, neighbours=2)}
    method = small.get(name) or METHODS[name]()
    criterion = CandidateLoss(method, MASK, network=net, input_shape=(3,))

    def batch_loss(x, index):
        features = net.body(x)
        logits = net.head(features)
        if name == "rcr":
            return criterion(torch.stack([logits, logits * 0.9, logits * 1.1]), index)
        views = (x, x + 0.1) if name == "pico" else x
        return criterion(logits, index, features=features, views=views)

    return net, criterion, batch_loss


def train(net, criterion, batch_loss, purifier, optimizer, epochs):
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(9))
    for _ in range(epochs):
        for index in torch.randperm(N).split(5):
            batch_loss(x[index], index).backward()
            optimizer.step()
            optimizer.zero_grad()
            if criterion.after_step:
                criterion.update(net(x[index]).detach(), index)
        purifier.step()


@pytest.mark.parametrize("name", METHODS)
def test_killed_and_resumed_a_run_ends_with_the_same_bits(name, tmp_path):
    rule = oneof.Pop(warm_up=1, interval=2, window=2, e0=0.2, e_end=0.05)

    def build():
        net, criterion, batch_loss = network_and_criterion(name)
        weights = [*net.parameters(), *criterion.parameters()]
        return net, criterion, batch_loss, oneof.Purifier(rule, criterion), torch.optim.SGD(weights, 0.5, momentum=0.9)

    def whole(parts):
        return [part.state_dict() for part in (parts[0], parts[1], parts[3], parts[4])]

    straight = build()
    train(*straight, epochs=4)
    stopped = build()
    train(*stopped, epochs=2)
    torch.save([torch.get_rng_state(), *whole(stopped)], tmp_path / "state.pt")
    resumed = build()
    random_state, *states = torch.load(tmp_path / "state.pt", weights_only=True)
    for part, state in zip((resumed[0], resumed[1], resumed[3], resumed[4]), states, strict=True):
        part.load_state_dict(state)
    torch.set_rng_state(random_state)
    train(*resumed, epochs=2)
    assert resumed[1].epoch == 4
    for ours, theirs in zip(whole(resumed), whole(straight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_state_of_other_data_is_refused():
    state = CandidateLoss("proden", MASK).state_dict()
    with pytest.raises(RuntimeError, match=r"candidates.*\[12, 4\].*\[6, 4\]"):
        CandidateLoss("proden", MASK[:6]).load_state_dict(state)
    del state["memory"]
    with pytest.raises(RuntimeError, match=r"Missing.*memory"):
        CandidateLoss("proden", MASK).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected.*memory"):
        CandidateLoss("cc", MASK).load_state_dict(CandidateLoss("proden", MASK).state_dict())


def test_tables_are_saved_and_moved_with_a_larger_module_but_are_no_buffers():
    model = nn.ModuleDict({"net": nn.Linear(3, C), "criterion": CandidateLoss("proden", MASK)})
    assert {"criterion.candidates", "criterion.memory", "criterion.epoch"} <= model.state_dict().keys()
    assert list(model.named_buffers()) == []  # or DistributedDataParallel would broadcast those of rank 0
    model.to("meta")
    assert model["criterion"].candidates.device.type == "meta"


def test_memory_stays_in_float32_where_a_model_is_cast_to_half():
    assert CandidateLoss("proden", MASK).to(torch.bfloat16).memory.dtype == torch.float32
    assert CandidateLoss("proden", MASK).double().memory.dtype == torch.float64


def test_parts_that_a_method_adds_are_the_criterion_s_and_the_network_is_not():
    net, criterion, _ = network_and_criterion("pico")
    names = {name.split(".")[0] for name, _ in criterion.named_parameters()}
    assert names == {"projection"}
    assert not {id(p) for p in net.parameters()} & {id(p) for p in criterion.parameters()}


@pytest.mark.parametrize(("name", "words"), [("pico", r"\(x0, x1\)"), ("valen", "views=x")])
def test_a_method_that_needs_the_inputs_says_so(name, words):
    net, criterion, _ = network_and_criterion(name)
    x = torch.zeros(2, 3)
    with pytest.raises(TypeError, match=words):
        criterion(net(x), torch.tensor([0, 1]))
    wrong = [torch.zeros(2, 4)] * criterion.method.views
    with pytest.raises(ValueError, match=r"\[2, 3\].*\[\d, 2, 4\]"):
        criterion(net(x), torch.tensor([0, 1]), features=net.body(x), views=wrong)


def test_valen_names_the_rows_whose_features_it_never_saw():
    _, criterion, batch_loss = network_and_criterion("valen")
    batch_loss(torch.zeros(5, 3), torch.tensor([0, 1, 2, 4, 5]))
    with pytest.raises(ValueError, match=r"7 of 12 rows.*first row 3"):
        criterion.next_epoch()


def test_rcr_needs_three_views():
    with pytest.raises(ValueError, match=r"RCR needs logits \[3, b, c\]"):
        CandidateLoss("rcr", MASK)(logits_of(2), torch.tensor([0, 1]))


def test_a_missing_update_is_said_once(caplog):
    criterion = CandidateLoss("rc", MASK)
    for _ in range(6):
        criterion(logits_of(N), torch.arange(N))
    assert caplog.text.count("criterion.update(net(x), index)") == 1


def test_a_missing_end_of_epoch_is_said_once(caplog):
    criterion = CandidateLoss("balanced_proden", MASK)
    for _ in range(9):
        criterion(logits_of(N), torch.arange(N))
    assert caplog.text.count("criterion.next_epoch()") == 1


def test_a_method_that_counts_no_epochs_needs_no_end_of_epoch(caplog):
    criterion = CandidateLoss("proden", MASK)
    for _ in range(9):
        criterion(logits_of(N), torch.arange(N))
    assert caplog.messages == []


def test_frozen_statistics_restores_what_a_second_forward_moves():
    net = nn.BatchNorm1d(3)
    with frozen_statistics(net):
        net(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    assert net.running_mean.abs().max() == 0
    assert int(net.num_batches_tracked) == 0


def test_after_step_methods_are_told_by_the_criterion():
    assert [name for name in ONE_VIEW if CandidateLoss(name, MASK).after_step] == ["rc", "lws", "lws_ce", "cavl"]
    assert RC().after_step
