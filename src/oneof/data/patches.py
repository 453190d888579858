"""Learn features of pictures from the pictures themselves, in seconds on a CPU.

Small patches of a picture are whitened and compared with patches that were drawn from the training pictures (Coates, Ng and Lee, "An analysis of
single-layer networks in unsupervised feature learning", 2011). The responses to each drawn patch are averaged in nine
parts of a picture, and reduced to a few hundred features by principal components. No label is needed, so few pictures suffice: see
docs/decisions/0017-pictures-on-a-cpu.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from oneof.data.images import ImageSpec
from oneof.storage.cores import idle_cores
from oneof.storage.progress import progress_bar

ARRAYS = ("filters", "offset", "mean", "axes")  # fields that are stored
LARGEST_PATCH = 6  # pixels a side; a patch has a quarter of the picture's side, within these limits
SMALLEST_PATCH = 3
N_FILTERS = 512  # drawn patches with which the patches of a picture are compared
GRID = 3  # parts a side; responses are averaged within each part
THRESHOLD = 0.5  # subtracted from a response; smaller ones become 0
WHITENING = 0.01  # added to the variance of each component of a patch, so that noise is not amplified
CONTRAST = 10 / 255**2  # added to the variance of a patch, so that noise in a flat one is not amplified
MAX_WIDTH = 512  # principal components; there is also at most one for every three pictures
MIN_DEVIATION = 0.01  # standard deviation that a response is divided by at least
MIN_VARIANCE = 1e-6  # of a component, relative to the largest and to the number of responses; less is rounding
N_PATCHES = 40_000  # sampled to compute the whitening; the first N_FILTERS of them become filters
MAX_SAMPLED_PICTURES = 1500  # pictures that features are learned from
LARGE_SIDE = 48  # pixels a side from which on only every second position is compared
BLOCK = 16  # pictures computed at a time
MIN_BLOCKS = 4  # above which several threads are used
RIDGES = (0.03, 0.1, 0.3, 1.0)  # penalties of the regressions that decide whether pictures are mirrored


@dataclass(frozen=True, eq=False)
class PatchFeatures:
    """Compute features from the pixels of a column of pictures."""

    pixels: ImageSpec
    mirrored: bool  # whether a picture and its mirror image have the same features
    filters: NDArray[np.float32]  # [k, channels, p, p] whitened patches
    offset: NDArray[np.float32]  # [k] response to the mean patch
    mean: NDArray[np.float32]  # [m] of the pooled responses
    axes: NDArray[np.float16]  # [m, width] components; in half precision, in training too, to halve the size of a run

    @property
    def column(self) -> str:
        """Return the column of the pictures."""
        return self.pixels.column

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.axes.shape[1])

    def __call__(self, levels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features [n, width] of pixels [n, d], levels 0 to 255."""
        features = np.empty((len(levels), self.width), dtype=np.float32)
        parameters = PatchParameters.of(self)

        def fill(rows: slice) -> None:
            features[rows] = parameters.features(_as_pictures(levels[rows], self.pixels)).numpy()

        _map_blocks(fill, len(levels))
        return features


@dataclass(frozen=True, eq=False)
class PatchParameters:
    """Hold the arrays of `PatchFeatures` as tensors, so that `oneof export` can trace the computation."""

    mirrored: bool
    filters: Tensor
    offset: Tensor
    mean: Tensor
    axes: Tensor

    @classmethod
    def of(cls, learned: PatchFeatures) -> PatchParameters:
        """Return the tensors of learned features."""
        tensors = []
        for name in ARRAYS:
            array = np.asarray(getattr(learned, name), dtype=np.float32)
            tensors.append(torch.from_numpy(array))
        return cls(learned.mirrored, *tensors)

    def features(self, pictures: Tensor) -> Tensor:
        """Return the features [n, width] of pictures [n, channels, side, side], levels 0 to 1."""
        pooled = pool_responses(pictures, self.filters, self.offset)
        if self.mirrored:
            pooled = (pooled + pool_responses(pictures.flip(3), self.filters, self.offset)) / 2
        return (pooled.sqrt() - self.mean) @ self.axes


