"""Trained networks that predict: stacks of networks on tables and on pictures, with the scaling of their input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneof.data.dataset import BoolArray
from oneof.data.with_ranks import QuantileNormalizer
from oneof.learners.base import Predictions
from oneof.networks.named import name_of
from oneof.training.parallel import Map, map_here
from oneof.training.set_input import as_tensor
from oneof.training.stack import Stack
from oneof.training.state import Fit

MAX_CELLS = 2**22  # probabilities in memory at a time, over all networks
MIN_ROWS = 128  # at a time, also of very many columns, each of which takes a call for its ranks
IMAGE_BATCH = 512


class TableNetworks(NamedTuple):
    """t networks of one architecture on tables."""

    stack: Stack
    shift: Tensor | None  # [t, 1, d]
    scale: Tensor | None
    origin: NDArray[np.float64] | None  # [d], subtracted in double precision
    ranks: QuantileNormalizer | None  # appended to the features first

    @classmethod
    def from_fit(cls, trained: Fit) -> TableNetworks:
        """Return the networks of a fit, without what only training needs."""
        return cls(trained.stack, trained.shift, trained.scale, trained.origin, trained.ranks)

    def scaled(self, x: NDArray[Any], t: slice = slice(None)) -> Tensor:
        """Return features x [n, d] as scaled for the networks t, [t, n, d or 2d], on the device of the networks."""
        unscaled = self._unscaled(x)[None]
        if self.shift is None or self.scale is None:
            n_networks = len(range(self.stack.t)[t])
            return unscaled.expand(n_networks, -1, -1)
        return (unscaled - self.shift[t]) * self.scale[t]

    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return features x [n, d] as scaled for the first network."""
        return self.scaled(x, slice(1))[0].cpu().numpy()

    def _unscaled(self, x: NDArray[Any]) -> Tensor:
        device = next(iter(self.stack.weights.values())).device
        if device.type == "cpu":
            values = x
            if self.ranks is not None:
                values = self.ranks(values)
            if self.origin is not None:
                values = np.asarray(values, dtype=np.float64) - self.origin
            return torch.as_tensor(np.asarray(values, dtype=np.float32))
        on_device = as_tensor(x, torch.float64, device)
        if self.ranks is not None:
            on_device = self.ranks.on_device(on_device)
        if self.origin is not None:
            on_device = on_device - torch.as_tensor(self.origin, device=device)
        return on_device.float()

    @property
    def shape(self) -> dict[str, Any]:
        """Return what the networks are built from; linear models have no hidden layer."""
        layers = [weight for weight in self.stack.weights.values() if weight.dim() == 3]
        hidden = [layer.shape[1] for layer in layers[:-1]]
        return {"networks": self.stack.t, "inputs": layers[0].shape[2], "hidden": hidden}

    @property
    def is_linear(self) -> bool:
        """Return whether there is no hidden layer."""
        return not self.shape["hidden"]

    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return logits [t, n, c] of features x [n, d]."""
        with self.stack.eval_mode():
            return self.stack(self.scaled(x))  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class ImageNetworks:
    """t networks on pictures, whose pixels [n, d] they take as [n, channels, side, side], normalised."""

    stack: Stack
    network: str  # as `oneof.networks.named` knows it
    pixels: tuple[int, ...]  # channels, side, side
    scale: Tensor  # [channels]
    offset: Tensor  # [channels]
    is_linear = False

    @classmethod
    def from_fit(cls, trained: Fit) -> ImageNetworks:
        """Return the networks of a fit, without what only training needs."""
        view = trained.eval_transform
        assert view is not None
        return cls(trained.stack, name_of(trained.network), tuple(trained.shape), view.scale, view.offset)

    @property
    def shape(self) -> dict[str, Any]:
        """Return what the networks are built from."""
        return {"networks": self.stack.t, "network": self.network, "pixels": list(self.pixels)}

    @cached_property
    def networks(self) -> list[nn.Module]:
        """Return the networks as modules in evaluation mode."""
        return [module.eval() for module in self.stack.modules()]

    def normalised(self, x: NDArray[Any]) -> Tensor:
        """Return the input of the networks for pixels x [n, d], on their device."""
        pixels = torch.as_tensor(x).to(self.scale.device).view(-1, *self.pixels)
        return pixels * self.scale[:, None, None] + self.offset[:, None, None]

    @torch.no_grad()
    def logits(self, x: NDArray[Any]) -> Tensor:
        """Return logits [t, n, c] of pixels x [n, d]."""
        images = self.normalised(x)
        return torch.stack([network(images) for network in self.networks]).cpu()

    @torch.no_grad()
    def features(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the output of the first network's body for pixels x [n, d], [n, width]."""
        body: Any = self.networks[0].body
        outputs = []
        for start in range(0, len(x), IMAGE_BATCH):
            images = self.normalised(x[start : start + IMAGE_BATCH])
            outputs.append(body(images).cpu())
        return torch.cat(outputs).numpy()


