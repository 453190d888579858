"""The scikit-learn estimator: candidate sets in, a classifier and the resolved label of every training row out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from oneof.candidates.mask import Candidates, restrict
from oneof.candidates.read import read, read_known
from oneof.data.encode import Encoding
from oneof.data.table import read_columns
from oneof.estimator.arguments import are_labels, count, instance, warn_of_joined, widths
from oneof.methods import METHODS, Method
from oneof.metrics import approximated_accuracy
from oneof.purify import PURIFY, Purify
from oneof.runs.folder import Run
from oneof.selection.search import search
from oneof.selection.space import SEEN, Space
from oneof.training.state import Fit


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for rows that each have a set of candidate labels, one of which is right.

    What the other rows say of each row purifies the sets and ranks ways to see the features; settings of networks that were
    left None are tried on held-out sets; an ensemble of the best is trained and votes by its mean probability. No true label is
    used (`oneof.selection.search` has the steps).

    Parameters
    ----------
    method : str or Method, default=BalancedProden()
        A key of `oneof.METHODS`, or an instance; None is the default.
    purify : str, Pop, PopRatio or None, default="pop"
        Remove candidates that the networks have ruled out, a few epochs at a time.
    resolve_first : bool, default=True
        Let the other rows of the table purify the sets before any network is trained.
    hidden : tuple of int or None, default=None
        Widths of the hidden layers; () for a linear model. None: searched, as are the next three.
    scaling : {"feature", "global", "root", "minmax", "none", "ranks", "both"} or None, default=None
        How features are seen, fitted on training rows. "global" for features whose scales mean something, such as principal
        components; "ranks" for skewed ones.
    lr, weight_decay : float or None, default=None
    n_trials : int, default=12
        Networks in the ensemble; they train together.
    epochs, batch_size : int or None, default=None
        None: by the number of rows.
    mixup, noise : float
        How they are trained (see `oneof.Training`).
    rule : str, default="both"
        What is asked of held-out sets: a key of `oneof.metrics.CRITERIA`, or of `oneof.metrics.MEANS`.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None
    processes : int or None, default=None
        Processes among which the networks are dealt out; they give what one gives, up to rounding (see `oneof.fit`). Their start
        takes some ten seconds, so they are for fits that take minutes; on two cores little is gained.
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
    found_ : oneof.selection.search.Found
        The ensemble's networks, what was tried with which truth-free score, what was chosen.
    history_ : dict of arrays [epochs, n_trials]
    n_iter_ : int
        Epochs of the ensemble.

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
        method: str | Method | None = None,
        purify: str | Purify | None = "pop",
        resolve_first: bool = True,
        hidden: tuple[int, ...] | None = None,
        scaling: str | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        n_trials: int = Space.members,
        epochs: int | None = None,
        batch_size: int | None = None,
        mixup: float = Space.mixup,
        noise: float = Space.noise,
        rule: str = "both",
        classes: Any = None,
        random_state: Any = None,
        processes: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.purify = purify
        self.resolve_first = resolve_first
        self.hidden = hidden
        self.scaling = scaling
        self.lr = lr
        self.weight_decay = weight_decay
        self.n_trials = n_trials
        self.epochs = epochs
        self.batch_size = batch_size
        self.mixup = mixup
        self.noise = noise
        self.rule = rule
        self.classes = classes
        self.random_state = random_state
        self.processes = processes
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X [n, d] and y: labels [n], a 0/1 mask [n, c], or a list of sets of labels."""
        self.__dict__.pop("run_", None)  # what was read from a folder is learned anew
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        candidates = self._read(y, len(X))
        self.classes_ = candidates.classes
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        title = type(self).__name__ if self.verbose else None
        self.found_ = search(
            X, candidates.mask, space=self._space(), seed=seed, rule=self.rule, progress=title, processes=self.processes
        )
        self._check_finite()
        self.n_iter_ = int(self.found_.fits[0].epoch.max())
        self.history_ = _history(self.found_.fits)
        self._resolve(X, candidates.mask)
        return self

    def _space(self) -> Space:
        """What is searched: everything that was not said."""
        if self.n_trials < 1:
            raise ValueError(f"n_trials must be at least 1; got {self.n_trials}.")
        if self.scaling is not None and self.scaling not in SEEN:
            raise ValueError(f"scaling must be one of {', '.join(SEEN)}; got {self.scaling!r}.")
        whole = Space()
        method = whole.method if self.method is None else instance(self.method, METHODS, Method, "method")
        if method.views > 1:
            raise ValueError(
                f"method must work on tables; {self.method!r} compares views of images. Use oneof.fit with views=."
            )
        return replace(
            whole,
            method=method,
            purify=None if self.purify is None else instance(self.purify, PURIFY, Purify, "purify"),
            kernel=whole.kernel if self.resolve_first else None,
            hidden=whole.hidden if self.hidden is None else (widths(self.hidden),),
            scaling=whole.scaling if self.scaling is None else (self.scaling,),
            lr=whole.lr if self.lr is None else (self.lr,),
            weight_decay=whole.weight_decay if self.weight_decay is None else (self.weight_decay,),
            members=self.n_trials,
            epochs=count(self.epochs, "epochs"),
            batch=count(self.batch_size, "batch_size"),
            mixup=self.mixup,
            noise=self.noise,
        )

    def _check_finite(self) -> None:
        finite = torch.cat(
            [
                torch.stack([w.flatten(1).isfinite().all(1) for w in one.stack.weights.values()]).all(0)
                for one in self.found_.fits
            ]
        )
        if not finite.all():
            rates = ", ".join(str(one.lr) for one in self.found_.chosen)
            raise ValueError(
                f"training diverged in {int((~finite).sum())} of {len(finite)} networks. Lower lr ({rates} now), or scale the features."
            )

    def _probabilities(self, X: NDArray[np.floating[Any]]) -> torch.Tensor:
        """Mean probability [n, c] over the networks, in double precision."""
        total = sum(one.probabilities(X).double().sum(0) for one in self.found_.fits)
        return _normalised(torch.as_tensor(total))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Mean probability [n, c] over the networks."""
        check_is_fitted(self)
        if hasattr(self, "run_"):
            return _normalised(torch.as_tensor(self.run_.model.probabilities(self._encoded(X))).double()).numpy()
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._probabilities(X).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy if y holds labels, approximated accuracy if it holds sets (no true label needed).

        Candidates that were unknown in training are ignored, as happens to a rare label in cross-validation; a row that has no
        other candidate counts as not covered, which is what a wrong prediction counts as.
        """
        if are_labels(y):
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError("sample_weight must be None when y holds sets; got weights.")
        check_is_fitted(self)
        mask = torch.as_tensor(read_known(y, self.classes_))
        probabilities = torch.as_tensor(self.predict_proba(X))
        _check_length(mask, len(probabilities))
        known = mask.any(1)
        if not known.any():
            return 0.0
        logs = probabilities[known].clamp_min(1e-300).log()
        return float(approximated_accuracy(logs, mask[known]) * known.double().mean())

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """The classifier in a folder that `oneof fit` wrote.

        It predicts for a frame or an Arrow table with the columns that were learned from, or for features [n, d] in the order of
        `run_.facts["features"]`. `transduction_` and `candidates_` are those of the rows that it was trained on.
        """
        run = Run.open(folder)
        self = cls(random_state=run.facts["seed"])
        self.run_ = run
        self.classes_ = np.asarray(run.model.classes)
        self.n_features_in_ = len(run.model.encoding.names)
        self.transduction_ = np.asarray(run.purified["label"].to_pylist())
        self.candidates_ = read(run.purified["kept"], classes=run.model.classes).mask
        return self

    def _encoded(self, X: Any) -> NDArray[Any]:
        """Features of new rows for networks that were read from a folder."""
        encoding: Encoding = self.run_.model.encoding
        if hasattr(X, "columns"):
            columns = read_columns(X, encoding.roles)
            for line in encoding.unseen(columns):
                warnings.warn(line, UserWarning, stacklevel=3)
            return encoding.transform(columns)
        features: NDArray[Any] = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return features

    def _read(self, y: Any, n: int) -> Candidates:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if are_labels(y):
            y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
            check_classification_targets(y)
            warn_of_joined(y)
        candidates = read(y, classes=self.classes)
        _check_length(candidates.mask, n)
        return candidates

    def _resolve(self, X: NDArray[np.floating[Any]], mask: NDArray[np.bool_]) -> None:
        """Which labels are kept, and how probable each is, given what all networks say."""
        kept = torch.zeros(mask.shape, dtype=torch.bool)
        for one in self.found_.fits:
            for rows, sets in zip(one.rows, one.candidates, strict=True):
                kept[rows] |= sets
        unseen = ~kept.any(1)  # held out by every network
        kept[unseen] = torch.as_tensor(mask)[unseen]
        distributions = restrict(self._probabilities(X), kept)
        self.candidates_ = kept.numpy()
        self.label_distributions_ = distributions.numpy()
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]


def _check_length(mask: Any, n: int) -> None:
    if len(mask) != n:
        raise ValueError(f"y must have one entry per row of X; got {len(mask)} for {n} rows.")


def _history(fits: Sequence[Fit]) -> dict[str, NDArray[Any]]:
    """What the epochs showed, every column [epochs, networks]."""
    histories = [one.history.columns for one in fits]
    return {name: torch.cat([history[name] for history in histories], dim=1).numpy() for name in histories[0]}


def _normalised(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities / probabilities.sum(-1, keepdim=True)  # sums to one in double precision
