"""The views of images on CUDA: a kernel where there is one, for every view that only shifts, holes and operations make up."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from oneof.data.augment.views import Plain, Strong, Views, Weak
from oneof.networks.cuda.launch import launch

PIXELS = 1024  # that a program sees at a time


def have_kernels(views: Views) -> bool:
    return find_spec("triton") is not None and all(type(view) in (Plain, Weak, Strong) for view, _ in views.kinds)


def shown(views: Views, images: Tensor, draw: Sequence[Any]) -> Tensor:
    """What `views.apply` gives, [v, b, ch, h, w] with channels innermost."""
    b, ch, h, w = images.shape
    images = images.contiguous()
    out = torch.empty(views.count, b, h, w, ch, dtype=views.dtype, device=images.device)
    first = 0
    for (view, count), drawn in zip(views.kinds, draw, strict=True):
        _show(views, view, images, drawn, out[first : first + count])
        first += count
    return out.movedim(-1, 2)


def _show(views: Views, view: Any, images: Tensor, drawn: Any, out: Tensor) -> None:
    """Writes one kind of view: what moves and is cut out first, then the policy's operations, one after the other."""
    from oneof.networks.cuda import view_kernels

    (b, ch, h, w), n = images.shape, out.shape[0] * out.shape[1]
    normal = views.scale, views.offset
    moved, hole, chosen = {Plain: (None, None, None), Weak: (drawn, None, None)}.get(type(view), drawn)
    operations = [] if chosen is None else list(chosen)
    levels = out if not operations else torch.empty(n, ch, h, w, dtype=torch.uint8, device=images.device)
    spans = (images,) * 4 if hole is None else (*hole[0], *hole[1])
    launch(
        view_kernels.shift, (n, ch), images, *((images,) * 3 if moved is None else moved), *spans, *normal, levels, b,
        ch, h, w, getattr(view, "pad", 0), moved is not None, hole is not None, not operations, PIXELS,
    )  # fmt: skip
    for i, one in enumerate(operations):
        last = i == len(operations) - 1
        to = out if last else torch.empty_like(levels)
        launch(
            view_kernels.operate, (n, ch), levels, view.policy.rows, one, one.stride(0), *normal, to, view.policy.fill,
            ch, h, w, last, PIXELS,
        )  # fmt: skip
        levels = to
