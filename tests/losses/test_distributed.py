"""Two processes under DistributedDataParallel end with equal losses, lose no row of memory, and learn what one process learns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from oneof import CandidateLoss, Pop, PopPrinted, Purifier
from oneof.candidates.generate import Flip, generate
from oneof.methods import PiCO, Valen
from oneof.networks import MLP
from oneof_paper.synthetic import mixture

N, C, EPOCHS, BATCH, WORLD = 42, 4, 4, 5, 2
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
SETS = generate(DATA.labels, C, Flip(rate=0.4), seed=0)
X = torch.tensor(DATA.x)
CASES = {
    "proden": "proden",
    "balanced_proden": "balanced_proden",  # reads the memory of all rows before every epoch
    "rc": "rc",  # is updated after the step
    "valen": Valen(warm_up=1, neighbours=2),  # finds neighbours among all rows
    "pico": PiCO(queue=16, embedding=3),
}
LIKE_ONE_PROCESS = ["proden", "balanced_proden", "rc"]


class Model(nn.Module):
    """A network and its criterion as one module, which is how trainers wrap them: its forward gives the loss of a batch."""

    def __init__(self, method):
        super().__init__()
        torch.manual_seed(0)
        self.net = MLP(hidden=(6,))((3,), C)
        self.criterion = CandidateLoss(method, SETS, network=self.net, input_shape=(3,))

    def forward(self, x, index):
        features = self.net.body(x)
        views = (x, x + 0.1) if self.criterion.method.views == 2 else x
        return self.criterion(self.net.head(features), index, features=features, views=views)


def train(method, rank, world):
    """Train one of `world` processes, or all of them in one: then a batch is what the processes' batches are together."""
    model = Model(method)
    wrapped = DistributedDataParallel(model) if distributed.is_initialized() else model
    criterion = model.criterion
    purifier = Purifier(Pop(warm_up=1, interval=1, window=1, e0=0.3, e_end=0.1), criterion)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(EPOCHS):
        order = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))
        for batch in order.view(-1, WORLD).split(
            BATCH
        ):  # row i of a batch is process i's, as a DistributedSampler deals them
            index = batch[:, rank] if world > 1 else batch.T.flatten()
            wrapped(X[index], index).backward()
            optimizer.step()
            optimizer.zero_grad()
            if criterion.after_step:
                criterion.update(model.net(X[index]).detach(), index)
        purifier.step()
    model.eval()
    with torch.no_grad():
        criterion.reduction = "none"
        losses = (
            criterion(model.net(X), torch.arange(N))
            if criterion.method.views == 1 and method is not CASES["valen"]
            else ()
        )
    return {
        "weights": model.net.state_dict(),
        "criterion": criterion.state_dict(),
        "losses": losses,
        "round": purifier.state_dict(),
    }


def work(rank, folder):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    results = {name: train(method, rank, WORLD) for name, method in CASES.items()}
    results["twice"] = write_one_row_on_both_ranks(rank)
    results["observed"] = observe_what_another_rank_wrote(rank)
    torch.save(results, Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


def write_one_row_on_both_ranks(rank):
    """Rank 0 writes row 3 last; both ranks end with its memory, and with the rows that only one of them wrote."""
    criterion = CandidateLoss("proden", SETS)
    writes = [(7, 1.0), (3, 2.0)] if rank == 0 else [(3, 5.0), (8, 1.0)]
    for row, size in writes:
        logits = torch.zeros(1, C)
        logits[0, int(np.flatnonzero(SETS[row])[0])] = size
        criterion(logits.requires_grad_(), torch.tensor([row]))
    criterion.sync()
    return criterion.memory


def observe_what_another_rank_wrote(rank):
    """Rank 0 trains on row 3, then rank 1 looks at all rows for Algorithm 1: the memory of row 3 stays what rank 0 wrote."""
    criterion = CandidateLoss("proden", SETS)
    purifier = Purifier(PopPrinted(warm_up=0), criterion)
    logits = torch.zeros(N, C)
    logits[:, int(np.flatnonzero(SETS[3])[0])] = 2.0
    if rank == 0:
        criterion(logits[:1].requires_grad_(), torch.tensor([3]))
    purifier.observe(logits.detach(), torch.arange(N))
    purifier.step()
    return criterion.memory


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, str(folder))) for rank in range(WORLD)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * WORLD
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


pytestmark = [
    pytest.mark.slow,  # each process imports torch
    pytest.mark.skipif(sys.platform == "win32", reason="the rendezvous by a file is tried on Unix"),
]


@pytest.mark.parametrize("name", CASES)
def test_both_ranks_end_alike(by_rank, name):
    first, second = by_rank
    torch.testing.assert_close(first[name], second[name], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", LIKE_ONE_PROCESS)
def test_two_processes_learn_what_one_learns(by_rank, name):
    alone = train(CASES[name], 0, 1)
    torch.testing.assert_close(by_rank[1][name], alone, rtol=0, atol=1e-8)
    assert len(alone["round"]["removals"]["row"]) > 0


@pytest.mark.parametrize("name", ["proden", "rc", "valen"])
def test_no_row_of_memory_is_lost(by_rank, name):
    states = by_rank[0][name]["criterion"]
    memory = states.get("memory", states.get("memory_0"))
    several = torch.tensor(SETS).sum(1) > 1
    uniform = torch.tensor(SETS) / torch.tensor(SETS).sum(1, keepdim=True)
    assert ((memory - uniform)[several].abs().amax(1) > 1e-6).all()


def test_looking_at_a_row_does_not_overwrite_what_another_rank_remembers(by_rank):
    weight = np.exp(2.0) / (np.exp(2.0) + SETS[3].sum() - 1)
    for results in by_rank:
        assert float(results["observed"][3].max()) == pytest.approx(weight)


def test_of_two_writers_of_a_row_the_last_one_counts(by_rank):
    both = by_rank[0]["twice"]
    for row, size in ((3, 2.0), (7, 1.0), (8, 1.0)):
        weight = np.exp(size) / (np.exp(size) + SETS[row].sum() - 1)
        assert float(both[row].max()) == pytest.approx(weight)
