"""One run in many processes: trials are dealt out, or the processes are the ranks of distributed data-parallel training.

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

for part in ("distributed", "rank_zero"):  # who joins is no news; here, since new processes join before all else
    logging.getLogger(f"lightning_fabric.utilities.{part}").setLevel(logging.WARNING)


_STRIDE = 0x9E3779B97F4A7C15  # between the seeds of ranks
_EPOCH_STRIDE = 0x632BE59BD9B4E019


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as one of them sees it; alone, nothing is sent.

    >>> [ProcessGroup(rank, 3).local_range(8) for rank in range(3)]
    [(0, 2), (2, 5), (5, 8)]
    """

    rank: int = 0
    size: int = 1

    def local_range(self, m: int) -> tuple[int, int]:
        """From which to which of m rows this process owns; the rows of all follow one another."""
        return m * self.rank // self.size, m * (self.rank + 1) // self.size

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
        """Sums over all processes, sent as one."""
        if self.size == 1:
            return list(tensors)
        return self._reduced(tensors)

    @torch.no_grad()
    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Means over all processes, sent as one."""
        if self.size == 1:
            return list(tensors)
        return self._reduced(tensors, self.size)

    def _reduced(self, tensors: Sequence[Tensor], divisor: int = 1) -> list[Tensor]:
        """Sums over all processes, divided by a number."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _carried(flat) as sent:
            dist.all_reduce(sent)
        if divisor > 1:
            flat /= divisor
        parts = flat.split([tensor.numel() for tensor in tensors])  # type: ignore[no-untyped-call]
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def gathered(self, own: Tensor, sections: Sequence[int]) -> Tensor:
        """The parts of all processes as one: own [m, ...] falls into so many rows for each trial, and trials stay together.

        >>> ProcessGroup().gathered(torch.arange(3), [1, 2])
        tensor([0, 1, 2])
        """
        if self.size == 1:
            return own
        parts = []
        for rank, per_trial in enumerate(self._lengths(sections)):
            part = own.contiguous() if rank == self.rank else own.new_empty(sum(per_trial), *own.shape[1:])
            with _carried(part.view(-1).view(torch.uint8)) as sent:  # as bytes: not every dtype can be sent
                dist.broadcast(sent, rank)
            parts.append(part.split(per_trial))  # type: ignore[no-untyped-call]
        return torch.cat([section for trial in zip(*parts, strict=True) for section in trial])

    def gathered_rows(self, own: Tensor) -> Tensor:
        """The rows of all processes [t, m, ...], each trial's one after the other, of which [t, k, ...] are this one's."""
        if self.size == 1:
            return own
        whole = self.gathered(own.flatten(0, 1), [own.shape[1]] * len(own))
        return whole.view(len(own), -1, *own.shape[2:])

    def part(self, whole: Tensor, sections: Sequence[int]) -> Tensor:
        """Of what was `gathered`, the part of this process."""
        if self.size == 1:
            return whole
        lengths = zip(*self._lengths(sections), strict=True)
        cut = whole.split([length for trial in lengths for length in trial])  # type: ignore[no-untyped-call]
        return torch.cat(cut[self.rank :: self.size])

    def gathered_objects(self, own: Any) -> list[Any]:
        """What every process has, by rank."""
        if self.size == 1:
            return [own]
        everything: list[Any] = [None] * self.size
        with _others_alive():
            dist.all_gather_object(everything, own)
        return everything

    def each(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """What `work` makes of every item: they are dealt out, and all get all answers, or the bad input that one found."""
        if self.size == 1:
            return [work(item) for item in items]
        dealt: list[Any] = [None] * self.size
        own: Any
        try:
            own = [work(item) for item in items[self.rank :: self.size]]
        except (ValueError, TypeError, OSError) as error:
            own = error
        with _others_alive():
            dist.all_gather_object(dealt, own)
        for one in dealt:
            if isinstance(one, Exception):
                raise one
        dealt = to_local_gpu(dealt)
        dealt[self.rank] = own  # itself, not the copy that went round
        return [dealt[i % self.size][i // self.size] for i in range(len(items))]

    def run_on_rank0(self, work: Callable[[], Any]) -> Any:
        """What `work` gives in the first process, which alone does it; bad input that it finds is raised in all."""
        if self.size == 1:
            return work()
        word: list[Any] = [None]
        if self.rank == 0:
            try:
                word = [work()]
            except (ValueError, TypeError, OSError) as error:
                word = [error]
        with _others_alive():
            dist.broadcast_object_list(word, 0)
        if isinstance(word[0], Exception):
            raise word[0]
        return word[0]

    def broadcast_int(self, number: int) -> int:
        """What the first process says."""
        return int(self.total([torch.tensor(0 if self.rank else int(number))])[0])

    def _lengths(self, sections: Sequence[int]) -> list[list[int]]:
        """The sections of every process."""
        lengths = torch.zeros(self.size, len(sections), dtype=torch.int64)
        lengths[self.rank] = torch.tensor(sections)
        return self.total([lengths])[0].tolist()


AGAIN = "so the run cannot go on. Repeat the call: with a checkpoint it resumes where it stood."
DIED = f"another process has died, {AGAIN}"


@contextmanager
def _others_alive() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ChildProcessError(f"{DIED} ({str(error).splitlines()[0][:120]})") from error


@contextmanager
def _carried(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor where a message can be read and written: NCCL works on GPUs, gloo surely in the CPU's memory alone."""
    here = not tensor.is_cuda or "nccl" in dist.get_backend_config()
    sent = tensor if here else tensor.cpu()
    with _others_alive():
        yield sent
    if not here:
        tensor.copy_(sent)


def run_distributed(work: Callable[[ProcessGroup], Any], processes: int | None) -> Any:
    """What `work` gives in this process: alone, as one of the group that is here, or (processes) in the first of a new one."""
    group = current_group(processes)
    return work(group) if processes in (None, group.size) else launched(work, processes)


def current_group(processes: int | None) -> ProcessGroup:
    """The group that this process belongs to or that torchrun or SLURM started, unless one is asked for; else it alone."""
    if processes is not None and processes < 1:
        raise ValueError(f"n_jobs must be at least 1; got {processes}.")
    per_node, nodes = _started_outside()
    size = dist.get_world_size() if dist.is_initialized() else per_node * nodes
    if processes == 1 or size == 1:
        return ProcessGroup()
    if processes not in (None, size):
        raise ValueError(f"n_jobs must be what the launcher started ({size}), 1 or None; got {processes}.")
    if not dist.is_initialized():
        try:
            fabric = _fabric(per_node, nodes)
        except RuntimeError as error:  # what SLURM was asked for does not go together
            message = f"the processes that were started must form one group; {error} Or say n_jobs=1."
            raise ValueError(message) from error
        fabric.launch()
        atexit.register(_leave)
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


def check_rows(rows: int, processes: int) -> None:
    """Refuse more processes than rows: each owns one at least."""
    if processes > rows:
        raise ValueError(f"n_jobs must be at most the rows to train on ({rows}); got {processes}. Use fewer.")


def _fabric(per_node: int, nodes: int = 1, start: Literal["popen", "spawn"] = "popen") -> Any:
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    patience = timedelta(days=30)  # with a process that has more to do than others; one that died is noticed at once
    strategy = DDPStrategy(timeout=patience, process_group_backend=_backend(per_node), start_method=start)
    return Fabric(accelerator="cpu", devices=per_node, num_nodes=nodes, strategy=strategy)


def _backend(per_node: int) -> str:
    """What carries messages: NCCL between GPUs, of which it wants one for each process, gloo for all else."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() >= per_node else "gloo"


def _leave() -> None:
    """Give up the group: a thread of gloo's that still lets go of the last message while Python ends aborts the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _started_outside() -> tuple[int, int]:
    """Processes on each machine, and machines, by the variables of torchrun or SLURM's srun."""
    of, nodes = os.environ, int(os.environ.get("SLURM_NNODES", 1))
    if dist.is_torchelastic_launched():
        return int(of["LOCAL_WORLD_SIZE"]), int(of["WORLD_SIZE"]) // int(of["LOCAL_WORLD_SIZE"])
    by_slurm = "SLURM_PROCID" in of and of.get("SLURM_JOB_NAME") not in ("bash", "interactive")
    return (int(of.get("SLURM_NTASKS", 1)) // nodes, nodes) if by_slurm else (1, 1)


def launched(work: Callable[[ProcessGroup], Any], processes: int) -> Any:
    """What `work` gives in the first of so many new processes of this machine; its ValueErrors are raised here."""
    from torch.multiprocessing.spawn import ProcessException

    try:  # as bytes: multiprocessing itself would send what lies on a GPU as a handle, which not every machine allows
        content = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"n_jobs= needs settings that can be sent to other processes; {error}. "
            "Name functions at the top of a module, or start the script by torchrun."
        ) from error
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # that it ends the others is said below
    try:
        fabric = _fabric(processes, start="spawn")
    except RuntimeError as error:
        raise ValueError("a notebook cannot start processes; make a script of it, or leave n_jobs= out.") from error
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        try:
            fabric.launch(partial(_work, content, answer, torch.get_default_dtype(), torch.get_num_threads()))
        except ProcessException as error:
            said = str(error).strip().splitlines()[-1]
            died = f"process {error.error_index} of {processes} has died ({said}), {AGAIN}"
            raise ChildProcessError(DIED if DIED in said else died) from error
        finally:
            os.environ.pop("MASTER_PORT", None)  # or the next group would ask for the same
        result = pickle.loads(answer.read_bytes())
    if isinstance(result, Exception):
        raise result
    return result


def _work(content: bytes, answer: Path, dtype: torch.dtype, threads: int, fabric: Any) -> None:
    """What is set in the process that asked is set in this one too; Fabric itself passes on that torch is deterministic."""
    torch.set_default_dtype(dtype)
    torch.set_num_threads(min(threads, torch.get_num_threads()))  # Fabric has shared out the cores
    if torch.are_deterministic_algorithms_enabled():
        make_deterministic()
    try:
        result = pickle.loads(content)(ProcessGroup(fabric.global_rank, fabric.world_size))
    except (ValueError, TypeError) as error:  # bad input: all processes found the same
        result = error
    if fabric.global_rank == 0:
        answer.write_bytes(pickle.dumps(result))
    _leave()
