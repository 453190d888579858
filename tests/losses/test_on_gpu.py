"""CandidateLoss on a CUDA device: the numbers of the CPU, the last of equal indices, an index out of range."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from oneof import CandidateLoss, Pop, Purifier
from oneof.candidates.mask import posterior
from oneof.methods import METHODS, Method

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
N, C = 40, 5
MASK = torch.rand(N, C, generator=torch.Generator().manual_seed(0)) < 0.5
MASK[torch.arange(N), torch.arange(N) % C] = True


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.step is Method.step])
def test_numbers_are_those_of_the_cpu(name, place):
    """Whether the index lies on the host or on the device."""
    results = []
    for device in ("cpu", "cuda"):
        criterion = CandidateLoss(name, MASK).to(device)
        purifier = Purifier(Pop(warm_up=0, interval=1, window=1, e0=0.2), criterion)
        for epoch in range(2):
            generator = torch.Generator().manual_seed(epoch)
            logits = torch.randn(N, C, generator=generator).to(device).requires_grad_()
            index = torch.randperm(N, generator=generator).to(device if place == "cuda" else "cpu")
            loss = criterion(logits, index)
            criterion.update(logits.detach(), index)
            purifier.step()
        results.append([loss.detach().cpu(), criterion.cpu().state_dict()])
    torch.testing.assert_close(results[1], results[0])


def test_of_an_index_that_stands_many_times_the_last_row_is_remembered():
    criterion = CandidateLoss("proden", MASK).cuda()
    logits = torch.randn(4096, C, device="cuda", requires_grad=True)
    index = torch.randint(N, (4096,), device="cuda")
    criterion(logits, index)
    last = torch.stack([(index == row).nonzero().max() for row in range(N)])
    expected = posterior(logits.detach()[last], MASK.cuda())
    torch.testing.assert_close(criterion.memory, expected)


def test_an_index_out_of_range_is_said_in_words():
    code = (
        "import torch, oneof\n"
        "criterion = oneof.CandidateLoss('proden', torch.ones(3, 2, dtype=torch.bool)).cuda()\n"
        "criterion(torch.zeros(1, 2, device='cuda', requires_grad=True), torch.tensor([7], device='cuda'))\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "index must hold row numbers from 0 to 2" in done.stdout + done.stderr


def test_half_precision_under_autocast():
    criterion = CandidateLoss("proden", MASK).cuda()
    net = torch.nn.Linear(3, C).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = criterion(net(torch.randn(N, 3, device="cuda")), torch.arange(N))
    loss.backward()
    assert loss.dtype == torch.float32
    assert criterion.memory.dtype == torch.float32
