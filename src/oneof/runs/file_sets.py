"""Read the candidate sets of rows that a model did not learn from, within the classes that it knows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oneof.candidates.mask import Candidates
from oneof.data.dataset import BoolArray
from oneof.data.files.columns import Cells
from oneof.data.roles import ColumnRoles
from oneof.data.supervision import read_supervision


def supervision_columns(roles: ColumnRoles) -> list[str]:
    """Return the columns from which candidate sets are read."""
    names = []
    for name in (roles.candidates, roles.exclude):
        if name:
            names.append(name)
    return names


def known_sets(name: str, cells: Cells, roles: ColumnRoles, n: int, classes: Sequence[str]) -> BoolArray:
    """Return the sets [n, c] of rows within the classes of a model: all of them where a row has no candidates.

    A label that is not among the classes is left out; a row may have no label left.
    """
    lenient = replace(roles, empty="unlabelled", gold=None)
    candidates, _ = read_supervision(name, cells, lenient, n, classes)
    return _columns_of(candidates, classes)


def _columns_of(candidates: Candidates, classes: Sequence[str]) -> BoolArray:
    """Return the columns of a mask in the order of the classes."""
    position = {label: j for j, label in enumerate(candidates.classes.tolist())}
    columns = [position[label] for label in classes]
    return np.ascontiguousarray(candidates.mask[:, columns])
