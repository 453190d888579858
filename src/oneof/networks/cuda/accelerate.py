"""Make networks and views of images run faster on CUDA, with the results of torch's own layers.

Where a network or a kind of view has kernels of its own they are used; everything else is compiled by torch.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from oneof.data.augment.views import Augment, Views
from oneof.networks.cuda.launch import warmed_up
from oneof.networks.cuda.views import apply_by_kernels, have_kernels


def accelerate(network: nn.Module, batch: int) -> "Accelerator":
    """Let a network use its kernels, and return what runs it, and functions beside it, on training batches of `batch` images."""
    return Accelerator(network, batch)


class Accelerator:
    """Decide how functions of a network run in training: as they are, or compiled.

    Nothing is compiled where the network has kernels: it is large, and what is beside it takes no time. Compiled functions are for
    full batches alone: a ragged batch, or one of another size, is not worth a compilation.
    """

    def __init__(self, network: nn.Module, batch: int) -> None:
        self.network = network
        self.batch = batch
        self._has_kernels = self.use_kernels(network)
        self._compile = cache(partial(torch.compile, dynamic=False))

    def use_kernels(self, network: nn.Module) -> bool:
        """Let the parts of a network use kernels of their own; return whether any of them has some."""
        if not find_spec("triton"):
            return False
        has_kernels = False
        for module in network.modules():
            part: Any = module
            if hasattr(part, "use_kernels") and part.use_kernels():
                has_kernels = True
        return has_kernels

    def __call__(self, function: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
        """Return the function as it is to be called for inputs x [t, b, ...]."""
        if self._has_kernels or not self._is_full_batch(x):
            return function
        return self._compile(function)

    def _is_full_batch(self, x: Tensor) -> bool:
        return x.is_cuda and self.network.training and x.shape[1] == self.batch


def accelerate_views(views: Views, batch: int) -> Augment:
    """Return a function that gives the views of a batch: by kernels or, where a view has none, compiled for `batch` images.

    What is random is drawn outside of it, so that all ways draw the same.
    """
    by_kernels = have_kernels(views)
    apply: Callable[[Tensor, tuple[Any, ...]], Tensor]
    if by_kernels:
        apply = warmed_up(partial(apply_by_kernels, views))
    else:
        apply = torch.compile(views.apply, dynamic=False)

    def augment(images: Tensor, generator: torch.Generator) -> Tensor:
        draws = views.draw(images, generator)
        if by_kernels or len(images) == batch:
            return apply(images, draws)
        return views.apply(images, draws)

    return augment
