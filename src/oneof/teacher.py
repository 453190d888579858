"""The classifier trained on clean labels, from whose posterior instance-dependent sets are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.engine import fit
from oneof.networks import MLP, Network
from oneof.problem import Training
from oneof.trials import Trial


def clean_logits(
    x: Any,
    labels: Any,
    classes: int,
    *,
    trials: Sequence[Trial],
    network: Network = MLP(),  # noqa: B008 - frozen
    training: Training = Training(epochs=20),  # noqa: B008 - frozen
) -> NDArray[np.float64]:
    """Logits [t, n, c] in evaluation mode of classifiers fitted on the true labels of each trial's rows.

    A set that holds one label turns every method of the package into plain supervised learning.
    """
    singletons = np.eye(classes, dtype=bool)[np.asarray(labels)]
    return fit(x, singletons, trials=trials, network=network, training=training).logits(x).double().numpy()
