"""Every method against the float64 reference, and one contract that all of them keep."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from torch.autograd import gradcheck

from oneof.candidates.mask import restrict
from oneof.methods import METHODS, Method

REFERENCE = {
    "proden": (lambda z, S, w: reference.proden_loss(z, S, w), lambda z, S: reference.proden_update(z, S)),
    "balanced_proden": (lambda z, S, w: reference.proden_loss(z, S, w), lambda z, S: reference.proden_update(z, S)),
    "rc": (lambda z, S, w: reference.rc_loss(z, S, w), lambda z, S: reference.rc_update(z, S)),
    "cc": (lambda z, S, w: reference.cc_loss(z, S), None),
    "lws": (lambda z, S, w: reference.lws_loss(z, S, w, 1.0), lambda z, S: reference.lws_update(z, S)),
    "lws_ce": (lambda z, S, w: reference.lws_ce_loss(z, S, w, 1.0), lambda z, S: reference.lws_update(z, S)),
    "cavl": (lambda z, S, w: reference.cavl_loss(z, S, w), lambda z, S: reference.cavl_update(z, S)),
    "clpl": (lambda z, S, w: reference.clpl_loss(z, S), None),
    "clpl_softmax": (lambda z, S, w: reference.clpl_softmax_loss(z, S), None),
}
WEIGHS_NON_CANDIDATES = {"lws", "lws_ce"}  # by design: what lies outside the set is pushed down
SINGLETON_IS_NOT_CROSS_ENTROPY = {
    "lws",
    "lws_ce",
    "clpl",
    "clpl_softmax",
}  # margin losses, or a second sum outside the set
pytestmark = pytest.mark.usefixtures("double")
# RCR, PiCO and VALEN have no loss on logits alone: they write `step`, and test_view_methods.py holds their contract
ON_LOGITS = [name for name, kind in METHODS.items() if kind.loss is not Method.loss]
every_method = pytest.mark.parametrize("name", ON_LOGITS)


def example(seed=0, shape=(12,), c=6, scale=3.0):
    """Logits, candidate sets (a singleton and a full one among them) and weights [*shape, c]."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(*shape, c, generator=generator)
    candidates = torch.rand(*shape, c, generator=generator) < 0.4
    candidates.scatter_(-1, torch.randint(c, (*shape, 1), generator=generator), True)
    candidates[..., 0, :] = torch.eye(c, dtype=torch.bool)[2]
    candidates[..., 1, :] = True
    return logits, candidates, torch.rand(*shape, c, generator=generator)


def memory_of(method, candidates, weights):
    """The method's own kind of memory, with arbitrary weights in it."""
    return weights if isinstance(method.init(candidates), torch.Tensor) else ()


def test_every_method_has_a_reference():
    assert set(REFERENCE) == set(ON_LOGITS)


@every_method
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_reference(name, seed):
    method, (loss, update) = METHODS[name](), REFERENCE[name]
    logits, candidates, weights = example(seed)
    arrays = logits.numpy(), candidates.numpy(), weights.numpy()
    got = method.loss(logits, candidates, memory_of(method, candidates, weights))
    np.testing.assert_allclose(got, loss(*arrays), atol=1e-10)
    if update:
        np.testing.assert_allclose(method.update(logits, candidates, weights), update(*arrays[:2]), atol=1e-10)
    else:
        assert method.update(logits, candidates, ()) == ()


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_renewed_memory_agrees_with_the_reference(name, seed):
    """Before an epoch memory stays as it is, but for the balance, which needs the mean over all rows."""
    method = METHODS[name]()
    _, candidates, weights = example(seed, shape=(2, 12))
    memory = memory_of(method, candidates, restrict(weights, candidates))
    got = method.on_epoch_start(memory, lambda rows: rows.mean(1, keepdim=True))
    if name != "balanced_proden":
        assert got is memory
        return
    for trial, rows in zip(got, memory, strict=True):
        np.testing.assert_allclose(trial, reference.balanced_proden_renew(rows.numpy(), 0.5), atol=1e-10)


@pytest.mark.parametrize("name", ["lws", "lws_ce"])
def test_beta_weighs_the_outside(name):
    logits, candidates, weights = example()
    got = METHODS[name](beta=2.0).loss(logits, candidates, weights)
    np.testing.assert_allclose(
        got, getattr(reference, f"{name}_loss")(logits.numpy(), candidates.numpy(), weights.numpy(), 2.0)
    )


@every_method
def test_first_memory_is_uniform_where_it_acts(name):
    method = METHODS[name]()
    logits, candidates, _ = example()
    memory = method.init(candidates)
    if isinstance(memory, torch.Tensor):
        uniform = memory_of(method, candidates, torch.ones_like(logits))
        np.testing.assert_allclose(method.loss(logits, candidates, memory), method.loss(logits, candidates, uniform))


@every_method
def test_finite_at_extreme_logits(name):
    method = METHODS[name]()
    logits, candidates, weights = example(scale=1.0)
    logits = (80 * logits.sign()).to(torch.float32).requires_grad_()
    loss = method.loss(logits, candidates, memory_of(method, candidates, weights.float()))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


