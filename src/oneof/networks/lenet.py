"""LeNet with batch normalisation, the network of the paper for MNIST-like images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from oneof.networks.classifier import Classifier, check_images


@dataclass(frozen=True)
class LeNet:
    """Two convolutions and two affine layers, batch normalisation before every ReLU.

        conv 5x5 -> 20, max pool 2;  conv 5x5 -> 50, max pool 2;  affine -> 500;  affine -> c

    Differs from the authors' code: no bias where batch normalisation follows, which would take it off again.

    >>> LeNet()((1, 28, 28), 10).body[9]
    Linear(in_features=2450, out_features=500, bias=False)
    """

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels, height, width = check_images("LeNet", shape)
        body = nn.Sequential(
            *_convolved(channels, 20),
            *_convolved(20, 50),
            nn.Flatten(),
            nn.Linear(50 * (height // 4) * (width // 4), 500, bias=False),
            nn.BatchNorm1d(500),
            nn.ReLU(),
        )
        return Classifier(body, 500, classes)


def _convolved(before: int, after: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, 5, padding=2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
