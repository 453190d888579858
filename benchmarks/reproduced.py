"""The page "What was reproduced": per table of the paper how many cells are filled, under which protocol, and how far they are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from on_images.plans import PLANS
from paper_pages import ROOT, SEEDS, read_rows

from oneof.storage.rows import Row, read
from oneof_paper import tables
from oneof_paper.data.catalogue import NAMED
from oneof_paper.experiments import ABOVE_WIDE, LATE, REAL, TABLES, TABULAR, WIDE, WIDE_SEEDS, Protocol
from oneof_paper.images import EPOCHS, key_of
from oneof_paper.printed import printed
from oneof_paper.tables import CROSS_ENTROPY, FORMS_OF_POP, IN_STEPS, REBUILT, SOFTMAX, WIDE_GRID, Line
from oneof_paper.typeset import typeset

LONGEST = "500 epochs in steps"  # the default length of the released code
WORST = 10
BELOW = 3  # points
NEAR = 1  # points; an experiment this near to print explains a cell
PART = 1 / 3  # of the distance, which an experiment must take away to explain it in part
EXPLAINED = "explained"
IN_PART = "in part"
BETWEEN = "print lies between"
UNEXPLAINED = "not explained"
NO_EXPERIMENT = "no experiment"
HEAD = [
    "table", "cells", "filled", "three seeds or more", WIDE_GRID, "mean absolute distance", "furthest below", "furthest above"
]  # fmt: skip
PROTOCOLS = {
    1: f"LeNet with 50 epochs on MNIST-like images, WRN-28-2 with {EPOCHS['cifar10']} on both CIFARs; fixed settings, for RCR, PiCO and VALEN their authors'; released views. The oracle chooses the epoch. POP (ours) starts after four fifths of the epochs.",
    2: f"Linear model, {TABULAR.training.epochs} epochs, ten splits. The oracle chooses the epoch and the setting: one of {len(WIDE.grid)} where such rows are there (seeds {WIDE_SEEDS[0]}-{WIDE_SEEDS[-1]}), else one of {len(TABULAR.grid)}. POP (ours) starts at epoch {LATE.warm_up}.",
    3: "MNIST-like images as rows of pixels: an MLP, 30 epochs; the oracle chooses the epoch and one of four settings. CIFAR: WRN-28-2 as in Table 1, with one plain view.",
    4: "As Table 2, each loss alone and with POP (ours).",
    5: "As Table 2 on the real sets and as Table 3 on images; POP (ours) starts at the epoch that the row names.",
}
INTRODUCTION = f"""# What was reproduced

Which cells of the paper's tables we computed, under which conditions, and how far our accuracies are from the printed ones. Data: the paper's, where its files could be had. Seeds: {SEEDS[0]}-{SEEDS[-1]}, fewer on images, and {WIDE_SEEDS[0]}-{WIDE_SEEDS[-1]} for cells with {WIDE_GRID}. Rows come from several versions and name their commits. This page is made from rows by `python benchmarks/readme.py --write`.

- A *distance* is our accuracy minus the printed one, in points. Both were chosen by held-out true labels, which a user does not have: the *oracle*. The tables also show what held-out candidate sets choose.
- From three seeds on a distance has its standard error, that of print left out. {{spread}}
- In the released code all trials share one split and one initialisation, so the printed deviations do not show how much a figure depends on the split. Ours draw both anew for every seed.
- A cell counts only under the paper's conditions, as far as they are known: its data, the released views, and sets drawn by the released code's formula from a classifier trained to the end, whose temperature gives the printed average size. Two differ: MNIST's sets hold 4.9 labels where 8.71 is printed, which that formula cannot reach ([Table 6](table-6.md)), and CIFAR-100's classifier is a ResNet-32, the released code's a ResNeXt-29. Sets by the printed formula, harder sets, upright characters and longer trainings are in the pages of the tables: [1](table-1.md), [2](table-2.md), [3](table-3.md), [4](table-4.md), [5](table-5.md).
- *POP (ours)* is the margin rule of the paper with late rounds. It fills the paper's POP cells; *POP (Algorithm 1)*, the printed algorithm, and *POP (released code)*, the ratio rule that the authors published, stand beside it.
- *{WIDE_GRID}*: the wide search on the real sets ({len(WIDE.lr)} learning rates, {len(WIDE.weight_decay)} weight decays, two scalings), in place of {len(TABULAR.grid)} settings. Where a cell has three seeds or more of it, these count. Their seeds are other splits, so the two searches are not compared seed by seed. {{edge}}

