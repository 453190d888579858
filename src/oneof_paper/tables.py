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
from oneof_paper.experiments import (
    FLAT,
    LATE,
    QUICK,
    REAL,
    TABULAR,
    WIDE,
    WIDE_SEEDS,
    PaperTable,
    Protocol,
    wide_systems,
)
from oneof_paper.images import EPOCHS
from oneof_paper.paired_tests import Paired, holm, paired
from oneof_paper.printed import Printed, errata, printed
from oneof_paper.typeset import listed, typeset

# Titles of columns, by the rule that chooses the setting or the epoch.
HEADS = {name: criterion.title for name, criterion in CRITERIA.items()} | {"last": "last epoch", "oracle": "oracle"}
WIDE_GRID = f"{len(WIDE.grid)} settings"  # what differs from the usual search, in lines and keys
REBUILT = "rebuilt"  # Malagasy, made anew from its source
IN_STEPS = "200 epochs in steps"  # the released code's schedule
SOFTMAX = "on the softmax"  # CLPL, as the released code has it
CROSS_ENTROPY = "as cross-entropy"  # LW, of which the sigmoid form is the usual one
FORMS_OF_POP = {" as printed": "Algorithm 1", " as released": "released code"}  # by how titles end
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
        return dataset_title(self.dataset)

    @property
    def system_title(self) -> str:
        """Return the system's title; of the paper's POP, whose loss is PRODEN's, it says which form it is."""
        if self.system == "POP":
            return "POP (ours)"
        title, form = split_form(self.system)
        if not form:
            return title
        if title == "PRODEN+POP":
            title = "POP"
        return f"{title} ({form})"

    @property
    def trials(self) -> int:
        return max(map(len, self.ours.values()), default=0)


def split_form(system: str) -> tuple[str, str]:
    """Split the title of a system into that of the usual form of POP and the name of the other form, empty where it is the usual.

    >>> split_form("RC+POP as released"), split_form("RC+POP")
    (('RC+POP', 'released code'), ('RC+POP', ''))
    """
    for ending, form in FORMS_OF_POP.items():
        if system.endswith(ending):
            return system.removesuffix(ending), form
    return system, ""


def dataset_title(key: str) -> str:
    """Return the title of a data set, followed by what differs from the paper's setting."""
    name, *differences = key.split("/")
    return ", ".join([NAMED[name].title, *differences])


def scores_of(number: int, table: PaperTable, rows: Iterable[Row], seeds: Iterable[int]) -> Scores:
    """Return the accuracies of the rows with the settings of this table and these seeds; the first of rows with the same key.

    Rows of the wide grid have seeds of their own.
    """
    wanted_seeds = set(seeds)
    line_of_setting = lines_by_setting(table)
    scores: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        for (dataset, system, rule), accuracy in _accuracies(row, number, line_of_setting).items():
            seeds_here = WIDE_SEEDS if WIDE_GRID in dataset else wanted_seeds
            if row["seed"] in seeds_here:
                scores.setdefault((dataset, system, rule), {}).setdefault(row["seed"], 100 * accuracy)
    return scores


def lines_by_setting(table: PaperTable) -> dict[str, tuple[str, str]]:
    """Return the data set and the title of the system of each cell whose settings are searched, by the digest in its rows."""
    return {**_usual_lines(table), **wide_lines(table, WIDE)}


def _usual_lines(table: PaperTable) -> dict[str, tuple[str, str]]:
    """Return the lines of the table's own search."""
    by_setting = {}
    for dataset in table.datasets:
        protocol = table.protocol(dataset)
        if protocol is None:
            continue
        for name, system in table.systems.items():
            cell = Cell(dataset, table.system(name, dataset), protocol, ())
            by_setting[cell.setting] = (dataset, system.title)
    return by_setting


def wide_lines(table: PaperTable, protocol: Protocol) -> dict[str, tuple[str, str]]:
    """Return the lines of the wide grid by the digests that its cells have with a protocol: WIDE, or ABOVE_WIDE."""
    titles = {system.title for system in table.systems.values()}
    keys = {dataset: f"{dataset}/{WIDE_GRID}" for dataset in table.datasets if dataset in REAL}
    if "malagasy" in keys:
        keys["malagasy-rebuilt"] = f"malagasy/{REBUILT}/{WIDE_GRID}"
    by_setting = {}
    for system in wide_systems():
        title = system.title
        if title == "PRODEN+POP" and "POP" in titles:
            title = "POP"
        elif title.startswith("POP as ") and "PRODEN+POP" in titles:
            title = f"PRODEN+{title}"
        usual_title, _ = split_form(title)
        if usual_title not in titles:
            continue
        for dataset, key in keys.items():
            by_setting[Cell(dataset, system, protocol, ()).setting] = (key, title)
    return by_setting


