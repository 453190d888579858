"""The protocol of a method: a loss on logits, and what it remembers of every example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

Memory = Any
"""What a method keeps per example: a tensor whose rows belong to the examples [..., n, k], or () for nothing.

Each method knows which of the two it made in `init`, so its own signatures may say Tensor.
"""


@dataclass(frozen=True)
class Method:
    """How to learn from candidate sets; its fields are the hyper-parameters.

    The engine gathers the rows of a batch from the candidates and the memory, calls `loss`, takes a step, calls `update` and
    scatters the rows back. A method never sees an index into the data set, and never writes to what it is given.
    All tensors may have leading axes: logits and candidates [..., c], loss [...].
    """

    after_step: ClassVar[bool] = False
    """Is memory taken from a second forward, after the update of the network?"""

    def init(self, candidates: Tensor) -> Memory:
        """The memory before training; by default nothing is remembered."""
        return ()

    def loss(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Tensor:
        """The loss of each example."""
        raise NotImplementedError

    def update(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Memory:
        """The memory after the examples were seen; by default as it was."""
        return memory