[Purification on images](findings.md) interprets the rows on images."""
VERDICTS = f"""Experiments change something about a cell: its schedule, rate, form of loss or views. The verdict goes by the one that ends nearest to print, on whichever side.

- *{EXPLAINED}*: it ends within {NEAR} point of print.
- *{IN_PART}*: it takes away a third of the distance or more.
- *{BETWEEN}*: it ends on the other side of print, more than {NEAR} point away.
- *{UNEXPLAINED}*: none of these. *{NO_EXPERIMENT}*: nothing was run that could decide.

Of the real sets: *one setting for all seeds* is the one with the best mean on held-out true labels, as trials on one split would choose it. With *learning rates to {max(ABOVE_WIDE.lr):g}* the oracle may choose those above the grid's largest too.

An experiment says what can make up a distance, not what the authors did. A cell with many experiments has a milder verdict more easily."""
WAITING = (  # runs that need a GPU: what they are for, and the options of images.py
    ("CLPL on the softmax in Tables 1 and 3, both CIFARs", "--plan clpl"),
    ("CIFAR-100 in Table 3", "--plan bare-others --datasets cifar100"),
    (
        "PiCO with rate 0.05 and 100 epochs on CIFAR-10, then further seeds of other systems there",
        "--plan cifar10-rest",
    ),
    ("Algorithm 1 from epoch 20 on CIFAR-100", "--plan released --datasets cifar100"),
    ("500 epochs, the released code's default, on both CIFARs", "--plan long"),
    ("a second and a third seed of Table 1 on both CIFARs", "--plan colour-seeds"),
    ("five seeds of Table 1 on MNIST-like images", "--plan seeds"),
)
PROVENANCE = """## Where rows come from

Each row in `results/` names the commit that made it, with a `+` where the source had changes. Exceptions: rows that name a commit which is not in this history, and studies whose rows name none. Of the candidate sets of images only CIFAR-10's cards name a commit; the others were drawn by the same function, and their cards name classifier, seed, temperature and sizes."""
ABSENT_COMMITS = ("333c14d", "3901e1f", "5b8a503", "5f7fad8", "7411540", "819d54c", "c62d66b")  # not in the history
NO_ORIGIN = ("data_sets", "ranks")  # files whose rows are made from others, or read from data


class Place(NamedTuple):
    """A filled cell of the paper."""

    table: int
    line: Line

    @property
    def ours(self) -> float:
        return float(np.mean(self.line.ours["oracle"]))

    @property
    def paper(self) -> float:
        cell = self.line.paper
        assert cell is not None
        return cell.mean

    @property
    def distance(self) -> float:
        return self.ours - self.paper

    @property
    def distance_with_error(self) -> str:
        """Return the distance; from three seeds on with its standard error, that of print left out."""
        accuracies = self.line.ours["oracle"]
        text = f"{self.distance:+.2f}"
        if len(accuracies) >= 3:
            text += f" ± {np.std(accuracies, ddof=1) / np.sqrt(len(accuracies)):.2f}"
        return text

    @property
    def name(self) -> str:
        return f"{self.line.title}, {self.line.system}"


class Book(NamedTuple):
    """All rows, and the lines of every table."""

    rows: list[Row]
    lines: dict[int, list[Line]]

    def mean(self, table: int, dataset: str, system: str, *differences: str) -> float | None:
        """Return the oracle's mean of a system with these differences from the paper's setting; None without rows."""
        key = "/".join([dataset, *differences])
        for line in self.lines[table]:
            if (line.dataset, line.system) == (key, system) and "oracle" in line.ours:
                return float(np.mean(line.ours["oracle"]))
        return None


def open_book() -> Book:
    """Read all rows, and make the lines of every table."""
    rows = read_rows()
    lines = {}
    for number, table in TABLES.items():
        scores = tables.scores_of(number, table, rows, SEEDS)
        lines[number] = tables.lines(number, table, scores, table.datasets, list(table.systems))
    return Book(rows, lines)


# ------------------------------------------------------------------------------------------------------------- the cells


