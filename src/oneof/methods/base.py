"""The protocol of a method: a loss on logits, and what it remembers of every example."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from oneof.candidates.mask import check_mask

Memory = Any
"""What a method keeps per example: a tensor whose rows belong to the examples [..., n, k], a tuple of such, or () for nothing.

Each method knows which of these it made in `init`, so its own signatures may say Tensor.
"""


def leaves(several: Any) -> tuple[Any, ...]:
    """Return the tensors of which memory, or a network's output, is made: one, several or none."""
    if isinstance(several, tuple):
        return several
    return (several,)


def tree_map(change: Callable[[Any], Any], several: Any) -> Any:
    """Return the same structure with every tensor changed."""
    if isinstance(several, tuple):
        return tuple(map(change, several))
    return change(several)


class Batch(NamedTuple):
    """The rows of one step, for t trials."""

    candidates: Tensor  # [t, b, c]
    memory: Memory  # rows [t, b, ...]
    epoch: Tensor  # 0-dim, counted from 0; on the device, so that no step waits for it
    generators: list[torch.Generator]  # one per trial, for draws inside the step
    prior: Tensor | None = None  # [t, b, c] log of how much the votes speak for each label; None where there are none

    def weighed(self, logits: Tensor) -> Tensor:
        """Return logits whose softmax on the set is prior x posterior, which methods take their weights from."""
        if self.prior is None:
            return logits
        return logits + self.prior

    def to_compute(self) -> "Batch":
        """Return the batch for `Net.fused`, without generators and with sets as bytes: the compiler fails on a view of a mask."""
        check_mask(self.candidates)
        return self._replace(candidates=self.candidates.view(torch.uint8), generators=[])


class Net(Protocol):
    """t networks as one."""

    weights: dict[str, Tensor]  # name -> [t, ...], detached
    buffers: dict[str, Tensor]

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        """Return the output of the module, or of its submodule `part`, for x [t, b, ...].

        With other weights neither a gradient nor a BN statistic of the network's own moves: it works on copies of the buffers.
        """

    def fused(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Return function(*inputs), the first of which is [t, b, ...]; on a GPU many small operations become few kernels."""


class Step(NamedTuple):
    """Result of a method on a batch."""

    loss: Tensor  # [t, b]
    logits: Tensor  # [t, b, c] of view 0, detached: what POP observes
    memory: Memory
    shared: Any  # a tuple of tensors, or ()


def first_output(output: Any) -> Tensor:
    """Return the logits of a network that returns them, alone or first in a tuple."""
    if isinstance(output, tuple):
        return output[0]  # type: ignore[no-any-return]
    return output  # type: ignore[no-any-return]


def logits_of(net: Net, views: Tensor) -> Tensor:
    """Return logits [v, t, b, c] of views [v, t, b, ...], in one forward."""
    logits = first_output(net(views.movedim(0, 1).flatten(1, 2)))
    return logits.view(len(logits), len(views), -1, logits.shape[-1]).movedim(1, 0)


@dataclass(frozen=True)
class Method:
    """Base class of methods that learn from candidate sets; its fields are the hyper-parameters.

    The engine gathers the rows of a batch from the candidates and the memory, calls `loss`, takes a step, calls `update` and
    scatters the rows back. A method never sees an index into the data set, and never writes to what it is given.
    All tensors may have leading axes: logits and candidates [..., c], loss [...].

    A method that compares views, has a second head or keeps what belongs to no example writes `step` in place of `loss` and
    `update`. A step may be captured as a CUDA graph: it does not wait for a tensor's value and does not branch on one.
    """

    views: ClassVar[int] = 1
    """How many views of every example a step is given."""

    joint_forward: ClassVar[bool] = True
    """Whether all views go through the network in one forward; a method of one view then takes any number of views."""

    after_step: ClassVar[bool] = False
    """Whether memory is taken from a second forward, after the update of the network."""

    uses_prior: ClassVar[bool] = False
    """Whether memory holds weights of the candidates, which a prior multiplies: `init` and `update` get it."""

    resettable: ClassVar[bool] = False
    """Whether memory is one weight for each label, zero off the set, so that a rule that resets weights (`PopReleased`) may write it."""

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Memory:
        """Return the memory before training; by default nothing is remembered. `prior` [..., c] is in logs, as for `update`."""
        return ()

    def loss(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Tensor:
        """Return the loss of each example [...]."""
        raise NotImplementedError

    def update(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Memory:
        """Return the memory after a step on the examples; by default it is unchanged. A prior is in the logits, as its log."""
        return memory

    def network(self, module: nn.Module, classes: int, shape: tuple[int, ...]) -> nn.Module:
        """Return the network to train, by default `module`, which has body (features [b, width]), width and head (linear).

        What takes its place keeps these three and returns logits, or a tuple that starts with them. For `oneof.CandidateLoss` it
        also has `outputs(x, features, logits)`: what it returns for x, where the loop has computed features and logits.
        """
        return module

    def shared(self, net: Net) -> Any:
        """Return what belongs to no example, such as prototypes, before training; by default nothing."""
        return ()

    def step(self, net: Net, views: Tensor, batch: Batch, shared: Any) -> Step:
        """Return the loss and the new memory of a batch in views [v, t, b, ...]; by default the mean of the views' losses."""
        if len(views) == 1:  # a step on a table is all overhead: an axis less is felt
            logits = first_output(net(views[0]))
            loss = self.loss(logits, batch.candidates, batch.memory)
        else:
            logits_of_views = logits_of(net, views)
            logits = logits_of_views[0]
            loss = self.loss(logits_of_views, batch.candidates, batch.memory).mean(0)
        detached = logits.detach()
        memory = self.update(batch.weighed(detached), batch.candidates, batch.memory)
        return Step(loss, detached, memory, shared)

    def refresh(
        self, net: Net, features: Callable[[], Tensor], memory: Memory, shared: Any, epoch: int
    ) -> tuple[Memory, Any]:
        """Return memory [t, n, ...] of all rows, and what belongs to no example, as they are to be before an epoch.

        features() returns the features of all rows [t, n, width] in evaluation mode.
        """
        return memory, shared

    def on_epoch_start(self, memory: Memory, mean: Callable[[Tensor], Tensor]) -> Memory:
        """Return memory [t, n, ...] as it is to be before an epoch, where a row depends on others only through a mean over all rows.

        mean(rows) returns that mean [t, 1, ...]. The rows of this call may be a part of all, so take no mean but this one.
        """
        return memory
