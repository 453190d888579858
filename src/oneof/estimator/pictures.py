"""PartialLabelImageClassifier: the scikit-learn estimator for pictures."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding, patch_features
from oneof.data.images import ImageSpec, PictureRows, learn_image_spec, read_pictures
from oneof.data.patches import learn_patches, sample_of_pictures
from oneof.data.picture import picture_cell
from oneof.data.roles import LARGEST_SIDE, PATCHES, SMALLEST_SIDE, ColumnRoles
from oneof.ensemble.pipeline import fit
from oneof.ensemble.records import FitResult
from oneof.estimator.arguments import check_positive_int, seed_from, single_torch_thread
from oneof.estimator.base import BasePartialLabelClassifier
from oneof.learners.base import Resources
from oneof.learners.config import EnsembleConfig, FitConfig, ImageConfig
from oneof.training.device import device_for_pictures
from oneof.training.parallel import resolve_n_jobs

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PartialLabelImageClassifier(BasePartialLabelClassifier):
    """Classifier for pictures that each have a set of candidate labels, one of which is right.

    X is a list of files (or of their bytes), of any size and format, or an array of uint8 levels [n, side, side] or
    [n, side, side, 3]. On a GPU networks are trained on the pixels; on a CPU features of the pictures' patches are learned in seconds, and
    the learners of `PartialLabelClassifier` use them. Methods and fitted attributes are those of `PartialLabelClassifier`; `oneof clean`,
    `report`, `review` and `export` take the folder that `save` writes.

    Parameters
    ----------
    architecture : str or None, default=None
        The network that is trained on the pixels: "lenet", "wrn", "resnet32", or the name of a model in timm; or "patches": features of
        patches in place of pixels. None: patches on a CPU; on a GPU WRN-28-2 for colour or more than 32 pixels a side, else LeNet.
    augmentation : str, default="upright"
        How pictures are varied for networks on pixels: "upright" (shifted, never mirrored), "natural" (mirrored too) or "none". Whether
        features of patches are mirrored is decided by held-out sets.
    n_estimators : int or None, default=None
        Number of networks. None: five on features of patches; on pixels three, each leaving out a third of the pictures, or above 20,000
        pictures one that leaves out a tenth.
    purify : bool, default=True
        Let POP remove candidates, on pixels late in the training.
    epochs : int or None, default=None
        Epochs of training. None: 30 on features of patches; on pixels 100 on a GPU, 5 to 60 on a CPU.
    side : int or None, default=None
        Pixels a side, 8 to 512, that files are read in. None: as they are, 64 at most.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn.
    n_jobs : int or None, default=None
        Number of processes that train the networks, each on a GPU of its own where there are as many; -1: one for each GPU. None: one, or those
        that torchrun or SLURM started.
    verbose : bool, default=False
        Show progress: a bar in a terminal, lines elsewhere.

    See Also
    --------
    PartialLabelClassifier : The same for tables, and for embeddings of pictures.

    Examples
    --------
    >>> from oneof import PartialLabelImageClassifier
    >>> from sklearn.datasets import load_digits
    >>> pictures, labels = load_digits(n_class=3, return_X_y=True)
    >>> X = (15 * pictures[:90]).astype(np.uint8).reshape(-1, 8, 8)
    >>> y = [[label, (label + i) % 3] for i, label in enumerate(labels[:90])]
    >>> clf = PartialLabelImageClassifier(epochs=6, random_state=0).fit(X, y)
    >>> clf.predict(X).shape
    (90,)
    >>> bool((clf.transduction_ == labels[:90]).mean() > 0.8)
    True
    """

    architecture: str | None = None
    augmentation: str = "upright"
    n_estimators: int | None = None
    purify: bool = True
    epochs: int | None = None
    side: int | None = None
    classes: Any = None
    random_state: Any = None
    n_jobs: int | None = None
    verbose: bool = False

    def _encode_training_rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        if self.side is not None:
            ColumnRoles(image_side=check_positive_int(self.side, "side"))  # refuses one that is too small or too large
        pictures, pixels = _read(X, side=self.side)
        self.n_features_in_ = pictures.levels.shape[1]
        encoding = Encoding((), (), (), {}, (), pixels=(pixels,))
        return pictures.levels, encoding, ~pictures.readable

    def _encode_new_rows(self, X: Any) -> NDArray[Any]:
        encoding = self.model_.encoding
        if encoding.patches:
            (patches,) = encoding.patches
            pictures, _ = _read(X, patches.pixels)
            return patch_features(patches, pictures)
        (pixels,) = encoding.pixels
        pictures, _ = _read(X, pixels)
        return pictures.levels

    @property
    def _learns_patches(self) -> bool:
        """Return whether features of patches are learned, in place of networks on pixels."""
        if self.architecture is None and self.augmentation == ImageConfig.views:
            return device_for_pictures("auto").type == "cpu"
        return self.architecture == PATCHES

    def _learn_features(self, data: Dataset) -> Dataset:
        if not self._learns_patches:
            return data
        (pixels,) = data.encoding.pixels
        readable_rows = np.flatnonzero(data.observed)
        sample = readable_rows[sample_of_pictures(len(readable_rows))]
        patches = learn_patches(data.features[sample], pixels, data.candidates.mask[sample])
        encoding = replace(data.encoding, pixels=(), patches=(patches,))
        pictures = PictureRows(data.features, data.observed, None)
        return replace(data, features=patch_features(patches, pictures), encoding=encoding)

    def _config(self) -> FitConfig:
        ensemble = EnsembleConfig(epochs=check_positive_int(self.epochs, "epochs"))
        if not self.purify:
            ensemble = replace(ensemble, purify=None)
        seed = seed_from(self.random_state)
        if self._learns_patches:
            n_networks = check_positive_int(self.n_estimators, "n_estimators") or EnsembleConfig.n_networks
            return FitConfig(replace(ensemble, n_networks=n_networks), seed=seed)
        images = ImageConfig(self.architecture, self.augmentation, self.n_estimators)
        return FitConfig(ensemble, images, seed=seed)

    def _train(self, data: Dataset, config: FitConfig) -> FitResult:
        n_jobs = resolve_n_jobs(self.n_jobs, pictures=data.are_pictures)
        resources = Resources(n_jobs=n_jobs)
        if self.verbose:
            resources = replace(resources, progress=type(self).__name__)
        if data.are_pictures:
            return fit(data, config, resources)
        with single_torch_thread():
            return fit(data, config, resources)


def _read(X: Any, image_spec: ImageSpec | None = None, side: int | None = None) -> tuple[PictureRows, ImageSpec]:
    """Return the levels [n, d] of pictures, and their size and channels.

    Without `image_spec`, files are read in a size that suits them; with it, in that size, and arrays must have it.
    """
    if isinstance(X, np.ndarray) and X.ndim >= 3:
        if side is not None and side != X.shape[1]:
            raise ValueError(
                f"side must be left out with an array, which has a size; got side={side} and {X.shape[1]} pixels."
            )
        return _read_array(X, image_spec)
    if isinstance(X, (str, bytes)) or not hasattr(X, "__len__"):
        raise ValueError(f"X must be a list of files, or an array of pictures; got {type(X).__name__}.")
    cells = [picture_cell(picture) for picture in X]
    if image_spec is None:
        image_spec = learn_image_spec("X", cells, Path(), side)
    pictures = read_pictures(cells, image_spec, Path())
    if pictures.fault:
        _log.warning(pictures.fault, stacklevel=4)  # the line that calls fit or predict_proba
    return pictures, image_spec


def _read_array(X: NDArray[Any], image_spec: ImageSpec | None) -> tuple[PictureRows, ImageSpec]:
    """Return the levels [n, d] of an array of pictures [n, side, side] or [n, side, side, 3]."""
    channels = 0
    if X.ndim == 3:
        channels = 1
    elif X.ndim == 4:
        channels = X.shape[3]
    is_square = X.shape[1] == X.shape[2] and SMALLEST_SIDE <= X.shape[1] <= LARGEST_SIDE
    if X.dtype != np.uint8 or channels not in (1, 3) or not is_square:
        raise ValueError(
            "X must be levels 0 to 255 (uint8) of square pictures, [n, side, side] or [n, side, side, 3], "
            f"{SMALLEST_SIDE} to {LARGEST_SIDE} pixels a side; got {X.dtype} {list(X.shape)}. "
            "Files of any size can be given as a list of their names."
        )
    shape_of_X = ImageSpec("X", channels, X.shape[1])
    if image_spec is not None and shape_of_X.shape != image_spec.shape:
        raise ValueError(f"X must hold pictures as in training, {image_spec.shape}; got {shape_of_X.shape}.")
    channels_last = X.reshape(len(X), shape_of_X.side, shape_of_X.side, channels)
    channels_first = np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2))
    levels = channels_first.reshape(len(X), -1)
    is_readable = np.ones(len(X), dtype=bool)
    return PictureRows(levels, is_readable, None), shape_of_X
