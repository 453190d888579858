"""The classifier trained on clean labels, from whose posterior instance-dependent sets are drawn."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oneof.data.augment.views import Views, Weak, views
from oneof.networks import MLP, GeneratorMLP, Network, ResNet32
from oneof.training.fit import fit
from oneof.training.stack import Stack
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import Dataset


def dataset_logits(data: Dataset, *, seed: int, epochs: int, device: str, progress: str | None) -> NDArray[np.float64]:
    """Logits [n, c] of the paper's generators, or of an MLP on a table, fitted on clean training rows of a named set.

    Evaluation mode, in full precision whatever it was trained in: sets are drawn from differences of small logits.
    """
    test = np.empty(0, dtype=np.intp) if data.test is None else data.test
    rows = np.setdiff1d(np.arange(len(data.x)), test)
    known = np.where(data.labels < 0, 0, data.labels)
    singletons = np.eye(len(data.classes), dtype=bool)[known]
    images = data.x.dtype == np.uint8
    x = channels_first(data.x) if images else data.x
    network: Network = MLP() if not images else GeneratorMLP() if x.shape[1] == 1 else ResNet32()
    trial = Trial(seed, rows, lr=0.05, weight_decay=1e-4, scaling="none" if images else "feature")
    fitted = fit(
        x, singletons, trials=[trial], network=network, training=Training(epochs=epochs, batch=256 if images else 32),
        views=_seen(data.name, x.shape[1], device) if images else None, device=device, progress=progress,
    )  # fmt: skip
    exact = replace(fitted, stack=Stack(fitted.stack.modules()))
    return exact.logits(x)[0].double().cpu().numpy()


def _seen(name: str, channels: int, device: str) -> Views:
    """The one view a clean classifier learns from: plain in grey, flipped and cropped in colour, where it would memorise."""
    plain = views("plain", name, device=device)
    return plain if channels == 1 else replace(plain, kinds=((Weak(), 1),))


def channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images [n, h, w] or [n, h, w, 3] as [n, channels, h, w]."""
    return images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
