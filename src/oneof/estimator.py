"""The scikit-learn estimator: candidate sets in, a classifier and the resolved label of every training row out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from oneof.candidates import Candidates, read, restrict
from oneof.engine import CHOICES, fit
from oneof.evaluate import approximated_accuracy
from oneof.methods import METHODS, Method
from oneof.networks import MLP
from oneof.problem import Training
from oneof.purify import PURIFY, Purify
from oneof.trials import Trial


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for rows that each have a set of candidate labels, one of which is right.

    A stack of small networks is trained at once, each with its own seed and its own held-out rows; the candidate sets of
    the held-out rows choose each network's epoch (no true label is used), and the networks vote by their mean probability.

    Parameters
    ----------
    method : str or Method, default="proden"
        A key of `oneof.METHODS`, or an instance.
    purify : str, Pop, PopRatio or None, default="pop"
        Remove candidates that the networks have ruled out, a few epochs at a time.
    hidden : tuple of int, default=(128,)
        Widths of the hidden layers; () for a linear model.
    n_trials : int, default=5
        Networks in the ensemble; they train together.
    epochs, batch_size, lr, weight_decay, mixup, noise
        How they are trained (see `oneof.Training`).
    scaling : {"feature", "global", "minmax", "none"}, default="feature"
        Fitted on training rows. Use "global" for features whose scales mean something, such as principal components.
    validation_fraction : float, default=0.1
        Share of rows that each network holds out to choose its epoch by; 0 takes the last epoch.
    choose : {"approximated", "covering", "last"}, default="approximated"
        What is asked of the held-out sets.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None
    verbose : bool, default=False
        Show a progress bar when run in a terminal.

    Attributes
    ----------
    classes_ : array [c]
    candidates_ : bool array [n, c]
        The purified sets: a label is gone when every network that trained on the row removed it.
    label_distributions_ : array [n, c]
        Probability of each kept label of each training row.
    transduction_ : array [n]
        The resolved label of each training row.
    history_ : dict of arrays [epochs, n_trials]
    n_iter_ : int
        The largest epoch that was chosen.

    Examples
    --------
    >>> from oneof import PartialLabelClassifier
    >>> X = [[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]] * 5
    >>> y = [{"low"}, {"low", "high"}, {"low", "high"}, {"high"}, {"high", "low"}, {"high"}] * 5
    >>> clf = PartialLabelClassifier(random_state=0).fit(X, y)
    >>> clf.predict([[0.05], [1.15]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        method: str | Method = "proden",
        purify: str | Purify | None = "pop",
        hidden: tuple[int, ...] = (128,),
        n_trials: int = 5,
        epochs: int = 100,
        batch_size: int = 32,
        lr: float = 0.05,
        weight_decay: float = 1e-3,
        mixup: float = 0.0,
        noise: float = 0.0,
        scaling: str = "feature",
        validation_fraction: float = 0.1,
        choose: str = "approximated",
        classes: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.purify = purify
        self.hidden = hidden
        self.n_trials = n_trials
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.mixup = mixup
        self.noise = noise
        self.scaling = scaling
        self.validation_fraction = validation_fraction
        self.choose = choose
        self.classes = classes
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X [n, d] and y: labels [n], a 0/1 mask [n, c], or a list of sets of labels."""
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        candidates = self._read(y, len(X))
        self.classes_ = candidates.classes
        trials = self._trials(len(X))
        method = _instance(self.method, METHODS, Method, "method")
        if method.views > 1:
            raise ValueError(
                f"method must work on tables; {self.method!r} compares views of images. Use oneof.fit with views=."
            )
        if self.choose not in CHOICES:
            raise ValueError(f"choose must be one of {', '.join(CHOICES)}; got {self.choose!r}.")
        held_out = trials[0].held_out is not None
        self.fit_ = fit(
            X,
            candidates.mask,
            trials=trials,
            method=method,
            purify=None if self.purify is None else _instance(self.purify, PURIFY, Purify, "purify"),
            network=MLP(_widths(self.hidden)),
            training=Training(epochs=self.epochs, batch=self.batch_size, mixup=self.mixup, noise=self.noise),
            choose=self.choose if held_out else "last",
            progress=type(self).__name__ if self.verbose else None,
        )
        diverged = int(
            (~torch.stack([w.flatten(1).isfinite().all(1) for w in self.fit_.stack.weights.values()]).all(0)).sum()
        )
        if diverged:
            raise ValueError(
                f"training diverged in {diverged} of {self.n_trials} networks. Lower lr ({self.lr} now), or scale the features."
            )
        self.n_iter_ = int(self.fit_.epoch.max())
        record = self.fit_.history._asdict()
        self.history_ = {name: column.numpy() for name, column in record.items() if isinstance(column, torch.Tensor)}
        self._resolve(X, candidates.mask)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Mean probability [n, c] over the networks."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return _normalised(self.fit_.probabilities(X).double().mean(0)).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy if y holds labels, approximated accuracy if it holds sets (no true label needed)."""
        if _are_labels(y):
            return float(super().score(X, y, sample_weight))
        mask = read(y, classes=self.classes_).mask
        if sample_weight is not None:
            raise ValueError("sample_weight must be None when y holds sets; got weights.")
        logs = torch.as_tensor(self.predict_proba(X)).clamp_min(1e-300).log()
        return float(approximated_accuracy(logs, torch.as_tensor(mask)))

    def _read(self, y: Any, n: int) -> Candidates:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if _are_labels(y):
            y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
            check_classification_targets(y)
        candidates = read(y, classes=self.classes)
        if len(candidates.mask) != n:
            raise ValueError(f"y must have one entry per row of X; got {len(candidates.mask)} for {n} rows.")
        return candidates

    def _trials(self, n: int) -> list[Trial]:
        """The ensemble; every network holds out other rows, all equally many."""
        if self.n_trials < 1:
            raise ValueError(f"n_trials must be at least 1; got {self.n_trials}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1); got {self.validation_fraction}.")
        rng = check_random_state(self.random_state)
        held = int(n * self.validation_fraction)
        trials = []
        for seed in rng.randint(2**31 - 1, size=self.n_trials).tolist():
            order = np.random.default_rng(seed).permutation(n)
            held_out = order[:held] if held else None
            trials.append(Trial(seed, order[held:], held_out, None, self.lr, self.weight_decay, self.scaling))
        return trials

    def _resolve(self, X: NDArray[np.floating[Any]], mask: NDArray[np.bool_]) -> None:
        """Which labels are kept, and how probable each is, given what all networks say."""
        kept = torch.zeros(mask.shape, dtype=torch.bool)
        for rows, sets in zip(self.fit_.rows, self.fit_.candidates, strict=True):
            kept[rows] |= sets
        unseen = ~kept.any(1)  # held out by every network
        kept[unseen] = torch.as_tensor(mask)[unseen]
        distributions = restrict(self.fit_.probabilities(X).double().mean(0), kept)
        self.candidates_ = kept.numpy()
        self.label_distributions_ = distributions.numpy()
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]


def _normalised(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities / probabilities.sum(-1, keepdim=True)  # sums to one in double precision


def _are_labels(y: Any) -> bool:
    """Is y one label per row, and not a mask or a column of sets?"""
    if hasattr(y, "toarray") or hasattr(y, "to_pylist"):  # SciPy sparse, Arrow
        return False
    rows = y if isinstance(y, (list, tuple)) else np.atleast_1d(np.asarray(y))
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return bool(rows.shape[1] == 1)
    return not any(isinstance(row, (set, frozenset, list, tuple, np.ndarray)) for row in rows)


def _widths(hidden: Any) -> tuple[int, ...]:
    widths = tuple(hidden) if isinstance(hidden, (list, tuple, np.ndarray)) else (hidden,)
    if not all(isinstance(width, (int, np.integer)) and width > 0 for width in widths):
        raise ValueError(f"hidden must be widths of layers, such as (128,) or (); got {hidden!r}.")
    return widths


def _instance(value: Any, known: dict[str, Any], kind: Any, name: str) -> Any:
    """An instance by its name, or the instance that was given."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be a name or an instance, such as {next(iter(known.values())).__name__}(); got {value!r}."
        )
    if value not in known:
        near = get_close_matches(value, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")
    return known[value]()