def _accuracies(
    row: Row, number: int, line_of_setting: Mapping[str, tuple[str, str]]
) -> dict[tuple[str, str, str], float]:
    """Return what a row says about a table: (data set, system, rule) -> accuracy."""
    if row.get("kind") == "chosen" and row["setting"] in line_of_setting:
        dataset, title = line_of_setting[row["setting"]]
        return {(dataset, title, row["rule"]): row["accuracy"]}
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
    bases = [word for word in words if word in _BASES or word.startswith(("decay.", "adam."))]
    schedule = "-".join(word for word in words if word and word not in bases)
    usual_epochs = EPOCHS.get(row["dataset"], 50)
    is_bare = "bare" in bases
    if row["difficulty"] not in KINDS or is_bare != (number == 3) or row["epochs"] < usual_epochs:
        return None
    suffixes = _SUFFIXES_IN_STEPS if "stepped" in bases else _SUFFIXES
    if schedule not in suffixes:
        return None
    system = row["system"]
    if is_bare and system == "POP":
        system = "PRODEN+POP"
    system = system.replace(" (softmax)", "").replace(" (cross-entropy)", "")
    return "/".join([row["dataset"], *_differences(row, bases)]), system + suffixes[schedule]


_BASES = ("upright", "bare", "authors", "augmented", "stepped", "slow")
# What the title of a system ends with, by the schedule of POP in the row's variant.
_SUFFIXES = {"": "", "last": "", "printed-last": " as printed"}
_SUFFIXES_IN_STEPS = {"": "", "last": "", "printed-20": " as printed", "released": " as released"}


def _differences(row: Row, bases: Sequence[str]) -> list[str]:
    """Return what differs from the paper's setting in a row on images."""
    system = row["system"]
    differences = []
    if KINDS[row["difficulty"]]:
        differences.append(KINDS[row["difficulty"]])
    if "upright" in bases:
        differences.append("upright")
    if "stepped" in bases:
        differences.append(IN_STEPS if row["epochs"] == 200 else f"{row['epochs']} epochs in steps")
    elif row["epochs"] > EPOCHS.get(row["dataset"], 50):
        differences.append(f"{row['epochs']} epochs")
    if any(base.startswith("decay.") for base in bases):
        differences.append(f"weight decay {row['weight_decay']:g}")
    if any(base.startswith("adam.") for base in bases):
        differences.append(f"Adam, rate {row['lr']:g}")
    elif "slow" in bases:
        differences.append(f"rate {row['lr']:g}")
    if system == "VALEN" and "augmented" not in bases:
        differences.append("one plain view")
    if system in ("RCR", "PiCO", "VALEN") and "authors" not in bases:
        differences.append("settings of the others")
    if system.startswith("CLPL (softmax)"):
        differences.append(SOFTMAX)
    if system == "LWS (cross-entropy)":
        differences.append(CROSS_ENTROPY)
    return differences


def lines(
    number: int, table: PaperTable, scores: Scores, datasets: Sequence[str], systems: Sequence[str]
) -> list[Line]:
    """Return a line for every system on every data set, with or without rows.

    There are further lines for other kinds of sets, views, lengths of training or searches that have rows, and for the other forms of
    POP that have some.
    """
    usual_titles = {system.title for system in table.systems.values()}
    result = []
    for dataset in datasets:
        others = sorted({key for key, *_ in scores if key.startswith(f"{dataset}/")})
        for variant, title in product((dataset, *others), _titles(table, systems)):
            ours = {}
            for rule in HEADS:
                accuracies = scores.get((variant, title, rule))
                if accuracies:
                    ours[rule] = list(accuracies.values())
            if not ours and (variant != dataset or title not in usual_titles):
                continue
            paper = printed(number, title, dataset)
            if "hard sets" in variant:
                paper = None  # the paper has no such sets
            result.append(Line(variant, title, ours, paper))
    return result


