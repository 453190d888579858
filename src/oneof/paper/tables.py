"""A table of the paper with our rows beside it: Markdown, LaTeX, or for the terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
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

HEADS = {name: one.title for name, one in CRITERIA.items()} | {"last": "last epoch", "oracle": "oracle"}
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
        Cell(dataset, table.system(name, dataset), protocol, ()).setting: system.title
        for dataset in table.datasets
        for name, system in table.systems.items()
        if (protocol := table.protocol(dataset))
    }
    scores: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row["seed"] in asked:
            for key, accuracy in _entries(row, number, titles):
                scores.setdefault(key, {}).setdefault(row["seed"], 100 * accuracy)
    return scores


def _entries(row: Row, number: int, titles: Mapping[str, str]) -> Iterator[tuple[tuple[str, str, str], float]]:
    """What a row says: of a search the choice of one rule, of images the last epoch and the oracle's."""
    if row.get("kind") == "chosen" and row["setting"] in titles:
        yield (row["dataset"], titles[row["setting"]], row["rule"]), row["accuracy"]
    elif number in (1, 3) and "difficulty" in row and (place := _place(row, number)):
        yield (*place, "last"), row["accuracy"]
        yield (*place, "oracle"), row["by_oracle"]["accuracy"]


EPOCHS = {"cifar10": 100, "cifar100": 100}  # of Table 1; MNIST-like images have 50
KINDS = {
    "saturated": "",
    "20": "hard sets",
    "printed": "sets as printed",
}  # of a classifier trained to the end, as the paper's; or of an early one


def _place(row: Row, number: int) -> tuple[str, str] | None:
    """The data set, with what sets a row apart from the paper's setting ("kmnist/upright"), and the system of a row on images."""
    words, usual = row["variant"].split("-"), EPOCHS.get(row["dataset"], 50)
    bases = [word for word in words if word in ("upright", "bare", "authors")]
    rule = "-".join(word for word in words if word and word not in bases)
    bare, views = "bare" in bases, row["system"] in ("RCR", "PiCO", "VALEN")
    if (
        rule not in ("", "last", "printed-last")
        or bare != (number == 3)
        or row["epochs"] < usual
        or row["difficulty"] not in KINDS
    ):
        return None
    system = "PRODEN+POP" if bare and row["system"] == "POP" else row["system"]
    system += " as printed" if rule == "printed-last" else ""
    apart = [
        KINDS[row["difficulty"]],
        "upright" if "upright" in bases else "",
        f"{row['epochs']} epochs" if row["epochs"] > usual else "",
    ]
    apart.append("settings of the others" if views and "authors" not in bases else "")
    return "/".join([row["dataset"], *filter(None, apart)]), system


def lines(number: int, table: Table, scores: Scores, datasets: Sequence[str], systems: Sequence[str]) -> list[Line]:
    """A line for every system on every data set, rows or not; on images another for each other kind of sets, views or length."""
    found = []
    for dataset in datasets:
        others = sorted({key for key, *_ in scores if key.startswith(f"{dataset}/")})
        for name, place in product(systems, (dataset, *others)):
            title = table.systems[name].title
            seeds = {rule: list(scores.get((place, title, rule), {}).values()) for rule in HEADS}
            ours = {rule: _summary(values) for rule, values in seeds.items() if values}
            if ours or place == dataset:
                waits = "" if ours else waiting(table, dataset)
                found.append(Line(place, title, ours, printed(number, title, dataset), waits))
    return sorted(found, key=lambda line: (datasets.index(line.dataset.split("/")[0]), line.dataset))


def filled(some: Sequence[Line]) -> str:
    """How many of the paper's cells have rows of ours beside them."""
    cells = {
        (line.dataset.split("/")[0], line.system) for line in some if line.paper and "as printed" not in line.system
    }
    done = {(line.dataset.split("/")[0], line.system) for line in some if line.ours and "hard sets" not in line.dataset}
    return f"Filled: {len(cells & done)} of {len(cells)} cells of the paper."


def _summary(values: list[float]) -> tuple[float, float, int]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values)


def waiting(table: Table, dataset: str) -> str:
    """What a cell without rows waits for."""
    if dataset not in REAL and table.images:
        return f"GPU hours: {table.images.how}"
    if not NAMED[dataset].checksums:
        return f"the data, which were not at hand here: take them by hand from {NAMED[dataset].address}"
    return "a run of this command"


