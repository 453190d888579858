"""Inspect candidate sets and features before training: statistics, labels that cannot be separated, and advice.

True labels are never used, so sets that do not contain the true label cannot be detected here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.column_uses import ColumnUse
from oneof.data.encode import learn_encoding
from oneof.data.table import Table
from oneof.inspect.advice import Finding, advise, by_severity
from oneof.inspect.dependence import Dependence, find_dependence
from oneof.inspect.identify import (
    Counts,
    FeatureIssues,
    Identifiability,
    check_identifiability,
    count,
    find_feature_issues,
)

__all__ = ["Inspection", "inspect_sets", "inspect_table"]


@dataclass(frozen=True)
class Inspection:
    """Results of an inspection, in values that JSON can represent."""

    counts: Counts
    identity: Identifiability
    faults: FeatureIssues | None  # None without features
    dependence: Dependence | None  # None if it was not tested
    findings: tuple[Finding, ...]  # the most severe first
    columns: dict[str, ColumnUse] = field(default_factory=dict)  # how each column of the table is used

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as nested dictionaries that `json` can write."""
        return asdict(self)


def inspect_sets(
    x: NDArray[np.floating] | None,
    candidates: Candidates,
    *,
    features: Sequence[str] | None = None,
    seed: int = 0,
    test_dependence: bool = True,
) -> Inspection:
    """Inspect candidate sets, and their features if there are any, before training.

    Parameters
    ----------
    x
        Features [n, d], or None to inspect the sets alone.
    candidates
        The sets, as `oneof.read` returns them.
    features
        Names of the d columns, used in the findings; by default their numbers.
    seed
        Seed of the dependence test, which draws rows and resampled tables.
    test_dependence
        Test what the sets depend on. This takes most of the time; its finding is advice, never a warning.

    Returns
    -------
    Inspection
        Statistics, labels that cannot be separated, problems of the features, and findings with advice.

    Examples
    --------
    >>> sets = Candidates(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool), np.array(["ant", "bee", "cow"]))
    >>> for finding in inspect_sets(None, sets).findings:
    ...     print(finding.severity, "-", finding.text)
    warn - labels ant, bee always occur together: merge them, or get one row whose set separates them.
    info - what the sets depend on was not tested. There are no features to guess classes from.
    """
    if x is not None:
        _check_features(x, len(candidates.mask), features)
    counts = count(candidates)
    identity = check_identifiability(candidates)
    faults = None
    if x is not None:
        columns: Sequence[Any] = range(x.shape[1])
        if features is not None:
            columns = features
        faults = find_feature_issues(x, candidates, columns)
    dependence = None
    if test_dependence:
        dependence = find_dependence(x, candidates.mask, seed)
    findings = advise(counts, identity, faults, dependence)
    return Inspection(counts, identity, faults, dependence, findings)


def _check_features(x: NDArray[np.floating], n: int, names: Sequence[str] | None) -> None:
    """Raise ValueError unless x is an array of floats [n, d], and `names`, if given, has one name per column."""
    is_float = np.issubdtype(x.dtype, np.floating)
    if x.ndim != 2 or x.shape[1] == 0 or not is_float:
        raise ValueError(f"x must be an array of floats [n, d]; got {x.dtype} of shape {x.shape}.")
    if len(x) != n:
        raise ValueError(f"x must have one row per candidate set; got {len(x)} rows for {n} sets.")
    if names is not None and len(names) != x.shape[1]:
        raise ValueError(f"features must name every column of x; got {len(names)} names for {x.shape[1]} columns.")


def inspect_table(
    table: Table,
    x: NDArray[np.floating] | None = None,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    test_dependence: bool = True,
) -> Inspection:
    """Inspect a table as training would read it, and report how it was read.

    Parameters
    ----------
    table
        The table, with its candidate sets and the uses of its columns.
    x
        Encoded features [n, d]. By default the columns are encoded here, without those of text and images.
    names
        Names of the d columns of x.
    seed, test_dependence
        As for `inspect_sets`.

    Returns
    -------
    Inspection
        With a finding for every remark on the reading of the table, and with the use of each column.
    """
    remarks = table.remarks()
    if x is None:
        embedded = [*table.roles.text, *table.roles.image]
        if embedded:
            remarks.append(
                f"columns that need an embedding are skipped here: {', '.join(embedded)}. `oneof fit` uses them."
            )
        encoding = learn_encoding(table.columns, replace(table.roles, text=(), image=()))
        names = encoding.names
        if names:
            x = encoding.transform(table.columns)
    if x is None:
        names = None
    inspection = inspect_sets(x, table.candidates, features=names, seed=seed, test_dependence=test_dependence)
    findings = list(inspection.findings)
    for remark in remarks:
        findings.append(Finding("warn", "reading", remark))
    return replace(inspection, findings=by_severity(findings), columns=table.uses)
