"""Show a table of the paper with our rows beside it: in Markdown, in LaTeX, or for the terminal."""

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

# Titles of columns, by the rule that chooses the setting or the epoch.
HEADS = {name: criterion.title for name, criterion in CRITERIA.items()} | {"last": "last epoch", "oracle": "oracle"}
Scores = Mapping[tuple[str, str, str], Mapping[int, float]]  # (data set, system, rule) -> seed -> accuracy in percent


class Line(NamedTuple):
    """One system on one data set: our accuracies by each rule, beside the paper's."""

    dataset: str  # followed by what differs from the paper's setting: "kmnist/upright"
    system: str
    ours: dict[str, list[float]]  # rule -> accuracies of the seeds
    paper: Printed | None

    @property
    def name(self) -> str:
        return self.dataset.split("/")[0]

    @property
    def title(self) -> str:
        name, *differences = self.dataset.split("/")
        return ", ".join([NAMED[name].title, *differences])


def scores_of(number: int, table: Table, rows: Iterable[Row], seeds: Iterable[int]) -> Scores:
    """Return the accuracies of the rows with the settings of this table and these seeds; the first of rows with the same key."""
    wanted_seeds = set(seeds)
    title_of_setting = _titles_by_setting(table)
    scores: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        if row["seed"] not in wanted_seeds:
            continue
        for key, accuracy in _accuracies(row, number, title_of_setting).items():
            scores.setdefault(key, {}).setdefault(row["seed"], 100 * accuracy)
    return scores


def _titles_by_setting(table: Table) -> dict[str, str]:
    """Return the title of the system of each cell whose settings are searched, by the digest in its rows."""
    titles = {}
    for dataset in table.datasets:
        protocol = table.protocol(dataset)
        if protocol is None:
            continue
        for name, system in table.systems.items():
            cell = Cell(dataset, table.system(name, dataset), protocol, ())
            titles[cell.setting] = system.title
    return titles


def _accuracies(row: Row, number: int, title_of_setting: Mapping[str, str]) -> dict[tuple[str, str, str], float]:
    """Return what a row says about a table: (data set, system, rule) -> accuracy."""
    if row.get("kind") == "chosen" and row["setting"] in title_of_setting:
        return {(row["dataset"], title_of_setting[row["setting"]], row["rule"]): row["accuracy"]}
    if number in (1, 3) and "difficulty" in row:
        line = _line_of_image_row(row, number)
        if line is not None:
            dataset, system = line
            return {
                (dataset, system, "last"): row["accuracy"],
                (dataset, system, "oracle"): row["by_oracle"]["accuracy"],
            }
    return {}


KINDS = {"saturated": "", "20": "hard sets", "printed": "sets as printed"}  # by the classifier that drew the sets


def _line_of_image_row(row: Row, number: int) -> tuple[str, str] | None:
    """Return the data set, followed by what differs from the paper's setting, and the system of a row on images.

    None if the row is not for this table.
    """
    words = row["variant"].split("-")
    bases = [word for word in words if word in ("upright", "bare", "authors", "augmented")]
    schedule = "-".join(word for word in words if word and word not in bases)
    usual_epochs = EPOCHS.get(row["dataset"], 50)
    is_bare = "bare" in bases
    if schedule not in ("", "last", "printed-last") or row["difficulty"] not in KINDS:
        return None
    if is_bare != (number == 3) or row["epochs"] < usual_epochs:
        return None
    system = row["system"]
    differences = [KINDS[row["difficulty"]]]
    if "upright" in bases:
        differences.append("upright")
    if row["epochs"] > usual_epochs:
        differences.append(f"{row['epochs']} epochs")
    if system == "VALEN" and "augmented" not in bases:
        differences.append("one plain view")
    if system in ("RCR", "PiCO", "VALEN") and "authors" not in bases:
        differences.append("settings of the others")
    if is_bare and system == "POP":
        system = "PRODEN+POP"
    if schedule == "printed-last":
        system += " as printed"
    return "/".join([row["dataset"], *filter(None, differences)]), system


def lines(number: int, table: Table, scores: Scores, datasets: Sequence[str], systems: Sequence[str]) -> list[Line]:
    """Return a line for every system on every data set, with or without rows.

    On images there are further lines for other kinds of sets, views or lengths of training that have rows.
    """
    result = []
    for dataset in datasets:
        others = sorted({key for key, *_ in scores if key.startswith(f"{dataset}/")})
        for variant, name in product((dataset, *others), systems):
            title = table.systems[name].title
            ours = {}
            for rule in HEADS:
                accuracies = scores.get((variant, title, rule))
                if accuracies:
                    ours[rule] = list(accuracies.values())
            if not ours and variant != dataset:
                continue
            paper = printed(number, title, dataset)
            if "hard sets" in variant:
                paper = None  # the paper has no such sets
            result.append(Line(variant, title, ours, paper))
    return result


