"""A scikit-learn classifier of the user's own as a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oneof.data.dataset import Dataset, FloatArray
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Context, FittedLearner, Predictions, Targets

FOLDS = 5


@dataclass(frozen=True, eq=False)
class SklearnModel:
    """Fitted classifiers, one per fold; predicts their mean probability."""

    classifiers: tuple[Any, ...]
    n_classes: int

    kind: ClassVar = "own"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return probabilities [n, c] of features x [n, d]."""
        probabilities = [_predict_all_classes(classifier, x, self.n_classes) for classifier in self.classifiers]
        return np.asarray(np.mean(probabilities, axis=0), dtype=np.float32)


@dataclass(frozen=True)
class SklearnLearner:
    """Fits clones of a classifier on the most probable label of each row, weighted by its probability."""

    classifier: Any

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Fit a clone for each fold; every row is held out by one."""
        from sklearn.base import clone

        n, c = targets.soft_labels.shape
        out_of_fold = np.zeros((n, c), dtype=np.float32)
        classifiers = []
        for train, held_out in cross_fit_splits(data.groups, FOLDS, context.config.seed):
            classifier = clone(self.classifier)
            classifier.fit(data.features[train], targets.label[train], sample_weight=targets.confidence[train])
            out_of_fold[held_out] = _predict_all_classes(classifier, data.features[held_out], c)
            classifiers.append(classifier)
        name = type(self.classifier).__name__
        oof = Predictions.from_single_model(out_of_fold, context.evaluation_sets)
        return FittedLearner(name, SklearnModel(tuple(classifiers), c), oof)


def _predict_all_classes(classifier: Any, x: NDArray[Any], n_classes: int) -> FloatArray:
    """Return probabilities [n, c], zero for classes that the classifier has not met."""
    probabilities = np.zeros((len(x), n_classes))
    probabilities[:, classifier.classes_] = classifier.predict_proba(x)
    return probabilities
