"""Layers of residual networks that are faster when compiled for a GPU: first and narrow convolutions, and normalisation.

Each is torch's layer with its parameters and their names; only a compiled module takes the other way.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from oneof.networks.blocks import image, windows_times

NARROW = (16, 32)  # channels where a weight gradient of our own beats cuDNN's, by a factor of two


class FirstConvolution(nn.Conv2d):
    """A convolution of the network's input, whose channels are few; as a matrix product when compiled."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or x.shape[2] % 2 or x.shape[3] % 2:
            return super().forward(x)
        return image(windows_times(x, self.weight))


class Convolution(nn.Conv2d):
    """A convolution; with narrow 3x3 kernels, in bfloat16 and compiled for CUDA, its weights have a gradient of our own."""

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.in_channels in NARROW and self.out_channels in NARROW
        plain = self.kernel_size == (3, 3) and self.stride == (1, 1) and x.dtype == torch.bfloat16
        if torch.compiler.is_compiling() and x.is_cuda and narrow and plain:
            return _Narrow.apply(x, self.weight.to(x.dtype))  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(x)


class Normalisation(nn.BatchNorm2d):
    """Batch normalisation; when compiled for training, mean and variance come from one pass over the input.

    The sums are of differences from the running mean, so that a mean far from zero costs no precision once it is known.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or not self.training or self.momentum is None:
            return super().forward(x)
        running_mean, running_var = cast(Tensor, self.running_mean), cast(Tensor, self.running_var)
        n = x.numel() // x.shape[1]
        known = running_mean.clone()
        wide = x.to(known.dtype)
        centred = wide - known[:, None, None]
        beyond = centred.mean((0, 2, 3))
        variance = (centred.square().mean((0, 2, 3)) - beyond.square()).clamp_min(0)
        with torch.no_grad():
            running_mean.add_(beyond, alpha=self.momentum)
            running_var.lerp_(variance * (n / (n - 1)), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - (known + beyond) * scale
        return (wide * scale[:, None, None] + shift[:, None, None]).to(x.dtype)


SAME: tuple[Any, ...] = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
"""What aten wants beside its tensors for a 3x3 convolution that keeps the image's size, without bias."""


class _Narrow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.aten.convolution(x, weight, *SAME)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        back = torch.ops.aten.convolution_backward
        for_x = back(gradient, x, weight, *SAME, [True, False, False])[0]
        inner = torch.channels_last
        parts = weight_gradient(x.contiguous(memory_format=inner), gradient.contiguous(memory_format=inner))
        own = parts.sum(0)[:, : 3 * x.shape[1]].reshape(3, 3, x.shape[1], -1).permute(3, 2, 0, 1)
        return for_x, own.to(weight.dtype)


PARTS = 264  # programs that share the pixels: two on each of an H200's multiprocessors


@torch.library.custom_op("oneof::weight_gradient", mutates_args=())
def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of a 3x3 convolution's weights from its input [n, i, h, w] and its output's gradient [n, o, h, w].

    Both are channels_last on CUDA. The result [parts, 3, columns, o] is to be summed over the parts; of the columns the first 3 i
    count, the kernel's columns and in them the input channels. The caller sums, so that the compiler can do so in one go.
    """
    from oneof.networks import kernel  # needs Triton, which comes with torch for CUDA alone

    parts = torch.empty(_shape_of_parts(x, gradient), device=x.device)
    kernel.accumulate(x, gradient, parts)
    return parts


@weight_gradient.register_fake
def _(x: Tensor, gradient: Tensor) -> Tensor:
    return x.new_empty(_shape_of_parts(x, gradient), dtype=torch.float32)


def _shape_of_parts(x: Tensor, gradient: Tensor) -> tuple[int, int, int, int]:
    return PARTS, 3, 4 * x.shape[1], gradient.shape[1]  # Triton wants powers of two: four columns of which three count
