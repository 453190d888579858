"""Methods and POP for a training loop of your own.

`CandidateLoss` is a PyTorch criterion around a method and what it remembers of every row; `Purifier` removes labels at the end of an
epoch, as a scheduler changes the learning rate. Both call the same methods and rules as `oneof.fit`.
"""

from oneof.losses.criterion import CandidateLoss
from oneof.losses.network import frozen_statistics
from oneof.losses.purifier import Purifier

__all__ = ["CandidateLoss", "Purifier", "frozen_statistics"]
