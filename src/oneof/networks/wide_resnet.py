"""Wide residual networks (Zagoruyko and Komodakis, BMVC 2016), the network of the paper for CIFAR."""

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from oneof.networks.classifier import Classifier, check_images, pooling_layers
from oneof.networks.cuda.fused import FusedBody
from oneof.networks.cuda.layers import WIDEST
from oneof.networks.resnet import convolution


@dataclass(frozen=True)
class WideResNet:
    """WRN-depth-widen: three stages of pre-activation blocks, 16, 32 and 64 times `widen` wide, then the mean over the image.

    No dropout. A block that changes the shape has as its shortcut a 1x1 convolution of its *normalised and rectified* input;
    the others add the input as it is. Weights of convolutions are drawn from N(0, 2 / fan-out), the head's bias is zero.

    >>> WideResNet()((3, 32, 32), 10).width
    128
    """

    depth: int = 28  # 6 n + 4 layers: n blocks of two in each of three stages
    widen: int = 2

    def __post_init__(self) -> None:
        if self.depth < 10 or self.depth % 6 != 4:
            raise ValueError(f"depth must be 6 n + 4 (10, 16, 22, 28, ...); got {self.depth}.")
        if self.widen < 1:
            raise ValueError(f"widen must be at least 1; got {self.widen}.")

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels, _, _ = check_images("WideResNet", shape)
        layers: list[nn.Module] = [convolution(channels, 16)]
        before = 16
        for base in (16, 32, 64):
            width = base * self.widen
            for block in range(self.depth // 6):
                stride = 1
                if base > 16 and block == 0:
                    stride = 2  # the first block of a stage halves the image
                layers.append(PreActivation(before, width, stride))
                before = width
        body = WideResNetBody(*layers, nn.BatchNorm2d(width), nn.ReLU(), *pooling_layers())
        classifier = Classifier(body, width, classes)
        nn.init.zeros_(classifier.head.bias)
        return classifier


class WideResNetBody(nn.Sequential):
    """The layers in their order; on CUDA, once `use_kernels` was called, kernels that compute the same function."""

    fused: FusedBody | None = None

    def use_kernels(self) -> bool:
        """Use kernels if every width is a power of two and within their room for sums; return whether they are used."""
        first, *blocks, last_norm, _relu, _pool, _flatten = list(cast(Any, self))
        for block in blocks:
            width = block.norm2.num_features
            is_power_of_two = width.bit_count() == 1
            if not is_power_of_two or width > WIDEST:
                return False
        self.fused = FusedBody(first, blocks, last_norm)
        return True

    def forward(self, x: Tensor) -> Tensor:
        if self.fused is None or not x.is_cuda:
            return super().forward(x)  # type: ignore[no-any-return, no-untyped-call]
        return self.fused(x.bfloat16())


class PreActivation(nn.Module):
    """Two convolutions, each after normalisation and ReLU, added to the input or its shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.convolution1 = convolution(before, after, stride=stride)
        self.norm2 = nn.BatchNorm2d(after)
        self.convolution2 = convolution(after, after)
        self.shortcut: nn.Conv2d | None = None
        if before != after or stride != 1:
            self.shortcut = convolution(before, after, size=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.norm1(x).relu()
        shortcut = x
        if self.shortcut is not None:
            shortcut = self.shortcut(active)
        change = self.convolution1(active)
        change = self.convolution2(self.norm2(change).relu())
        return shortcut + change  # type: ignore[no-any-return]
