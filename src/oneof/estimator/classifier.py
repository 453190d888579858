"""The scikit-learn estimator for tables."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import Roles
from oneof.data.table import Columns, read_columns, read_features
from oneof.ensemble.pipeline import SPACE, Examples, Learned, learn, space_for
from oneof.estimator.arguments import count, is_frame, one_thread, precision, seed_of
from oneof.estimator.base import BasePartialLabelClassifier
from oneof.learners.config import Setting, Space, instance
from oneof.learners.scaled_rows import Search
from oneof.methods import Method
from oneof.purify import PURIFY, Purify

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PartialLabelClassifier(BasePartialLabelClassifier):
    """Classifier for rows that each have a set of candidate labels, one of which is right.

    What the other rows say of each row purifies the sets and ranks ways to see the features; networks and linear models are
    trained on them; trees learn the labels that these find. Held-out sets say how much each learner counts. No true label is
    used (`oneof.learners.networks` and `oneof.learners.fitted` have the steps).

    Parameters
    ----------
    method : str, Method or None, default=None
        A key of `oneof.METHODS`, or an instance. None: BalancedProden().
    purify : str, Pop, PopPrinted, PopRatio, PopReleased or None, default="pop"
        Remove candidates that the networks have ruled out, a few epochs at a time.
    resolve_first : bool, default=True
        Let the other rows of the table purify the sets before any network is trained.
    hidden : tuple of int or None, default=None
        Widths of the hidden layers; () for a linear model. None: two of 128.
    scaling : {"feature", "global", "root", "minmax", "none", "ranks", "both"} or None, default=None
        How features are seen, fitted on training rows. "global" for features whose scales mean something, such as principal
        components; "ranks" for skewed ones. None: held-out sets choose.
    lr, weight_decay : float or None, default=None
        None: 0.3 and 0.0003.
    n_trials : int, default=5
        Networks in the ensemble, and linear models beside them; they train together.
    learners : tuple or None, default=None
        Which learners are tried: of "networks", "linear", "trees", "kernel", and scikit-learn classifiers with `predict_proba` and
        sample weights (which `save` refuses). None: the four. One that does not help held-out sets gets no say.
    quick : bool, default=False
        A first answer in a second or two: the kernel and 100 trees, no network.
    epochs, batch_size : int or None, default=None
        None: by the number of rows.
    mixup : float, default=1.0
        How far rows are mixed in training (see `oneof.Training`).
    noise : float, default=0.0
        How much noise is added to features in training (see `oneof.Training`).
    rule : str, default="both"
        What is asked of held-out sets: a key of `oneof.metrics.CRITERIA`, or of `oneof.metrics.MEANS`.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None, default=None
        A whole number is what `oneof fit --seed` takes, and gives the same.
    processes : int or None, default=None
        Processes among which the networks are dealt out; they give what one gives, up to rounding (see `oneof.fit`). Their start
        takes some ten seconds, so they are for fits that take minutes; on two cores little is gained.
    device : str, default="auto"
        Where to learn: "cpu" or "cuda", the same up to rounding. "auto": the GPU, if there is one, from 20,000 rows on. Trees grow on
        the CPU, and what was learned predicts there.
    verbose : bool, default=False
        Show a progress bar when run in a terminal.

    Attributes
    ----------
    classes_ : array [c]
    columns_ : dict
        What each column of a frame became, and why: `{"hue": {"use": "category", "reason": "text with 3 values"}}`. Empty for arrays.
    candidates_ : bool array [n, c]
        The purified sets: a label is gone when every network that trained on the row removed it.
    transduction_ : array [n]
        The resolved label of each training row: the most probable one that was kept.
    label_distributions_ : array [n, c]
        Probability of each label of each training row: its share within the original set, by the networks that did not train on
        the row (by all, where all did). Zero off the original set.
    label_probability_ : array [n]
        That of the resolved label.
    model_ : oneof.ensemble.model.Model
        The networks, and what predicting needs beside them.
    learned_ : oneof.ensemble.pipeline.Learned
        What `save` writes: the table of `oneof clean`, what was tried with which truth-free score.
    accuracy_ : oneof.ensemble.accuracy.Claim
        What may be said of the accuracy on new rows: an interval, a bound, or that nothing was learned; and on what ground.
    history_ : dict of arrays [epochs, networks and linear models]
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

    method: str | Method | None = None
    purify: str | Purify | None = "pop"
    resolve_first: bool = True
    hidden: tuple[int, ...] | None = None
    scaling: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    n_trials: int = Space.members
    learners: Any = None
    quick: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    mixup: float = Space.mixup
    noise: float = Space.noise
    rule: str = "both"
    classes: Any = None
    random_state: Any = None
    processes: int | None = None
    device: str = "auto"
    verbose: bool = False

    def _rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        """Features [n, d], how they were made, and of pictures which could not be read."""
        if is_frame(X):
            validate_data(self, X, skip_check_array=True)  # the names of the columns
            self._precision: type = np.float32
            columns, roles, uses = read_features(X)
            self.columns_ = {name: asdict(use) for name, use in uses.items()}
        else:
            self.columns_ = {}
            X = validate_data(self, X, dtype=[np.float64, np.float32])
            self._precision = precision(X)
            names = [f"x{j}" for j in range(X.shape[1])]
            columns = Columns("X", X.astype(self._precision), names, {})
            roles = Roles(features=tuple(names), candidates=None)
        encoding = learn_encoding(columns, roles)
        return encoding.transform(columns), encoding, None

    def _learn(self, examples: Examples) -> Learned:
        with one_thread():
            return learn(examples, self._search())

    def _search(self) -> Search:
        """What is asked: everything that was not said is searched."""
        if self.n_trials < 1:
            raise ValueError(f"n_trials must be at least 1; got {self.n_trials}.")
        said = {name: getattr(self, name) for name in (*Setting._fields, "mixup")}
        purify = None if self.purify is None else instance(self.purify, PURIFY, Purify, "purify")
        more: dict[str, Any] = {"members": self.n_trials, "noise": self.noise, "epochs": count(self.epochs, "epochs")}
        more |= {"batch": count(self.batch_size, "batch_size"), "kernel": SPACE.kernel if self.resolve_first else None}
        space = space_for(said, self.method, purify, self.learners, self.quick, **more)
        seed, title = seed_of(self.random_state), type(self).__name__ if self.verbose else None
        return Search(space, seed, self.rule, progress=title, device=self.device, processes=self.processes)

    def _encoded(self, X: Any) -> NDArray[Any]:
        """Features of new rows."""
        encoding = self.model_.encoding
        if is_frame(X) and (hasattr(self, "run_") or hasattr(self, "feature_names_in_")):
            if not hasattr(self, "run_"):
                validate_data(self, X, reset=False, skip_check_array=True)
            columns = read_columns(X, encoding.roles)
            for line in encoding.unseen(columns):
                _log.warning(line, stacklevel=3)
            return encoding.transform(columns)
        features: NDArray[Any] = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        if features.shape[1] != len(encoding.names):
            got = f"an array of {features.shape[1]} numbers, of which {len(encoding.names)} features were made"
            raise ValueError(f"X must be a frame with the columns that were learned from; got {got}.")
        return features.astype(self._precision)