@every_method
def test_gradcheck(name):
    method = METHODS[name]()
    logits, candidates, weights = example()
    memory = memory_of(method, candidates, weights)
    assert gradcheck(lambda z: method.loss(z, candidates, memory), logits.requires_grad_())


@every_method
def test_singleton_set_gives_cross_entropy(name):
    if name in SINGLETON_IS_NOT_CROSS_ENTROPY:
        return
    method = METHODS[name]()
    logits, _, weights = example()
    labels = torch.arange(12) % 6
    candidates = torch.eye(6, dtype=torch.bool)[labels]
    got = method.loss(logits, candidates, memory_of(method, candidates, weights))
    np.testing.assert_allclose(got, torch.nn.functional.cross_entropy(logits, labels, reduction="none"))


@every_method
def test_permuting_classes_permutes_the_memory_and_keeps_the_loss(name):
    method = METHODS[name]()
    logits, candidates, weights = example()
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    memory = memory_of(method, candidates, weights)
    turned = memory if isinstance(memory, tuple) else memory[:, order]
    np.testing.assert_allclose(
        method.loss(logits[:, order], candidates[:, order], turned), method.loss(logits, candidates, memory), atol=1e-12
    )
    if not isinstance(memory, tuple):
        updated = method.update(logits, candidates, memory)
        np.testing.assert_allclose(
            method.update(logits[:, order], candidates[:, order], turned), updated[:, order], atol=1e-12
        )


@every_method
def test_leading_axes_are_independent(name):
    """[t, b, c] at once equals each [b, c] alone, and each row alone."""
    method = METHODS[name]()
    logits, candidates, weights = example(shape=(3, 12))
    memory = memory_of(method, candidates, weights)
    whole = method.loss(logits, candidates, memory)
    for t in range(3):
        part = memory if isinstance(memory, tuple) else memory[t]
        np.testing.assert_allclose(method.loss(logits[t], candidates[t], part), whole[t], atol=1e-12)
        row = memory if isinstance(memory, tuple) else memory[t, 5]
        np.testing.assert_allclose(method.loss(logits[t, 5], candidates[t, 5], row), whole[t, 5], atol=1e-12)


@every_method
def test_memory_off_the_mask_has_no_effect(name):
    if name in WEIGHS_NON_CANDIDATES:
        return
    method = METHODS[name]()
    logits, candidates, weights = example()
    memory = memory_of(method, candidates, weights)
    if isinstance(memory, tuple):
        return
    changed = torch.where(candidates, memory, 7.0)
    np.testing.assert_array_equal(method.loss(logits, candidates, changed), method.loss(logits, candidates, memory))
    assert (method.update(logits, candidates, memory)[~candidates] == 0).all()


@every_method
def test_weight_wholly_on_removed_labels_falls_back_to_uniform(name):
    method = METHODS[name]()
    logits, candidates, _ = example()
    if isinstance(method.init(candidates), tuple):
        return
    inside = torch.where(candidates, 0.0, 1.0)  # nothing remembered on the set
    uniform = torch.ones_like(inside)
    np.testing.assert_allclose(
        method.loss(logits, candidates, inside), method.loss(logits, candidates, uniform), atol=1e-12
    )


@every_method
def test_inputs_are_not_written_to(name):
    method = METHODS[name]()
    given = example()
    copies = [tensor.clone() for tensor in given]
    logits, candidates, weights = given
    memory = memory_of(method, candidates, weights)
    method.loss(logits, candidates, memory)
    method.update(logits, candidates, memory)
    for tensor, copy in zip(given, copies, strict=True):
        assert torch.equal(tensor, copy)


def test_cavl_never_picks_a_non_candidate():
    """Where every candidate's value is negative, masking by multiplication would pick a non-candidate (value 0)."""
    logits = torch.tensor([[-2.0, -3.0, 5.0]])
    candidates = torch.tensor([[True, True, False]])
    assert METHODS["cavl"]().update(logits, candidates, torch.ones(1, 3)).argmax() == 0


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.float16])
def test_a_mask_of_numbers_is_refused_in_words(name, dtype):
    logits, candidates, weights = example()
    method = METHODS[name]()
    memory = memory_of(method, candidates, weights)
    message = rf"candidates must be a mask.*of bool; got Tensor of {dtype}.*candidates\.bool\(\)"
    with pytest.raises(TypeError, match=message):
        method.loss(logits, candidates.to(dtype), memory)
    if type(method).update is not Method.update:
        with pytest.raises(TypeError, match=message):
            method.update(logits, candidates.to(dtype), memory)


@every_method
def test_a_mask_of_bytes_is_taken_or_refused_in_words(name):
    logits, candidates, weights = example()
    method = METHODS[name]()
    memory = memory_of(method, candidates, weights)
    as_bytes = candidates.to(torch.uint8)
    if name in {"lws", "lws_ce", "clpl", "clpl_softmax"}:  # they need the complement, which of bytes is another
        with pytest.raises(TypeError, match="candidates must be a mask"):
            method.loss(logits, as_bytes, memory)
    else:
        expected = method.loss(logits, candidates, memory)
        torch.testing.assert_close(method.loss(logits, as_bytes, memory), expected)
