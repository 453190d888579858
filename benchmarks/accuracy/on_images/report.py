"""Make tables from the rows of `images.py`, and say which variant of POP held-out sets prefer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from on_images.plans import CHOSEN, FAIR, Run, bases_of, cifar, mnist_like, suited

from oneof.storage.rows import Row
from oneof_paper.data.catalogue import NAMED
from oneof_paper.images import key_of
from oneof_paper.paired_tests import Paired, holm, paired
from oneof_paper.printed import printed

CELL = ("dataset", "difficulty", "epochs")
KINDS_OF_SETS = {
    "20": "hard",
    "saturated": "saturated",
    "printed": "as printed",
    "clean": "true labels",
}  # by the classifier that drew them
COLUMNS = [
    "data set", "sets", "epochs", "system", "accuracy %", "against PRODEN", "p", "p (Holm)", "against itself without POP", "resolved %", "covering %",
    "approximated %", "labels per set", "true labels removed %",
]  # fmt: skip
MIN_SEEDS = 3  # for a test


def reported(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the final plans, on seeds from 100 on."""
    wanted = {run.key for run in [*mnist_like(), *cifar()]}
    result = []
    for row in rows:
        is_of_methods = row["plan"] == "methods" and row["seed"] >= 100
        if is_of_methods or key_of(row) in wanted:
            result.append(row)
    return result