def cells_of_the_paper(lines: Sequence[Line]) -> list[Line]:
    """Return a line for each cell that the paper prints, under its conditions: of the wide grid where that has three seeds."""
    wide = {}
    for line in lines:
        if line.dataset == f"{line.name}/{WIDE_GRID}" and line.trials >= 3:
            wide[line.name, line.system] = line
    cells = []
    for line in lines:
        if line.dataset == line.name and tables.is_of_the_paper(line):
            cells.append(wide.get((line.name, line.system), line))
    return cells


def filled_places(number: int, cells: Sequence[Line]) -> list[Place]:
    """Return the cells that have rows."""
    return [Place(number, line) for line in cells if "oracle" in line.ours]


def spread(lines: Mapping[int, Sequence[Line]]) -> str:
    """Say how far the seeds of a line lie apart in Tables 1 and 2."""
    texts = {}
    for number in (1, 2):
        accuracies = [line.ours.get("oracle", []) for line in lines[number]]
        deviations = [np.std(values, ddof=1) for values in accuracies if len(values) >= 3]
        texts[number] = f"{np.median(deviations):.1f} in the median and {max(deviations):.1f} at most"
    pairs = [line for line in lines[1] if len(line.ours.get("oracle", [])) == 2]
    widest = max(pairs, key=lambda line: np.ptp(line.ours["oracle"]))
    return (
        f"Lines of Table 1 with so many seeds have a standard deviation of {texts[1]}; those of Table 2, where each seed has its own split, {texts[2]}. "
        f"A single run can be further off: two of {widest.system} on {widest.title} differ by {np.ptp(widest.ours['oracle']):.1f}."
    )


def edge_of_the_wide_grid(rows: Sequence[Row]) -> str:
    """Say in how many cells of a real set and a seed the oracle takes the largest learning rate of the wide grid."""
    largest = max(WIDE.lr)
    settings = set()
    for table in (2, 4, 5):
        settings |= {
            setting for setting, (key, _) in tables.lines_by_setting(TABLES[table]).items() if WIDE_GRID in key
        }
    texts = []
    for dataset in REAL:
        rates = []
        for row in rows:
            is_of_oracle = row.get("rule") == "oracle" and row["seed"] in WIDE_SEEDS
            if is_of_oracle and row["dataset"] == dataset and row["setting"] in settings:
                rates.append(row["lr"])
        if rates:
            texts.append(f"{sum(rate == largest for rate in rates)} of {len(rates)} runs on {NAMED[dataset].title}")
    return f"The oracle takes the largest learning rate, {largest:g}, in {', '.join(texts)}."


def summary(number: int, cells: Sequence[Line]) -> list[str]:
    """Return a table's line of the overview."""
    filled = filled_places(number, cells)
    repeated = sum(place.line.trials >= 3 for place in filled)
    wide = sum(WIDE_GRID in place.line.dataset for place in filled)
    below = min(filled, key=lambda place: place.distance)
    above = max(filled, key=lambda place: place.distance)
    mean_distance = np.mean([abs(place.distance) for place in filled])
    counts = [str(number) for number in (len(cells), len(filled), repeated)]
    ends = [f"{place.name} {place.distance:+.1f}" for place in (below, above)]
    return [str(number), *counts, str(wide) if number in (2, 4, 5) else "", f"{mean_distance:.1f}", *ends]


# ------------------------------------------------------------------------------------------------- what explains a distance


class Explanation(NamedTuple):
    """What experiments on a cell say about its distance from print."""

    text: str
    verdict: str


def explanation(place: Place, book: Book) -> Explanation:
    """Return the experiments on how far a cell is from print and whether they explain it, or that there is none."""
    explanations = (
        _clpl_on_softmax,
        _one_plain_view,
        _views_of_table_1,
        _forms_of_pop_on_cifar100,
        _less_weight_decay,
        _pico,
        _upright,
        _other_forms_of_loss,
        _other_forms_of_pop,
        _grid,
    )
    for explain in explanations:
        found = explain(place, book)
        if found is not None:
            return found
    return Explanation("", NO_EXPERIMENT)


