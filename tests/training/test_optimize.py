"""The optimiser's step: the fused way gives what the plain one gives."""

from __future__ import annotations

import pytest
import torch

from oneof.training.optimize import _foreach_step, _fused_step, _is_dense


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_fused_step_is_the_plain_one(device):
    torch.manual_seed(0)
    shapes = [(1, 500, 245), (1, 64, 32, 3, 3), (1, 10)]
    weights = [torch.randn(shape, device=device) for shape in shapes]
    weights[1] = weights[1].transpose(1, 4).contiguous().transpose(1, 4)  # not as its gradient lies
    gradients = [torch.randn(shape, device=device) for shape in shapes]
    found = []
    for move in (_foreach_step, _fused_step):
        own, speeds = [w.clone() for w in weights], [torch.zeros_like(w) for w in weights]
        for _ in range(3):
            move(own, speeds, gradients, torch.tensor(0.1, device=device), 1e-3, 0.9)
        found.append(own + speeds)
    for plain, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


def test_weights_with_gaps_in_their_memory_are_told_from_others():
    """Of these the fused way would move what lies in the gaps."""
    whole = torch.zeros(1, 4, 9)
    images = torch.zeros(1, 8, 4, 3, 3).to(memory_format=torch.channels_last_3d)
    assert all(map(_is_dense, (whole, whole.transpose(1, 2), images, whole[:, :2], torch.zeros(1, 0, 3))))
    assert not _is_dense(whole[:, :, :3])
    assert not _is_dense(whole[:, ::2])
