"""The scikit-learn estimator for pictures: a network is trained on them."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.encode import Encoding
from oneof.data.images import PictureRows, Pixels, learn_pixels, read_pictures
from oneof.data.picture import LARGEST, SMALLEST, picture_cell
from oneof.ensemble.pipeline import SPACE, Examples, Learned, learn
from oneof.estimator.arguments import count, seed_of
from oneof.estimator.base import BasePartialLabelClassifier
from oneof.learners.pictures import OnPictures
from oneof.learners.scaled_rows import Search

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PartialLabelImageClassifier(BasePartialLabelClassifier):
    """Classifier for pictures that each have a set of candidate labels, one of which is right.

    X is a list of files (or of their bytes), of any size and kind, or an array of uint8 levels [n, side, side] or
    [n, side, side, 3]. What `fit` learns, `save` writes and `oneof clean`, `report`, `review` and `export` take.

    Parameters
    ----------
    network : str or None, default=None
        "lenet", "wrn", "resnet32", or a name that timm knows. None: LeNet; on a GPU WRN-28-2 for
        colour or more than 32 pixels a side.
    views : str, default="upright"
        How pictures may be varied in training: "upright" (moved, never mirrored), "natural" (mirrored too) or "none".
    networks : int or None, default=None
        How many are trained. None: three, each leaving out a third of the pictures; above 20,000 one that leaves out a tenth.
    purify : bool, default=True
        Let POP remove candidates late in the training.
    epochs : int or None, default=None
        None: 100 on a GPU, 5 to 60 on a CPU.
    classes : sequence, default=None
        As for `PartialLabelClassifier`, as are the next three.
    random_state : int, RandomState or None, default=None
    processes : int or None, default=None
    verbose : bool, default=False

    >>> from sklearn.datasets import load_digits
    >>> pictures, labels = load_digits(n_class=3, return_X_y=True)
    >>> X = (15 * pictures[:90]).astype(np.uint8).reshape(-1, 8, 8)
    >>> clf = PartialLabelImageClassifier(epochs=6, random_state=0).fit(X, [[y, (y + i) % 3] for i, y in enumerate(labels[:90])])
    >>> clf.predict(X).shape, bool((clf.transduction_ == labels[:90]).mean() > 0.8)
    ((90,), True)
    """

    network: str | None = None
    views: str = "upright"
    networks: int | None = None
    purify: bool = True
    epochs: int | None = None
    classes: Any = None
    random_state: Any = None
    processes: int | None = None
    verbose: bool = False

    def _rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        read, pixels = _read(X)
        self.n_features_in_ = read.levels.shape[1]
        return read.levels, Encoding((), (), (), {}, (), pixels=(pixels,)), ~read.readable

    def _learn(self, examples: Examples) -> Learned:
        space = replace(SPACE, purify=SPACE.purify if self.purify else None, epochs=count(self.epochs, "epochs"))
        title = type(self).__name__ if self.verbose else None
        asked = Search(space, seed_of(self.random_state), progress=title, device="auto", processes=self.processes)
        return learn(examples, asked, how=OnPictures(self.network, self.views, self.networks))

    def _encoded(self, X: Any) -> NDArray[Any]:
        return _read(X, *self.model_.encoding.pixels)[0].levels


def _read(X: Any, pixels: Pixels | None = None) -> tuple[PictureRows, Pixels]:
    """Levels [n, d] of pictures for networks on such pixels; without these, on pixels that suit the pictures."""
    if not isinstance(X, np.ndarray) or X.ndim < 3:
        if isinstance(X, (str, bytes)) or not hasattr(X, "__len__"):
            raise ValueError(f"X must be a list of files, or an array of pictures; got {type(X).__name__}.")
        cells = [picture_cell(one) for one in X]
        pixels = pixels or learn_pixels("X", cells, Path())
        read = read_pictures(cells, pixels, Path())
        if read.fault:
            _log.warning(read.fault, stacklevel=4)
        return read, pixels
    channels = 1 if X.ndim == 3 else X.shape[3] if X.ndim == 4 else 0
    square = X.shape[1] == X.shape[2] and SMALLEST <= X.shape[1] <= LARGEST
    if X.dtype != np.uint8 or channels not in (1, 3) or not square:
        must = f"square pictures, [n, side, side] or [n, side, side, 3], {SMALLEST} to {LARGEST} pixels a side"
        got = f"{X.dtype} {list(X.shape)}. Files of any size are taken as they are: give a list of their names"
        raise ValueError(f"X must be levels 0 to 255 (uint8) of {must}; got {got}.")
    own = Pixels("X", channels, X.shape[1])
    if pixels and own.shape != pixels.shape:
        raise ValueError(f"X must hold pictures as in training, {pixels.shape}; got {own.shape}.")
    channels_first = X.reshape(len(X), own.side, own.side, -1).transpose(0, 3, 1, 2)
    levels = np.ascontiguousarray(channels_first).reshape(len(X), -1)
    return PictureRows(levels, np.ones(len(X), dtype=bool), None), own