def judged(place: Place, experiments: Mapping[str, float], before: str = "") -> Explanation:
    """Return the accuracies of experiments on a cell, by their names, and whether the one nearest to print explains its distance."""
    figures = "; ".join(f"{name}: {accuracy:.1f}" for name, accuracy in experiments.items())
    text = f"{before}{figures[0].upper()}{figures[1:]}."
    nearest = min(experiments.values(), key=lambda accuracy: abs(accuracy - place.paper))
    left = nearest - place.paper
    if abs(left) <= NEAR:
        return Explanation(text, EXPLAINED)
    if left * place.distance < 0:
        return Explanation(text, f"{BETWEEN}, {abs(left):.1f} away")
    if abs(left) <= (1 - PART) * abs(place.distance):
        return Explanation(text, f"{IN_PART}: {abs(left):.1f} of {abs(place.distance):.1f} points remain")
    return Explanation(text, UNEXPLAINED)


def _clpl_on_softmax(place: Place, book: Book) -> Explanation | None:
    line = place.line
    if line.system.removesuffix("+POP") != "CLPL" or not line.name.startswith("cifar"):
        return None
    text = "The released code takes CLPL on the softmax, ours on raw scores, as Cour et al. do."
    on_softmax = book.mean(place.table, line.name, line.system, SOFTMAX)
    if on_softmax is None:
        return Explanation(f"{text} Not run: {line.system} on the softmax.", NO_EXPERIMENT)
    return judged(place, {SOFTMAX: on_softmax}, f"{text} ")


def _one_plain_view(place: Place, book: Book) -> Explanation | None:
    """Return what a loss that is above print on CIFAR-10 has without its views."""
    line = place.line
    if place.table != 1 or line.name != "cifar10" or place.distance < BELOW:
        return None
    accuracy = book.mean(3, line.name, line.system)
    if accuracy is None:
        return None
    return judged(place, {"on one plain view (Table 3)": accuracy})


def _views_of_table_1(place: Place, book: Book) -> Explanation | None:
    """Return what a loss that is below print on one plain view has, without POP, on the three views of Table 1."""
    line = place.line
    if place.table != 3 or not line.name.startswith("cifar") or place.distance > -BELOW:
        return None
    loss = line.system.removesuffix("+POP")
    experiments = {}
    on_all_views = book.mean(1, line.name, loss)
    if on_all_views is not None:
        experiments[f"{loss} on three views (Table 1)"] = on_all_views
    as_cross_entropy = book.mean(1, line.name, loss, CROSS_ENTROPY)
    if as_cross_entropy is not None:
        experiments[f"{CROSS_ENTROPY}, on three views"] = as_cross_entropy
    return judged(place, experiments) if experiments else None


def _forms_of_pop_on_cifar100(place: Place, book: Book) -> Explanation | None:
    line = place.line
    if (line.name, line.system) != ("cifar100", "POP"):
        return None
    experiments = {}
    systems = {"POP": "POP (ours)", "POP as released": "POP (released code)", "PRODEN": "PRODEN"}
    for schedule, (system, title) in product((IN_STEPS, LONGEST), systems.items()):
        accuracy = book.mean(1, "cifar100", system, schedule)
        if accuracy is not None:
            experiments[f"{title}, {schedule}"] = accuracy
    experiments.update(_with_less_weight_decay(book, "POP", "POP (ours)"))
    experiments.update(_with_less_weight_decay(book, "PRODEN", "PRODEN"))
    return judged(place, experiments) if experiments else None


def _with_less_weight_decay(book: Book, system: str, title: str) -> dict[str, float]:
    """Return what a system has on CIFAR-100 with less weight decay, by its title."""
    experiments = {}
    for decay in ("weight decay 0.0005", "weight decay 0.0001"):
        accuracy = book.mean(1, "cifar100", system, decay)
        if accuracy is not None:
            experiments[f"{title}, {decay}"] = accuracy
    return experiments


def _less_weight_decay(place: Place, book: Book) -> Explanation | None:
    line = place.line
    if place.table != 1 or line.name != "cifar100" or place.distance > 0:
        return None
    experiments = _with_less_weight_decay(book, line.system, line.system)
    return judged(place, experiments) if experiments else None


def _pico(place: Place, book: Book) -> Explanation | None:
    """Return what PiCO has with another learning rate, and how long its authors train."""
    line = place.line
    if line.system != "PiCO" or place.distance > -BELOW:
        return None
    epochs = EPOCHS.get(line.name, 50)
    experiments = {}
    for row in book.rows:
        is_this_cell = row["system"] == "PiCO" and (row["dataset"], row.get("difficulty")) == (line.name, "saturated")
        if is_this_cell and row["variant"] == "":
            experiments[f"rate {row['lr']:g}, {row['epochs']} epochs"] = 100 * row["by_oracle"]["accuracy"]
    text = f"Ours has its authors' rate, 0.01, and {epochs} epochs; their 800 were not run."
    if experiments:
        return judged(place, experiments, f"{text} ")
    return Explanation(text, NO_EXPERIMENT)


