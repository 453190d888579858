"""Learn classifiers from candidate labels: each example has a set of labels, and one of them is right."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oneof.version import __version__

if TYPE_CHECKING:
    from oneof.candidates.mask import Candidates as Candidates
    from oneof.candidates.read import read as read
    from oneof.candidates.resolve import resolve as resolve
    from oneof.estimator.classifier import PartialLabelClassifier as PartialLabelClassifier
    from oneof.estimator.pictures import PartialLabelImageClassifier as PartialLabelImageClassifier
    from oneof.losses import CandidateLoss as CandidateLoss
    from oneof.losses import Purifier as Purifier
    from oneof.methods import METHODS as METHODS
    from oneof.methods import Method as Method
    from oneof.networks import MLP as MLP
    from oneof.networks import Linear as Linear
    from oneof.purify import Pop as Pop
    from oneof.purify import PopPrinted as PopPrinted
    from oneof.purify import PopRatio as PopRatio
    from oneof.purify import PopReleased as PopReleased
    from oneof.runs.predictor import Predictor as Predictor
    from oneof.training.fit import fit as fit
    from oneof.training.state import load as load
    from oneof.training.trials import Training as Training
    from oneof.training.trials import Trial as Trial

# torch takes seconds to import, and `oneof --help` must not: names are imported when they are first used
_MODULE_OF = {
    "CandidateLoss": "losses",
    "Candidates": "candidates.mask",
    "read": "candidates.read",
    "resolve": "candidates.resolve",
    "fit": "training.fit",
    "load": "training.state",
    "PartialLabelClassifier": "estimator.classifier",
    "PartialLabelImageClassifier": "estimator.pictures",
    "METHODS": "methods",
    "Method": "methods",
    "MLP": "networks",
    "Linear": "networks",
    "Training": "training.trials",
    "Pop": "purify",
    "PopPrinted": "purify",
    "PopRatio": "purify",
    "PopReleased": "purify",
    "Predictor": "runs.predictor",
    "Purifier": "losses",
    "Trial": "training.trials",
}

_SUBMODULES = ("candidates", "data", "inspect", "losses", "methods", "metrics", "networks", "purify", "runs", "votes")

__all__ = ["__version__", *_MODULE_OF, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    """Import a public name or module when it is first used."""
    if name in _SUBMODULES:
        return import_module(f"oneof.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"oneof.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'oneof' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
