"""ResNet-32 for CIFAR (He et al., CVPR 2016, section 4.2), whose posterior draws candidate sets for CIFAR-10."""

from dataclasses import dataclass

from torch import Tensor, nn

from oneof.networks.classifier import Classifier, check_images, pooling_layers


@dataclass(frozen=True)
class ResNet32:
    """Three stages of five basic blocks, 16, 32 and 64 wide, then the mean over the image.

    Where a stage halves the image its shortcut is a 1x1 convolution with batch normalisation, as in VALEN's
    code (option B of the paper, whose own CIFAR networks pad with zeros).

    >>> ResNet32()((3, 32, 32), 10).width
    64
    """

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels, _, _ = check_images("ResNet32", shape)
        layers: list[nn.Module] = [convolution(channels, 16), nn.BatchNorm2d(16), nn.ReLU()]
        before = 16
        for width in (16, 32, 64):
            for block in range(5):
                stride = 1
                if width > 16 and block == 0:
                    stride = 2  # the first block of a stage halves the image
                layers.append(BasicBlock(before, width, stride))
                before = width
        return Classifier(nn.Sequential(*layers, *pooling_layers()), 64, classes)


class BasicBlock(nn.Module):
    """Two convolutions, each with normalisation, added to the shortcut; ReLU after the first and after the sum."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = convolution(before, after, stride=stride)
        self.norm1 = nn.BatchNorm2d(after)
        self.convolution2 = convolution(after, after)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            self.shortcut = nn.Sequential(convolution(before, after, size=1, stride=stride), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        change = self.norm1(self.convolution1(x)).relu()
        return (self.norm2(self.convolution2(change)) + self.shortcut(x)).relu()  # type: ignore[no-any-return]


def convolution(before: int, after: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the image's size but for the stride; weights N(0, 2 / (after size²))."""
    layer = nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)
    if not layer.weight.is_meta:  # for a meta tensor torch would draw nothing, and load SymPy for it
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