def _upright(place: Place, book: Book) -> Explanation | None:
    line = place.line
    upright = book.mean(1, line.name, line.system, "upright")
    if place.table != 1 or upright is None or place.distance > 0:
        return None
    return judged(place, {"on upright ones": upright}, "The released views mirror characters. ")


def _other_forms_of_loss(place: Place, book: Book) -> Explanation | None:
    """Return what LW as cross-entropy, and CAVL by its authors' Adam or with another rate, have in the same cell."""
    line = place.line
    if place.table != 1 or line.system not in ("LWS", "CAVL") or place.distance > 0:
        return None
    experiments = {}
    for other in book.lines[1]:
        differences = other.dataset.split("/")[1:]
        is_other_form = any(word == CROSS_ENTROPY or "rate " in word for word in differences)
        if (other.name, other.system) == (line.name, line.system) and is_other_form and "hard sets" not in differences:
            experiments[", ".join(differences)] = float(np.mean(other.ours["oracle"]))
    if experiments:
        return judged(place, experiments)
    form = CROSS_ENTROPY if line.system == "LWS" else "by its authors' Adam"
    return Explanation(f"Not run: {line.system} {form}.", NO_EXPERIMENT)


def _other_forms_of_pop(place: Place, book: Book) -> Explanation | None:
    """Return what Algorithm 1 and the released code's POP have on the same loss, for a cell below print."""
    line = place.line
    if not line.system.endswith("POP") or line.name not in REAL or place.distance > -BELOW:
        return None
    experiments = {}
    for ending, form in FORMS_OF_POP.items():
        accuracy = book.mean(place.table, line.name, line.system + ending, WIDE_GRID)
        if accuracy is not None:
            experiments[f"{line.system} ({form})"] = accuracy
    experiments.update(_other_searches(place, book))
    if not experiments:
        return None
    found = judged(place, experiments)
    oracle_rows = rows_of_the_oracle(place, book.rows)
    early = sum(row["epoch"] <= row["purify"]["warm_up"] for row in oracle_rows)
    before = f"Its epoch is before POP's first round in {early}. " if early else ""
    return Explanation(f"{found.text} {_where_the_oracle_is(place, book)} {before}{_reached(place)}", found.verdict)


def _grid(place: Place, book: Book) -> Explanation | None:
    """Return what other searches give on a real set, and how often the oracle sat on the edge of the grid."""
    line = place.line
    if line.name not in REAL:
        return None
    oracle = _where_the_oracle_is(place, book)
    if WIDE_GRID not in line.dataset:
        return Explanation(f"{oracle} Not run: {WIDE_GRID}.", NO_EXPERIMENT)
    experiments = _other_searches(place, book)
    if not experiments:
        return Explanation(oracle, NO_EXPERIMENT)
    found = judged(place, experiments)
    return Explanation(f"{found.text} {oracle}", found.verdict)


def _other_searches(place: Place, book: Book) -> dict[str, float]:
    """Return what a cell with the wide grid has when its setting is searched in other ways."""
    line = place.line
    if WIDE_GRID not in line.dataset:
        return {}
    accuracies = {
        f"with {len(TABULAR.grid)} settings": book.mean(place.table, line.name, line.system),
        "one setting for all seeds": with_one_setting(place, book.rows),
        f"learning rates to {max(ABOVE_WIDE.lr):g}": with_larger_rates(place, book.rows),
    }
    return {name: accuracy for name, accuracy in accuracies.items() if accuracy is not None}


def with_one_setting(place: Place, rows: Sequence[Row]) -> float | None:
    """Return the mean accuracy with the setting that has the best mean over all seeds on held-out true labels, each seed in its best epoch."""
    line = place.line
    line_of_setting = tables.wide_lines(TABLES[place.table], WIDE)
    grids = {}
    for row in rows:
        is_this_cell = row.get("kind") == "grid" and line_of_setting.get(row["setting"]) == (line.dataset, line.system)
        if is_this_cell and row["seed"] in WIDE_SEEDS:
            grids.setdefault(row["seed"], row["best_oracle"])
    if len(grids) < line.trials:
        return None
    held_out = np.array([grid["oracle"] for grid in grids.values()])
    setting = held_out.mean(0).argmax()
    return float(100 * np.mean([grid["accuracy"][setting] for grid in grids.values()]))


