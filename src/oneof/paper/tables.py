"""A table of the paper with our rows beside it: Markdown, LaTeX, or for the terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.table import Table as Grid

from oneof.data.named.catalogue import NAMED
from oneof.metrics import CRITERIA
from oneof.paper.compare import Paired, holm, paired
from oneof.paper.experiments import REAL, Table
from oneof.paper.obtain import Cell
from oneof.paper.printed import Printed, errata, printed
from oneof.storage.rows import Row

HEADS = {name: one.title for name, one in CRITERIA.items()} | {"oracle": "oracle"}
Scores = Mapping[tuple[str, str, str], Mapping[int, float]]  # (data set, system, rule) -> seed -> accuracy in percent


class Line(NamedTuple):
    """One system on one data set: ours by each rule, beside the paper's."""

    dataset: str
    system: str
    ours: dict[str, tuple[float, float, int]]  # rule -> mean, std, trials
    paper: Printed | None
    waits: str  # for what, where there are no rows


def scores_of(number: int, table: Table, rows: Iterable[Row], seeds: Iterable[int]) -> Scores:
    """Accuracies of the rows that belong to this table: of its settings and these seeds; of a row obtained twice the first."""
    asked = set(seeds)
    titles = {
        Cell(dataset, table.system(name, dataset), table.protocol(dataset), ()).setting: system.title
        for dataset in table.datasets
        for name, system in table.systems.items()
    }
    scores: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row["seed"] in asked:
            for system, rule, accuracy in _entries(row, number, titles):
                scores.setdefault((row["dataset"], system, rule), {}).setdefault(row["seed"], 100 * accuracy)
    return scores


def _entries(row: Row, number: int, titles: Mapping[str, str]) -> Iterator[tuple[str, str, float]]:
    """What a row says: of a real set the choice of one rule, of images the epochs that all rules would have taken."""
    if row.get("kind") == "chosen" and row["setting"] in titles:
        yield titles[row["setting"]], row["rule"], row["accuracy"]
    elif number == 1 and _of_table_1(row):
        yield row["system"], "oracle", row["by_oracle"]["accuracy"]
        yield from ((row["system"], rule, row["accuracy"]) for rule in CRITERIA)


def _of_table_1(row: Row) -> bool:
    """Images with sets as the paper's, of a classifier trained to the end; POP begins after four fifths, characters are not flipped.

    On CIFAR-10 runs of 30 epochs are no match for those of 150: they are in docs/findings.md alone.
    """
    whole = row.get("epochs", 0) >= (150 if row["dataset"].startswith("cifar") else 50)
    variants = ("upright", "upright-last") if row["dataset"] in ("mnist", "kmnist") else ("", "last")
    return row.get("difficulty") == "saturated" and row["variant"] in variants and whole


def lines(number: int, table: Table, scores: Scores, datasets: Sequence[str], systems: Sequence[str]) -> list[Line]:
    """A line for every system on every data set, rows or not."""
    found = []
    for dataset in datasets:
        for name in systems:
            title = table.systems[name].title
            seeds = {rule: list(scores.get((dataset, title, rule), {}).values()) for rule in HEADS}
            ours = {rule: _summary(values) for rule, values in seeds.items() if values}
            waits = "" if ours else waiting(table, dataset)
            found.append(Line(dataset, title, ours, printed(number, title, dataset), waits))
    return found


def _summary(values: list[float]) -> tuple[float, float, int]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values)


def waiting(table: Table, dataset: str) -> str:
    """What a cell without rows waits for."""
    if dataset not in REAL and table.images:
        return f"GPU hours: {table.images.how}"
    if not NAMED[dataset].checksums:
        return f"the data: not published for download, take it by hand from {NAMED[dataset].address}"
    return "a run of this command"


HEADER = ("data set", "system", *HEADS.values(), "paper (oracle)", "oracle - paper", "trials")


def cells(line: Line) -> list[str]:
    """A line as text."""
    by_rule = [f"{line.ours[rule][0]:.2f} ± {line.ours[rule][1]:.2f}" if rule in line.ours else "" for rule in HEADS]
    paper = f"{line.paper.mean:.2f} ± {line.paper.std:.2f}" if line.paper else ""
    both = line.paper and "oracle" in line.ours
    apart = f"{line.ours['oracle'][0] - line.paper.mean:+.2f}" if both and line.paper else ""
    trials = str(max((n for *_, n in line.ours.values()), default=0))
    return [_title(line.dataset), line.system, *by_rule, paper, apart, trials]


def _title(dataset: str) -> str:
    return NAMED[dataset].title