Networks = TableNetworks | ImageNetworks


def probability_blocks(
    members: tuple[Networks, ...], x: NDArray[Any], n_classes: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the probabilities [t, rows, c] of every network for a few rows at a time, since a million would not fit in memory."""
    for rows in _row_blocks(members, x, n_classes):
        yield rows, torch.cat([member.logits(x[rows]).softmax(-1) for member in members])


def _row_blocks(members: tuple[Networks, ...], x: NDArray[Any], n_classes: int) -> list[slice]:
    """Return the rows to predict at a time."""
    n_networks = sum(member.stack.t for member in members)
    size = max(MIN_ROWS, MAX_CELLS // (n_networks * max(n_classes, 2 * x.shape[1])))
    return [slice(start, min(start + size, len(x))) for start in range(0, len(x), size)]


class _HeldOutBlock(NamedTuple):
    """Rows to predict by networks that did not train on them."""

    x: NDArray[Any]  # [rows, d]
    candidates: BoolArray  # [rows, c]
    counts: NDArray[np.float32]  # [t, rows] 1 where a network counts, else 0


def predict_held_out(
    networks: Networks, x: NDArray[Any], candidates: BoolArray, training_rows: Tensor, map_blocks: Map = map_here
) -> Predictions:
    """Average each row's probabilities over the networks that did not train on it.

    Parameters
    ----------
    candidates
        Mask [n, c], within which a network's best label counts as its vote.
    training_rows
        Rows [t, m] that each network was trained on.
    map_blocks
        Computes blocks of rows, perhaps in worker processes.
    """
    n, c = candidates.shape
    is_trained = np.zeros((len(training_rows), n), dtype=bool)
    for network, rows in enumerate(training_rows.cpu().numpy()):
        is_trained[network, rows] = True
    held_out: BoolArray = np.logical_not(is_trained.all(axis=0))
    counts = np.logical_not(is_trained & held_out).astype(np.float32)  # [t, n]
    blocks = []
    for rows in _row_blocks((networks,), x, c):
        blocks.append(_HeldOutBlock(x[rows], candidates[rows], counts[:, rows]))
    predicted = map_blocks(partial(_predict_block, networks), blocks)
    mean = np.concatenate([block_mean for block_mean, _ in predicted])
    top_share = np.concatenate([block_share for _, block_share in predicted])
    return Predictions(mean, held_out, top_share)


def _predict_block(networks: Networks, block: _HeldOutBlock) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean probability [rows, c] over the networks that count, and the share of all whose best candidate it is."""
    c = block.candidates.shape[1]
    p = networks.logits(block.x).softmax(-1).cpu().numpy()  # [t, rows, c]
    mean = np.einsum("tnc,tn->nc", p, block.counts) / block.counts.sum(0)[:, None]
    best = np.where(block.candidates, p, -1).argmax(-1)  # [t, rows]
    top_share = (best[..., None] == np.arange(c)).mean(0)
    return mean.astype(np.float32), top_share.astype(np.float32)