def with_larger_rates(place: Place, rows: Sequence[Row]) -> float | None:
    """Return the mean accuracy when the oracle may choose learning rates above the wide grid's too; None unless all seeds have them."""
    larger = rows_of_the_oracle(place, rows, ABOVE_WIDE)
    if len(larger) < place.line.trials:
        return None
    larger_of_seed = {row["seed"]: row for row in larger}
    accuracies = []
    for row in rows_of_the_oracle(place, rows):
        other = larger_of_seed[row["seed"]]
        best = other if other["oracle"] > row["oracle"] else row
        accuracies.append(best["accuracy"])
    return float(100 * np.mean(accuracies))


def _where_the_oracle_is(place: Place, book: Book) -> str:
    """Say how often the oracle takes the largest learning rate of a real set's grid."""
    edge, of = at_the_edge(place, book.rows)
    protocol = WIDE if WIDE_GRID in place.line.dataset else TABULAR
    return f"The oracle takes the largest learning rate, {max(protocol.lr):g}, in {edge} of {of} seeds."


def _reached(place: Place) -> str:
    """Say how many seeds, each with its own split, are at print or above."""
    accuracies = place.line.ours["oracle"]
    count = sum(accuracy >= place.paper for accuracy in accuracies)
    return f"Seeds at print or above: {count} of {len(accuracies)}."


def rows_of_the_oracle(place: Place, rows: Sequence[Row], protocol: Protocol = WIDE) -> list[Row]:
    """Return what the oracle chose for a cell with the wide grid, a row for each seed."""
    line = place.line
    line_of_setting = tables.wide_lines(TABLES[place.table], protocol)
    by_seed: dict[int, Row] = {}
    for row in rows:
        is_this_cell = row.get("rule") == "oracle" and line_of_setting.get(row["setting"]) == (
            line.dataset,
            line.system,
        )
        if is_this_cell and row["seed"] in WIDE_SEEDS:
            by_seed.setdefault(row["seed"], row)
    return list(by_seed.values())


def at_the_edge(place: Place, rows: Sequence[Row]) -> tuple[int, int]:
    """Return in how many seeds, of how many, the oracle took the largest learning rate of the grid."""
    line = place.line
    is_wide = WIDE_GRID in line.dataset
    seeds = WIDE_SEEDS if is_wide else SEEDS
    largest = max(WIDE.lr if is_wide else TABULAR.lr)
    line_of_setting = tables.lines_by_setting(TABLES[place.table])
    rates = {}
    for row in rows:
        if row.get("rule") != "oracle" or row["seed"] not in seeds:
            continue
        if line_of_setting.get(row["setting"]) == (line.dataset, line.system):
            rates.setdefault(row["seed"], row["lr"])
    return sum(rate == largest for rate in rates.values()), len(rates)


def explained(places: Sequence[Place], book: Book) -> str:
    """Return cells as a table, each with what explains its distance."""
    head = ["table", "cell", "ours", "paper", "distance", "seeds", "experiments", "verdict"]
    body = []
    for place in places:
        numbers = [f"{place.ours:.2f}", f"{place.paper:.2f}", place.distance_with_error, str(place.line.trials)]
        body.append([str(place.table), place.name, *numbers, *explanation(place, book)])
    return typeset(head, body, "markdown")


def count_explained(places: Sequence[Place], book: Book) -> str:
    """Say how many of these cells have which verdict."""
    given = [explanation(place, book).verdict for place in places]
    parts = []
    for verdict in (EXPLAINED, IN_PART, BETWEEN, UNEXPLAINED, NO_EXPERIMENT):
        count = sum(text.startswith(verdict) for text in given)
        if count:
            parts.append(f"{count} {verdict}")
    return f"{len(places)} cells: {', '.join(parts)}."


# ------------------------------------------------------------------------------------------------------- beside the tables


