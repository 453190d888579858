"""A pre-activation residual network's body as it is trained on CUDA: a program of kernels, forwards and backwards.

The same function as the modules it is given, on the same parameters and running statistics; docs/decisions/0004-speed-on-the-card.md
has what it gives. A shortcut is a 1x1 convolution of what the block's first convolution sees, so both are one: the shortcut's
kernel is the centre of a 3x3, its channels come after the others.
"""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.networks.cuda import layers
from oneof.networks.cuda.launch import warmup
from oneof.networks.cuda.layers import FEW, NARROW


class Kept(NamedTuple):
    """What a block's backward needs."""

    x: Tensor
    norm1: Tensor
    active1: Tensor
    change: Tensor
    norm2: Tensor
    active2: Tensor


class FusedBody:
    """The body: a first convolution, blocks (`PreActivation` modules), a last normalisation with ReLU and the mean over the image."""

    def __init__(self, first: nn.Conv2d, blocks: Sequence[Any], last: nn.BatchNorm2d) -> None:
        self.first, self.blocks, self.last = first, list(blocks), last
        self.norms = [norm for block in blocks for norm in (block.norm1, block.norm2)] + [last]
        inside = [(block.convolution1, block.convolution2, block.shortcut) for block in blocks]
        self.convolutions = [first] + [one for several in inside for one in several if one is not None]
        self.room: layers.Scratch
        self.ready = False

    def __call__(self, x: Tensor) -> Tensor:
        """Features [b, width] of x [b, channels, h, w] in bfloat16."""
        if not self.ready:
            self.prepare(x.device, x.shape[3])
            self.rehearse(x)
        images = self.filled(x)
        if not self.last.training:  # running statistics normalise, and nothing is kept
            return layers.rectify(*self.forward(images, self.weights(images.dtype), None), frame=False).mean((1, 2))
        weights = [one.weight for one in self.convolutions]
        affine = [parameter for norm in self.norms for parameter in (norm.weight, norm.bias)]
        return _Run.apply(self, images, *weights, *affine)  # type: ignore[no-any-return, no-untyped-call]

    def rehearse(self, x: Tensor) -> None:
        """Have the kernels of a step compiled before the first one; what it computes is nonsense and moves no statistic."""
        if not x.is_cuda or not self.last.training:
            return
        context = SimpleNamespace()
        with torch.no_grad(), warmup():  # not by autograd, which has a thread of its own
            features = _Run.forward(context, self, self.filled(x))
            _Run.backward(context, torch.empty_like(features))

    def prepare(self, device: torch.device, width: int) -> None:
        """What is the same in every step: room for sums, and where the weights of the kernels are found among the parameters."""
        self.room = layers.scratch(device)
        start, numbers = 0, []
        for one in self.convolutions:
            o, i, *size = one.weight.shape
            ids = torch.arange(start, start + one.weight.numel(), device=device)
            numbers.append(ids.view(o, *size, i).permute(0, 3, 1, 2))
            start += one.weight.numel()
        arranged = self._arranged(numbers, width, nothing=start)
        inner = [one.permute(0, 2, 3, 1) for one in arranged]
        self.shapes = [one.shape for one in inner]
        self.where = torch.cat([one.reshape(-1) for one in inner])
        self.ready = True

    def filled(self, x: Tensor) -> Tensor:
        """Images as the first convolution wants them: framed and with channels to spare where it is paired."""
        images, paired = x.permute(0, 2, 3, 1), self.shapes[0][2] == 2
        return F.pad(images, (0, FEW - x.shape[1], 1, 1)) if paired else images.contiguous()

    def _arranged(self, weights: list[Tensor], width: int, nothing: int) -> list[Tensor]:
        """Weights as the kernels want them: the first, then two for each block."""
        first, rest = weights[0], iter(weights[1:])
        pairs = width % 4 == 0  # so that a row has pairs in the second stage too
        if pairs and first.shape[1] <= FEW:
            first = layers.paired(F.pad(first, (0, 0, 0, 0, 0, FEW - first.shape[1]), value=nothing), nothing)
        found = [first]
        for block in self.blocks:
            one, two = next(rest), next(rest)
            if block.shortcut:
                one = torch.cat([one, F.pad(next(rest), (1, 1, 1, 1), value=nothing)])
            narrow = pairs and block.convolution1.stride[0] == 1 and one.shape[1] <= NARROW
            found.append(layers.paired(one, nothing) if narrow else one)
            found.append(layers.paired(two, nothing) if pairs and two.shape[1] <= NARROW else two)
        return found

    def weights(self, dtype: torch.dtype) -> list[Tensor]:
        """All of them, rounded and arranged in one go."""
        flat = [one.weight.detach().permute(0, 2, 3, 1).reshape(-1) for one in self.convolutions]
        flat.append(flat[0].new_zeros(1))
        whole = torch.cat(flat).to(dtype).index_select(0, self.where)
        split = whole.split([shape.numel() for shape in self.shapes])  # type: ignore[no-untyped-call]
        return [part.view(shape).permute(0, 3, 1, 2) for part, shape in zip(split, self.shapes, strict=True)]

    def parted(self, gradients: list[Tensor]) -> list[Tensor]:
        """Gradients of the first weight and two for each block as those of the convolutions: a shortcut has its own."""
        found, rest = [gradients[0][:, : self.first.in_channels]], iter(gradients[1:])
        for block, one, two in zip(self.blocks, rest, rest, strict=True):
            c = block.convolution1.out_channels
            found += [one[:c], two, one[c:, :, 1:2, 1:2]] if block.shortcut else [one, two]
        return found

    def forward(self, images: Tensor, weights: list[Tensor], kept: list[Kept] | None) -> tuple[Tensor, Tensor]:
        """What the last layer normalises, and the numbers for it; what a backward needs is kept, in evaluation (None) nothing."""
        normalise = layers.settled if kept is None else partial(layers.moments, self.room)
        x, norm = normalise(self.norms[0], layers.convolve(images, weights[0], 1), None)
        following = [*(block.norm1 for block in self.blocks[1:]), self.last]
        for block, after, one, two in zip(self.blocks, following, weights[1::2], weights[2::2], strict=True):
            c, stride = block.convolution1.out_channels, block.convolution1.stride[0]
            active1 = layers.rectify(x, norm, frame=one.shape[3] == 2)
            both = layers.convolve(active1, one, stride)
            change, norm2 = normalise(block.norm2, both[..., :c], None)
            active2 = layers.rectify(change, norm2, frame=two.shape[3] == 2)
            if kept is not None:
                kept.append(Kept(x, norm, active1, change, norm2, active2))
            more = layers.convolve(active2, two, 1)
            x, norm = normalise(after, more, both[..., c:] if block.shortcut else x)
        return x, norm

    def backward(
        self, block: Any, kept: Kept, d: Tensor, both: Tensor, again: Tensor | None, one: Tensor, two: Tensor
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Gradients of a block's input (written to `again` too), of its two convolutions' weights, of its norms' [2, c].

        d is that of its result; where the block has a shortcut it lies in its side of `both` already.
        """
        c, stride = kept.change.shape[3], block.convolution1.stride[0]
        for_two = layers.weight_gradient(kept.active2, d, two, 1)
        g = layers.convolve_backward(kept.active2, d, two, 1)
        sums2 = layers.rectify_backward(self.room, kept.change, g, kept.norm2, None, both[..., :c], None)
        for_one = layers.weight_gradient(kept.active1, both, one, stride)
        g = layers.convolve_backward(kept.active1, both, one, stride)
        before, beside = torch.empty_like(kept.x), None if block.shortcut else d
        sums1 = layers.rectify_backward(self.room, kept.x, g, kept.norm1, beside, before, again)
        return before, [for_one, for_two], [sums1, sums2]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, program: FusedBody, images: Tensor, *parameters: Tensor) -> Tensor:
        ctx.program, ctx.images = program, images
        ctx.weights = weights = program.weights(images.dtype)
        ctx.kept = []
        ctx.last = x, norm = program.forward(images, weights, ctx.kept)
        return layers.rectify(x, norm, frame=False).mean((1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        program, (x, norm) = ctx.program, ctx.last
        spread = (gradient / x[0, ..., 0].numel()).to(x.dtype)[:, None, None].expand_as(x).contiguous()
        d, both = torch.empty_like(x), _room_for_both(program.blocks[-1], x)
        sums = [layers.rectify_backward(program.room, x, spread, norm, None, d, _beyond(both, x))]
        found: list[Tensor] = []
        before = [None, *program.blocks[:-1]]
        for block, previous, kept in zip(program.blocks[::-1], before[::-1], ctx.kept[::-1], strict=True):
            two, one = ctx.weights.pop(), ctx.weights.pop()
            following = _room_for_both(previous, kept.x)
            d, own, moved = program.backward(block, kept, d, both, _beyond(following, kept.x), one, two)
            both, found, sums = following, own + found, moved + sums
        found = layers.in_float32([layers.weight_gradient(ctx.images, d, ctx.weights[0], 1), *found])
        ctx.kept = ctx.last = ctx.images = None
        affine = [one for pair in sums for one in (pair[1], pair[0])]
        return None, None, *program.parted(found), *affine


def _room_for_both(block: Any, like: Tensor) -> Tensor:
    """For the gradients of a block's first convolution and of its shortcut, side by side; like the block's result."""
    *size, c = like.shape
    return like.new_empty((*size, 2 * c if block and block.shortcut else c))


def _beyond(both: Tensor, like: Tensor) -> Tensor | None:
    """The shortcut's side of that room, if there is one."""
    c = like.shape[3]
    return both[..., c:] if both.shape[3] > c else None
