"""Fit a classifier to candidate sets, and resolve the label of every training row: the base of both estimators."""

import logging
import shutil
import time
from abc import ABCMeta, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from oneof.candidates.read import read_with_classes
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.accuracy import AccuracyEstimate
from oneof.ensemble.model import Model
from oneof.ensemble.records import FitResult
from oneof.ensemble.review_order import reviewing_order
from oneof.ensemble.with_votes import dataset_with_votes
from oneof.estimator.arguments import (
    are_labels,
    check_gold,
    check_groups,
    check_length,
    check_positive_int,
    check_prior,
    counts_to_candidates,
    normalize_rows,
    read_y,
    single_torch_thread,
)
from oneof.estimator.stored import labels_to_json, params_to_json, read_stored
from oneof.estimator.votes import check_alone_with_votes, match_items, read_and_log, sets_of_votes, split_items
from oneof.learners.config import FitConfig
from oneof.metrics import approximated_accuracy
from oneof.runs.decisions import decided_table
from oneof.runs.folder import Run
from oneof.runs.purified import read_purified
from oneof.runs.write_run import write_run
from oneof.storage.files import atomic_folder
from oneof.storage.regular import check_plain_tree
from oneof.version import __version__
from oneof.votes.ballots import Votes

ESTIMATOR = "estimator"  # in run.json: parameters, and labels with their type
_TINY = 1e-300  # a probability of 0 has no logarithm

_log = logging.getLogger(__name__)


class BasePartialLabelClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """Base class of the estimators.

    A subclass defines how its inputs become features (`_encode_training_rows`, `_encode_new_rows`) and what is fitted to them (`_train`).
    """

    @abstractmethod
    def _encode_training_rows(self, X: Any) -> tuple[NDArray[Any], Encoding, NDArray[np.bool_] | None]:
        """Return features [n, d], their encoding, and which rows are unreadable pictures [n] (None: there are no pictures)."""

    @abstractmethod
    def _encode_new_rows(self, X: Any) -> NDArray[Any]:
        """Return features [n, d] with the encoding of the training rows."""

    def _learn_features(self, data: Dataset) -> Dataset:
        """Return the data set with features that are learned from inputs and candidate sets; unchanged, unless a subclass learns any."""
        return data

    @abstractmethod
    def _config(self) -> FitConfig:
        """Return the settings that the parameters describe."""

    @abstractmethod
    def _train(self, data: Dataset, config: FitConfig) -> FitResult:
        """Fit the ensemble."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        gold: Any = None,
        prior: Any = None,
        votes: Any = None,
        items: Any = None,
    ) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X
            Features [n, d]: numbers, as an array or a sparse matrix; or a pandas or polars frame, an Arrow table or a Hugging Face
            dataset, which is read like a file with the same columns: missing values are imputed, dates become days, columns of a
            categorical type or of text with few values are categories. Identifiers, and free text where no embedder is installed, are
            left out with a warning. More than 1,024 columns of numbers are replaced by their principal components, if a few hundred
            hold nine tenths of the variance; sparse ones always are.
        y
            Labels [n], a 0/1 mask [n, c], or a list of sets of labels; or counts of votes or probabilities [n, c] (an array, or a
            frame with a column per class): labels above 0 are candidates, and the numbers are their prior. Then no candidate is
            removed, and where the features do not predict the labels, the largest number of a row decides. In cross-validation with a
            number as `cv`, scikit-learn refuses lists and tuples: pass sets, an array, or a splitter such as `KFold(3)`.
        groups
            Group of each row [n]; rows of one group are never on both sides of a split.
        gold
            True labels [n], None where unknown. They are not trained on. If there are thirty or more for the first rows of
            `oneof.ensemble.accuracy.sample_order(n)`, these measure the accuracy; thirty or more for other rows choose the settings.
        prior
            Evidence for each class [n, c] in addition to the sets, such as counts of votes, in the order of `classes_`.
        votes
            Votes of annotators, in place of y: what `oneof.votes.read_votes` returned, or anything that it reads, such as a frame
            with the columns `item`, `annotator` and `label`. Annotators are weighed against each other and against the features,
            as by `oneof fit --votes`; `annotators_` says how accurate they seem. Labels are text, unless `classes` has them in
            another type. Rows without votes may have any label.
        items
            With votes: the item of each row [n], or the name of the column of X that holds it, which is then no feature. None: the
            column `item` of a frame, if there is one, else the index of a pandas frame, else the row numbers from 0.

        Returns
        -------
        self
        """
        start = time.monotonic()
        if hasattr(self, "run_"):
            del self.run_  # the folder that from_run opened; this fit replaces it
        ids = None
        if votes is not None:
            check_alone_with_votes(y, prior)
            X, ids = split_items(X, items)
            votes = read_and_log(votes, rows_are_numbered=ids is None)
        elif items is not None:
            raise ValueError("items must be left out without votes, whose rows they are. Pass votes=, or drop items.")
        features, encoding, is_unreadable = self._encode_training_rows(X)
        n = len(features)
        item = None
        counts = None
        if votes is not None:
            item = match_items(votes, ids, n)
            candidates = sets_of_votes(votes, item, self.classes)
        else:
            y, counts = counts_to_candidates(y)
            candidates = read_y(y, self.classes, n, type(self).__name__)
        self.classes_ = candidates.classes
        if counts is None and prior is None and votes is None and candidates.mask.all():
            _log.warning("every set is full: y excludes no label, so nothing can be learned from it.", stacklevel=2)
        group_names = check_groups(groups, n)
        gold_indices = check_gold(gold, self.classes_, n)
        if prior is not None:
            counts = check_prior(prior, n, len(self.classes_))
        observed = None
        if is_unreadable is not None:
            observed = ~is_unreadable
        data = Dataset.build(
            features,
            candidates,
            encoding,
            prior=counts,
            gold=gold_indices,
            groups=group_names,
            observed=observed,
        )
        checksum = data.fingerprint
        about_votes = self._fit_dataset(data, votes, item)
        self._metadata = {**self._describe_fit(checksum, time.monotonic() - start), **about_votes}
        self.annotators_ = about_votes.get("people", {}).get("annotators", [])
        self._set_fitted_attributes(self.result_.model, self.result_.purified, self.result_.training)
        return self

    def _fit_dataset(self, data: Dataset, votes: Votes | None, item: NDArray[np.intp] | None) -> dict[str, Any]:
        """Fit the ensemble, which sets `result_` and `accuracy_`, and return what run.json stores about the votes."""
        config = self._config()
        data = self._learn_features(data)
        about_votes: dict[str, Any] = {}
        if votes is not None and item is not None:
            data, ensemble, annotators = dataset_with_votes(data, votes, item, config.ensemble, config.seed)
            config = replace(config, ensemble=ensemble)
            about_votes = {"people": annotators, "rule": "votes"}
        self.result_ = self._train(data, config)
        for warning in self.result_.warnings:
            _log.warning(warning)
        self.accuracy_ = self.result_.accuracy
        return about_votes

    def _describe_fit(self, checksum: str, seconds: float) -> dict[str, Any]:
        """Return what run.json stores about a fit of this estimator, beyond what it stores about any fit."""
        return {
            "file": "arrays",
            "fingerprint": checksum,
            "asked": {"oneof": __version__, "data": checksum, "train_on_gold": False},
            "warnings": [],
            "command": repr(self).split(),
            "seconds": round(seconds, 1),
            "columns": getattr(self, "columns_", {}),
            ESTIMATOR: {
                "params": params_to_json(self.get_params(deep=False), self.result_.metadata["seed"]),
                "labels": labels_to_json(self.classes_),
            },
        }

    def _set_fitted_attributes(self, model: Model, purified: pa.Table, training: dict[str, Any]) -> None:
        """Set the attributes that a fit and a stored run have in common."""
        table = read_purified(purified, model.classes)
        c = len(model.classes)
        self.model_ = model
        self.candidates_ = table.kept.toarray()[:, :c] > 0
        self.label_distributions_ = normalize_rows(table.distribution.toarray()[:, :c])
        self.label_probability_ = table.probability
        self.transduction_ = self.classes_[table.label]
        self.history_ = {name: np.asarray(values, dtype=float) for name, values in training["columns"].items()}
        self.n_iter_ = int(training["epochs"])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class [n, c]: the weighted mean of the learners' probabilities."""
        check_is_fitted(self)
        with single_torch_thread():
            return normalize_rows(self.model_.probabilities(self._encode_new_rows(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row [n]."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy if y holds labels, the approximated accuracy if it holds sets.

        The approximated accuracy needs no true label: it is the mean of the predicted label's probability within the row's set.
        Candidates that do not occur in training are ignored, as happens to a rare label in cross-validation; a row without any
        other candidate counts as a wrong prediction. Of counts or probabilities [n, c], labels above 0 are candidates, as in `fit`.
        """
        if are_labels(y):
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise ValueError("sample_weight must be None when y holds sets; got weights.")
        check_is_fitted(self)
        y, _ = counts_to_candidates(y)
        mask = torch.as_tensor(read_with_classes(y, self.classes_))
        probabilities = torch.as_tensor(self.predict_proba(X))
        check_length(mask, len(probabilities), "y")
        has_known_candidate = mask.any(1)
        if not has_known_candidate.any():
            return 0.0
        log_probabilities = probabilities[has_known_candidate].clamp_min(_TINY).log()
        accuracy = approximated_accuracy(log_probabilities, mask[has_known_candidate])
        return float(accuracy * has_known_candidate.double().mean())

    def query(self, n: int = 10) -> NDArray[np.intp]:
        """Return the indices of the n training rows to ask a person about, the most useful first.

        Most useful are the rows whose answers are expected to correct most labels. Rows that have a gold label, or were decided in
        `oneof review`, are left out. Pass the answers to `fit` as sets of one label.
        """
        check_is_fitted(self)
        if hasattr(self, "run_"):
            table = self.run_.decided
        else:
            table = decided_table(self.result_.purified, {})
        order = reviewing_order(table)
        is_decided = table["decided"].to_numpy()[order]
        return np.asarray(order[~is_decided][: check_positive_int(n, "n")])

    def save(self, folder: str | Path) -> None:
        """Write the classifier to a new folder, which `oneof clean`, `report`, `review`, `export` and `predict` read."""
        check_is_fitted(self)
        with atomic_folder(Path(folder)) as unfinished:
            if hasattr(self, "run_"):
                check_plain_tree(self.run_.folder.resolve())  # a link may lead to a device without an end
                shutil.copytree(self.run_.folder, unfinished, dirs_exist_ok=True)
            else:
                write_run(self.result_, unfinished, self._metadata)

    @classmethod
    def from_run(cls, folder: str | Path) -> Self:
        """Return the classifier in a folder that `oneof fit` or `save` wrote.

        From a folder of `save`, labels have the type that they had in `fit`, and parameters are restored, except for those that JSON cannot
        hold, such as a classifier in `learners`, which have their defaults. From a folder of `oneof fit`, labels are text, and the seed is
        the only known parameter. The classifier predicts for a frame or an Arrow table with the columns of the training table, or for
        features [n, d] in the order of `run_.metadata["features"]`.
        """
        run = Run.open(folder)
        params, classes = read_stored(run.metadata.get(ESTIMATOR), run.model.classes, run.metadata["seed"])
        known_params = {}
        for name in cls._get_param_names():
            if name in params:
                known_params[name] = params[name]
        self = cls(**known_params)
        self.run_ = run
        self.classes_ = classes
        self.accuracy_ = AccuracyEstimate(**run.metadata["estimate"])
        self.annotators_ = run.metadata.get("people", {}).get("annotators", [])
        self.n_features_in_ = run.model.encoding.n_inputs
        self.columns_ = run.metadata.get("columns", {})
        self._dtype = np.float32
        self._set_fitted_attributes(run.model, run.purified, run.training)
        return self
