"""A classifier of the user's own as a learner: anything with scikit-learn's `fit` and `predict_proba`, pipelines included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from oneof.data.dataset import BoolArray, Dataset, FloatArray, IntArray
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Context, FittedLearner, Predictions, Targets

FOLDS = 5


@dataclass(frozen=True, eq=False)
class SklearnModel:
    """Fitted classifiers, one per fold; predicts their mean probability."""

    name: str
    classifiers: tuple[Any, ...]
    labels: tuple[IntArray, ...]  # the classes that each classifier was trained on, which it knows as 0, 1, ...
    n_classes: int

    kind: ClassVar = "own"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return probabilities [n, c] of features x [n, d]."""
        total = np.zeros((len(x), self.n_classes))
        for classifier, labels in zip(self.classifiers, self.labels, strict=True):
            total += _predict_all_classes(classifier, labels, x, self.n_classes)
        return (total / len(self.classifiers)).astype(np.float32)


@dataclass(frozen=True)
class SklearnLearner:
    """Fits clones of a classifier on the most probable label of each row, weighted by its probability.

    A classifier that takes no weights is fitted on a part of the rows: a row is drawn with the probability that would be its weight.
    """

    classifier: Any

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Fit a clone for each fold; every row is held out by one."""
        n, c = targets.soft_labels.shape
        out_of_fold = np.zeros((n, c), dtype=np.float32)
        rng = np.random.default_rng(context.config.seed)
        classifiers = []
        labels_of_folds = []
        for train, held_out in cross_fit_splits(data.groups, FOLDS, context.config.seed):
            classifier, labels = self._fit_fold(
                data.features[train], targets.label[train], targets.confidence[train], rng
            )
            out_of_fold[held_out] = _predict_all_classes(classifier, labels, data.features[held_out], c)
            classifiers.append(classifier)
            labels_of_folds.append(labels)
        name = classifier_name(self.classifier)
        oof = Predictions.from_single_model(out_of_fold, context.evaluation_sets)
        return FittedLearner(name, SklearnModel(name, tuple(classifiers), tuple(labels_of_folds), c), oof)

    def _fit_fold(
        self, x: NDArray[Any], label: IntArray, confidence: FloatArray, rng: np.random.Generator
    ) -> tuple[Any, IntArray]:
        """Return a classifier fitted on the labels [n] as numbers from 0 on without gaps, and the label behind each number."""
        labels, encoded = np.unique(label, return_inverse=True)
        if len(labels) == 1:  # many classifiers refuse a single class
            return DummyClassifier().fit(x, encoded), labels
        weight_name = weight_parameter(self.classifier)
        classifier = clone(self.classifier)
        fit_parameters: dict[str, Any] = {}
        if weight_name is None:
            is_drawn = draw_rows(encoded, confidence, rng)
            x = x[is_drawn]
            encoded = encoded[is_drawn]
        else:
            fit_parameters[weight_name] = confidence
        try:
            with config_context(enable_metadata_routing=False):  # where it is on, STEP__sample_weight is refused
                classifier.fit(x, encoded, **fit_parameters)
        except Exception as error:
            error.add_note(
                f"learners: {classifier_name(classifier)} was fitted on {len(x)} rows with the labels 0 to {len(labels) - 1}."
            )
            raise
        return classifier, labels


def classifier_name(classifier: Any) -> str:
    """Return the name of a classifier's class; of a pipeline, that of its last step."""
    if isinstance(classifier, Pipeline):
        return classifier_name(classifier.steps[-1][1])
    return type(classifier).__name__


def weight_parameter(classifier: Any) -> str | None:
    """Return the name under which `fit` takes weights of rows, or None if it takes none.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> weight_parameter(make_pipeline(StandardScaler(), LogisticRegression()))
    'logisticregression__sample_weight'
    """
    if isinstance(classifier, Pipeline):
        step_name, last_step = classifier.steps[-1]
        name_in_step = weight_parameter(last_step)
        return None if name_in_step is None else f"{step_name}__{name_in_step}"
    if has_fit_parameter(classifier, "sample_weight"):
        return "sample_weight"
    return None


def draw_rows(label: IntArray, confidence: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Draw each row [n] with the probability of its label; the most certain row of every label is always among them."""
    is_drawn = rng.random(len(label)) < confidence
    for index in range(label.max() + 1):
        rows = np.flatnonzero(label == index)
        is_drawn[rows[confidence[rows].argmax()]] = True
    return is_drawn


def _predict_all_classes(classifier: Any, labels: IntArray, x: NDArray[Any], n_classes: int) -> FloatArray:
    """Return probabilities [n, c], zero for classes that the classifier was not trained on."""
    predicted = np.asarray(classifier.predict_proba(x))
    if predicted.shape != (len(x), len(labels)):
        name = classifier_name(classifier)
        raise ValueError(
            f"learners must predict a probability for each class they were fitted on, {[len(x), len(labels)]}; "
            f"predict_proba of {name} returned {list(predicted.shape)}."
        )
    probabilities = np.zeros((len(x), n_classes))
    probabilities[:, labels] = predicted
    return probabilities
