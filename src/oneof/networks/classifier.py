"""What every network builds, a body that gives features and a linear head; any module may be the body: the user's own, or timm's."""

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
    """Does it take weights and inputs with a leading axis t as they are? Then a stack of t needs no vmap."""

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
            given = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(
                f"a backbone must give features [b, width] or [b, width, h, w]; got {given} for a batch of one. "
                "Wrap it in a module that does."
            )
        if features.dim() == 4:
            body = nn.Sequential(body, *pooled())
        return Classifier(body, features.shape[1], classes)


def pooled() -> list[nn.Module]:
    """Layers that take the mean over the image: [b, width, h, w] to [b, width]."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def dummy_batch(module: nn.Module, shape: tuple[int, ...], b: int) -> Tensor:
    """A batch of b examples, all zeros, of the kind that the module's weights are."""
    weight = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.zeros(b, *shape, dtype=weight.dtype, device=weight.device)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside, so that no statistic moves; each part's own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def check_images(network: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape as (channels, height, width), each side at least 4 pixels: it is halved twice."""
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
