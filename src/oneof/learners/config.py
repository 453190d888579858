"""Configure a fit: its learners, scalings of the features, networks and their training; and check what a user gives for them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from oneof.learners.kernel import KernelConfig
from oneof.learners.scaling import SCALINGS_WITH_RANKS
from oneof.methods import METHODS, BalancedProden, Method
from oneof.networks.named import network_to_train
from oneof.purify import Pop, Purify
from oneof.storage.did_you_mean import did_you_mean
from oneof.training.optimize import SGD

LEARNERS = ("networks", "linear", "trees", "set_trees", "boosting", "kernel")
_LEARNER_CHOICES = f"some of {', '.join(LEARNERS)}, or scikit-learn classifiers with predict_proba"
MAX_EPOCHS = 30
MIN_EPOCHS = 5
MAX_ROW_EPOCHS = 1_200_000  # rows x epochs above which networks get fewer epochs
MAX_CELL_EPOCHS = 150_000_000  # rows x classes x epochs, likewise
MAX_BATCH = 256  # of large tables: with larger ones, 100,000 rows gave a worse model than 30,000, in as much time
MAX_HIDDEN_COLUMNS = 4096  # above which networks have no hidden layers
MIN_BOOSTING_ROWS = 1000  # below which boosting gains nothing in the mean
VIEWS = {"upright": "upright", "natural": "pop", "none": "plain"}
"""Augmentations of pictures by name, each with its recipe in `oneof.data.augment`."""


class NetworkConfig(NamedTuple):
    """Settings of one network."""

    hidden: tuple[int, ...]  # widths of the hidden layers; () is a linear model
    scaling: str  # a key of SCALINGS_WITH_RANKS
    lr: float
    weight_decay: float


@dataclass(frozen=True)
class TreesConfig:
    """Extremely randomised trees on resolved labels."""

    count: int = 150  # trees in all; fewer above 50 classes, down to a third, since the cost grows with their number
    folds: int = 10  # each is held out by the same number of trees
    trial_folds: int = 3  # after which no more trees are grown if they get no weight
    max_rows: int = 20_000  # that a tree is grown on
    max_cells: int = 2_000_000  # rows x classes above which no trees are grown

    def per_fold(self, c: int) -> int:
        """Return the number of trees that hold out a fold."""
        share = min(1, max(50 / c, 1 / 3))
        return max(1, round(self.count / self.folds * share))

    def is_affordable(self, n: int, c: int) -> bool:
        """Return whether trees can be grown on n rows with c classes in reasonable time."""
        return min(n, self.max_rows) * c <= self.max_cells


@dataclass(frozen=True)
class SetTreesConfig:
    """Extremely randomised trees on the sets themselves (`oneof.learners.set_trees`)."""

    trees: TreesConfig = TreesConfig(count=160, folds=4, trial_folds=1, max_cells=500_000)
    rounds: int = 4
    trees_per_round: int = 30
    inverse_temperature: float = 6.0  # a
    balance: float = 0.25  # b


@dataclass(frozen=True)
class BoostingConfig:
    """Boosted trees on the sets themselves (`oneof.learners.boosting`)."""

    rounds: int = 100  # trees one after the other, each with an output for every class
    learning_rate: float = 0.1
    max_leaf_nodes: int = 64
    row_share: float = 0.6  # of the rows, drawn for each tree
    folds: int = 5
    max_rows: int = 10_000  # that a fold is boosted on
    max_cells: int = 200_000  # rows x classes above which nothing is boosted

    def is_affordable(self, n: int, c: int) -> bool:
        """Return whether n rows with c classes can be boosted on in reasonable time."""
        return min(n, self.max_rows) * c <= self.max_cells


@dataclass(frozen=True)
class EnsembleConfig:
    """The learners of an ensemble and their settings."""

    hidden: tuple[int, ...] = (128, 128)
    scalings: tuple[str, ...] = ("feature", "global", "root", "ranks", "both")  # that held-out sets choose from
    lr: float = 0.3
    weight_decay: float = 3e-4
    learners: tuple[Any, ...] = LEARNERS  # names, or scikit-learn classifiers
    trees: TreesConfig = TreesConfig()
    set_trees: SetTreesConfig = SetTreesConfig()
    boosting: BoostingConfig = BoostingConfig()
    # None: sets are not purified before training; the kernel then only ranks scalings, unless there are no networks
    kernel: KernelConfig | None = KernelConfig()  # noqa: RUF009 - frozen
    margin: float = 0.3  # by which another candidate must lead for a label to be removed before training
    method: Method = BalancedProden()  # noqa: RUF009 - frozen
    purify: Purify | None = Pop()  # noqa: RUF009 - frozen
    optimizer: SGD = SGD(max_norm=2.0)  # noqa: RUF009 - frozen
    mixup: float = 1.0  # alpha of the Beta distribution of mixing weights; 0: no mixup
    noise: float = 0.0  # standard deviation of noise on the scaled features
    batch_size: int | None = None  # None: by the number of rows
    n_scalings: int = 2  # number of best scalings, with which networks are trained in turn
    max_kernel_rows: int = 5000  # on a larger table the kernel is fitted on a sample
    n_networks: int = 5  # and as many linear models
    n_folds: int | None = 5  # each row is held out by the networks of one fold; None: as many as there are networks
    epochs: int | None = None  # None: 30, fewer for more than 40,000 rows or 5,000,000 cells [n, c]

    def with_overrides(self, setting: Mapping[str, Any]) -> EnsembleConfig:
        """Return the config with these settings; None leaves a setting as it is.

        >>> EnsembleConfig().with_overrides({"hidden": [64], "lr": 0.1, "scaling": None}).hidden
        (64,)
        """
        known = (*NetworkConfig._fields, "mixup")
        changes: dict[str, Any] = {}
        for name, value in setting.items():
            if name not in known:
                raise ValueError(f"a setting must be one of {', '.join(known)}; got {name!r}.")
            if value is None:
                continue
            if name == "hidden":
                changes["hidden"] = check_hidden(value)
            elif name == "scaling":
                if value not in SCALINGS_WITH_RANKS:
                    raise ValueError(f"scaling must be one of {', '.join(SCALINGS_WITH_RANKS)}; got {value!r}.")
                changes["scalings"] = (value,)
            elif isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise ValueError(f"{name} must be a number; got {value!r}.")
            else:
                changes[name] = value
        return replace(self, **changes)

    def for_size(self, n: int, c: int = 1) -> EnsembleConfig:
        """Return the config with a batch size and a number of epochs for n rows and c classes."""
        n_trained = max(1, n - n // (self.n_folds or self.n_networks))
        largest_batch = int(np.clip(n // 10, 16, np.clip(n // 100, 80, MAX_BATCH)))
        n_batches = math.ceil(n_trained / largest_batch)
        even_batch = math.ceil(n_trained / n_batches)  # a last batch of a few rows costs a point of accuracy
        affordable = min(MAX_ROW_EPOCHS // n, MAX_CELL_EPOCHS // (n * c))
        epochs = self.epochs or int(np.clip(affordable, MIN_EPOCHS, MAX_EPOCHS))
        return replace(self, batch_size=self.batch_size or even_batch, epochs=epochs)

    def for_shape(self, n: int, d: int) -> EnsembleConfig:
        """Return the config with the learners that suit n rows and d columns. Learners that the user names are kept.

        With very many columns a hidden layer takes most of the time, and linear models predict as well.

        >>> EnsembleConfig().for_shape(5000, 10_000).learners
        ('linear', 'trees', 'set_trees', 'boosting', 'kernel')
        >>> EnsembleConfig().for_shape(500, 10).learners
        ('networks', 'linear', 'trees', 'set_trees', 'kernel')
        """
        if self.learners != LEARNERS:
            return self
        unsuited = set()
        if d > MAX_HIDDEN_COLUMNS:
            unsuited.add("networks")
        if n < MIN_BOOSTING_ROWS:
            unsuited.add("boosting")
        return replace(self, learners=tuple(name for name in LEARNERS if name not in unsuited))

    def sampled_rows(self, n: int) -> dict[str, int]:
        """Return on how many of n rows each learner is fitted that is fitted on a sample only; cross-fitted ones, for each fold.

        >>> EnsembleConfig().sampled_rows(12_000)  # boosting leaves out a fold of 2,400 rows, and is fitted on all others
        {'kernel': 5000}
        """
        cross_fitted: dict[str, TreesConfig | BoostingConfig] = {
            "trees": self.trees,
            "set_trees": self.set_trees.trees,
            "boosting": self.boosting,
        }
        sampled = {}
        for name, config in cross_fitted.items():
            if config.max_rows < n - n // config.folds:
                sampled[name] = config.max_rows
        if self.max_kernel_rows < n:
            sampled["kernel"] = self.max_kernel_rows
        return sampled

    def for_prior(self) -> EnsembleConfig:
        """Return the config for counts or probabilities as a prior: nothing is removed from the sets.

        The kernel is fitted on the rows' priors, without rounds that resolve labels: the labels of other rows would carry a row's own prior
        into its held-out predictions, which would then seem to confirm it.
        """
        kernel = replace(self.kernel or KernelConfig(), rounds=0)
        return replace(self, kernel=kernel, margin=math.inf, purify=None)

    def without_networks(self) -> EnsembleConfig:
        """Return the config of a quick fit, which takes seconds: the kernel and fewer trees."""
        return replace(self, learners=("kernel", "trees"), trees=replace(self.trees, count=100))


@dataclass(frozen=True)
class ImageConfig:
    """Settings of networks on pictures."""

    network: str | None = None  # a name or a file of `network_to_train`; None: by size and device
    views: str = "upright"  # a key of VIEWS
    n_networks: int | None = None  # None: three, or one for many pictures on a GPU

    def __post_init__(self) -> None:
        network_to_train(self.network or "lenet")  # refuses an unknown name
        if self.views not in VIEWS:
            hint = did_you_mean(self.views, VIEWS)
            raise ValueError(f"views must be one of {', '.join(VIEWS)}; got {self.views!r}.{hint}")


@dataclass(frozen=True)
class FitConfig:
    """Everything except the data that determines the result of a fit."""

    ensemble: EnsembleConfig = EnsembleConfig()
    images: ImageConfig = ImageConfig()
    # Ranks settings by held-out sets: a key of `oneof.metrics.CRITERIA` or `oneof.metrics.MEANS`.
    criterion: str = "both"
    train_on_gold: bool = False  # replace sets by gold labels, which then cannot measure accuracy
    seed: int = 0  # of samples, folds and networks


SETTINGS = (FitConfig, EnsembleConfig, ImageConfig, KernelConfig, TreesConfig, SetTreesConfig, BoostingConfig, SGD)
"""Classes of settings that a run folder stores, and that `oneof fit --from` reads back."""


def make_ensemble_config(
    setting: Mapping[str, Any], method: Any, purify: Purify | None, learners: Any, quick: bool, **changes: Any
) -> EnsembleConfig:
    """Return the config with the user's settings. None means the default, but for `purify`, where it means no purification."""
    if quick and learners is not None:
        raise ValueError(
            "quick chooses the learners, so it cannot be combined with learners; got both. Leave one of them out."
        )
    config = EnsembleConfig().with_overrides(setting)
    config = replace(config, purify=purify, **changes)
    if method is not None:
        config = replace(config, method=check_method(method))
    if learners is not None:
        config = replace(config, learners=check_learners(learners))
    if quick:
        return config.without_networks()
    return config


