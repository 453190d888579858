"""Classifiers: a body that gives features, and a linear head. Any module may be the body: a user's own, or one of timm."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Network = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a module that maps a batch [b, *shape] to logits [b, c]; a user's own function or class will do."""


class Classifier(nn.Module):
    """Logits [b, c] from a body that maps [b, *shape] to features [b, width].

    >>> Classifier(nn.Flatten(), width=64, classes=10).head
    Linear(in_features=64, out_features=10, bias=True)
    """

    batched_weights = False
    """Whether weights and inputs may have a leading axis t; then a stack of t networks needs no vmap."""

    def __init__(self, body: nn.Module, width: int, classes: int, head: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.width = width
        self.head = head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Backbone:
    """A linear head on whatever `make()` returns: a module that gives features [b, width], or maps [b, width, h, w].

    Maps are averaged over the image. The width is found by looking at one blank example. `make` is called once per trial, after the
    trial's seed is set, and should build a new module each time; with timm (the extra `vision`):

        Backbone(lambda: timm.create_model("resnet18", num_classes=0, pretrained=False))

    >>> Backbone(lambda: nn.Conv2d(3, 8, kernel_size=3))((3, 32, 32), 10).head
    Linear(in_features=8, out_features=10, bias=True)
    """

    make: Callable[[], nn.Module]

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        body = self.make()
        with eval_mode(body):
            features = body(dummy_batch(body, shape, 1))
        if not isinstance(features, Tensor) or features.dim() not in (2, 4):
            got = type(features).__name__
            if isinstance(features, Tensor):
                got = f"shape {tuple(features.shape)}"
            raise ValueError(
                f"a backbone must give features [b, width] or [b, width, h, w]; got {got} for a batch of one. "
                "Wrap it in a module that does."
            )
        if features.dim() == 4:
            body = nn.Sequential(body, *pooling_layers())
        return Classifier(body, features.shape[1], classes)


def pooling_layers() -> list[nn.Module]:
    """Return layers that take the mean over the image: [b, width, h, w] to [b, width]."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def dummy_batch(module: nn.Module, shape: tuple[int, ...], b: int) -> Tensor:
    """Return a batch of b examples, all zeros, with the dtype and on the device of the module's weights."""
    like = torch.empty(0)
    for parameter in module.parameters():
        if parameter.is_floating_point():
            like = parameter
            break
    return torch.zeros(b, *shape, dtype=like.dtype, device=like.device)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode without gradients, so that no statistic moves, and restore the mode of every layer afterwards."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, training in modes:
            layer.training = training


def check_images(network: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape as (channels, height, width), after checking that each side has 4 pixels or more: it is halved twice."""
    if len(shape) != 3:
        raise ValueError(
            f"{network} needs images [channels, height, width]; got shape {tuple(shape)}. "
            "Reshape x to [n, channels, height, width], or use MLP."
        )
    channels, height, width = shape
    if min(height, width) < 4:
        raise ValueError(
            f"{network} needs images [channels, height, width] of at least 4 x 4 pixels; got shape {tuple(shape)}. "
            "Put the channels first, or use MLP."
        )
    return channels, height, width
