"""What the rows of `images.py` say: a table, and which variant of POP held-out sets prefer."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from image_plans import FAIR

from oneof.results import Row

GROUP = ("plan", "dataset", "difficulty", "epochs", "system", "variant")
COLUMNS = [
    "data set", "sets", "epochs", "system", "accuracy %", "against PRODEN", "resolved %", "covering %", "approximated %",
    "labels per set", "true labels removed %", "seconds",
]  # fmt: skip


def table(rows: list[Row]) -> str:
    """A Markdown table, a line per system: mean ± deviation over seeds at the last epoch; of the seconds the median, as a first run compiles."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    ordered = sorted(rows, key=_group)
    return "\n".join([*lines, *(_line(list(group), rows) for _, group in groupby(ordered, key=_group))])


def _group(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in GROUP)


def _line(group: list[Row], rows: list[Row]) -> str:
    first = group[0]
    cells = [
        first["dataset"],
        first["difficulty"],
        str(first["epochs"]),
        f"{first['system']} {first['variant']}".strip(),
    ]
    cells += [_percent(group, "accuracy", deviation=True), _gain(group, rows)]
    cells += [_percent(group, name) for name in ("resolved", "covering", "approximated")]
    cells += [f"{np.mean([row['set_size'] for row in group]):.2f}", _percent(group, "true_labels_removed")]
    cells.append(f"{np.median([row['seconds'] for row in group]):.1f}")
    return f"| {' | '.join(cells)} |"


def _percent(group: list[Row], name: str, deviation: bool = False) -> str:
    values = 100 * np.array([row[name] for row in group])
    spread = f" ± {values.std(ddof=1):.2f}" if deviation and len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}" + (f" ({len(values)})" if deviation else "")


def _gain(group: list[Row], rows: list[Row]) -> str:
    """Mean difference to PRODEN on the same sets and seeds, where both are there."""
    shared = ("plan", "dataset", "difficulty", "epochs", "seed")
    plain = {tuple(row[name] for name in shared): row["accuracy"] for row in rows if _plain(row)}
    keys = [(tuple(row[name] for name in shared), row["accuracy"]) for row in group if not _plain(row)]
    pairs = [accuracy - plain[key] for key, accuracy in keys if key in plain]
    return f"{100 * np.mean(pairs):+.2f}" if pairs else ""


def _plain(row: Row) -> bool:
    return row["system"] == "PRODEN" and not row["variant"]


def best_variant(rows: list[Row]) -> str:
    """By held-out sets alone: the schedule on the base "fair" of the highest covering rate, the mean over data sets and difficulties.

    Not approximated accuracy, which docs/decisions/0003 looks at first: it grows with confidence, right or wrong.
    """
    searched: dict[str, list[float]] = {}
    for row in rows:
        name = row["variant"].removeprefix("upright-")
        if row["seed"] == 0 and row["system"] == "POP" and name in [f"fair-{one}" for one in FAIR]:
            searched.setdefault(name, []).append(row["covering"])
    if not searched:
        raise ValueError("--variant best needs rows of the plan 'fair' in the file of rows; there are none. Run it.")
    most = max(map(len, searched.values()))
    # an unfinished one would be judged on fewer cells
    return max((one for one in sorted(searched) if len(searched[one]) == most), key=lambda one: np.mean(searched[one]))