def forms_of_pop(book: Book) -> str:
    """Return the three POPs beside PRODEN under the released schedule, a line per data set, if there are rows."""
    systems = ["PRODEN", "POP as released", "POP as printed", "POP"]
    head = ["data set", "PRODEN", "POP (released code)", "POP (Algorithm 1, from epoch 20)", "POP (ours)", "paper: POP"]
    body = []
    for dataset in TABLES[1].datasets:
        accuracies = [book.mean(1, dataset, system, IN_STEPS) for system in systems]
        if any(accuracy is not None for accuracy in accuracies):
            cells = ["" if accuracy is None else f"{accuracy:.2f}" for accuracy in accuracies]
            paper = printed(1, "POP", dataset)
            body.append([NAMED[dataset].title, *cells, "" if paper is None else f"{paper.mean:.2f}"])
    return typeset(head, body, "markdown")


def forms_of_pop_on_real_sets(book: Book) -> str:
    """Return the three POPs beside PRODEN with 60 settings, a line per real set that has rows."""
    systems = ["PRODEN", "POP as released", "POP as printed", "POP"]
    head = [
        "data set",
        "PRODEN",
        "POP (released code)",
        "POP (Algorithm 1)",
        "POP (ours)",
        "paper: PRODEN",
        "paper: POP",
    ]
    body = []
    for dataset in REAL:
        by_system = {line.system: line for line in book.lines[2] if line.dataset == f"{dataset}/{WIDE_GRID}"}
        if any(system not in by_system for system in systems):
            continue
        cells = [tables.cells(by_system[system], ("oracle",))[2] for system in systems]
        papers = [f"{by_system[system].paper.mean:.2f}" for system in ("PRODEN", "POP")]  # type: ignore[union-attr]
        body.append([NAMED[dataset].title, *cells, *papers])
    return typeset(head, body, "markdown")


def true_labels(book: Book) -> str:
    """Return what networks of Table 1 reach on true labels."""
    accuracies: dict[tuple[str, str, int], list[float]] = {}
    for row in book.rows:
        if row["system"] == "supervised" and row["seed"] in SEEDS:
            accuracies.setdefault((row["dataset"], row["variant"], row["epochs"]), []).append(100 * row["accuracy"])
    body = []
    for (dataset, variant, epochs), values in sorted(accuracies.items()):
        body.append([NAMED[dataset].title, variant, str(epochs), f"{np.mean(values):.2f}", str(len(values))])
    return typeset(["data set", "views", "epochs", "last epoch", "seeds"], body, "markdown")


def malagasy(book: Book) -> str:
    """Return the systems of Table 2 on Malagasy rebuilt, beside the paper's row."""
    rebuilt = [line for line in book.lines[2] if REBUILT in line.dataset.split("/") and line.paper]
    proden = {}
    for line in rebuilt:
        if line.system == "PRODEN":
            for row in rows_of_the_oracle(Place(2, line), book.rows):
                proden[row["seed"]] = 100 * row["accuracy"]
    body = []
    for line in rebuilt:
        covering, oracle = tables.cells(line, ("covering", "oracle"))[2:4]
        seeds = [row["seed"] for row in rows_of_the_oracle(Place(2, line), book.rows)]
        of_proden = [proden[seed] for seed in seeds if seed in proden]
        beside = f"{np.mean(of_proden):.2f}" if of_proden else ""
        body.append([line.system_title, covering, oracle, beside, f"{line.paper.mean:.2f}", str(line.trials)])  # type: ignore[union-attr]
    if not body:
        return "There are no rows yet: `python benchmarks/accuracy/wide_grid.py malagasy-rebuilt` makes them."
    head = ["system", "covering", "oracle", "PRODEN's oracle on the same seeds", "paper, on its own file", "seeds"]
    table = typeset(head, body, "markdown")
    computed = {row[0] for row in body}
    missing = []
    for line in book.lines[2]:
        is_cell = line.dataset == "malagasy" and tables.is_of_the_paper(line)
        if is_cell and line.system_title not in computed:
            missing.append(line.system_title)
    return f"{table}\n\nNot run: {', '.join(missing)}." if missing else table


def empty_cells(cells: Mapping[int, Sequence[Line]]) -> str:
    """Say which cells have no rows, and why: a line for each reason, with the data sets, their tables and systems."""
    tables_by_place: dict[str, dict[tuple[str, str], list[str]]] = {}
    for number, lines in cells.items():
        for (title, reason), systems in tables.systems_without_rows(number, lines).items():
            tables_by_place.setdefault(reason, {}).setdefault((title, systems), []).append(str(number))
    notes = []
    for reason, places in tables_by_place.items():
        texts = []
        for (title, systems), numbers in places.items():
            which = "" if systems == "all" else f": {systems}"
            table = "Table" if len(numbers) == 1 else "Tables"
            texts.append(f"{title} ({table} {', '.join(numbers)}{which})")
        notes.append(f"- {'; '.join(texts)}: {reason}")
    return "\n".join(notes)


