"""What the rows of `images.py` say: tables, and which variant of POP held-out sets prefer."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from image_plans import FAIR, KEY, bases_of, cifar, mnist_like, own

from oneof.compare import paired
from oneof.data.named import NAMED
from oneof.paper import printed
from oneof.results import Row

CELL = ("dataset", "difficulty", "epochs")
PLAIN = (("PRODEN", ""), ("PRODEN", "upright"))
COLUMNS = [
    "data set", "sets", "epochs", "system", "accuracy %", "against PRODEN", "p", "against itself without POP", "resolved %", "covering %",
    "approximated %", "labels per set", "true labels removed %", "seconds",
]  # fmt: skip


def reported(rows: list[Row]) -> list[Row]:
    """The rows of the final plans, on seeds from 100 on."""
    wished = {run.key for run in [*mnist_like(best_variant(rows)), *cifar("last")]}
    return [row for row in rows if key_of(row) in wished or (row["plan"] == "methods" and row["seed"] >= 100)]


def key_of(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in KEY)


def table(rows: list[Row], every: list[Row]) -> str:
    """A Markdown table, a line per system: mean ± deviation over seeds at the last epoch; of the seconds the median, as a first run compiles.

    What a system is compared with is looked up among `every` row; p is of the paired t-test against PRODEN, from three seeds on.
    """
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    ordered = sorted(rows, key=_group)
    return "\n".join([*lines, *(_line(list(group), every) for _, group in groupby(ordered, key=_group))])


def reached(rows: list[Row]) -> str:
    """Ours on the saturated sets beside the paper's POP, a line per data set."""
    best = best_variant(rows)
    systems = [("PRODEN", ""), ("POP", "last"), ("PRODEN", "fair"), ("POP", best), ("supervised", "")]
    names = ["PRODEN", "POP last", "PRODEN fair", f"POP {best}", "true labels"]
    head = ["data set", "paper: PRODEN", "paper: POP", *names]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for dataset in ("mnist", "kmnist", "fashion-mnist", "cifar10"):
        cells = [NAMED[dataset].title]
        cells += [f"{cell.mean:.2f}" if (cell := printed(1, name, dataset)) else "" for name in ("PRODEN", "POP")]
        for system, variant in systems:
            wished = [(system, own(dataset, variant), sets) for sets in ("saturated", "clean")]
            group = [row for row in reported(rows) if row["dataset"] == dataset and (row["system"], row["variant"], row["difficulty"]) in wished]  # fmt: skip
            cells.append(_percent(group, "accuracy", deviation=True) if group else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _group(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in (*CELL, "system", "variant"))


def _line(group: list[Row], every: list[Row]) -> str:
    first = group[0]
    cells = [*(str(first[name]) for name in CELL), f"{first['system']} {first['variant']}".strip()]
    cells += [
        _percent(group, "accuracy", deviation=True),
        *_against_proden(group, every),
        _against_itself(group, every),
    ]
    cells += [_percent(group, name) for name in ("resolved", "covering", "approximated")]
    cells += [f"{np.mean([row['set_size'] for row in group]):.2f}", _percent(group, "true_labels_removed")]
    cells.append(f"{np.median([row['seconds'] for row in group]):.1f}")
    return f"| {' | '.join(cells)} |"


def _percent(group: list[Row], name: str, deviation: bool = False) -> str:
    values = 100 * np.array([row[name] for row in group])
    spread = f" ± {values.std(ddof=1):.2f}" if deviation and len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}" + (f" ({len(values)})" if deviation else "")


def pairs(group: list[Row], every: list[Row], base: str) -> list[tuple[float, float]]:
    """Accuracies in percent of rows and of PRODEN of this base on the same sets, views and seeds, where both are there."""
    same = (*CELL, "seed", "views")
    plain = {
        tuple(row[name] for name in same): row for row in every if (row["system"], row["variant"]) == ("PRODEN", base)
    }
    found = [(row, plain.get(tuple(row[name] for name in same))) for row in group]
    return [(100 * row["accuracy"], 100 * other["accuracy"]) for row, other in found if other and other is not row]


def _against_proden(group: list[Row], every: list[Row]) -> tuple[str, str]:
    upright = "upright" if "upright" in bases_of(group[0]["variant"]) else ""
    both = pairs(group, every, upright)
    if not both:
        return "", ""
    test = paired(*zip(*both, strict=True))
    return f"{test.gain:+.2f}", f"{test.t_p:.2g}" if test.n > 2 else ""


def _against_itself(group: list[Row], every: list[Row]) -> str:
    both = pairs(group, every, "-".join(bases_of(group[0]["variant"]))) if group[0]["system"] == "POP" else []
    return f"{np.mean(np.subtract(*zip(*both, strict=True))):+.2f}" if both else ""


def signs(rows: list[Row], system: str, variant: str) -> tuple[int, int, int]:
    """How often covering rate is right about the sign of what a reported system does to PRODEN's accuracy: (times, pairs, ties)."""
    same = (*CELL, "seed", "views")
    plain = {
        tuple(row[name] for name in same): row for row in reported(rows) if (row["system"], row["variant"]) in PLAIN
    }
    times = of = ties = 0
    for row in reported(rows):
        if (row["system"], row["variant"]) == (system, own(row["dataset"], variant)):
            other = plain[tuple(row[name] for name in same)]
            signal, truth = (np.sign(round(row[name] - other[name], 9)) for name in ("covering", "accuracy"))
            times, of, ties = times + (signal == truth != 0), of + 1, ties + (signal * truth == 0)
    return int(times), of, int(ties)


def choice(rows: list[Row]) -> str:
    """What held-out sets said of the schedules on the base "fair", and what nobody would know, as a Markdown table."""
    lines = ["| system | covering % | accuracy % | cells |", "|---|---|---|---|"]
    found = {"PRODEN fair": _on_fair(rows, "PRODEN", "fair")}
    found |= {f"POP fair-{name}": _on_fair(rows, "POP", f"fair-{name}") for name in FAIR}
    for name, group in sorted(found.items(), key=lambda item: -np.mean([row["covering"] for row in item[1]])):
        means = [f"{100 * np.mean([row[signal] for row in group]):.3f}" for signal in ("covering", "accuracy")]
        lines.append(f"| {name} | {' | '.join(means)} | {len(group)} |")
    return "\n".join(lines)


def _on_fair(rows: list[Row], system: str, variant: str) -> list[Row]:
    """The rows of a system on seed 0, characters upright."""
    wished = [(system, variant), (system, f"upright-{variant}")]
    return [row for row in rows if row["seed"] == 0 and (row["system"], row["variant"]) in wished]


def best_variant(rows: list[Row]) -> str:
    """By held-out sets alone: the schedule on the base "fair" of the highest covering rate, the mean over data sets and difficulties.

    Not approximated accuracy, which docs/decisions/0003 looks at first: it grows with confidence, right or wrong.
    """
    searched = {f"fair-{name}": _on_fair(rows, "POP", f"fair-{name}") for name in FAIR}
    most = max(map(len, searched.values()))
    if not most:
        raise ValueError("--variant best needs rows of the plan 'fair' in the file of rows; there are none. Run it.")
    whole = [
        name for name, own in searched.items() if len(own) == most
    ]  # an unfinished one would be judged on fewer cells
    return max(sorted(whole), key=lambda name: np.mean([row["covering"] for row in searched[name]]))
