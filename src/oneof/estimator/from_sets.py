"""What both estimators do: candidate sets in, a classifier and the resolved label of every training row out."""

import shutil
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from oneof.candidates.read import read_known
from oneof.ensemble.accuracy import Claim
from oneof.ensemble.model import Model
from oneof.ensemble.pipeline import Examples
from oneof.ensemble.review_order import asking_order
from oneof.estimator import arguments as given
from oneof.estimator.stored import labels_to_json, params_to_json, read_stored
from oneof.metrics import approximated_accuracy
from oneof.runs.folder import Run
from oneof.runs.purified import read_purified
from oneof.runs.review.decisions import decided_table
from oneof.runs.write import write_run
from oneof.storage.files import folder_beside

ESTIMATOR = "estimator"  # in run.json: parameters and typed labels


class ClassifierFromSets(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fit, predict, save and ask.

    Each kind of rows says how they become features (`_rows` of training, `_encoded` of new ones) and what learns from them (`_learn`).
    """

    def fit(self, X: Any, y: Any, groups: Any = None, gold: Any = None, prior: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X
            Features [n, d]: numbers, or a frame of pandas or polars or an Arrow table, which is read as a file of the same columns
            is: gaps are filled, dates become days; columns of a categorical type, and of text with few values, are categories.
            Identifiers, and free text where no embedder is installed, are left out with a warning.
        y
            Labels [n], a 0/1 mask [n, c], or a list of sets of labels; or counts of votes or probabilities [n, c] (an array, or a
            frame with a column per class): what is above 0 is a candidate, and the numbers are its prior. No candidate is removed
            then, and where features say nothing of the labels, the largest number of a row decides. In cross-validation with a
            number as `cv`, scikit-learn refuses lists and tuples: give sets, an array, or a splitter such as `KFold(3)`.
        groups
            Rows of one group [n] are never on both sides of a split.
        gold
            True labels [n], None where unknown; they train nothing. Those of the first rows of `oneof.ensemble.accuracy.drawn_rows(n)`, thirty
            or more, measure the accuracy; thirty or more of other rows choose the settings.
        prior
            How much speaks for each class [n, c] beside the sets, such as counts of votes, in the order of `classes_`.
        """
        begun = time.monotonic()
        self.__dict__.pop("run_", None)  # what was read from a folder is learned anew
        x, encoding, blank = self._rows(X)
        y, counts = given.split_counts(y)
        candidates = given.read_y(y, self.classes, len(x), type(self).__name__)
        self.classes_ = candidates.classes
        if groups is not None:
            given.check_length(groups, len(x), "groups")
            groups = list(map(str, groups))
        known = given.gold_labels(gold, self.classes_, len(x))
        prior = counts if prior is None else given.log_prior_of(prior, *candidates.mask.shape)
        examples = Examples(x, candidates, encoding, known, groups, prior, blank=blank)
        self.learned_ = self._learn(examples)
        took = {"command": repr(self).split(), "seconds": round(time.monotonic() - begun, 1)}
        stored = {
            "params": params_to_json(self.get_params(deep=False), self.learned_.facts["seed"]),
            "labels": labels_to_json(self.classes_),
        }
        columns = getattr(self, "columns_", {})
        self._came_from = {**examples.facts, **took, "columns": columns, ESTIMATOR: stored}
        self.accuracy_ = self.learned_.claim
        self._show(self.learned_.model, self.learned_.purified, self.learned_.training)
        return self

    def _show(self, model: Model, purified: pa.Table, training: dict[str, Any]) -> None:
        """Set what was learned, here or in a run that is read."""
        table, c = read_purified(purified, model.classes), len(model.classes)
        self.model_ = model
        self.candidates_ = table.kept.toarray()[:, :c] > 0
        self.label_distributions_ = given.normalised(table.distribution.toarray()[:, :c])
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
        return np.asarray(order[~table["decided"].to_numpy()[order]][: given.count(n, "n")])

    def save(self, folder: str | Path) -> None:
        """Write what was learned to a new folder, as `oneof fit` does: `oneof clean`, `report`, `export` and `predict` take it."""
        check_is_fitted(self)
        with folder_beside(Path(folder)) as beside:
            if hasattr(self, "run_"):
                shutil.copytree(self.run_.folder, beside, dirs_exist_ok=True)
            else:
                write_run(self.learned_, beside, self._came_from)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Mean probability [n, c] over the learners, by their shares."""
        check_is_fitted(self)
        with given.one_thread():
            return given.normalised(self.model_.probabilities(self._encoded(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy if y holds labels, the approximated accuracy if it holds sets (no true label needed).

        Of counts or probabilities [n, c], what is above 0 is a candidate, as in `fit`.
        Candidates that were unknown in training are ignored, as happens to a rare label in cross-validation; a row that has no
        other candidate counts as not covered, which is what a wrong prediction counts as.
        """
        if given.are_labels(y):
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError("sample_weight must be None when y holds sets; got weights.")
        check_is_fitted(self)
        y, _ = given.split_counts(y)
        mask = torch.as_tensor(read_known(y, self.classes_))
        probabilities = torch.as_tensor(self.predict_proba(X))
        given.check_length(mask, len(probabilities), "y")
        known = mask.any(1)
        if not known.any():
            return 0.0
        logs = probabilities[known].clamp_min(1e-300).log()
        return float(approximated_accuracy(logs, mask[known]) * known.double().mean())

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """Return the classifier in a folder that `oneof fit` or `save` wrote.

        Of a folder of `save`, labels have the type that they were fitted with, and `get_params` gives the parameters that they were fitted with; of
        one of `oneof fit`, labels are text, and the seed alone is known as a parameter.
        It predicts for a frame or an Arrow table with the columns that were learned from, or for features [n, d] in the order of
        `run_.facts["features"]`. What it says of rows is about those that it was trained on.
        """
        run = Run.open(folder)
        params, classes = read_stored(run.facts.get(ESTIMATOR), run.model.classes, run.facts["seed"])
        known = cls._get_param_names()
        self = cls(**{name: value for name, value in params.items() if name in known})
        self.run_ = run
        self.classes_ = classes
        self.accuracy_ = Claim(**run.facts["estimate"])
        self.n_features_in_ = len(run.model.encoding.names)
        self.columns_ = run.facts.get("columns", {})
        self._precision = np.float32
        self._show(run.model, run.purified, run.training)
        return self