def count_filled(table_lines: Sequence[Line]) -> str:
    """Say how many cells of the paper have rows of ours, on sets drawn as the paper's, whatever the views and the length."""
    cells_of_paper = set()
    filled = set()
    for line in table_lines:
        if line.paper and "as printed" not in line.system:
            cells_of_paper.add((line.name, line.system))
        if line.ours and "hard sets" not in line.dataset:
            filled.add((line.name, line.system))
    return f"Filled: {len(cells_of_paper & filled)} of {len(cells_of_paper)} cells of the paper."


def empty_cells(number: int, table_lines: Sequence[Line]) -> list[str]:
    """Say why cells are empty, in a note for each data set and reason."""
    systems_by_reason: dict[tuple[str, str], list[str]] = {}
    for line in table_lines:
        if not line.ours:
            reason = _why_empty(number, line, table_lines)
            systems_by_reason.setdefault((line.title, reason), []).append(line.system)
    n_systems = len({line.system for line in table_lines})
    notes = []
    for (title, reason), systems in systems_by_reason.items():
        which = "all" if len(systems) == n_systems else ", ".join(systems)
        notes.append(f"Empty: {title} ({which}): {reason}")
    return notes


def _why_empty(number: int, line: Line, table_lines: Sequence[Line]) -> str:
    """Return why a line has no rows, how to compute them, and which other settings of it have some."""
    named = NAMED[line.dataset]
    if not named.checksums:
        reason = f"the data are not at hand here; take them by hand from {named.address}."
    elif line.dataset in REAL:
        reason = f"not run yet; 'oneof paper table {number} --datasets {line.dataset}' does it."
    else:
        command = f"oneof paper table {number} --datasets {line.dataset} --device cuda"
        reason = f"GPU time, not run yet; '{command}' does it."
    differences = []
    for other in table_lines:
        if other.ours and (other.name, other.system) == (line.dataset, line.system):
            differences.append(other.title.partition(", ")[2])
    if differences:
        reason += f" So far only: {'; '.join(differences)}."
    return reason


def header(table_lines: Sequence[Line]) -> list[str]:
    """Return the titles of the columns, with one for each rule by which these lines have numbers."""
    titles = [HEADS[rule] for rule in _shown_rules(table_lines)]
    return ["data set", "system", *titles, "paper (oracle)", "oracle - paper", "trials"]


def _shown_rules(table_lines: Sequence[Line]) -> list[str]:
    """Return the rules by which these lines have numbers; without any, the rules of a search."""
    rules = [rule for rule in HEADS if any(rule in line.ours for line in table_lines)]
    return rules or [*CRITERIA, "oracle"]


def cells(line: Line, rules: Sequence[str]) -> list[str]:
    """Return a line as text, with a cell for each of these rules: the mean and, of several seeds, the standard deviation."""
    by_rule = []
    for rule in rules:
        accuracies = line.ours.get(rule, [])
        text = f"{np.mean(accuracies):.2f}" if accuracies else ""
        if len(accuracies) > 1:
            text += f" ± {np.std(accuracies, ddof=1):.2f}"
        by_rule.append(text)
    paper = ""
    difference = ""
    if line.paper:
        paper = f"{line.paper.mean:.2f} ± {line.paper.std:.2f}"
        if "oracle" in line.ours:
            difference = f"{np.mean(line.ours['oracle']) - line.paper.mean:+.2f}"
    trials = max(map(len, line.ours.values()), default=0)
    return [line.title, line.system, *by_rule, paper, difference, str(trials)]


def notes(number: int, table_lines: Sequence[Line]) -> list[str]:
    """Return the notes below a table: how many cells have rows, how ours were chosen, what is missing, what is wrong in print."""
    rules = _shown_rules(table_lines)
    about = ["Ours: mean ± std over seeds, each with its own split and initialisation; one seed has no std."]
    is_searched = "covering" in rules
    if is_searched:
        titles = " and ".join(criterion.title for criterion in CRITERIA.values()).capitalize()
        about.append(f"{titles} choose the setting by held-out sets, without a true label, and take the last epoch.")
    if "last" in rules:
        about.append("On images with a network of their own, settings are fixed, and the last epoch is taken.")
    choice = "the epoch and the setting" if is_searched else "the epoch"
    if is_searched and "last" in rules:
        choice += " (with a network of their own the epoch alone)"
    about.append(f"The oracle, as the paper, looks at held-out true labels; it chooses {choice}.")
    about += _pop_starts(number, rules)
    return [
        count_filled(table_lines),
        " ".join(about),
        *empty_cells(number, table_lines),
        *(f"Paper: {note}" for note in errata(number)),
    ]