def is_current(row: Row) -> bool:
    """Return whether a row's second forward had the views that it has today; others are withdrawn."""
    run = Run(row["dataset"], row["difficulty"], row["system"], row["seed"], row["epochs"], row["variant"])
    return bool(row.get("second_forward", "") == run.second_forward)


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the current ones of the old rows, and the new rows of runs that the old ones lack."""
    result = [row for row in old if is_current(row)]
    known = {key_of(row) for row in result}
    for row in new:
        if is_current(row) and key_of(row) not in known:
            result.append(row)
    return result


# ------------------------------------------------------------------------------------------------------ all systems


def table(rows: Sequence[Row], every: Sequence[Row]) -> str:
    """Return a Markdown table with a line per system: mean ± deviation over seeds at the last epoch.

    What a system is compared with is looked up among `every` row. p is of the paired t-test against PRODEN, from three seeds on, and
    corrected by Holm for all of the table's.
    """
    groups = [list(group) for _, group in groupby(sorted(rows, key=_group_key), key=_group_key)]
    tests = [against_proden(group, every) for group in groups]
    p_values = {}
    for number, test in enumerate(tests):
        if test is not None and test.n >= MIN_SEEDS:
            p_values[number] = test.t_p
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    lines = _head(COLUMNS)
    for number, (group, test) in enumerate(zip(groups, tests, strict=True)):
        gain = "" if test is None else _points(test.gain)
        p = ["", ""]
        if number in p_values:
            p = [f"{p_values[number]:.2g}", f"{corrected[number]:.2g}"]
        lines.append(_line(group, [gain, *p, _against_itself(group, every)]))
    return "\n".join(lines)


def _group_key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in (*CELL, "system", "variant"))


def _head(columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]


def _line(group: Sequence[Row], comparisons: Sequence[str]) -> str:
    first = group[0]
    cells = [
        NAMED[first["dataset"]].title,
        KINDS_OF_SETS.get(first["difficulty"], first["difficulty"]),
        str(first["epochs"]),
    ]
    cells.append(_system(first["system"], first["variant"]))
    cells.append(_percent_with_deviation(group, "accuracy"))
    cells += comparisons
    cells += [_percent(group, name) for name in ("resolved", "covering", "approximated")]
    cells.append(f"{np.mean([row['set_size'] for row in group]):.2f}")
    cells.append(_percent(group, "true_labels_removed"))
    return f"| {' | '.join(cells)} |"


def _system(system: str, variant: str) -> str:
    return f"{system} {variant}".strip()


def _percent(group: Sequence[Row], name: str) -> str:
    return f"{100 * np.mean([row[name] for row in group]):.2f}"


def _percent_with_deviation(group: Sequence[Row], name: str) -> str:
    """Return the mean, the standard deviation of several seeds, and the number of seeds in brackets."""
    values = 100 * np.array([row[name] for row in group])
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread} ({len(values)})"


def _points(gain: float) -> str:
    """Return a difference with its sign; rounded first, so that one that was computed in two ways is printed alike."""
    return f"{round(float(gain), 6):+.2f}"


def matched(group: Sequence[Row], every: Sequence[Row], base: str) -> list[tuple[Row, Row]]:
    """Pair rows with those of PRODEN of this base on the same sets, views and seed; rows that have no such partner are left out."""
    same = (*CELL, "seed", "views")
    proden = {}
    for row in every:
        if row["system"] == "PRODEN" and row["variant"].removeprefix("upright").strip("-") == base:
            proden[tuple(row[name] for name in same)] = row
    pairs = []
    for row in group:
        other = proden.get(tuple(row[name] for name in same))
        if other is not None and key_of(other) != key_of(row):
            pairs.append((row, other))
    return pairs


def against_proden(group: Sequence[Row], every: Sequence[Row]) -> Paired | None:
    """Compare a system with PRODEN, accuracies in percent; None without rows of the same seeds."""
    pairs = matched(group, every, "")
    if not pairs:
        return None
    ours = [100 * row["accuracy"] for row, _ in pairs]
    others = [100 * other["accuracy"] for _, other in pairs]
    return paired(ours, others)


def _against_itself(group: Sequence[Row], every: Sequence[Row]) -> str:
    """Return what POP adds to PRODEN of the same base."""
    first = group[0]
    if first["system"] != "POP":
        return ""
    bases = [base for base in bases_of(first["variant"]) if base != "upright"]
    gains = [row["accuracy"] - other["accuracy"] for row, other in matched(group, every, "-".join(bases))]
    return _points(100 * np.mean(gains)) if gains else ""


# ------------------------------------------------------------------------------------------------- beside the paper


def reached(rows: Sequence[Row]) -> str:
    """Return ours on the saturated sets beside the paper's POP, a line per data set."""
    systems = [("PRODEN", ""), ("POP", "last"), ("PRODEN", "fair"), ("POP", CHOSEN), ("supervised", "")]
    titles = ["PRODEN", "POP last", "PRODEN fair", f"POP {CHOSEN}", "true labels"]
    lines = _head(["data set", "paper: PRODEN", "paper: POP", *titles])
    final_rows = reported(rows)
    for dataset in ("mnist", "kmnist", "fashion-mnist", "cifar10"):
        cells = [NAMED[dataset].title]
        for name in ("PRODEN", "POP"):
            cell = printed(1, name, dataset)
            cells.append(f"{cell.mean:.2f}" if cell else "")
        for system, variant in systems:
            group = []
            for row in final_rows:
                is_system = (row["system"], row["variant"]) == (system, suited(variant, dataset))
                if is_system and row["dataset"] == dataset and row["difficulty"] in ("saturated", "clean"):
                    group.append(row)
            cells.append(_percent_with_deviation(group, "accuracy") if group else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- choosing without labels


def signs(rows: Sequence[Row], system: str, variant: str) -> tuple[int, int, int]:
    """Count how often covering rate has the sign of what a system does to PRODEN's accuracy, seed by seed: right, wrong, ties."""
    group = []
    for row in reported(rows):
        if (row["system"], row["variant"]) == (system, suited(variant, row["dataset"])):
            group.append(row)
    right = wrong = ties = 0
    for row, other in matched(group, rows, ""):
        signal = np.sign(round(row["covering"] - other["covering"], 9))
        truth = np.sign(round(row["accuracy"] - other["accuracy"], 9))
        right += int(signal * truth > 0)
        wrong += int(signal * truth < 0)
        ties += int(signal * truth == 0)
    return right, wrong, ties


def signs_table(rows: Sequence[Row]) -> str:
    """Return `signs` of POP and of balanced weights as a Markdown table."""
    lines = _head(["against PRODEN", "right", "wrong", "ties"])
    for title, system, variant in (("POP last", "POP", "last"), ("balanced weights", "PRODEN", "fair")):
        right, wrong, ties = signs(rows, system, variant)
        lines.append(f"| {title} | {right} | {wrong} | {ties} |")
    return "\n".join(lines)


def choice(rows: Sequence[Row]) -> str:
    """Return what held-out sets say of the schedules on the base "fair", and the accuracy that nobody would know."""
    groups = {"PRODEN fair": _on_seed_0(rows, "PRODEN", "fair")}
    for name in FAIR:
        groups[f"POP {name}"] = _on_seed_0(rows, "POP", name)
    means = {}
    for name, group in groups.items():
        covering = np.mean([row["covering"] for row in group])
        accuracy = np.mean([row["accuracy"] for row in group])
        means[name] = (float(covering), float(accuracy))
    lines = _head(["system", "covering %", "accuracy %", "cells"])
    for name in sorted(means, key=lambda name: -means[name][0]):
        covering_rate, accuracy_rate = means[name]
        lines.append(f"| {name} | {100 * covering_rate:.3f} | {100 * accuracy_rate:.3f} | {len(groups[name])} |")
    return "\n".join(lines)


def _on_seed_0(rows: Sequence[Row], system: str, variant: str) -> list[Row]:
    """Return the rows of a system on seed 0, characters upright."""
    variants = (variant, f"upright-{variant}")
    return [row for row in rows if row["seed"] == 0 and row["system"] == system and row["variant"] in variants]
