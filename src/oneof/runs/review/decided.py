"""What a person said is final: the purified table with decided rows as people left them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.runs.review.log import Verdict

GOLD = "gold"  # who decided where a column of true labels did


def decided_table(purified: pa.Table, said: Mapping[int, Verdict]) -> pa.Table:
    """The table with decided labels, nothing asked about them, and the columns `decided` (is the label final?) and `by`.

    Gold labels are decisions too; what people said in a review comes before them.
    """
    all_said = gold_verdicts(purified) | {row: one for row, one in said.items() if 0 <= row < purified.num_rows}
    rows = sorted(all_said)
    old = purified.take(pa.array(rows, pa.int64())).to_pylist()
    new = [_decided(row, all_said[place]) for place, row in zip(rows, old, strict=True)]
    source = np.arange(purified.num_rows)
    source[rows] = purified.num_rows + np.arange(len(rows))
    order = pa.array(source)
    for name in ("label", "kept", "probability", "margin", "ask", "outside", "gain", "distribution"):
        kind, at = purified[name].type, purified.column_names.index(name)
        chunks = [*purified[name].chunks, pa.array([row[name] for row in new], kind)]
        purified = purified.set_column(at, name, pa.chunked_array(chunks, kind).take(order))
    nobody = dict.fromkeys(range(purified.num_rows))
    final = {row: one.label is not None for row, one in all_said.items()}
    by = {row: ", ".join(one.by) for row, one in all_said.items()}
    purified = purified.append_column("decided", [pa.array([bool(x) for x in (nobody | final).values()], pa.bool_())])
    return purified.append_column("by", [pa.array(list((nobody | by).values()), pa.string())])


def gold_verdicts(purified: pa.Table) -> dict[int, Verdict]:
    if "gold" not in purified.column_names:
        return {}
    named = enumerate(purified["gold"].to_pylist())
    return {row: Verdict(label, (label,), (), (GOLD,), False) for row, label in named if label is not None}


def _decided(row: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A row of the purified table after a verdict: the model chooses among what people left."""
    given, shares = row["original"], row["distribution"]
    row |= {"ask": False, "gain": 0.0}
    if verdict.label is not None:
        row |= {"label": verdict.label, "kept": [verdict.label], "probability": 1.0, "margin": 1.0, "outside": None}
        return row | {"distribution": [float(label == verdict.label) for label in given]}
    left = [label in verdict.labels if verdict.labels else label not in verdict.excluded for label in given]
    if not any(left):
        return row
    inside = [share * stays for share, stays in zip(shares, left, strict=True)]
    inside = [share / (sum(inside) or 1.0) for share in inside]
    first, second = (*sorted(inside, reverse=True), 0.0)[:2]
    kept = [label for label, stays in zip(given, left, strict=True) if stays]
    label = given[inside.index(first)]
    return row | {"label": label, "kept": kept, "probability": first, "margin": first - second, "distribution": inside}


def decided_sets(
    mask: NDArray[np.bool_], classes: Sequence[str], said: Mapping[int, Verdict]
) -> tuple[NDArray[np.bool_], list[str]]:
    """The sets [n, c] to learn from: decided rows are sets of one, others shrink or widen; typed labels become classes."""
    names = list(dict.fromkeys([*classes, *(one.label for _, one in sorted(said.items()) if one.label is not None)]))
    place = {name: j for j, name in enumerate(names)}
    sets = np.zeros((len(mask), len(names)), dtype=bool)
    sets[:, : mask.shape[1]] = mask
    for row, one in said.items():
        if one.labels:
            sets[row] = False
            sets[row, [place[label] for label in one.labels if label in place]] = True
        else:
            sets[row] = True
        wrong = [place[label] for label in one.excluded if label in place and label not in one.labels]
        sets[row, wrong] = False
        if not sets[row].any():
            sets[row, : mask.shape[1]] = mask[row]
    return sets, names