def _titles(table: PaperTable, systems: Sequence[str]) -> list[str]:
    """Return the titles of systems, and after each with POP those of its other forms, Algorithm 1 before the released code."""
    own_titles = [table.systems[name].title for name in systems]
    titles = []
    for title in own_titles:
        titles.append(title)
        usual_title, form = split_form(title)
        if form:
            titles.append(f"{usual_title} as released")
        elif title.endswith("+POP") and f"{title} as printed" not in own_titles:
            titles += [f"{title}{ending}" for ending in FORMS_OF_POP]
    return titles


def is_of_the_paper(line: Line) -> bool:
    """Return whether a line is a cell of the paper, and not another form of POP."""
    return line.paper is not None and not line.system.endswith(tuple(FORMS_OF_POP))


def count_filled(table_lines: Sequence[Line]) -> str:
    """Say how many cells of the paper have rows of ours under its conditions, with any search, and how many have three seeds."""
    cells_of_paper = set()
    seeds_of_filled: dict[tuple[str, str], int] = {}
    for line in table_lines:
        cell = (line.name, line.system)
        if is_of_the_paper(line):
            cells_of_paper.add(cell)
        if line.ours and line.dataset in (line.name, f"{line.name}/{WIDE_GRID}"):
            seeds_of_filled[cell] = max(seeds_of_filled.get(cell, 0), line.trials)
    filled = [seeds for cell, seeds in seeds_of_filled.items() if cell in cells_of_paper]
    repeated = sum(seeds >= 3 for seeds in filled)
    count = f"Filled: {len(filled)} of {len(cells_of_paper)} cells of the paper."
    return f"{count} With three seeds or more: {repeated}." if filled else count


def empty_cells(number: int, table_lines: Sequence[Line]) -> list[str]:
    """Say why cells are empty, in a note for each data set and reason."""
    notes = []
    for (title, reason), which in systems_without_rows(number, table_lines).items():
        notes.append(f"Empty: {title} ({which}): {reason}")
    return notes


def systems_without_rows(number: int, table_lines: Sequence[Line]) -> dict[tuple[str, str], str]:
    """Return which systems have no rows, "all" where none has, by the title of the data set and the reason."""
    titles_by_reason: dict[tuple[str, str], list[str]] = {}
    for line in table_lines:
        if not line.ours:
            reason = _why_empty(number, line, table_lines)
            titles_by_reason.setdefault((line.title, reason), []).append(line.system_title)
    n_systems = len({line.system for line in table_lines if line.dataset == line.name})
    which = {}
    for key, titles in titles_by_reason.items():
        which[key] = "all" if len(titles) == n_systems else ", ".join(titles)
    return which


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
        if "oracle" in line.ours and REBUILT not in line.dataset:
            difference = f"{np.mean(line.ours['oracle']) - line.paper.mean:+.2f}"
    return [line.title, line.system_title, *by_rule, paper, difference, str(line.trials)]


def notes(number: int, table_lines: Sequence[Line]) -> list[str]:
    """Return the notes below a table: how many cells have rows, how ours were chosen, what is missing, what is wrong in print."""
    rules = _shown_rules(table_lines)
    about = ["Ours: mean ± std over seeds, each with its own split and initialisation; one seed has no std."]
    is_searched = "covering" in rules
    if is_searched:
        titles = " and ".join(criterion.title for criterion in CRITERIA.values()).capitalize()
        about.append(f"{titles} choose the setting by held-out sets, without a true label, and take the last epoch.")
    if "last" in rules:
        about.append(
            f'Settings of {_image_networks(number)} are fixed, so nothing is chosen in the column "last epoch".'
        )
    choice = "the epoch and the setting" if is_searched else "the epoch"
    if is_searched and "last" in rules:
        choice += f" (of {_image_networks(number)} the epoch alone)"
    about.append(f"The oracle, as the paper, looks at held-out true labels; it chooses {choice}.")
    further = [*_pop_notes(number, table_lines), *_search_notes(table_lines)]
    return [
        count_filled(table_lines),
        " ".join(about),
        *([" ".join(further)] if further else []),
        *empty_cells(number, table_lines),
        *(f"Paper: {note}" for note in errata(number)),
    ]


