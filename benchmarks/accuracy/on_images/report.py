"""What the rows of `images.py` say: tables, and which variant of POP held-out sets prefer."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from on_images.plans import CHOSEN, FAIR, Run, bases_of, cifar, mnist_like, suited

from oneof.storage.rows import Row
from oneof_paper.data.catalogue import NAMED
from oneof_paper.images import key_of
from oneof_paper.paired_tests import Paired, holm, paired
from oneof_paper.printed import printed

CELL = ("dataset", "difficulty", "epochs")
COLUMNS = [
    "data set", "sets", "epochs", "system", "accuracy %", "against PRODEN", "p", "p (Holm)", "against itself without POP", "resolved %", "covering %",
    "approximated %", "labels per set", "true labels removed %",
]  # fmt: skip


def reported(rows: list[Row]) -> list[Row]:
    """The rows of the final plans, on seeds from 100 on."""
    wished = {run.key for run in [*mnist_like(), *cifar()]}
    return [row for row in rows if key_of(row) in wished or (row["plan"] == "methods" and row["seed"] >= 100)]


def is_current(row: Row) -> bool:
    """Return whether a row's second forward had the views that it has today; others are withdrawn."""
    run = Run(row["dataset"], row["difficulty"], row["system"], row["seed"], row["epochs"], row["variant"])
    return bool(row.get("second_forward", "") == run.second_forward)


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """Return the current ones of the old rows, and the new rows of runs that the old ones lack."""
    kept = [row for row in old if is_current(row)]
    known = {key_of(row) for row in kept}
    return kept + [row for row in new if is_current(row) and key_of(row) not in known]


def table(rows: list[Row], every: list[Row]) -> str:
    """A Markdown table, a line per system: mean ± deviation over seeds at the last epoch.

    What a system is compared with is looked up among `every` row. p is of the paired t-test against PRODEN, from three seeds on, and
    corrected by Holm for all of the table's.
    """
    groups = [list(group) for _, group in groupby(sorted(rows, key=_group), key=_group)]
    tests = [against_proden(group, every) for group in groups]
    tested = [number for number, test in enumerate(tests) if test and test.n > 2]
    corrected = dict(zip(tested, holm([tests[number].t_p for number in tested]), strict=True))  # type: ignore[union-attr]
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for number, (group, test) in enumerate(zip(groups, tests, strict=True)):
        gain = _points(test.gain) if test else ""
        p = [f"{test.t_p:.2g}", f"{corrected[number]:.2g}"] if test and number in corrected else ["", ""]
        lines.append(_line(group, [gain, *p, _against_itself(group, every)]))
    return "\n".join(lines)


def reached(rows: list[Row]) -> str:
    """Ours on the saturated sets beside the paper's POP, a line per data set."""
    systems = [("PRODEN", ""), ("POP", "last"), ("PRODEN", "fair"), ("POP", CHOSEN), ("supervised", "")]
    names = ["PRODEN", "POP last", "PRODEN fair", f"POP {CHOSEN}", "true labels"]
    head = ["data set", "paper: PRODEN", "paper: POP", *names]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for dataset in ("mnist", "kmnist", "fashion-mnist", "cifar10"):
        cells = [NAMED[dataset].title]
        cells += [f"{cell.mean:.2f}" if (cell := printed(1, name, dataset)) else "" for name in ("PRODEN", "POP")]
        for system, variant in systems:
            wished = [(system, suited(variant, dataset), sets) for sets in ("saturated", "clean")]
            group = [row for row in reported(rows) if row["dataset"] == dataset and (row["system"], row["variant"], row["difficulty"]) in wished]  # fmt: skip
            cells.append(_percent(group, "accuracy", deviation=True) if group else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _group(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in (*CELL, "system", "variant"))


def _line(group: list[Row], compared: list[str]) -> str:
    first = group[0]
    cells = [*(str(first[name]) for name in CELL), f"{first['system']} {first['variant']}".strip()]
    cells += [_percent(group, "accuracy", deviation=True), *compared]
    cells += [_percent(group, name) for name in ("resolved", "covering", "approximated")]
    cells += [f"{np.mean([row['set_size'] for row in group]):.2f}", _percent(group, "true_labels_removed")]
    return f"| {' | '.join(cells)} |"


def _percent(group: list[Row], name: str, deviation: bool = False) -> str:
    values = 100 * np.array([row[name] for row in group])
    spread = f" ± {values.std(ddof=1):.2f}" if deviation and len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}" + (f" ({len(values)})" if deviation else "")


