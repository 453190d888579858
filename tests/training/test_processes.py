"""Several processes: trials that are dealt out give what one process gives, and ranks that share pictures learn as well as one."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_cases import (
    CASES,
    DATA,
    KEPT,
    ON_IMAGES,
    ON_TABLES,
    SETS,
    SPACE,
    assert_same_run,
    classified,
    digits,
    outcome,
    train,
    train_some,
    write_table,
)

import oneof.training.processes
from oneof.data.augment import views
from oneof.learners.config import FitConfig
from oneof.networks import LeNet
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import Run
from oneof.training.device import to_local_gpu
from oneof.training.fit import fit
from oneof.training.processes import ProcessGroup, current_group
from oneof.training.trials import Training, Trial

SCRIPT = Path(__file__).parents[1] / "distributed_cases.py"


def assert_same(ours, theirs, atol=1e-9):
    assert ours["near"].keys() == theirs["near"].keys()
    for name, value in theirs["near"].items():
        np.testing.assert_allclose(ours["near"][name], value, rtol=0, atol=atol, err_msg=name)
    for name, value in theirs["exact"].items():
        assert torch.equal(ours["exact"][name], value), name


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory):
    """Every case, trained by two processes that torchrun started: the folder with what each of them saved."""
    folder = tmp_path_factory.mktemp("crew")
    torch.set_default_dtype(torch.float64)
    for name in KEPT:
        train_some(4, **CASES[name], checkpoint=folder / name)
    torch.set_default_dtype(torch.float32)
    write_table(folder / "table.csv")
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*started, SCRIPT, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@cache
def load(folder, rank):
    """What one of the two saved."""
    return torch.load(folder / f"rank-{rank}.pt", weights_only=False)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("case", ON_TABLES)
def test_trials_that_are_dealt_out_give_what_one_process_gives(by_torchrun, case):
    alone = outcome(train(**CASES[case]))
    for rank in range(2):
        assert_same(load(by_torchrun, rank)[case], alone)


@pytest.mark.parametrize("case", ON_IMAGES)
def test_ranks_end_with_the_same_networks_and_sets(by_torchrun, case):
    first, second = load(by_torchrun, 0)[case], load(by_torchrun, 1)[case]
    assert_same(second, first, atol=0)
    assert all(torch.isfinite(value).all() for value in first["near"].values())
    rows = first["exact"]["rows"][0]
    assert sorted(rows.tolist()) == sorted(np.random.default_rng(0).permutation(61)[:45].tolist())
    sets = first["exact"]["candidates"][0]
    assert not (sets & ~torch.as_tensor(SETS)[rows]).any()
    assert sets.any(1).all()
    if "removed" in first["near"]:
        removed = int(torch.as_tensor(SETS)[rows].sum() - sets.sum())
        assert removed == len(first["exact"]["row"])
        assert first["near"]["removed"].sum() >= removed  # the sets are those of the chosen epoch


def test_two_ranks_learn_as_well_as_one(by_torchrun):
    alone = digits()
    together = load(by_torchrun, 0)["digits"]
    assert alone > 0.85
    assert abs(together - alone) < 0.06


@pytest.mark.parametrize("case", KEPT)
def test_ranks_that_were_stopped_go_on_to_the_same_end(by_torchrun, case):
    for rank in range(2):
        assert_same(load(by_torchrun, rank)[f"{case} of two"], load(by_torchrun, rank)[case], atol=0)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("case", KEPT)
def test_another_number_of_processes_goes_on(by_torchrun, case):
    """One process began, two went on, one ends it: sets only shrink, and all epochs are there."""
    folder = by_torchrun / case
    newest = sorted((folder / "stack-1").glob("*.json"))[-1]
    assert newest.name > "step-000001-000000048.json"  # past where the first process stopped
    assert json.loads(newest.read_text())["ranks"] == 2
    ended = outcome(train(**CASES[case], checkpoint=folder))
    assert len(ended["near"]["loss"]) == 3
    assert torch.isfinite(ended["near"]["loss"]).all()
    sizes = ended["near"]["set_size"][:, 0]
    assert (sizes.diff() <= 0).all()
    assert (ended["near"]["removed"][:, 0] * -1 / 45)[1:].allclose(sizes.diff())


def test_bad_input_that_one_process_finds_is_raised_in_all(by_torchrun):
    assert [load(by_torchrun, rank)["wrong"] for rank in range(2)] == ["lr must be positive; got -1.0."] * 2


def test_each_process_has_a_gpu_and_nccl_carries_the_messages_where_there_is_one_for_each(monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    places = [oneof.training.fit._local_device("cuda", ProcessGroup(rank, 3)) for rank in range(3)]
    assert [place.index for place in places] == [0, 1, 0]
    assert taken == places
    assert [oneof.training.processes._backend(processes) for processes in (2, 3)] == ["cpu:gloo,cuda:nccl", "gloo"]


class OnCard(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()


@pytest.mark.parametrize(("backend", "copied"), [("cpu:gloo,cuda:gloo", True), ("cpu:gloo,cuda:nccl", False)])
def test_gloo_carries_what_lies_on_a_gpu_through_the_memory_of_the_cpu(monkeypatch, backend, copied):
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: backend)
    tensor = torch.zeros(3).as_subclass(OnCard)
    with oneof.training.processes._message(tensor) as sent:
        sent += 2
        assert (tensor.tolist() == [0, 0, 0]) is copied
    assert tensor.tolist() == [2, 2, 2]


def test_a_fit_and_views_come_whole_to_the_gpu_of_this_process(monkeypatch):
    """What lies on the CPU stays there, which is all that can be seen without a GPU."""
    fitted, seen = train(views="pop", epochs=1), views("pico", "cifar10")
    assert to_local_gpu(seen) is seen
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert_same(outcome(to_local_gpu(fitted)), outcome(fitted), atol=0)
    images, draws = torch.arange(2 * 3 * 32 * 32).view(2, 3, 32, 32).to(torch.uint8), torch.Generator()
    drawn = seen.draw(images, draws.manual_seed(0))
    assert to_local_gpu(seen).apply(images, drawn).equal(seen.apply(images, drawn))


@pytest.mark.usefixtures("double")
def test_the_estimator_learns_the_same(by_torchrun):
    probabilities, candidates, labels = classified(n_jobs=1)
    for rank in range(2):
        ours = load(by_torchrun, rank)["classified"]
        np.testing.assert_allclose(ours[0], probabilities, rtol=0, atol=1e-9)
        assert (ours[1] == candidates).all()
        assert (ours[2] == labels).all()
    assert candidates.sum() < SETS.sum()


@pytest.mark.usefixtures("double")
def test_a_table_is_learned_from_and_only_the_first_process_speaks_and_writes(by_torchrun, tmp_path):
    alone = fit_table(by_torchrun / "table.csv", tmp_path / "run", FitSpec(config=FitConfig(SPACE)))
    assert_same_run(Run.open(by_torchrun / "run"), alone, 1e-9)
    first, second = load(by_torchrun, 0), load(by_torchrun, 1)
    assert [line for line in first["said"] if "finished already" in line]
    assert second["said"] == []
    assert second["missing"] == first["missing"]
    assert "missing.csv" in first["missing"]


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_a_process_that_dies_ends_the_run_with_a_message_and_it_can_be_resumed(tmp_path):
    killer = threading.Thread(target=kill_one, args=(tmp_path,))
    killer.start()
    with pytest.raises(
        ChildProcessError,
        match=r"process 1 of 2 has died \(.*SIGKILL\), so the run cannot go on\. Repeat the call: with a checkpoint",
    ):
        train(epochs=6, slow=True, n_jobs=2, checkpoint=tmp_path, every=0)
    killer.join()
    assert_same(outcome(train(epochs=6, slow=True, checkpoint=tmp_path)), outcome(train(epochs=6, slow=True)))


def kill_one(folder):
    """Kill the second process once a checkpoint is there."""
    while not list(folder.glob("stack-1/*.json")):
        time.sleep(0.1)
    os.kill(sorted(child.pid for child in multiprocessing.active_children())[1], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_three_new_processes():
    assert_same(outcome(train(n_jobs=3)), outcome(train()))
    fitted = train(n_jobs=3, views="pop", epochs=3)
    assert torch.isfinite(fitted.history["loss"]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_processes_that_slurm_started(tmp_path):
    job = {
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NAME": "crew",
        "SLURM_NODEID": "0",
        "SLURM_JOB_ID": "77",
        "SLURM_NTASKS_PER_NODE": "2",
    }
    places = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "MASTER_ADDR": "127.0.0.1"} for rank in range(2)]
    write_table(tmp_path / "table.csv")
    tasks = [subprocess.Popen([sys.executable, SCRIPT, tmp_path], env=os.environ | job | place) for place in places]
    assert [task.wait(timeout=300) for task in tasks] == [0, 0]
    assert_same(load(tmp_path, 1)["plain"], outcome(train(**CASES["plain"])))


# ------------------------------------------------------------------------------------------------------------- messages


def test_ranks_need_a_row_each(monkeypatch):
    monkeypatch.setattr(oneof.training.processes, "current_group", lambda processes: ProcessGroup(0, 2))
    images = np.zeros((4, 1, 8, 8), dtype=np.uint8)
    trial = Trial(rows=np.arange(1), scaling="none")
    with pytest.raises(ValueError, match=r"n_jobs must be at most the rows to train on \(1\); got 2\. Use"):
        fit(images, np.ones((4, 2), dtype=bool), trials=[trial], views=views("plain", "mnist"), network=LeNet())


def test_seeds_of_ranks_differ():
    seeds = {ProcessGroup(rank, 3).seed(7, epoch) for rank in range(3) for epoch in range(4)}
    assert len(seeds) == 12
    assert ProcessGroup(0, 3).seed(7) == ProcessGroup().seed(7) == 7


def test_messages(monkeypatch):
    with pytest.raises(ValueError, match=r"n_jobs must be at least 1; got 0"):
        fit(DATA.x, SETS, n_jobs=0)
    with pytest.raises(ValueError, match=r"n_jobs must be at least 1, or -1 for all processors; got -2"):
        classified(n_jobs=-2)
    with pytest.raises(
        ValueError, match=r"settings that can be sent to other processes; .*start the script by torchrun"
    ):
        fit(DATA.x, SETS, n_jobs=2, training=Training(schedule=lambda epoch, epochs: 1.0))
    with monkeypatch.context() as notebook:
        notebook.setattr("lightning_fabric.connector._IS_INTERACTIVE", True)
        with pytest.raises(ValueError, match=r"a notebook cannot start processes; make a script of it, or leave"):
            fit(DATA.x, SETS, n_jobs=2)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(ValueError, match=r"n_jobs must be what the launcher started \(4\), 1 or None; got 3"):
        current_group(3)
    with pytest.raises(ValueError, match=r"must form one group; .*--ntasks-per-node=4.* Or give n_jobs=1"):
        current_group(4)
    assert current_group(1) == ProcessGroup()
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")
    assert current_group(None) == ProcessGroup()
