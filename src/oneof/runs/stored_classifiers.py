"""Store classifiers of the user's own by skops, which writes scikit-learn's estimators without pickle.

A file is read only if every type in it is one that skops trusts by itself (scikit-learn's, NumPy's and plain Python's), whatever the
file claims. Opening a model from a stranger therefore runs no code.
"""

import io
import json
import zipfile
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from oneof.data.dataset import IntArray
from oneof.learners.sklearn_classifier import SklearnModel
from oneof.storage.optional_packages import load_package

_REFUSED_LOADERS = {"RandomStateNode", "RandomGeneratorNode"}  # set the state of a generator without checking it
_REMEDY = "Fit without it to save."


def dump_classifiers(model: SklearnModel) -> bytes:
    """Return the fitted classifiers as the bytes of a skops file; raise ValueError if it could not be read back."""
    skops_io = _load_skops(f"saving {model.name} of learners")
    try:
        content: bytes = skops_io.dumps(list(model.classifiers))
    except Exception as error:  # of any type, from the classifier's own code
        message = f"learners must be classifiers that skops can write; {model.name} is not: {error}. {_REMEDY}"
        raise ValueError(message) from error
    reason = _reason_to_refuse(skops_io, content)
    if reason is not None:
        raise ValueError(
            f"learners must consist of scikit-learn's own types to be saved; {model.name} {reason}. {_REMEDY}"
        )
    return content


def load_classifiers(content: bytes, name: str, labels: tuple[IntArray, ...], d: int, c: int) -> SklearnModel:
    """Return the classifiers in a skops file; raise ValueError unless they predict these labels of c classes from d features."""
    skops_io = _load_skops(f"reading {name}, a learner of the run,")
    reason = _reason_to_refuse(skops_io, content)
    if reason is not None:
        raise ValueError(
            f"{name}, a learner of the run, must hold scikit-learn's own types alone; it {reason}. Fit it again."
        )
    try:
        classifiers = skops_io.loads(content, trusted=[])
    except Exception as error:  # a damaged file may fail anywhere
        raise ValueError(f"{name}, a learner of the run, cannot be read: {error}. Fit it again.") from error
    if not isinstance(classifiers, list) or len(classifiers) != len(labels) or not classifiers:
        raise ValueError(
            f"{name}, a learner of the run, must have a classifier for each fold; it has others. Fit it again."
        )
    for classifier, known in zip(classifiers, labels, strict=True):
        _check_fits(classifier, known, name, d, c)
    return SklearnModel(name, tuple(classifiers), labels, c)


def _check_fits(classifier: Any, labels: IntArray, name: str, d: int, c: int) -> None:
    """Raise ValueError unless a classifier of scikit-learn predicts these labels of c classes from d features."""
    message = f"{name} must predict its labels from the features of the run; it does not. Fit it again."
    is_classifier = isinstance(classifier, BaseEstimator) and hasattr(classifier, "predict_proba")
    if not is_classifier or len(labels) == 0 or labels[0] < 0 or labels[-1] >= c or (np.diff(labels) <= 0).any():
        raise ValueError(message)
    try:
        probabilities = classifier.predict_proba(np.zeros((1, d), dtype=np.float32))
    except Exception as error:  # parts that do not fit each other may fail in any way
        raise ValueError(message) from error
    if np.shape(probabilities) != (1, len(labels)):
        raise ValueError(message)


def _reason_to_refuse(skops_io: Any, content: bytes) -> str | None:
    """Return why a file must not be read, or None."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                return "is compressed, which this file never is"
            loaders = _loaders(archive.read("schema.json"))
        untrusted = skops_io.get_untrusted_types(data=content)
    except Exception as error:  # a damaged file may fail anywhere
        return f"cannot be read: {error}"
    if loaders & _REFUSED_LOADERS:
        return "holds a random generator, whose state cannot be checked"
    if untrusted:
        return f"holds types that skops does not trust: {', '.join(untrusted)}"
    return None


def _loaders(schema: bytes) -> set[str]:
    """Return the names of the loaders that a skops file calls."""
    loaders = set()

    def collect(node: dict[str, Any]) -> None:
        loaders.add(str(node.get("__loader__")))

    json.loads(schema, object_hook=collect)
    return loaders


def _load_skops(purpose: str) -> Any:
    """Return the module that reads and writes skops files."""
    load_package("skops", purpose)
    return load_package("skops.io", purpose)
