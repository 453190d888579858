"""One run in many processes: each owns some of the rows and their tables; gradients and counts are summed over all.

Lightning Fabric starts the processes, or joins those that torchrun or SLURM started. Every process draws the same order, so that
the batches are those of one process; of each batch it sees the rows that it owns.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Crew:
    """The processes of a run, as one of them sees it; alone, nothing is sent.

    >>> [Crew(rank, 3).owned(8) for rank in range(3)]
    [(0, 2), (2, 5), (5, 8)]
    """

    rank: int = 0
    size: int = 1

    def owned(self, m: int) -> tuple[int, int]:
        """From which to which of m rows this process owns; the rows of all follow one another."""
        return m * self.rank // self.size, m * (self.rank + 1) // self.size

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sums over all processes, sent as one."""
        if self.size == 1:
            return list(tensors)
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _others_alive():
            dist.all_reduce(flat)
        parts = flat.split([tensor.numel() for tensor in tensors])  # type: ignore[no-untyped-call]
        return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]

    def gathered(self, own: Tensor, dim: int) -> Tensor:
        """The parts of all processes, one after the other along an axis."""
        if self.size == 1:
            return own
        parts = []
        for rank, length in enumerate(self._lengths(own, dim)):
            shape = (*own.shape[:dim], length, *own.shape[dim + 1 :])
            part = own.contiguous() if rank == self.rank else own.new_empty(shape)
            with _others_alive():
                dist.broadcast(part.view(-1).view(torch.uint8), rank)  # as bytes: not every dtype can be sent
            parts.append(part)
        return torch.cat(parts, dim)

    def part(self, whole: Tensor, own: Tensor, dim: int) -> Tensor:
        """Of what was `gathered`, the part of this process."""
        start = sum(self._lengths(own, dim)[: self.rank])
        return whole.narrow(dim, start, own.shape[dim])

    def agreed(self, yes: bool) -> bool:
        """What the first process says."""
        if self.size == 1:
            return yes
        word = torch.tensor([yes], dtype=torch.uint8)
        with _others_alive():
            dist.broadcast(word, 0)
        return bool(word)

    def _lengths(self, own: Tensor, dim: int) -> list[int]:
        if self.size == 1:
            return [own.shape[dim]]
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = own.shape[dim]
        return [int(length) for length in self.total([lengths])[0]]


@contextmanager
def _others_alive() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ChildProcessError(f"{DIED} ({str(error).splitlines()[0][:120]})") from error


DIED = (
    "another process of this run has died, so it cannot go on. The same call with checkpoint= resumes where it stood."
)


def crew_here(processes: int | None) -> Crew:
    """The crew that torchrun or SLURM started, unless one process is asked for; else this process alone."""
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1; got {processes}.")
    per_node, nodes = _started_outside()
    if processes == 1 or per_node * nodes == 1:
        return Crew()
    if processes not in (None, per_node * nodes):
        raise ValueError(
            f"processes must be what the launcher started ({per_node * nodes}), 1 or None; got {processes}."
        )
    from lightning_fabric import Fabric

    try:
        fabric = Fabric(accelerator="cpu", devices=per_node, num_nodes=nodes, strategy="ddp")
    except RuntimeError as error:  # what SLURM was asked for does not go together
        raise ValueError(f"the processes that were started must form one group; {error} Or say processes=1.") from error
    fabric.launch()
    return Crew(fabric.global_rank, fabric.world_size)


def _started_outside() -> tuple[int, int]:
    """Processes on each machine, and machines, by the variables of torchrun or SLURM's srun."""
    of = os.environ
    if dist.is_torchelastic_launched():
        return int(of["LOCAL_WORLD_SIZE"]), int(of["WORLD_SIZE"]) // int(of["LOCAL_WORLD_SIZE"])
    if "SLURM_PROCID" in of and of.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        nodes = int(of.get("SLURM_NNODES", 1))
        return int(of.get("SLURM_NTASKS", 1)) // nodes, nodes
    return 1, 1


def launched(work: Callable[[Crew], Any], processes: int) -> Any:
    """What `work` gives in the first of so many new processes of this machine; its ValueErrors are raised here."""
    from lightning_fabric import Fabric
    from torch.multiprocessing.spawn import ProcessException

    _check_sendable(work)
    fabric = Fabric(accelerator="cpu", devices=processes, strategy="ddp_spawn")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        try:
            fabric.launch(partial(_work, work=work, answer=answer, dtype=torch.get_default_dtype()))
        except ProcessException as error:
            said = str(error).strip().splitlines()[-1]
            raise ChildProcessError(f"process {error.error_index} of {processes}: {said}. {DIED}") from error
        finally:
            os.environ.pop("MASTER_PORT", None)  # or the next crew would ask for the same
        result = pickle.loads(answer.read_bytes())
    if isinstance(result, Exception):
        raise result
    return result


def _work(fabric: Any, work: Callable[[Crew], Any], answer: Path, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    try:
        result = work(Crew(fabric.global_rank, fabric.world_size))
    except (ValueError, TypeError) as error:  # bad input: all processes found the same
        result = error
    if fabric.global_rank == 0:
        answer.write_bytes(pickle.dumps(result))


def _check_sendable(work: Callable[[Crew], Any]) -> None:
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"processes= needs settings that can be sent to other processes; {error}. "
            "Name functions at the top of a module, or start the script by torchrun."
        ) from error
