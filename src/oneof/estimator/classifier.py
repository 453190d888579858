"""The scikit-learn estimator: candidate sets in, a classifier and the resolved label of every training row out."""

import logging
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from oneof.candidates.read import read_known
from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import Roles
from oneof.data.table import Columns, read_columns, read_features
from oneof.estimator.arguments import (
    are_labels,
    check_length,
    count,
    gold_labels,
    group_names,
    is_frame,
    normalised,
    one_thread,
    precision,
    read_y,
    seed_of,
    split_counts,
    votes_for,
)
from oneof.methods import Method
from oneof.metrics import approximated_accuracy
from oneof.purify import PURIFY, Purify
from oneof.runs.accuracy import Claim
from oneof.runs.explain import asking_order
from oneof.runs.folder import Run
from oneof.runs.learn import SPACE, Examples, Learned, learn, write_learned
from oneof.runs.model import Model
from oneof.runs.purified import read_purified
from oneof.runs.review.decided import decided_table
from oneof.selection.space import Setting, Space, checked_learners, instance, method_for_tables
from oneof.selection.trying import Search
from oneof.storage.files import folder_beside

_log = logging.getLogger(__name__)


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for rows that each have a set of candidate labels, one of which is right.

    What the other rows say of each row purifies the sets and ranks ways to see the features; networks and linear models are
    trained on them; trees learn the labels that these find. Held-out sets say how much each learner counts. No true label is
    used (`oneof.selection.search` and `oneof.selection.learners` have the steps).

    Parameters
    ----------
    method : str or Method, default=BalancedProden()
        A key of `oneof.METHODS`, or an instance; None is the default.
    purify : str, Pop, PopPrinted, PopRatio or None, default="pop"
        Remove candidates that the networks have ruled out, a few epochs at a time.
    resolve_first : bool, default=True
        Let the other rows of the table purify the sets before any network is trained.
    hidden : tuple of int or None, default=None
        Widths of the hidden layers; () for a linear model. None: 256.
    scaling : {"feature", "global", "root", "minmax", "none", "ranks", "both"} or None, default=None
        How features are seen, fitted on training rows. "global" for features whose scales mean something, such as principal
        components; "ranks" for skewed ones. None: held-out sets choose.
    lr, weight_decay : float or None, default=None
        None: 0.3 and 0.001.
    n_trials : int, default=5
        Networks in the ensemble, and linear models beside them; they train together.
    learners : tuple or None, default=None
        Which learners are tried: of "networks", "linear", "trees", "kernel", and scikit-learn classifiers with `predict_proba` and
        sample weights (which `save` refuses). None: the four. One that does not help held-out sets gets no say.
    quick : bool, default=False
        A first answer in a second or two: the kernel and 100 trees, no network.
    epochs, batch_size : int or None, default=None
        None: by the number of rows.
    mixup, noise : float
        How they are trained (see `oneof.Training`).
    rule : str, default="both"
        What is asked of held-out sets: a key of `oneof.metrics.CRITERIA`, or of `oneof.metrics.MEANS`.
    classes : sequence, default=None
        All labels, when some may be absent from y; for a mask, the names of its columns.
    random_state : int, RandomState or None
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
    candidates_ : bool array [n, c]
        The purified sets: a label is gone when every network that trained on the row removed it.
    transduction_ : array [n]
        The resolved label of each training row: the most probable one that was kept.
    label_distributions_ : array [n, c]
        Probability of each label of each training row: its share within the original set, by the networks that did not train on
        the row (by all, where all did). Zero off the original set.
    label_probability_ : array [n]
        That of the resolved label.
    model_ : oneof.runs.model.Model
        The networks, and what predicting needs beside them.
    learned_ : oneof.runs.learn.Learned
        What `save` writes: the table of `oneof clean`, what was tried with which truth-free score.
    accuracy_ : oneof.runs.accuracy.Claim
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
        learners: Any = None,
        quick: bool = False,
        epochs: int | None = None,
        batch_size: int | None = None,
        mixup: float = Space.mixup,
        noise: float = Space.noise,
        rule: str = "both",
        classes: Any = None,
        random_state: Any = None,
        processes: int | None = None,
        device: str = "auto",
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
        self.learners = learners
        self.quick = quick
        self.epochs = epochs
        self.batch_size = batch_size
        self.mixup = mixup
        self.noise = noise
        self.rule = rule
        self.classes = classes
        self.random_state = random_state
        self.processes = processes
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Any = None, gold: Any = None, prior: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X
            Features [n, d]: numbers, or a frame or Arrow table, which is read as a file of the same columns is: gaps are filled,
            dates become days, columns of a categorical type are categories; text is left out with a warning.
        y
            Labels [n], a 0/1 mask [n, c], or a list of sets of labels; or counts of votes or probabilities [n, c] (an array, or a
            frame with a column per class): what is above 0 is a candidate, and the numbers are its prior.
        groups
            Rows of one group [n] are never on both sides of a split.
        gold
            True labels [n], None where unknown; they train nothing. Those of the first rows of `oneof.runs.accuracy.drawn_rows(n)`, thirty
            or more, measure the accuracy; thirty or more of other rows choose the settings.
        prior
            How much speaks for each class [n, c] beside the sets, such as counts of votes, in the order of `classes_`.
        """
        begun = time.monotonic()
        self.__dict__.pop("run_", None)  # what was read from a folder is learned anew
        x, encoding, readable = self._rows(X)
        y, counts = split_counts(y)
        candidates = read_y(y, self.classes, len(x), type(self).__name__)
        self.classes_ = candidates.classes
        examples = Examples(
            x,
            candidates,
            encoding,
            gold_labels(gold, self.classes_, len(x)),
            group_names(groups, len(x)),
            counts if prior is None else votes_for(prior, *candidates.mask.shape),
            readable=readable,
        )
        self.learned_ = self._learn(examples)
        self._came_from = examples.facts | {
            "command": repr(self).split(),
            "seconds": round(time.monotonic() - begun, 1),
        }
        self.accuracy_ = self.learned_.claim
        self._show(self.learned_.model, self.learned_.purified, self.learned_.training)
        return self

    def _rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        """Features [n, d], how they were made, and of pictures which could be read."""
        columns, roles = self._columns(X)
        encoding = learn_encoding(columns, roles)
        return encoding.transform(columns), encoding, None

    def _learn(self, examples: Examples) -> Learned:
        with one_thread():
            return learn(examples, self._search())

    def _columns(self, X: Any) -> tuple[Columns, Roles]:
        """The features as they would stand in a table, and which column plays which part."""
        if is_frame(X):
            validate_data(self, X, skip_check_array=True)  # the names of the columns
            self._precision = np.float32
            return read_features(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        self._precision = precision(X)
        names = [f"x{j}" for j in range(X.shape[1])]
        return Columns("X", X.astype(self._precision), names, {}), Roles(features=tuple(names), candidates=None)

    def _search(self) -> Search:
        """What is asked: everything that was not said is searched."""
        if self.n_trials < 1:
            raise ValueError(f"n_trials must be at least 1; got {self.n_trials}.")
        said = {name: getattr(self, name) for name in (*Setting._fields, "mixup")}
        space = replace(
            SPACE.narrowed(said),
            method=SPACE.method if self.method is None else method_for_tables(self.method),
            purify=None if self.purify is None else instance(self.purify, PURIFY, Purify, "purify"),
            kernel=SPACE.kernel if self.resolve_first else None,
            members=self.n_trials,
            epochs=count(self.epochs, "epochs"),
            batch=count(self.batch_size, "batch_size"),
            noise=self.noise,
        )
        if self.quick and self.learners is not None:
            raise ValueError("quick must be False where learners are named; got both. Leave one of them out.")
        if self.learners is not None:
            space = replace(space, learners=checked_learners(self.learners))
        space = space.quick if self.quick else space
        title = type(self).__name__ if self.verbose else None
        return Search(
            space, seed_of(self.random_state), self.rule, progress=title, device=self.device, processes=self.processes
        )

    def _show(self, model: Model, purified: pa.Table, training: dict[str, Any]) -> None:
        """Set what was learned, here or in a run that is read."""
        table, c = read_purified(purified, model.classes), len(model.classes)
        self.model_ = model
        self.candidates_ = table.kept.toarray()[:, :c] > 0
        self.label_distributions_ = normalised(table.distribution.toarray()[:, :c])
        self.label_probability_ = table.probability
        self.transduction_ = self.classes_[table.label]
        self.history_ = {name: np.asarray(column, dtype=float) for name, column in training["columns"].items()}
        self.n_iter_ = int(training["epochs"])

    def query(self, n: int = 10) -> NDArray[np.intp]:
        """Numbers of the n training rows to ask a person about, the one whose answer is expected to mend most labels first.

        Rows with a gold label, or decided in `oneof review`, are left out. `fit` takes the answers as sets of one label.
        """
        check_is_fitted(self)
        table = self.run_.decided if hasattr(self, "run_") else decided_table(self.learned_.purified, {})
        order = asking_order(table)
        return np.asarray(order[~table["decided"].to_numpy()[order]][: count(n, "n")])

    def save(self, folder: str | Path) -> None:
        """Write what was learned to a new folder, as `oneof fit` does: `oneof clean`, `report`, `export` and `predict` take it."""
        check_is_fitted(self)
        with folder_beside(Path(folder)) as beside:
            if hasattr(self, "run_"):
                shutil.copytree(self.run_.folder, beside, dirs_exist_ok=True)
            else:
                write_learned(self.learned_, beside, self._came_from)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Mean probability [n, c] over the learners, by their shares."""
        check_is_fitted(self)
        x = self._encoded(X)
        with one_thread():
            return normalised(self.model_.probabilities(x))

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
        check_length(mask, len(probabilities), "y")
        known = mask.any(1)
        if not known.any():
            return 0.0
        logs = probabilities[known].clamp_min(1e-300).log()
        return float(approximated_accuracy(logs, mask[known]) * known.double().mean())

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """The classifier in a folder that `oneof fit` or `save` wrote.

        It predicts for a frame or an Arrow table with the columns that were learned from, or for features [n, d] in the order of
        `run_.facts["features"]`. What it says of rows is about those that it was trained on.
        """
        run = Run.open(folder)
        self = cls(random_state=run.facts["seed"])
        self.run_ = run
        self.classes_ = np.asarray(run.model.classes)
        self.accuracy_ = Claim(**run.facts["estimate"])
        self.n_features_in_ = len(run.model.encoding.names)
        self._precision = np.float32
        self._show(run.model, run.purified, run.training)
        return self

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
            raise ValueError(
                f"X must be a frame with the columns that were learned from; got an array of {features.shape[1]} numbers, of which "
                f"{len(encoding.names)} features were made."
            )
        return features.astype(self._precision)