def _pop_starts(number: int, rules: Sequence[str]) -> list[str]:
    """Say when POP's first round is; Table 5 says it in every line."""
    if number == 5:
        return []
    starts = []
    if number in (2, 4):
        starts.append(f"POP starts at epoch {LATE.warm_up} of {TABULAR.training.epochs}, as printed too.")
    if number == 3 and "covering" in rules:
        starts.append(f"On rows of pixels POP starts at epoch {QUICK.warm_up} of {FLAT.training.epochs}.")
    if "last" in rules:
        starts.append("With a network of their own POP starts after four fifths of the epochs, as printed too.")
    return starts


def render(number: int, table: Table, table_lines: Sequence[Line], form: str) -> str:
    """Return the table with its notes: in Markdown, in LaTeX with the notes as comments, or for a terminal of 80 columns."""
    rules = _shown_rules(table_lines)
    rows = [cells(line, rules) for line in table_lines if line.ours]
    head = header(table_lines)
    title = f"Table {number}: {table.title}"
    below = notes(number, table_lines)
    if form == "markdown":
        return f"**{title}**\n\n{typeset(head, rows, form)}\n\n{listed(below, form)}"
    if form == "latex":
        return f"{listed([title, *below], form)}\n{typeset(head, rows, form)}"
    blocks = _blocks_by_dataset(head, rows)
    return "\n".join([title, "", *blocks, "", listed(["Differs: oracle - paper. n: seeds.", *below], form)])


def _blocks_by_dataset(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for a terminal: the name of a data set, and its systems indented below it."""
    shortened = []
    for row in rows:
        shortened.append([_shorten(cell) for cell in row])
    first, *aligned = typeset(head[1:], [row[1:] for row in shortened], "text").splitlines()
    blocks = [f" {first}"]
    for dataset, block in groupby(zip(shortened, aligned, strict=True), key=lambda pair: pair[0][0]):
        blocks.append(dataset)
        blocks += [f" {line}" for _, line in block]
    return blocks


def _shorten(cell: str) -> str:
    """Shorten a cell for a terminal: ±.12 for ± 0.12."""
    return cell.replace(" ± 0", "±").replace(" ± ", "±").replace(" as printed", " printed")


class Gain(NamedTuple):
    """What POP adds to a loss on a data set."""

    dataset: str
    system: str  # with POP
    paired: Paired
    holm_p: float  # of the t-test, corrected within the table


def gains(table: Table, scores: Scores, rule: str) -> list[Gain]:
    """Compare every system with POP to the same without, over the seeds that they share."""
    comparisons = []
    for dataset, (title, plain_title) in product(table.datasets, table.pairs.items()):
        with_pop = scores.get((dataset, title, rule), {})
        without = scores.get((dataset, plain_title, rule), {})
        seeds = sorted(with_pop.keys() & without.keys())
        if len(seeds) > 1:
            test = paired([with_pop[seed] for seed in seeds], [without[seed] for seed in seeds])
            comparisons.append((dataset, title, test))
    corrected = holm([test.t_p for _, _, test in comparisons])
    result = []
    for (dataset, title, test), holm_p in zip(comparisons, corrected, strict=True):
        result.append(Gain(dataset, title, test, holm_p))
    return result


def gains_text(table_gains: Sequence[Gain], rule: str, form: str = "markdown") -> str:
    """Return the gains as a table, with how many of them are above zero."""
    head = ["data set", "system", "gain", "p (t)", "p (Holm)", "p (Wilcoxon)", "effect size", "seeds"]
    rows = []
    for gain in table_gains:
        test = gain.paired
        rows.append(
            [
                NAMED[gain.dataset].title,
                gain.system,
                f"{test.gain:+.2f}",
                f"{test.t_p:.2g}",
                f"{gain.holm_p:.2g}",
                f"{test.wilcoxon_p:.2g}",
                f"{test.effect:+.2f}",
                str(test.n),
            ]
        )
    above = sum(gain.paired.gain > 0 for gain in table_gains)
    count = f"Settings chosen by {HEADS[rule]}: POP above its plain loss in the mean in {above} of {len(rows)} pairs."
    if form == "latex":
        return f"% {count}\n{typeset(head, rows, form)}"
    if form == "text":
        count = fill(count, 79)
    return f"{count}\n\n{typeset(head, rows, form)}"