def sample_of_pictures(n: int) -> NDArray[np.intp]:
    """Return the rows, of n, whose pictures features are learned from."""
    return np.sort(np.random.default_rng(0).permutation(n)[:MAX_SAMPLED_PICTURES])


def learn_patches(sample: NDArray[np.uint8], pixels: ImageSpec, sets: NDArray[np.bool_] | None = None) -> PatchFeatures:
    """Learn features from the pixels [n, d] of a sample of pictures that could be read.

    Their candidate sets [n, c] decide whether a picture and its mirror image get the same features. That helps with photographs, but not
    with digits.
    """
    filters, offset = _draw_filters(sample, pixels, np.random.default_rng(1))
    sides: list[list[Tensor]] = [[], []]  # pooled responses to the pictures, and to their mirror images

    def respond(block: slice) -> tuple[Tensor, Tensor]:
        pictures = _as_pictures(sample[block], pixels)
        return pool_responses(pictures, filters, offset), pool_responses(pictures.flip(3), filters, offset)

    for plain, flipped in _map_blocks(respond, len(sample)):
        sides[0].append(plain)
        sides[1].append(flipped)
    plain = torch.cat(sides[0])
    both = (plain + torch.cat(sides[1])) / 2
    upright = _principal_components(plain.sqrt())
    mirrored = _principal_components(both.sqrt())
    is_mirrored = sets is not None and _prefers(mirrored.features, upright.features, sets)
    chosen = upright
    if is_mirrored:
        chosen = mirrored
    return PatchFeatures(pixels, is_mirrored, filters.numpy(), offset.numpy(), chosen.mean, chosen.axes)


@dataclass(frozen=True, eq=False)
class _Components:
    """Principal components of responses [n, m]."""

    mean: NDArray[np.float32]  # [m]
    axes: NDArray[np.float16]  # [m, width]
    features: Tensor  # [n, width]


