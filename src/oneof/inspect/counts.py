"""What is there: rows, classes, set sizes, and how often each label is a candidate."""

from dataclasses import dataclass

import numpy as np

from oneof.candidates.mask import Candidates

Label = str | int | float


@dataclass(frozen=True)
class Counts:
    """Plain counts of the candidate sets."""

    rows: int
    classes: tuple[Label, ...]  # [c]
    sizes: tuple[int, ...]  # [c + 1]: how many sets hold 0, 1, ..., c labels
    average: float  # labels per set
    empty: int
    singletons: int
    full: int
    absent: tuple[Label, ...]  # classes in no set
    held: tuple[int, ...]  # [c]: how many sets hold each label
    share: tuple[float, ...]  # [c]: held / rows


def count(candidates: Candidates) -> Counts:
    """Count rows, set sizes and labels.

    >>> counts = count(Candidates(np.array([[1, 1, 0], [1, 0, 0]], dtype=bool), np.array(["a", "b", "c"])))
    >>> counts.sizes, counts.singletons, counts.absent, counts.held
    ((0, 1, 1, 0), 1, ('c',), (2, 1, 0))
    """
    mask = candidates.mask
    n, c = mask.shape
    sizes = np.bincount(mask.sum(1), minlength=c + 1)
    held = mask.sum(0)
    return Counts(
        rows=n,
        classes=tuple(candidates.classes.tolist()),
        sizes=tuple(sizes.tolist()),
        average=float(mask.sum() / n),
        empty=int(sizes[0]),
        singletons=int(sizes[1]),
        full=int(sizes[c]),
        absent=tuple(candidates.absent),
        held=tuple(held.tolist()),
        share=tuple((held / n).tolist()),
    )