def waiting(rows: Sequence[Row]) -> str:
    """Return which runs wait for a GPU, with the command of each group and how many of its runs have no rows yet."""
    done = {key_of(row) for row in rows if "difficulty" in row}
    body = []
    for purpose, options in WAITING:
        _, plan, *rest = options.split()
        runs = PLANS[plan]()
        if rest:
            runs = [run for run in runs if run.dataset == rest[-1]]
        missing = sum(run.key not in done for run in runs)
        if missing:
            body.append([purpose, f"`{options}`", f"{missing} of {len(runs)}"])
    return typeset(["what", "options", "runs without rows"], body, "markdown")


def rows_without_origin() -> str:
    """Return, for each file of rows, how many name a commit that is not in the history, or none."""
    body = []
    for path in sorted((ROOT / "results").glob("*.jsonl")):
        if path.stem in NO_ORIGIN:
            continue
        rows = [row for row in read(path) if row.get("kind") != "grid"]  # those lie beside rows that name it
        absent = [row for row in rows if (row.get("commit") or "").removesuffix("+") in ABSENT_COMMITS]
        nameless = [row for row in rows if not row.get("commit")]
        if absent or nameless:
            commits = ", ".join(sorted({row["commit"] for row in absent}))
            body.append([f"`{path.name}`", str(len(rows)), str(len(absent)), commits, str(len(nameless))])
    return typeset(["file", "rows", "of a commit not in the history", "which", "without a commit"], body, "markdown")


def page() -> str:
    """Return docs/research/reproduced.md."""
    book = open_book()
    cells = {number: cells_of_the_paper(lines) for number, lines in book.lines.items()}
    places = []
    for number, lines in cells.items():
        for place in filled_places(number, lines):
            if number != 4 or place.line.system.endswith("+POP"):  # the losses alone are those of Table 2
                places.append(place)
    furthest = sorted(places, key=lambda place: -abs(place.distance))[:WORST]
    below = sorted((place for place in places if place.distance < -BELOW), key=lambda place: place.distance)
    parts = [
        INTRODUCTION.format(spread=spread(book.lines), edge=edge_of_the_wide_grid(book.rows)),
        typeset(HEAD, [summary(number, lines) for number, lines in cells.items()], "markdown"),
        "## Under which protocol",
        "\n".join(f"- Table {number}: {text}" for number, text in PROTOCOLS.items()),
        "## What explains a distance",
        VERDICTS,
        f"### The {WORST} cells furthest from print",
        explained(furthest, book),
        f"### Every cell more than {BELOW} points below print",
        count_explained(below, book),
        explained(below, book),
        "## The three POPs",
        f"On images by the released schedule, {IN_STEPS}; seed 100, one run each, so differences of less than half a point say nothing. All begin as the same PRODEN. Oracle, as in Table 1.",
        forms_of_pop(book),
        f"On the real sets with {WIDE_GRID}, ten seeds, mean and standard deviation. Oracle, as in Table 2; Algorithm 1 and the released code start at epoch 20, ours at {LATE.warm_up}.",
        forms_of_pop_on_real_sets(book),
        "## What true labels reach",
        true_labels(book),
        "## Malagasy, rebuilt",
        "The paper's file cannot be had. This set is made from the text and the tag dictionary that the paper's came from; features are indicators of words, affixes and neighbours. It has 22 classes where the paper prints 44 ([Table 7](table-7.md)), so it stands beside the paper's row and fills no cell. The search has 60 settings, on seeds from 400 on; a system with few seeds is to be compared with PRODEN on the same.",
        malagasy(book),
        "## What is empty, and why",
        empty_cells(cells),
        "## What waits for a GPU",
        "`python benchmarks/accuracy/images.py` with these options runs what has no rows yet. With `--tiny`, `--rows` and `--sets` it tries the same on a CPU. PiCO's 800 epochs and VALEN's length are in no plan.",
        waiting(book.rows),
        PROVENANCE,
        rows_without_origin(),
    ]
    return "\n\n".join(parts) + "\n"
