"""A look before training: what the candidate sets are like, what cannot be told apart, what to do about it.

Nothing here sees a true label. So a set that misses its true label cannot be found here, and nothing is said about it.
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
from oneof.inspect.advice import Finding, advise, gravest_first
from oneof.inspect.dependence import Dependence, find_dependence
from oneof.inspect.identify import Counts, Faults, Identity, count, find_faults, identify

__all__ = ["Inspection", "inspect_sets", "inspect_table"]


@dataclass(frozen=True)
class Inspection:
    """What there is to know before training, in plain values."""

    counts: Counts
    identity: Identity
    faults: Faults | None  # none without features
    dependence: Dependence | None  # none where it was not tested
    findings: tuple[Finding, ...]  # the gravest first
    columns: dict[str, ColumnUse] = field(default_factory=dict)  # what each column of the table became

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries that `json` can write."""
        return asdict(self)


def inspect_sets(
    x: NDArray[np.floating] | None,
    candidates: Candidates,
    *,
    features: Sequence[str] | None = None,
    seed: int = 0,
    test_dependence: bool = True,
) -> Inspection:
    """Look at candidate sets, and at the features beside them, before training.

    Parameters
    ----------
    x
        Features [n, d], or None: then only the sets are looked at.
    candidates
        The sets, as `oneof.read` gives them.
    features
        Names of the d columns, for the findings; by default their numbers.
    seed
        Of the test of what the sets depend on, which samples rows and tables.
    test_dependence
        Run that test, which takes most of the time. It yields advice alone, never a warning.

    >>> sets = Candidates(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool), np.array(["ant", "bee", "cow"]))
    >>> for finding in inspect_sets(None, sets).findings:
    ...     print(finding.severity, "-", finding.text)
    warn - labels ant, bee always occur together: merge them, or get one row whose set separates them.
    info - what the sets depend on was not tested. There are no features to guess classes from.
    """
    n, d = len(candidates.mask), 0 if x is None or x.ndim != 2 else x.shape[1]
    if x is not None and (d == 0 or not np.issubdtype(x.dtype, np.floating)):
        raise ValueError(f"x must be an array of floats [n, d]; got {x.dtype} of shape {x.shape}.")
    if x is not None and len(x) != n:
        raise ValueError(f"x must have one row per candidate set; got {len(x)} rows for {n} sets.")
    if x is not None and features is not None and len(features) != d:
        raise ValueError(f"features must name every column of x; got {len(features)} names for {d} columns.")
    counts, identity = count(candidates), identify(candidates)
    columns = features if features is not None else range(d)
    faults = None if x is None else find_faults(x, candidates, columns)
    dependence = find_dependence(x, candidates.mask, seed) if test_dependence else None
    return Inspection(counts, identity, faults, dependence, advise(counts, identity, faults, dependence))


def inspect_table(
    table: Table,
    x: NDArray[np.floating] | None = None,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    test_dependence: bool = True,
) -> Inspection:
    """Look at a table as it will be learned from, and say how it was read."""
    # Its features may come encoded, x [n, d], with their names; else they are encoded here, without texts and images.
    remarks = table.remarks()
    if x is None:
        apart = [*table.roles.text, *table.roles.image]
        remarks += [f"columns to embed are left aside here: {', '.join(apart)}. `oneof fit` takes them."] * bool(apart)
        encoding = learn_encoding(table.columns, replace(table.roles, text=(), image=()))
        names = encoding.names
        x = encoding.transform(table.columns) if names else None
    features = names if x is not None else None
    found = inspect_sets(x, table.candidates, features=features, seed=seed, test_dependence=test_dependence)
    said = [Finding("warn", "reading", line) for line in remarks]
    return replace(found, findings=gravest_first([*found.findings, *said]), columns=table.uses)
