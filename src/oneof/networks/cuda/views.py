"""Views of images on CUDA by kernels, for every view that is made of shifts, holes and operations alone."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from oneof.data.augment.views import Plain, Strong, Views, Weak
from oneof.networks.cuda.launch import launch

PIXELS = 1024  # that a program reads at a time


def have_kernels(views: Views) -> bool:
    """Return whether there are kernels for all of these views, and a compiler for them."""
    if find_spec("triton") is None:
        return False
    return all(type(view) in (Plain, Weak, Strong) for view, _ in views.kinds)


def apply_by_kernels(views: Views, images: Tensor, draw: Sequence[Any]) -> Tensor:
    """Return what `views.apply` gives, [v, b, ch, h, w] with channels innermost."""
    b, ch, h, w = images.shape
    images = images.contiguous()
    out = torch.empty(views.count, b, h, w, ch, dtype=views.dtype, device=images.device)
    first = 0
    for (view, count), parameters in zip(views.kinds, draw, strict=True):
        _apply_one_kind(views, view, images, parameters, out[first : first + count])
        first += count
    return out.movedim(-1, 2)


def _apply_one_kind(views: Views, view: Any, images: Tensor, parameters: Any, out: Tensor) -> None:
    """Write one kind of view to `out`: shifts and holes first, then the operations of its policy, one after the other."""
    from oneof.networks.cuda import view_kernels

    shift: Any = None
    hole: Any = None
    operations: list[Tensor] = []
    if type(view) is Weak:
        shift = parameters
    elif type(view) is not Plain:
        shift, hole, chosen = parameters
        if chosen is not None:
            operations = list(chosen)
    unused = images  # in place of tensors that a kernel does not read
    shift_tensors = (unused, unused, unused)
    if shift is not None:
        shift_tensors = shift
    hole_tensors = (unused, unused, unused, unused)
    if hole is not None:
        hole_tensors = (*hole[0], *hole[1])

    b, ch, h, w = images.shape
    n = out.shape[0] * out.shape[1]
    levels = out
    if operations:
        levels = torch.empty(n, ch, h, w, dtype=torch.uint8, device=images.device)
    launch(
        view_kernels.shift, (n, ch),
        images, *shift_tensors, *hole_tensors, views.scale, views.offset, levels, b,
        ch, h, w, getattr(view, "pad", 0), shift is not None, hole is not None, not operations, PIXELS,
    )  # fmt: skip
    for i, operation in enumerate(operations):
        is_last = i == len(operations) - 1
        result = out
        if not is_last:
            result = torch.empty_like(levels)
        launch(
            view_kernels.operate, (n, ch),
            levels, view.policy.rows, operation, operation.stride(0), views.scale, views.offset, result, view.policy.fill,
            ch, h, w, is_last, PIXELS,
        )  # fmt: skip
        levels = result