def _waits(some: Sequence[Line]) -> list[str]:
    """What is missing, a line for each data set."""
    missing: dict[tuple[str, str], list[str]] = {}
    for line in some:
        if line.waits:
            missing.setdefault((line.dataset, line.waits), []).append(line.system)
    return [f"{_title(name)} ({', '.join(systems)}): waits for {why}." for (name, why), systems in missing.items()]


def notes(number: int, some: Sequence[Line]) -> list[str]:
    """What stands below a table: how ours were chosen, what is missing, what is wrong in print."""
    titles = " and ".join(one.title for one in CRITERIA.values())
    how = (
        f"Ours: mean ± std over seeds, each with its own split and initialisation. {titles.capitalize()} choose the setting "
        "by held-out sets, without a true label, and take the last epoch; the oracle, as the paper, looks at held-out true labels."
    )
    return [how, *_waits(some), *(f"Paper: {note}" for note in errata(number))]


def markdown(number: int, table: Table, some: Sequence[Line]) -> str:
    """The table in Markdown, with its notes."""
    rows = [cells(line) for line in some if line.ours]
    head = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    body = [f"| {' | '.join(row)} |" for row in rows]
    below = [f"- {note}" for note in notes(number, some)]
    return "\n".join([f"**Table {number}: {table.title}**", "", *head, *body, "", *below])


def latex(number: int, table: Table, some: Sequence[Line]) -> str:
    """The table in LaTeX (booktabs), with its notes as comments."""
    rows = [" & ".join(_tex(cell) for cell in cells(line)) + r" \\" for line in some if line.ours]
    return "\n".join(
        [
            *(f"% {note}" for note in notes(number, some)),
            r"\begin{tabular}{ll" + "r" * (len(HEADER) - 2) + "}",
            r"\toprule",
            " & ".join(_tex(name) for name in HEADER) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _tex(text: str) -> str:
    for plain, tex in (("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$")):
        text = text.replace(plain, tex)
    return text


def grid(number: int, table: Table, some: Sequence[Line]) -> Grid:
    """The table for a terminal."""
    shown = Grid(title=f"Table {number}: {table.title}", caption="\n".join(notes(number, some)), caption_justify="left")
    for name in HEADER:
        shown.add_column(name, justify="left" if name in HEADER[:2] else "right")
    for line in some:
        shown.add_row(*cells(line))
    return shown


class Gain(NamedTuple):
    """What POP adds to a loss on a data set."""

    dataset: str
    system: str  # with POP
    paired: Paired
    holm_p: float  # of the t-test, corrected within the table


def gains(table: Table, scores: Scores, rule: str) -> list[Gain]:
    """Every system with POP against the same without, over the seeds that they share."""
    found = []
    for dataset in table.datasets:
        for title, plain in table.pairs.items():
            ours, other = scores.get((dataset, title, rule), {}), scores.get((dataset, plain, rule), {})
            seeds = sorted(ours.keys() & other.keys())
            if seeds:
                one = paired([ours[seed] for seed in seeds], [other[seed] for seed in seeds])
                found.append((dataset, title, one))
    corrected = holm([one.t_p for *_, one in found])
    return [Gain(dataset, title, one, p) for (dataset, title, one), p in zip(found, corrected, strict=True)]


def gains_markdown(some: Sequence[Gain], rule: str) -> str:
    """The gains as a Markdown table, with how many of them lie above zero."""
    above = sum(gain.paired.gain > 0 for gain in some)
    head = ["data set", "system", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "effect size", "seeds"]
    body = [
        f"| {_title(one.dataset)} | {one.system} | {one.paired.gain:+.2f} | {one.paired.t_p:.2g} | {one.holm_p:.2g} "
        f"| {one.paired.wilcoxon_p:.2g} | {one.paired.effect:+.2f} | {one.paired.n} |"
        for one in some
    ]
    said = f"Settings chosen by {HEADS[rule]}: POP above its plain loss in the mean in {above} of {len(some)} pairs."
    return "\n".join([said, "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body])


def agreement(scores: Scores, rule: str) -> tuple[int, int]:
    """How often a truth-free choice is within one std (over seeds) of the oracle's, seed by seed: (times, of)."""
    times = of = 0
    for (dataset, system, by), oracle in scores.items():
        free = scores.get((dataset, system, rule))
        if by == "oracle" and free and len(oracle) > 1:
            spread = float(np.std(list(oracle.values()), ddof=1))
            close = [free[seed] >= oracle[seed] - spread for seed in oracle.keys() & free.keys()]
            times, of = times + sum(close), of + len(close)
    return times, of
