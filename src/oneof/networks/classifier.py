"""What every network of the package builds: a body that gives features, and a linear head."""

from collections.abc import Callable

from torch import Tensor, nn

Network = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a module that maps a batch [b, *shape] to logits [b, c]; a user's own function or class will do."""


class Classifier(nn.Module):
    """Logits [b, c] from a body that maps [b, *shape] to features [b, width].

    >>> Classifier(nn.Flatten(), width=64, classes=10).head
    Linear(in_features=64, out_features=10, bias=True)
    """

    broadcasts = False
    """Does it take weights and inputs with a leading axis t as they are? Then a stack of t needs no vmap."""

    def __init__(self, body: nn.Module, width: int, classes: int, head: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.width = width
        self.head = head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


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
