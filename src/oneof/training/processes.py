"""Run in several processes: trials are dealt out, or the processes are the ranks of distributed data-parallel training.

Lightning Fabric's DDP strategy starts the processes, or joins those that torchrun, SLURM or Ray Train started. A rank owns a share of the
rows with their tables, and draws batches of a fixed size from it: steps differ from those of one process only by the mean of
gradients over ranks. Gradients come from `torch.autograd.grad`, which the hooks of DDP's wrapper do not see; they are sent as one bucket,
a single call that a CUDA graph captures with the step.
"""

import atexit
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from oneof.training.device import make_deterministic, to_local_gpu

for module in ("distributed", "rank_zero"):  # they log who joins; at import, since new processes join before all else
    logging.getLogger(f"lightning_fabric.utilities.{module}").setLevel(logging.WARNING)


_STRIDE = 0x9E3779B97F4A7C15  # between the seeds of ranks
_EPOCH_STRIDE = 0x632BE59BD9B4E019


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, from the view of one of them; a single one sends nothing.

    >>> [ProcessGroup(rank, 3).local_range(8) for rank in range(3)]
    [(0, 2), (2, 5), (5, 8)]
    """

    rank: int = 0
    size: int = 1

    def local_range(self, m: int) -> tuple[int, int]:
        """Return the first of m rows that this process owns, and the one after its last; the rows of all follow one another."""
        first = m * self.rank // self.size
        end = m * (self.rank + 1) // self.size
        return first, end

    def seed(self, seed: int, epoch: int = 0) -> int:
        """Return a seed of this rank's own; the first keeps the one that is given."""
        if self.rank == 0 and epoch == 0:
            return seed
        return (seed + self.rank * _STRIDE + epoch * _EPOCH_STRIDE) % 2**63

    @property
    def can_capture(self) -> bool:
        """Return whether a CUDA graph can capture what is sent: nothing, or by NCCL."""
        return self.size == 1 or "nccl" in dist.get_backend_config()

    @torch.no_grad()
    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all processes, sent as one message."""
        if self.size == 1:
            return list(tensors)
        return self._reduced(tensors)

    @torch.no_grad()
    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means over all processes, sent as one message."""
        if self.size == 1:
            return list(tensors)
        return self._reduced(tensors, self.size)

    def _reduced(self, tensors: Sequence[Tensor], divisor: int = 1) -> list[Tensor]:
        """Return the sums over all processes, divided by a number."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _message(flat) as content:
            dist.all_reduce(content)
        if divisor > 1:
            flat /= divisor
        parts = flat.split([tensor.numel() for tensor in tensors])  # type: ignore[no-untyped-call]
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def gathered(self, local: Tensor, sections: Sequence[int]) -> Tensor:
        """Return the rows of all processes; local [m, ...] has so many rows for each trial, and trials stay together.

        >>> ProcessGroup().gathered(torch.arange(3), [1, 2])
        tensor([0, 1, 2])
        """
        if self.size == 1:
            return local
        parts = []
        for rank, lengths in enumerate(self._sections_by_rank(sections)):
            if rank == self.rank:
                part = local.contiguous()
            else:
                part = local.new_empty(sum(lengths), *local.shape[1:])
            with _message(part.view(-1).view(torch.uint8)) as content:  # as bytes: not every dtype can be sent
                dist.broadcast(content, rank)
            parts.append(part.split(lengths))  # type: ignore[no-untyped-call]
        sections_in_order: list[Tensor] = []
        for sections_of_trial in zip(*parts, strict=True):
            sections_in_order.extend(sections_of_trial)
        return torch.cat(sections_in_order)

    def gathered_rows(self, local: Tensor) -> Tensor:
        """Return the rows of all processes [t, m, ...], of which [t, k, ...] are local; those of a trial follow one another."""
        if self.size == 1:
            return local
        t, k = local.shape[:2]
        rows = self.gathered(local.flatten(0, 1), [k] * t)
        return rows.view(t, -1, *local.shape[2:])

    def local_part(self, gathered: Tensor, sections: Sequence[int]) -> Tensor:
        """Return the part of this process of what was `gathered`."""
        if self.size == 1:
            return gathered
        lengths: list[int] = []
        for lengths_of_trial in zip(*self._sections_by_rank(sections), strict=True):
            lengths.extend(lengths_of_trial)
        parts = gathered.split(lengths)  # type: ignore[no-untyped-call]
        return torch.cat(parts[self.rank :: self.size])

    def gathered_objects(self, local: Any) -> list[Any]:
        """Return what every process has, by rank."""
        if self.size == 1:
            return [local]
        everything: list[Any] = [None] * self.size
        with _others_alive():
            dist.all_gather_object(everything, local)
        return everything

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the results of `work` for all items, which are dealt out to the processes; bad input that one finds is raised in all."""
        if self.size == 1:
            return [work(item) for item in items]
        local: Any
        try:
            local = [work(item) for item in items[self.rank :: self.size]]
        except (ValueError, TypeError, OSError) as error:
            local = error
        by_rank: list[Any] = [None] * self.size
        with _others_alive():
            dist.all_gather_object(by_rank, local)
        for results in by_rank:
            if isinstance(results, Exception):
                raise results
        by_rank = to_local_gpu(by_rank)
        by_rank[self.rank] = local  # not a copy of it
        return [by_rank[i % self.size][i // self.size] for i in range(len(items))]

    def run_on_rank0(self, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, which only the first process does; bad input that it finds is raised in all."""
        if self.size == 1:
            return work()
        message: list[Any] = [None]
        if self.rank == 0:
            try:
                message = [work()]
            except (ValueError, TypeError, OSError) as error:
                message = [error]
        with _others_alive():
            dist.broadcast_object_list(message, 0)
        (result,) = message
        if isinstance(result, Exception):
            raise result
        return result

    def broadcast_int(self, number: int) -> int:
        """Return the number of the first process."""
        summand = int(number) if self.rank == 0 else 0
        (total,) = self.total([torch.tensor(summand)])
        return int(total)

    def _sections_by_rank(self, sections: Sequence[int]) -> list[list[int]]:
        """Return the sections of every process."""
        lengths = torch.zeros(self.size, len(sections), dtype=torch.int64)
        lengths[self.rank] = torch.tensor(sections)
        (by_rank,) = self.total([lengths])
        return by_rank.tolist()


AGAIN = "so the run cannot go on. Repeat the call: with a checkpoint it continues where it stopped."
DIED = f"another process has died, {AGAIN}"


@contextmanager
def _others_alive() -> Iterator[None]:
    """Raise ChildProcessError if a message fails because another process has died."""
    try:
        yield
    except RuntimeError as error:
        raise ChildProcessError(f"{DIED} ({str(error).splitlines()[0][:120]})") from error


@contextmanager
def _message(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the tensor where it can be sent and received: NCCL works on GPUs, gloo reliably only in the memory of the CPU."""
    needs_copy = tensor.is_cuda and "nccl" not in dist.get_backend_config()
    content = tensor.cpu() if needs_copy else tensor
    with _others_alive():
        yield content
    if needs_copy:
        tensor.copy_(content)


def run_distributed(work: Callable[[ProcessGroup], Any], processes: int | None) -> Any:
    """Return the result of `work` in this process: alone, in its current group, or in the first of so many new processes."""
    group = current_group(processes)
    if processes is None or processes == group.size:
        return work(group)
    return launch_processes(work, processes)


def current_group(processes: int | None) -> ProcessGroup:
    """Return the group that this process is in, or that torchrun or SLURM started; this process alone if there is none, or for 1."""
    if processes is not None and processes < 1:
        raise ValueError(f"n_jobs must be at least 1; got {processes}.")
    per_node, nodes = _processes_of_launcher()
    size = per_node * nodes
    if dist.is_initialized():
        size = dist.get_world_size()
    if processes == 1 or size == 1:
        return ProcessGroup()
    if processes not in (None, size):
        raise ValueError(f"n_jobs must be what the launcher started ({size}), 1 or None; got {processes}.")
    if not dist.is_initialized():
        try:
            fabric = _fabric(per_node, nodes)
        except RuntimeError as error:  # settings of SLURM that contradict each other
            message = f"the processes that were started must form one group; {error} Or give n_jobs=1."
            raise ValueError(message) from error
        fabric.launch()
        atexit.register(_leave)
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


def check_rows(rows: int, processes: int) -> None:
    """Raise ValueError for more processes than rows, since each needs one at least."""
    if processes > rows:
        raise ValueError(f"n_jobs must be at most the rows to train on ({rows}); got {processes}. Use fewer.")


def _fabric(per_node: int, nodes: int = 1, start: Literal["popen", "spawn"] = "popen") -> Any:
    """Return a Fabric for so many processes on each machine."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    patience = timedelta(days=30)  # with a process that has more to do than others; one that died is noticed at once
    strategy = DDPStrategy(timeout=patience, process_group_backend=_backend(per_node), start_method=start)
    return Fabric(accelerator="cpu", devices=per_node, num_nodes=nodes, strategy=strategy)


def _backend(per_node: int) -> str:
    """Return what carries messages: NCCL between GPUs, if there is one for each process; gloo for everything else."""
    if torch.cuda.device_count() >= per_node:
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def _leave() -> None:
    """Leave the group: a thread of gloo that is still busy with the last message while Python ends would abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _processes_of_launcher() -> tuple[int, int]:
    """Return processes on each machine, and machines, by the variables of torchrun or SLURM's srun."""
    environment = os.environ
    if dist.is_torchelastic_launched():
        per_node = int(environment["LOCAL_WORLD_SIZE"])
        return per_node, int(environment["WORLD_SIZE"]) // per_node
    is_interactive = environment.get("SLURM_JOB_NAME") in ("bash", "interactive")
    if "SLURM_PROCID" not in environment or is_interactive:
        return 1, 1
    nodes = int(environment.get("SLURM_NNODES", 1))
    return int(environment.get("SLURM_NTASKS", 1)) // nodes, nodes


def launch_processes(work: Callable[[ProcessGroup], Any], processes: int) -> Any:
    """Return the result of `work` in the first of so many new processes of this machine; its ValueErrors are raised here."""
    from torch.multiprocessing.spawn import ProcessException

    try:  # as bytes: multiprocessing itself would send what lies on a GPU as a handle, which not every machine allows
        content = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"n_jobs= needs settings that can be sent to other processes; {error}. "
            "Name functions at the top of a module, or start the script by torchrun."
        ) from error
    # When one process dies, torch warns that it ends the others; the error below says so.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    try:
        fabric = _fabric(processes, start="spawn")
    except RuntimeError as error:
        raise ValueError("a notebook cannot start processes; make a script of it, or leave n_jobs= out.") from error
    with tempfile.TemporaryDirectory() as folder:
        result_file = Path(folder, "result")
        try:
            fabric.launch(partial(_work, content, result_file, torch.get_default_dtype(), torch.get_num_threads()))
        except ProcessException as error:
            reason = str(error).strip().splitlines()[-1]
            if DIED in reason:
                raise ChildProcessError(DIED) from error
            died = f"process {error.error_index} of {processes} has died ({reason}), {AGAIN}"
            raise ChildProcessError(died) from error
        finally:
            os.environ.pop("MASTER_PORT", None)  # or the next group would take the same port
        result = pickle.loads(result_file.read_bytes())
    if isinstance(result, Exception):
        raise result
    return result


def _work(content: bytes, result_file: Path, dtype: torch.dtype, threads: int, fabric: Any) -> None:
    """Do the work with the settings of the process that launched this one; Fabric passes on whether torch is deterministic."""
    torch.set_default_dtype(dtype)
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # Fabric has shared out the cores
    if torch.are_deterministic_algorithms_enabled():
        make_deterministic()
    try:
        result = pickle.loads(content)(ProcessGroup(fabric.global_rank, fabric.world_size))
    except (ValueError, TypeError) as error:  # bad input: all processes found the same
        result = error
    if fabric.global_rank == 0:
        result_file.write_bytes(pickle.dumps(result))
    _leave()
