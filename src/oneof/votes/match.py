"""Match the items of votes with the rows of a table by their ids."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_WHOLE_NUMBER = re.compile(r"0*(\d+)(?:\.0*)?")


def match_ids(rows: Sequence[str], items: Sequence[str]) -> tuple[NDArray[np.intp], list[str]]:
    """Return the index of each row's id among those of the items [n], -1 where it is none of them, and a remark on how ids were matched.

    Ids are compared as they are written. "7", "7.0", "07" and " 7" are the same where no two ids of either side would become one.

    Examples
    --------
    >>> match_ids(["1", "2", "3"], ["2.0", "1.0"])[0].tolist()
    [1, 0, -1]
    """
    index_of = {key: i for i, key in enumerate(items)}
    matched = np.array([index_of.get(key, -1) for key in rows], dtype=np.intp)
    if (matched >= 0).all():
        return matched, []
    plain_rows = [_plain(key) for key in rows]
    plain_items = [_plain(key) for key in items]
    if _merges_ids(rows, plain_rows) or _merges_ids(items, plain_items):
        return matched, []
    index_of_plain = {key: i for i, key in enumerate(plain_items) if key}
    by_number = np.array([index_of_plain.get(key, -1) for key in plain_rows], dtype=np.intp)
    differing = np.flatnonzero((matched < 0) & (by_number >= 0))
    if not len(differing):
        return matched, []
    first = differing[0]
    remark = (
        f"{len(differing):,} ids are written in another way in the votes, such as {items[by_number[first]]!r} for {rows[first]!r}: "
        "they are taken for the same."
    )
    return by_number, [remark]


def _plain(key: str) -> str:
    """Return an id without surrounding blanks; a whole number also without leading zeros and decimals."""
    number = _WHOLE_NUMBER.fullmatch(key.strip())
    return number[1] if number else key.strip()


def _merges_ids(ids: Sequence[str], plain_ids: Sequence[str]) -> bool:
    """Return whether two different ids become one."""
    return len(set(plain_ids)) < len(set(ids))