def check_method(method: str | Method) -> Method:
    """Return a method by its name, or as it is, if it can learn from a table."""
    instance: Method = get_instance(method, METHODS, Method, "method")
    if instance.views > 1:
        raise ValueError(f"method must work on tables; {method!r} compares views of images. Use oneof.fit with views=.")
    return instance


def check_learners(learners: Any) -> tuple[Any, ...]:
    """Return learners, one or several: names, or classifiers with scikit-learn's `fit`, `predict_proba` and `get_params`."""
    is_sequence = isinstance(learners, (list, tuple)) and bool(learners)
    listed = tuple(learners) if is_sequence else (learners,)
    for learner in listed:
        if not isinstance(learner, str):
            check_classifier(learner)
        elif learner not in LEARNERS:
            hint = did_you_mean(learner, LEARNERS)
            raise ValueError(f"learners must be {_LEARNER_CHOICES}; got {learner!r}.{hint}")
    return listed


def check_classifier(classifier: Any) -> None:
    """Raise ValueError unless a classifier can be cloned and fitted, and predicts probabilities."""
    if isinstance(classifier, type):
        name = classifier.__name__
        raise ValueError(f"learners must be instances; got the class {name}. Write {name}().")
    missing = []
    for method in ("fit", "predict_proba", "get_params"):
        if not hasattr(classifier, method):
            missing.append(method)
    if not missing:
        return
    remedy = ""
    if missing == ["predict_proba"]:
        remedy = " Wrap it in sklearn.calibration.CalibratedClassifierCV."
    raise ValueError(f"learners must be {_LEARNER_CHOICES}; got {classifier!r}, without {', '.join(missing)}.{remedy}")


def check_hidden(hidden: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers, given as one number or as several.

    >>> check_hidden(128), check_hidden([64, 32])
    ((128,), (64, 32))
    """
    widths = tuple(hidden) if isinstance(hidden, (list, tuple, np.ndarray)) else (hidden,)
    for width in widths:
        if not isinstance(width, (int, np.integer)) or width <= 0:
            raise ValueError(f"hidden_layer_sizes must be widths of layers, such as (128,) or (); got {hidden!r}.")
    return widths


def get_instance(value: Any, known: dict[str, Any], kind: Any, name: str) -> Any:
    """Return an instance by its name, or as it is."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        example = next(iter(known.values())).__name__
        raise TypeError(f"{name} must be a name or an instance, such as {example}(); got {value!r}.")
    if value not in known:
        hint = did_you_mean(value, known)
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")
    return known[value]()