def matched(group: list[Row], every: list[Row], base: str) -> list[tuple[Row, Row]]:
    """Rows, each with that of PRODEN of this base on the same sets, views and seed, where it is there and another."""
    same = (*CELL, "seed", "views")
    plain = {
        tuple(row[name] for name in same): row
        for row in every
        if (row["system"], row["variant"].removeprefix("upright").strip("-")) == ("PRODEN", base)
    }
    found = [(row, plain.get(tuple(row[name] for name in same))) for row in group]
    return [(row, other) for row, other in found if other and key_of(other) != key_of(row)]


def against_proden(group: list[Row], every: list[Row]) -> Paired | None:
    """A system against PRODEN, accuracies in percent."""
    both = [(100 * row["accuracy"], 100 * other["accuracy"]) for row, other in matched(group, every, "")]
    return paired(*zip(*both, strict=True)) if both else None


def _against_itself(group: list[Row], every: list[Row]) -> str:
    bases = [base for base in bases_of(group[0]["variant"]) if base != "upright"]
    both = matched(group, every, "-".join(bases)) if group[0]["system"] == "POP" else []
    return _points(100 * np.mean([row["accuracy"] - other["accuracy"] for row, other in both])) if both else ""


def _points(gain: float) -> str:
    """Rounded first, so that the same difference, computed in two ways, is printed once."""
    return f"{round(float(gain), 6):+.2f}"


def signs(rows: list[Row], system: str, variant: str) -> tuple[int, int, int]:
    """How often covering rate has the sign of what a reported system does to PRODEN's accuracy, seed by seed: right, wrong, ties."""
    group = [
        row for row in reported(rows) if (row["system"], row["variant"]) == (system, suited(variant, row["dataset"]))
    ]
    signal, truth = (
        np.sign(np.round([row[name] - other[name] for row, other in matched(group, rows, "")], 9))
        for name in ("covering", "accuracy")
    )
    return int((signal * truth > 0).sum()), int((signal * truth < 0).sum()), int((signal * truth == 0).sum())


def signs_table(rows: list[Row]) -> str:
    """Return `signs` of POP and of balanced weights as a Markdown table."""
    lines = ["| against PRODEN | right | wrong | ties |", "|---|---|---|---|"]
    for title, system, variant in (("POP last", "POP", "last"), ("balanced weights", "PRODEN", "fair")):
        right, wrong, ties = signs(rows, system, variant)
        lines.append(f"| {title} | {right} | {wrong} | {ties} |")
    return "\n".join(lines)


def choice(rows: list[Row]) -> str:
    """What held-out sets said of the schedules on the base "fair", and what nobody would know, as a Markdown table."""
    lines = ["| system | covering % | accuracy % | cells |", "|---|---|---|---|"]
    found = {"PRODEN fair": _on_fair(rows, "PRODEN", "fair")}
    found |= {f"POP {name}": _on_fair(rows, "POP", name) for name in FAIR}
    for name, group in sorted(found.items(), key=lambda item: -np.mean([row["covering"] for row in item[1]])):
        means = [f"{100 * np.mean([row[signal] for row in group]):.3f}" for signal in ("covering", "accuracy")]
        lines.append(f"| {name} | {' | '.join(means)} | {len(group)} |")
    return "\n".join(lines)


def _on_fair(rows: list[Row], system: str, variant: str) -> list[Row]:
    """The rows of a system on seed 0, characters upright."""
    wished = [(system, variant), (system, f"upright-{variant}")]
    return [row for row in rows if row["seed"] == 0 and (row["system"], row["variant"]) in wished]