def _principal_components(responses: Tensor) -> _Components:
    """Return the components of standardised responses, scaled by one factor so that the mean square of the features is 1."""
    n, m = responses.shape
    mean = responses.mean(0)
    deviation = responses.std(0, correction=0).clamp_min(MIN_DEVIATION)
    standardised = (responses - mean) / deviation
    variances, directions = torch.linalg.eigh((standardised @ standardised.T).double())
    width = max(1, min(MAX_WIDTH, n // 3))
    largest = torch.arange(n - 1, n - 1 - width, -1)
    largest = largest[variances[largest] > MIN_VARIANCE * max(m, float(variances[-1]))]
    if len(largest):
        unit = (n * len(largest) / variances[largest].sum()).sqrt()
        weights = directions[:, largest] * unit * variances[largest].rsqrt()
        axes = (standardised.T @ weights.float() / deviation[:, None]).half()
    else:  # all pictures are the same
        axes = torch.zeros(m, 1, dtype=torch.float16)
    return _Components(mean.numpy(), axes.numpy(), (responses - mean) @ axes.float())


def _prefers(first: Tensor, second: Tensor, sets: NDArray[np.bool_]) -> bool:
    """Return whether a regression on the first features predicts held-out sets better, by more than the standard error."""
    shares = torch.from_numpy(sets / sets.sum(1, keepdims=True))
    difference = _held_out_errors(second, shares) - _held_out_errors(first, shares)
    return bool(difference.mean() > difference.std() / len(difference) ** 0.5)


def _held_out_errors(features: Tensor, targets: Tensor) -> Tensor:
    """Return the leave-one-out squared errors [n] of a ridge regression with the best of RIDGES."""
    kernel = (features @ features.T).double()
    variances, basis = torch.linalg.eigh(kernel)
    centred = targets - targets.mean(0)
    errors = []
    for ridge in RIDGES:
        inverse = 1 / (variances.clamp_min(0) + ridge * variances.mean())
        coefficients = basis @ (inverse[:, None] * (basis.T @ centred))
        inverse_diagonal = (basis.square() * inverse).sum(1, keepdim=True)
        errors.append((coefficients / inverse_diagonal).square().sum(1))
    best: Tensor = min(errors, key=lambda error: float(error.mean()))
    return best


def _draw_filters(levels: NDArray[np.uint8], pixels: ImageSpec, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw patches and whiten them; return them as filters for normalised patches, and the response of each to the mean patch."""
    pictures = levels.reshape(-1, *pixels.shape)
    size = patch_side(pixels.side)
    row = rng.integers(0, len(pictures), N_PATCHES)
    top = rng.integers(0, pixels.side - size + 1, N_PATCHES)
    left = rng.integers(0, pixels.side - size + 1, N_PATCHES)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (size, size), axis=(2, 3))
    sampled = windows[row, :, top, left].reshape(N_PATCHES, -1)  # [patches, channels x p x p]
    patches = torch.from_numpy(sampled.astype(np.float32) / 255)
    centred = patches - patches.mean(1, keepdim=True)
    normalised = centred * (centred.square().mean(1, keepdim=True) + CONTRAST).rsqrt()
    mean = normalised.mean(0)
    covariance = (normalised - mean).T @ (normalised - mean) / len(normalised)
    variances, basis = torch.linalg.eigh(covariance.double())
    whitening = ((basis * (variances.clamp_min(0) + WHITENING).rsqrt()) @ basis.T).float()
    whitened = (normalised[:N_FILTERS] - mean) @ whitening
    directions = functional.normalize(whitened, dim=1) @ whitening  # [k, channels x p x p]
    offset = directions @ mean
    filters = directions - directions.mean(1, keepdim=True)  # so that the mean of a patch has no influence
    return filters.view(-1, pixels.channels, size, size).contiguous(), offset


def patch_side(side: int) -> int:
    """Return the side of a patch, in pixels, for pictures with this side."""
    return int(np.clip(side // 4, SMALLEST_PATCH, LARGEST_PATCH))


def pool_responses(pictures: Tensor, filters: Tensor, offset: Tensor) -> Tensor:
    """Return the mean responses [n, m] to each filter and to its negative in the parts of pictures [n, channels, side, side]."""
    size = filters.shape[-1]
    stride = 1
    if pictures.shape[-1] >= LARGE_SIDE:
        stride = 2
    mean = functional.avg_pool2d(pictures.mean(1, keepdim=True), size, stride)
    mean_square = functional.avg_pool2d(pictures.square().mean(1, keepdim=True), size, stride)
    contrast = ((mean_square - mean.square()).clamp_min(0) + CONTRAST).rsqrt()
    response = functional.conv2d(pictures, filters, stride=stride) * contrast - offset[:, None, None]
    positive = _pool_parts((response - THRESHOLD).relu())
    negative = _pool_parts((-response - THRESHOLD).relu())
    return torch.cat([positive, negative], 1).flatten(1)


def _pool_parts(responses: Tensor) -> Tensor:
    """Average responses [n, k, h, h] over GRID x GRID parts; neighbouring parts overlap where the side is not a multiple of GRID."""
    side = responses.shape[-1]
    bounds = []
    for i in range(GRID):
        end = -(-side * (i + 1) // GRID)  # rounded up
        bounds.append((side * i // GRID, end))
    parts = []
    for top, bottom in bounds:
        for left, right in bounds:
            parts.append(responses[:, :, top:bottom, left:right].mean((2, 3)))
    return torch.stack(parts, 2)


def _as_pictures(levels: NDArray[np.uint8], pixels: ImageSpec) -> Tensor:
    """Return pixels [n, d] as pictures [n, channels, side, side], 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(levels)).view(-1, *pixels.shape).float() / 255


def _map_blocks(function: Any, n: int) -> Sequence[Any]:
    """Map a function over blocks of n rows, with a thread for each idle processor."""
    blocks = [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
    n_threads = 1
    if len(blocks) > MIN_BLOCKS:
        n_threads = max(1, idle_cores())
    torch_threads = torch.get_num_threads()
    results = []
    with (
        progress_bar("features of pictures", n, show=True, unit="pictures") as step,
        ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for block, result in zip(blocks, pool.map(function, blocks), strict=True):
            results.append(result)
            step(steps=block.stop - block.start)
    torch.set_num_threads(torch_threads)
    return results
