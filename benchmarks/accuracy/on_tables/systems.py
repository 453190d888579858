"""Systems of the suite by name: the default and its variants, the rivals, ceilings by true labels, and forms that are studied.

default                                    PartialLabelClassifier()
default:prepurify=False, n_estimators=3    the same with other arguments
MODULE:CALLABLE                            (sets, train, test, seed) -> probabilities of test rows [m, c] and, held out, of training rows [n, c]
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from on_tables.forms import FORMS, NESTED
from on_tables.problems import Floats, Mask, Problem
from on_tables.rivals import Outcome, boosting, extra_trees, fit_candidates, fit_true_labels, logistic

from oneof import PartialLabelClassifier
from oneof.storage.did_you_mean import did_you_mean

DEFAULT = "default"
System = Callable[[Problem, int], Outcome]  # of a problem and a seed
Form = Callable[[Mask, Any, Any, int], tuple[Floats, Floats]]


def fit_estimator(problem: Problem, seed: int, **arguments: Any) -> Outcome:
    """Fit the estimator to the columns as people have them."""
    estimator = PartialLabelClassifier(random_state=seed, **arguments)
    estimator.fit(mark_categories(problem.train), problem.sets)
    test = np.zeros((len(problem.labels_test), problem.sets.shape[1]))
    test[:, estimator.classes_] = estimator.predict_proba(mark_categories(problem.test))
    train = np.zeros(problem.sets.shape)
    train[:, estimator.classes_] = estimator.label_distributions_
    return Outcome(test, train, estimator.transduction_, estimator.accuracy_.covering)


def mark_categories(columns: Any) -> Any:
    """Return a frame whose text columns have the categorical type; an array as it is."""
    if not isinstance(columns, pd.DataFrame):
        return columns
    text = columns.select_dtypes(exclude=["number", "bool"]).columns
    return columns.astype(dict.fromkeys(text, "category"))


def fit_on_skrub_columns(problem: Problem, seed: int) -> Outcome:
    """Fit the estimator to what skrub's TableVectorizer makes of the columns, in place of its own encoding."""
    from skrub import TableVectorizer

    vectorizer = TableVectorizer()
    train = np.asarray(vectorizer.fit_transform(problem.train), dtype=np.float32)
    test = np.asarray(vectorizer.transform(problem.test), dtype=np.float32)
    medians = np.nanmedian(train, axis=0)
    train = np.where(np.isnan(train), medians, train)
    test = np.where(np.isnan(test), medians, test)
    return fit_estimator(problem._replace(train=train, test=test), seed)


def fit_rival(make: Callable[[], Any], rounds: int, problem: Problem, seed: int) -> Outcome:
    """Run a rival, which has no seed of its own."""
    return fit_candidates(make, problem, rounds)


def fit_ceiling(make: Callable[[], Any], problem: Problem, seed: int) -> Outcome:
    """Run a classifier on true labels."""
    return fit_true_labels(make, problem)


def run_form(form: Form, problem: Problem, seed: int) -> Outcome:
    """Run a form that is studied; the covering rate is that of its held-out probabilities."""
    test, train = form(problem.sets, problem.train, problem.test, seed)
    best = train.argmax(1)
    covering = float(problem.sets[np.arange(len(best)), best].mean())
    return Outcome(test, train, covering=covering)


RIVALS: dict[str, System] = {
    "trees": partial(fit_rival, extra_trees, 0),
    "trees, cross-fitted": partial(fit_rival, extra_trees, 2),
    "boosting": partial(fit_rival, boosting, 0),
    "logistic, EM": partial(fit_rival, logistic, 4),
}
CEILINGS: dict[str, System] = {
    "trees on true labels": partial(fit_ceiling, extra_trees),
    "boosting on true labels": partial(fit_ceiling, boosting),
}
SYSTEMS: dict[str, System] = {
    DEFAULT: fit_estimator,
    "quick": partial(fit_estimator, quick=True),
    "default on skrub's columns": fit_on_skrub_columns,
    **RIVALS,
    **CEILINGS,
    **{name: partial(run_form, form) for name, form in (FORMS | NESTED).items()},
}


def find_system(name: str) -> System:
    """Find a system by its name in one of the three forms of this module's docstring."""
    if name in SYSTEMS:
        return SYSTEMS[name]
    head, colon, tail = name.partition(":")
    if not colon:
        hint = did_you_mean(name, SYSTEMS)
        raise ValueError(
            f"system must be one of {'; '.join(SYSTEMS)}; default:ARGUMENTS; or MODULE:CALLABLE; got {name!r}.{hint}"
        )
    if head == DEFAULT:
        return partial(fit_estimator, **keyword_arguments(tail))
    try:
        form = getattr(import_module(head), tail)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"system {name!r} must name a callable of a module that can be imported; {error}.") from error
    return partial(run_form, form)


def keyword_arguments(text: str) -> dict[str, Any]:
    """Read keyword arguments with literal values.

    >>> keyword_arguments("quick=True, learners=('trees',)")
    {'quick': True, 'learners': ('trees',)}
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("every argument needs a name")
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"arguments must be NAME=VALUE, ... with plain values; got {text!r} ({error}).") from error
