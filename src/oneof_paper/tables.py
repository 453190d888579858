"""A table of the paper with our rows beside it: Markdown, LaTeX, or for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from textwrap import fill
from typing import NamedTuple

import numpy as np

from oneof.metrics import CRITERIA
from oneof.storage.rows import Row
from oneof_paper.compute_rows import Cell
from oneof_paper.data.catalogue import NAMED
from oneof_paper.experiments import FLAT, LATE, QUICK, REAL, TABULAR, Table
from oneof_paper.images import EPOCHS
from oneof_paper.paired_tests import Paired, holm, paired
from oneof_paper.printed import Printed, errata, printed
from oneof_paper.typeset import listed, typeset

HEADS = {name: one.title for name, one in CRITERIA.items()} | {"last": "last epoch", "oracle": "oracle"}
Scores = Mapping[tuple[str, str, str], Mapping[int, float]]  # (data set, system, rule) -> seed -> accuracy in percent


class Line(NamedTuple):
    """One system on one data set: ours by each rule, beside the paper's."""

    dataset: str  # with what sets the rows apart from the paper's setting: "kmnist/upright"
    system: str
    ours: dict[str, list[float]]  # rule -> accuracies of the seeds
    paper: Printed | None

    @property
    def name(self) -> str:
        return self.dataset.split("/")[0]

    @property
    def title(self) -> str:
        return ", ".join([NAMED[self.name].title, *self.dataset.split("/")[1:]])


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
        said = {}
        if row.get("kind") == "chosen" and row["setting"] in titles:  # of a search, by one rule
            said = {(row["dataset"], titles[row["setting"]], row["rule"]): row["accuracy"]}
        elif number in (1, 3) and "difficulty" in row and (place := _place(row, number)):  # of images
            said = {(*place, "last"): row["accuracy"], (*place, "oracle"): row["by_oracle"]["accuracy"]}
        for key, accuracy in said.items() if row["seed"] in asked else ():
            scores.setdefault(key, {}).setdefault(row["seed"], 100 * accuracy)
    return scores


KINDS = {"saturated": "", "20": "hard sets", "printed": "sets as printed"}  # by the classifier that drew the sets


def _place(row: Row, number: int) -> tuple[str, str] | None:
    """The data set, with what sets a row apart from the paper's setting, and the system of a row on images."""
    words, usual = row["variant"].split("-"), EPOCHS.get(row["dataset"], 50)
    bases = [word for word in words if word in ("upright", "bare", "authors", "augmented")]
    rule = "-".join(word for word in words if word and word not in bases)
    bare = "bare" in bases
    if rule not in ("", "last", "printed-last") or bare != (number == 3) or row["epochs"] < usual or row["difficulty"] not in KINDS:  # fmt: skip
        return None
    system = "PRODEN+POP" if bare and row["system"] == "POP" else row["system"]
    system += " as printed" if rule == "printed-last" else ""
    apart = [KINDS[row["difficulty"]], "upright" if "upright" in bases else ""]
    apart.append(f"{row['epochs']} epochs" if row["epochs"] > usual else "")
    apart.append("one plain view" if row["system"] == "VALEN" and "augmented" not in bases else "")
    others = row["system"] in ("RCR", "PiCO", "VALEN") and "authors" not in bases
    return "/".join([row["dataset"], *filter(None, apart), *["settings of the others"] * others]), system


def lines(number: int, table: Table, scores: Scores, datasets: Sequence[str], systems: Sequence[str]) -> list[Line]:
    """A line for every system on every data set, rows or not; on images another for each other kind of sets, views or length."""
    found = []
    for dataset in datasets:
        others = sorted({key for key, *_ in scores if key.startswith(f"{dataset}/")})
        for place, name in product((dataset, *others), systems):
            title = table.systems[name].title
            ours = {rule: list(some.values()) for rule in HEADS if (some := scores.get((place, title, rule)))}
            if ours or place == dataset:
                beside = None if "hard sets" in place else printed(number, title, dataset)  # the paper has no such sets
                found.append(Line(place, title, ours, beside))
    return found


def filled(some: Sequence[Line]) -> str:
    """How many of the paper's cells have rows of ours beside them: on sets drawn as the paper's, whatever the views and length."""
    cells = {(line.name, line.system) for line in some if line.paper and "as printed" not in line.system}
    done = {(line.name, line.system) for line in some if line.ours and "hard sets" not in line.dataset}
    return f"Filled: {len(cells & done)} of {len(cells)} cells of the paper."


