"""Train the classifier on true labels from whose posterior instance-dependent sets are drawn."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oneof.data.augment.views import Views, Weak, views
from oneof.networks import MLP, GeneratorMLP, Network, ResNet32
from oneof.training.fit import fit
from oneof.training.stack import Stack
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import LabelledData


def dataset_logits(
    data: LabelledData, *, seed: int, epochs: int, device: str, progress: str | None
) -> NDArray[np.float64]:
    """Train the paper's classifier, or an MLP on a table, on the true labels of the training rows; return logits [n, c] of all rows.

    Logits are computed in evaluation mode and in full precision, whatever it was trained in: sets depend on small differences.
    """
    rows = np.arange(len(data.x))
    if data.test is not None:
        rows = np.setdiff1d(rows, data.test)
    known_labels = np.where(data.labels < 0, 0, data.labels)
    true_sets = np.eye(len(data.classes), dtype=bool)[known_labels]
    x = data.x
    network: Network = MLP()
    augmentation = None
    is_image = data.x.dtype == np.uint8
    if is_image:
        x = channels_first(data.x)
        is_grey = x.shape[1] == 1
        network = GeneratorMLP() if is_grey else ResNet32()
        augmentation = _teacher_views(data.name, is_grey, device)
    fitted = fit(
        x,
        true_sets,
        trials=[Trial(seed, rows, lr=0.05, weight_decay=1e-4, scaling="none" if is_image else "feature")],
        network=network,
        training=Training(epochs=epochs, batch=256 if is_image else 32),
        views=augmentation,
        device=device,
        progress=progress,
    )
    in_full_precision = replace(fitted, stack=Stack(fitted.stack.modules()))
    return in_full_precision.logits(x)[0].double().cpu().numpy()


def _teacher_views(name: str, is_grey: bool, device: str) -> Views:
    """Return the view that the classifier learns from: plain in grey, flipped and cropped in colour, where it would memorise."""
    plain = views("plain", name, device=device)
    if is_grey:
        return plain
    return replace(plain, kinds=((Weak(), 1),))


def channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images [n, h, w] or [n, h, w, 3] as [n, channels, h, w]."""
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