def _image_networks(number: int) -> str:
    """Return the networks of a table's images that are no rows of pixels."""
    return "LeNet and WRN-28-2" if number == 1 else "WRN-28-2"


def _pop_notes(number: int, table_lines: Sequence[Line]) -> list[str]:
    """Say which POP is which and when its first round is; Table 5 says the latter in every line."""
    if number == 5:
        return []
    rules = _shown_rules(table_lines)
    text = [
        "POP (ours) and +POP: the margin rule with late rounds; POP (Algorithm 1): as printed; POP (released code): the ratio rule that the authors released."
    ]
    if number in (2, 4):
        text.append(f"POP starts at epoch {LATE.warm_up} of {TABULAR.training.epochs}.")
    if _have_rows(table_lines, WIDE_GRID):
        text.append(f"With {WIDE_GRID}, Algorithm 1 and the released code start at epoch 20.")
    if number == 3 and "covering" in rules:
        text.append(f"On rows of pixels POP starts at epoch {QUICK.warm_up} of {FLAT.training.epochs}.")
    if "last" in rules:
        text.append(f"With {_image_networks(number)} every form of POP starts after four fifths of the epochs.")
    if _have_rows(table_lines, IN_STEPS):
        text.append(
            "Not so in the lines of 200 epochs, where the rate falls in steps, as in the released code: Algorithm 1 and the released code start at epoch 20, ours at 160."
        )
    return text


def _search_notes(table_lines: Sequence[Line]) -> list[str]:
    """Say what the lines of the wide grid and of Malagasy rebuilt are."""
    text = []
    if _have_rows(table_lines, WIDE_GRID):
        rates = f"learning rates to {max(WIDE.lr):g}, weight decay to {max(WIDE.weight_decay):g}, two scalings of the features"
        seeds = f"{WIDE_SEEDS[0]}-{WIDE_SEEDS[-1]}"
        text.append(f"Lines with {WIDE_GRID} have a wider search ({rates}, LW in four forms) on seeds {seeds}.")
    if _have_rows(table_lines, REBUILT):
        text.append("Malagasy rebuilt is not the paper's file, so no difference is shown and no cell is counted.")
    return text


def _have_rows(table_lines: Sequence[Line], difference: str) -> bool:
    return any(line.ours and difference in line.dataset.split("/") for line in table_lines)


def render(number: int, table: PaperTable, table_lines: Sequence[Line], form: str) -> str:
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
    return (
        cell.replace(" ± 0", "±")
        .replace(" ± ", "±")
        .replace("(Algorithm 1)", "(Alg. 1)")
        .replace("(released code)", "(released)")
    )


class Gain(NamedTuple):
    """What POP adds to a loss on a data set."""

    dataset: str
    system: str  # with POP
    paired: Paired
    holm_p: float  # of the t-test, corrected within the table


def gains(table: PaperTable, scores: Scores, rule: str, search: str = "") -> list[Gain]:
    """Compare every system with POP to the same without, over the seeds that they share; `search`: WIDE_GRID or the table's own."""
    comparisons = []
    for dataset, (title, plain_title) in product(table.datasets, table.pairs.items()):
        key = f"{dataset}/{search}" if search else dataset
        with_pop = scores.get((key, title, rule), {})
        without = scores.get((key, plain_title, rule), {})
        seeds = sorted(with_pop.keys() & without.keys())
        if len(seeds) > 1:
            test = paired([with_pop[seed] for seed in seeds], [without[seed] for seed in seeds])
            comparisons.append((dataset, title, test))
    corrected = holm([test.t_p for _, _, test in comparisons])
    result = []
    for (dataset, title, test), holm_p in zip(comparisons, corrected, strict=True):
        result.append(Gain(dataset, title, test, holm_p))
    return result


def gains_text(table_gains: Sequence[Gain], rule: str, form: str = "markdown", search: str = "") -> str:
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
    chosen = f"Settings chosen by {HEADS[rule]}"
    if search:
        chosen += f", one of {search}"
    count = f"{chosen}: POP above its plain loss in the mean in {above} of {len(rows)} pairs."
    if form == "latex":
        return f"% {count}\n{typeset(head, rows, form)}"
    if form == "text":
        count = fill(count, 79)
    return f"{count}\n\n{typeset(head, rows, form)}"
