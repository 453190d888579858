"""Run the body of a pre-activation residual network on CUDA by kernels, forwards and backwards.

It computes the same function as the modules it is given, on the same parameters and running statistics;
docs/decisions/0004-speed-on-the-card.md has the measurements. A shortcut is a 1x1 convolution of the same input as the block's first
convolution, so both are computed as one: the shortcut's kernel is the centre of a 3x3, and its channels follow the others.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.networks.cuda import layers
from oneof.networks.cuda.launch import warmup
from oneof.networks.cuda.layers import FEW, NARROW


class SavedForBackward(NamedTuple):
    """Activations of a block that its backward needs."""

    x: Tensor
    norm1: Tensor
    active1: Tensor
    change: Tensor
    norm2: Tensor
    active2: Tensor


class BlockGradients(NamedTuple):
    """Gradients of a block's input and parameters."""

    x: Tensor
    weights: list[Tensor]  # of its two convolutions
    norms: list[Tensor]  # of its two normalisations, each [2, c]: beta and gamma


class FusedBody:
    """A first convolution, blocks (`PreActivation` modules), a last normalisation with ReLU, and the mean over the image."""

    def __init__(self, first: nn.Conv2d, blocks: Sequence[Any], last: nn.BatchNorm2d) -> None:
        self.first = first
        self.blocks = list(blocks)
        self.last = last
        self.norms: list[nn.BatchNorm2d] = []
        self.convolutions: list[nn.Conv2d] = [first]
        for block in blocks:
            self.norms.append(block.norm1)
            self.norms.append(block.norm2)
            self.convolutions.append(block.convolution1)
            self.convolutions.append(block.convolution2)
            if block.shortcut is not None:
                self.convolutions.append(block.shortcut)
        self.norms.append(last)
        self.scratch: layers.Scratch
        self.weight_shapes: list[torch.Size]  # of the kernels' weights, channels innermost
        self.weight_index: Tensor  # where each number of the kernels' weights is among all parameters
        self.is_ready = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return features [b, width] of x [b, channels, h, w] in bfloat16."""
        if not self.is_ready:
            self.prepare(x.device, x.shape[3])
            self.compile_kernels(x)
        images = self.pad_images(x)
        if not self.last.training:  # running statistics normalise, and nothing is saved
            last, norm = self.forward(images, self.kernel_weights(images.dtype), None)
            return layers.rectify(last, norm, frame=False).mean((1, 2))
        parameters: list[Tensor] = [convolution.weight for convolution in self.convolutions]
        for norm_layer in self.norms:
            parameters.append(norm_layer.weight)
            parameters.append(norm_layer.bias)
        return _Run.apply(self, images, *parameters)  # type: ignore[no-any-return, no-untyped-call]

    def compile_kernels(self, x: Tensor) -> None:
        """Compile the kernels of a step before the first one; what it computes is nonsense and moves no statistic."""
        if not x.is_cuda or not self.last.training:
            return
        context = SimpleNamespace()
        with torch.no_grad(), warmup():  # not by autograd, which has a thread of its own
            features = _Run.forward(context, self, self.pad_images(x))
            _Run.backward(context, torch.empty_like(features))

    def prepare(self, device: torch.device, width: int) -> None:
        """Allocate room for sums, and find out where the kernels' weights are among the parameters: the same in every step."""
        self.scratch = layers.scratch(device)
        # Arrange the position of every weight as the weights will be; one more position, at the end, stands for zero.
        start = 0
        positions = []
        for convolution in self.convolutions:
            outputs, inputs, *size = convolution.weight.shape
            n_weights = convolution.weight.numel()
            numbers = torch.arange(start, start + n_weights, device=device)
            positions.append(numbers.view(outputs, *size, inputs).permute(0, 3, 1, 2))
            start += n_weights
        self.weight_shapes = []
        flat = []
        for arranged in self._arrange(positions, width, zero=start):
            channels_last = arranged.permute(0, 2, 3, 1)
            self.weight_shapes.append(channels_last.shape)
            flat.append(channels_last.reshape(-1))
        self.weight_index = torch.cat(flat)
        self.is_ready = True

    def pad_images(self, x: Tensor) -> Tensor:
        """Return images [b, h, w, c] for the first convolution: if it is paired, framed and with channels filled up."""
        images = x.permute(0, 2, 3, 1)
        is_paired = self.weight_shapes[0][2] == 2
        if not is_paired:
            return images.contiguous()
        return F.pad(images, (0, FEW - x.shape[1], 1, 1))

    def _arrange(self, weights: list[Tensor], width: int, zero: int) -> list[Tensor]:
        """Arrange the weights of the convolutions for the kernels: one for the first, then two for each block."""
        can_pair = width % 4 == 0  # so that a row has pairs in the second stage too
        remaining = iter(weights)
        first = next(remaining)
        if can_pair and first.shape[1] <= FEW:
            filled = F.pad(first, (0, 0, 0, 0, 0, FEW - first.shape[1]), value=zero)
            first = layers.pair_pixels(filled, zero)
        arranged = [first]
        for block in self.blocks:
            weight1 = next(remaining)
            weight2 = next(remaining)
            if block.shortcut:
                shortcut = F.pad(next(remaining), (1, 1, 1, 1), value=zero)
                weight1 = torch.cat([weight1, shortcut])
            keeps_size = block.convolution1.stride[0] == 1
            if can_pair and keeps_size and weight1.shape[1] <= NARROW:
                weight1 = layers.pair_pixels(weight1, zero)
            if can_pair and weight2.shape[1] <= NARROW:
                weight2 = layers.pair_pixels(weight2, zero)
            arranged.append(weight1)
            arranged.append(weight2)
        return arranged

    def kernel_weights(self, dtype: torch.dtype) -> list[Tensor]:
        """Return all weights, rounded and arranged for the kernels in one go."""
        flat = []
        for convolution in self.convolutions:
            channels_last = convolution.weight.detach().permute(0, 2, 3, 1)
            flat.append(channels_last.reshape(-1))
        flat.append(flat[0].new_zeros(1))
        arranged = torch.cat(flat).to(dtype).index_select(0, self.weight_index)
        sizes = [shape.numel() for shape in self.weight_shapes]
        parts = arranged.split(sizes)  # type: ignore[no-untyped-call]
        return [part.view(shape).permute(0, 3, 1, 2) for part, shape in zip(parts, self.weight_shapes, strict=True)]

    def convolution_gradients(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return gradients of the kernels' weights as those of the convolutions: a shortcut has its own."""
        remaining = iter(gradients)
        first = next(remaining)
        by_convolution = [first[:, : self.first.in_channels]]
        for block in self.blocks:
            gradient1 = next(remaining)
            gradient2 = next(remaining)
            c = block.convolution1.out_channels
            if block.shortcut:
                by_convolution += [gradient1[:c], gradient2, gradient1[c:, :, 1:2, 1:2]]
            else:
                by_convolution += [gradient1, gradient2]
        return by_convolution

    def forward(
        self, images: Tensor, weights: list[Tensor], saved: list[SavedForBackward] | None
    ) -> tuple[Tensor, Tensor]:
        """Return the input of the last normalisation, and the numbers [4, c] that normalise it.

        What a backward needs is appended to `saved`; None in evaluation.
        """
        normalise: Callable[..., tuple[Tensor, Tensor]] = partial(layers.moments, self.scratch)
        if saved is None:
            normalise = layers.running_moments
        x, norm1 = normalise(self.norms[0], layers.convolve(images, weights[0], 1), None)
        next_norms = [block.norm1 for block in self.blocks[1:]]
        next_norms.append(self.last)
        for block, next_norm, weight1, weight2 in zip(
            self.blocks, next_norms, weights[1::2], weights[2::2], strict=True
        ):
            c = block.convolution1.out_channels
            stride = block.convolution1.stride[0]
            active1 = layers.rectify(x, norm1, frame=_is_paired(weight1))
            both = layers.convolve(active1, weight1, stride)  # the first convolution, and the shortcut if there is one
            change, norm2 = normalise(block.norm2, both[..., :c], None)
            active2 = layers.rectify(change, norm2, frame=_is_paired(weight2))
            if saved is not None:
                saved.append(SavedForBackward(x, norm1, active1, change, norm2, active2))
            shortcut = x
            if block.shortcut:
                shortcut = both[..., c:]
            x, norm1 = normalise(next_norm, layers.convolve(active2, weight2, 1), shortcut)
        return x, norm1

    def backward(
        self,
        block: Any,
        saved: SavedForBackward,
        d: Tensor,
        both: Tensor,
        copy_to: Tensor | None,
        weight1: Tensor,
        weight2: Tensor,
    ) -> BlockGradients:
        """Compute the gradients of a block; that of its input is written to `copy_to` too.

        d is the gradient of its result. Where the block has a shortcut, d has been written to the shortcut's side of `both`.
        """
        c = saved.change.shape[3]
        stride = block.convolution1.stride[0]
        for_weight2 = layers.weight_gradient(saved.active2, d, weight2, 1)
        d_active = layers.convolve_backward(saved.active2, d, weight2, 1)
        for_norm2 = layers.rectify_backward(
            self.scratch, saved.change, d_active, saved.norm2, None, both[..., :c], None
        )
        for_weight1 = layers.weight_gradient(saved.active1, both, weight1, stride)
        d_active = layers.convolve_backward(saved.active1, both, weight1, stride)
        d_x = torch.empty_like(saved.x)
        d_shortcut = None
        if not block.shortcut:
            d_shortcut = d
        for_norm1 = layers.rectify_backward(self.scratch, saved.x, d_active, saved.norm1, d_shortcut, d_x, copy_to)
        return BlockGradients(d_x, [for_weight1, for_weight2], [for_norm1, for_norm2])


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, body: FusedBody, images: Tensor, *parameters: Tensor) -> Tensor:
        ctx.body = body
        ctx.images = images
        ctx.weights = body.kernel_weights(images.dtype)
        ctx.saved = []
        ctx.last = body.forward(images, ctx.weights, ctx.saved)
        x, norm = ctx.last
        return layers.rectify(x, norm, frame=False).mean((1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        body: FusedBody = ctx.body
        x, norm = ctx.last
        n_pixels = x[0, ..., 0].numel()
        d_mean = (gradient / n_pixels).to(x.dtype)[:, None, None].expand_as(x).contiguous()
        d = torch.empty_like(x)
        both = _gradient_buffer(body.blocks[-1], x)
        for_last_norm = layers.rectify_backward(body.scratch, x, d_mean, norm, None, d, _shortcut_side(both, x))
        # From the last block to the first; the lists are turned round at the end.
        weights = list(ctx.weights)
        weight_gradients: list[Tensor] = []
        norm_gradients = [for_last_norm]
        previous_blocks = [None, *body.blocks[:-1]]
        for block, previous, saved in zip(body.blocks[::-1], previous_blocks[::-1], ctx.saved[::-1], strict=True):
            weight2 = weights.pop()
            weight1 = weights.pop()
            previous_both = _gradient_buffer(previous, saved.x)
            copy_to = _shortcut_side(previous_both, saved.x)
            gradients = body.backward(block, saved, d, both, copy_to, weight1, weight2)
            d = gradients.x
            both = previous_both
            weight_gradients += gradients.weights[::-1]
            norm_gradients += gradients.norms[::-1]
        weight_gradients.append(layers.weight_gradient(ctx.images, d, weights[0], 1))
        exact = layers.in_float32(weight_gradients[::-1])
        affine = []
        for for_beta, for_gamma in norm_gradients[::-1]:
            affine += [for_gamma, for_beta]
        ctx.saved = ctx.last = ctx.images = ctx.weights = None
        return None, None, *body.convolution_gradients(exact), *affine


def _is_paired(weight: Tensor) -> bool:
    """Return whether the kernel reads two pixels of a row as one (`layers.pair_pixels`)."""
    return weight.shape[3] == 2


def _gradient_buffer(block: Any, like: Tensor) -> Tensor:
    """Return room for the gradients of a block's first convolution and of its shortcut, side by side; like the block's result."""
    *size, c = like.shape
    if block and block.shortcut:
        c = 2 * c
    return like.new_empty((*size, c))


def _shortcut_side(both: Tensor, like: Tensor) -> Tensor | None:
    """Return the shortcut's side of a gradient buffer; None if there is no shortcut."""
    c = like.shape[3]
    if both.shape[3] == c:
        return None
    return both[..., c:]