def waits(number: int, some: Sequence[Line]) -> list[str]:
    """Why cells are empty, a line for each data set and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in (one for one in some if not one.ours):
        on_table, known = line.dataset in REAL, NAMED[line.dataset]
        why = f"the data are not at hand here; take them by hand from {known.address}."
        if known.checksums:
            command = f"oneof paper table {number} --datasets {line.dataset}{'' if on_table else ' --device cuda'}"
            why = f"{'' if on_table else 'GPU time, '}not run yet; '{command}' does it."
        rest = [one for one in some if one.ours and (one.name, one.system) == (line.dataset, line.system)]
        if rest:
            why += f" So far only: {'; '.join(one.title.partition(', ')[2] for one in rest)}."
        reasons.setdefault((line.title, why), []).append(line.system)
    every = len({line.system for line in some})
    named = {key: "all" if len(systems) == every else ", ".join(systems) for key, systems in reasons.items()}
    return [f"Empty: {title} ({which}): {why}" for (title, why), which in named.items()]


def header(some: Sequence[Line]) -> list[str]:
    """The heads of the columns: of the rules by which these lines have numbers."""
    return ["data set", "system", *(HEADS[rule] for rule in _rules(some)), "paper (oracle)", "oracle - paper", "trials"]


def _rules(some: Sequence[Line]) -> list[str]:
    return [rule for rule in HEADS if any(rule in line.ours for line in some)] or [*CRITERIA, "oracle"]


def cells(line: Line, shown: Sequence[str]) -> list[str]:
    """A line as text, with a cell for each rule that is shown: mean and deviation, which one seed has not."""
    spread = {rule: f" ± {np.std(own, ddof=1):.2f}" if len(own) > 1 else "" for rule, own in line.ours.items()}
    by_rule = [f"{np.mean(line.ours[rule]):.2f}{spread[rule]}" if rule in line.ours else "" for rule in shown]
    paper = f"{line.paper.mean:.2f} ± {line.paper.std:.2f}" if line.paper else ""
    apart = f"{np.mean(line.ours['oracle']) - line.paper.mean:+.2f}" if line.paper and "oracle" in line.ours else ""
    count = max(map(len, line.ours.values()), default=0)
    return [line.title, line.system, *by_rule, paper, apart, str(count)]


def notes(number: int, some: Sequence[Line]) -> list[str]:
    """What stands below a table: how many cells have rows, how ours were chosen, what is missing, what is wrong in print."""
    how = ["Ours: mean ± std over seeds, each with its own split and initialisation; one seed has no std."]
    if "covering" in (shown := _rules(some)):
        titles = " and ".join(one.title for one in CRITERIA.values()).capitalize()
        how.append(f"{titles} choose the setting by held-out sets, without a true label, and take the last epoch.")
    if "last" in shown:
        how.append("On images with a network of their own, settings are fixed, and the last epoch is taken.")
    chooses = "the epoch" if "covering" not in shown else "the epoch and the setting"
    if {"covering", "last"} <= set(shown):
        chooses += " (with a network of their own the epoch alone)"
    how.append(f"The oracle, as the paper, looks at held-out true labels; it chooses {chooses}.")
    how += _starts(number, shown)
    return [filled(some), " ".join(how), *waits(number, some), *(f"Paper: {note}" for note in errata(number))]


def _starts(number: int, shown: Sequence[str]) -> list[str]:
    """Return when POP's first round is; Table 5 says it in every line."""
    if number == 5:
        return []
    starts = []
    if number in (2, 4):
        starts.append(f"POP starts at epoch {LATE.warm_up} of {TABULAR.training.epochs}, as printed too.")
    if number == 3 and "covering" in shown:
        starts.append(f"On rows of pixels POP starts at epoch {QUICK.warm_up} of {FLAT.training.epochs}.")
    if "last" in shown:
        starts.append("With a network of their own POP starts after four fifths of the epochs, as printed too.")
    return starts


def whole(number: int, table: Table, some: Sequence[Line], form: str) -> str:
    """The table with its notes: in Markdown, in LaTeX with these as comments, or for a terminal of 80 columns."""
    rows, head = [cells(line, _rules(some)) for line in some if line.ours], header(some)
    title, below = f"Table {number}: {table.title}", notes(number, some)
    if form == "markdown":
        return f"**{title}**\n\n{typeset(head, rows, form)}\n\n{listed(below, form)}"
    if form == "latex":
        return f"{listed([title, *below], form)}\n{typeset(head, rows, form)}"
    for long, short in ((" ± 0", "±"), (" ± ", "±"), (" as printed", " printed")):  # 80 columns are few
        rows = [[cell.replace(long, short) for cell in row] for row in rows]
    first, *aligned = typeset(head[1:], [row[1:] for row in rows], form).splitlines()
    parts = [title, "", f" {first}"]
    for name, block in groupby(zip(rows, aligned, strict=True), key=lambda pair: pair[0][0]):
        parts += [name, *(f" {line}" for _, line in block)]  # a block for each data set
    return "\n".join([*parts, "", listed(["Differs: oracle - paper. n: seeds.", *below], form)])


class Gain(NamedTuple):
    """What POP adds to a loss on a data set."""

    dataset: str
    system: str  # with POP
    paired: Paired
    holm_p: float  # of the t-test, corrected within the table


def gains(table: Table, scores: Scores, rule: str) -> list[Gain]:
    """Every system with POP against the same without, over the seeds that they share."""
    found = []
    for dataset, (title, plain) in product(table.datasets, table.pairs.items()):
        ours, other = scores.get((dataset, title, rule), {}), scores.get((dataset, plain, rule), {})
        seeds = sorted(ours.keys() & other.keys())
        if len(seeds) > 1:
            found.append((dataset, title, paired([ours[seed] for seed in seeds], [other[seed] for seed in seeds])))
    corrected = holm([one.t_p for *_, one in found])
    return [Gain(*one, p) for one, p in zip(found, corrected, strict=True)]


def gains_text(some: Sequence[Gain], rule: str, form: str = "markdown") -> str:
    """The gains as a Markdown or LaTeX table, with how many of them lie above zero."""
    above = sum(gain.paired.gain > 0 for gain in some)
    head = ["data set", "system", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "effect size", "seeds"]
    body = [
        [NAMED[one.dataset].title, one.system, f"{one.paired.gain:+.2f}", f"{one.paired.t_p:.2g}", f"{one.holm_p:.2g}",
         f"{one.paired.wilcoxon_p:.2g}", f"{one.paired.effect:+.2f}", str(one.paired.n)]
        for one in some
    ]  # fmt: skip
    said = f"Settings chosen by {HEADS[rule]}: POP above its plain loss in the mean in {above} of {len(some)} pairs."
    said = {"latex": f"% {said}", "text": f"{fill(said, 79)}\n"}.get(form, f"{said}\n")
    return f"{said}\n{typeset(head, body, form)}"