def header(some: Sequence[Line]) -> list[str]:
    """The heads of the columns: of the rules by which these lines have numbers."""
    return ["data set", "system", *(HEADS[rule] for rule in _rules(some)), "paper (oracle)", "oracle - paper", "trials"]


def _rules(some: Sequence[Line]) -> list[str]:
    there = {rule for line in some for rule in line.ours} or {*CRITERIA, "oracle"}
    return [rule for rule in HEADS if rule in there]


def cells(line: Line, shown: Sequence[str]) -> list[str]:
    """A line as text, with a cell for each rule that is shown."""
    by_rule = [f"{line.ours[rule][0]:.2f} ± {line.ours[rule][1]:.2f}" if rule in line.ours else "" for rule in shown]
    paper = f"{line.paper.mean:.2f} ± {line.paper.std:.2f}" if line.paper else ""
    both = line.paper and "oracle" in line.ours
    apart = f"{line.ours['oracle'][0] - line.paper.mean:+.2f}" if both and line.paper else ""
    trials = str(max((n for *_, n in line.ours.values()), default=0))
    return [_title(line.dataset), line.system, *by_rule, paper, apart, trials]


def _title(dataset: str) -> str:
    name, *apart = dataset.split("/")
    return ", ".join([NAMED[name].title, *apart])


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
    return [filled(some), how, *_waits(some), *(f"Paper: {note}" for note in errata(number))]


def markdown(number: int, table: Table, some: Sequence[Line]) -> str:
    """The table in Markdown, with its notes."""
    rows = [cells(line, _rules(some)) for line in some if line.ours]
    below = [f"- {note}" for note in notes(number, some)]
    return "\n".join([f"**Table {number}: {table.title}**", "", typeset(header(some), rows, "markdown"), "", *below])


def latex(number: int, table: Table, some: Sequence[Line]) -> str:
    """The table in LaTeX (booktabs), with its notes as comments."""
    rows = [cells(line, _rules(some)) for line in some if line.ours]
    return "\n".join([*(f"% {note}" for note in notes(number, some)), typeset(header(some), rows, "latex")])


def typeset(head: Sequence[str], rows: Sequence[Sequence[str]], form: str) -> str:
    """Cells as a Markdown table, or as one of LaTeX's booktabs."""
    if form != "latex":
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
    body = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in (head, *rows)]
    begin = r"\begin{tabular}{ll" + "r" * (len(head) - 2) + "}"
    return "\n".join([begin, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"])


def _tex(text: str) -> str:
    for plain, tex in (("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$")):
        text = text.replace(plain, tex)
    return text


def grid(number: int, table: Table, some: Sequence[Line]) -> Grid:
    """The table for a terminal."""
    shown = Grid(title=f"Table {number}: {table.title}", caption="\n".join(notes(number, some)), caption_justify="left")
    for name in header(some):
        shown.add_column(name, justify="left" if name in ("data set", "system") else "right")
    for line in some:
        shown.add_row(*cells(line, _rules(some)))
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
            if len(seeds) > 1:
                one = paired([ours[seed] for seed in seeds], [other[seed] for seed in seeds])
                found.append((dataset, title, one))
    corrected = holm([one.t_p for *_, one in found])
    return [Gain(dataset, title, one, p) for (dataset, title, one), p in zip(found, corrected, strict=True)]


def gains_text(some: Sequence[Gain], rule: str, form: str = "markdown") -> str:
    """The gains as a Markdown or LaTeX table, with how many of them lie above zero."""
    above = sum(gain.paired.gain > 0 for gain in some)
    head = ["data set", "system", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "effect size", "seeds"]
    body = [
        [_title(one.dataset), one.system, f"{one.paired.gain:+.2f}", f"{one.paired.t_p:.2g}", f"{one.holm_p:.2g}",
         f"{one.paired.wilcoxon_p:.2g}", f"{one.paired.effect:+.2f}", str(one.paired.n)]
        for one in some
    ]  # fmt: skip
    said = f"Settings chosen by {HEADS[rule]}: POP above its plain loss in the mean in {above} of {len(some)} pairs."
    return f"% {said}\n{typeset(head, body, form)}" if form == "latex" else f"{said}\n\n{typeset(head, body, form)}"


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
