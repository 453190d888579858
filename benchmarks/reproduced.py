"""The page "What was reproduced": per table of the paper how many cells are filled, under which protocol, and how far they are off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oneof.storage.rows import Row, read
from oneof.storage.settings import to_serializable
from oneof_paper import tables
from oneof_paper.experiments import LATE, REAL, TABLES, TABULAR, WIDE
from oneof_paper.images import EPOCHS
from oneof_paper.tables import Line
from oneof_paper.typeset import typeset

ROOT = Path(__file__).parents[1]
SEEDS = range(100, 110)
WORST = 10
BELOW = 3  # points
HEAD = ["table", "cells", "filled", "three seeds or more", "mean distance", "furthest below", "furthest above"]
PROTOCOLS = {
    1: f"LeNet with 50 epochs on MNIST-like images, WRN-28-2 with {EPOCHS['cifar10']} on both CIFARs; fixed settings, released views. POP starts after four fifths of the epochs.",
    2: f"Linear model, {TABULAR.training.epochs} epochs, ten splits; the setting is one of {len(TABULAR.grid)}. POP starts at epoch {LATE.warm_up}.",
    3: "MNIST-like images as rows of pixels: an MLP, 30 epochs, one of four settings. CIFAR: WRN-28-2 as in Table 1, with one plain view.",
    4: "As Table 2, each loss alone and with POP.",
    5: "As Table 2 on the real sets and as Table 3 on images; POP starts at the epoch that the row names.",
}
INTRODUCTION = """# What was reproduced

How much of the paper's tables has rows of ours beside it, and how far these are from print. A distance is ours less the paper's, in points of accuracy; both chose by held-out true labels (*oracle*).
Only cells under the paper's conditions count: sets of a classifier trained to the end, and the views of all. Hard sets, upright characters and longer trainings stand apart in the [tables](../tables.md).
Rows are on seeds from 100 on; [findings](../findings.md) says what they mean. Made from rows by `python benchmarks/readme.py --write`; those of the wide grid are of `benchmarks/accuracy/wide_grid.py`."""
PROVENANCE = """## Where rows come from

Every row names the commit that made it, with a `+` where the source had changes. Rows of Table 2 on seeds 130-139 and of the theorems name 3901e1f, and of POP as printed 7411540: commits that are not in this history.
Of the candidate sets of images only CIFAR-10's cards name a commit. The others were drawn by the same function where Git was not at hand; their cards name classifier, seed, temperature and sizes."""


class Place(NamedTuple):
    """A filled cell of the paper."""

    table: int
    line: Line

    @property
    def distance(self) -> float:
        paper = self.line.paper
        assert paper is not None
        return float(np.mean(self.line.ours["oracle"])) - paper.mean

    @property
    def name(self) -> str:
        return f"{self.line.title}, {self.line.system}"


def lines_of(number: int, rows: Sequence[Row]) -> list[Line]:
    """Return the cells of a table that the paper prints, under its conditions."""
    table = TABLES[number]
    scores = tables.scores_of(number, table, rows, SEEDS)
    every = tables.lines(number, table, scores, table.datasets, list(table.systems))
    return [line for line in every if line.paper and line.dataset == line.name and "as printed" not in line.system]


def summary(number: int, lines: Sequence[Line]) -> list[str]:
    """Return a table's line of the overview."""
    filled = [Place(number, line) for line in lines if "oracle" in line.ours]
    distances = [place.distance for place in filled]
    repeated = sum(len(place.line.ours["oracle"]) >= 3 for place in filled)
    below = min(filled, key=lambda place: place.distance)
    above = max(filled, key=lambda place: place.distance)
    ends = [f"{place.name} {place.distance:+.1f}" for place in (below, above)]
    return [str(number), str(len(lines)), str(len(filled)), str(repeated), f"{np.mean(np.abs(distances)):.1f}", *ends]


def explanation(place: Place, rows: Sequence[Row]) -> str:
    """Return the experiment that explains how far a cell is from print, or that none does yet."""
    system = place.line.system.removesuffix("+POP")
    name = place.line.name
    if system == "CLPL" and name.startswith("cifar"):
        return "The paper's code takes CLPL on the softmax, ours on raw scores, as Cour et al. do. Not run: CLPL on the softmax."
    if name in ("cifar10", "cifar100") and system in ("PRODEN", "CC") and place.table == 1:
        bare = on_one_view(rows, system)
        return f"Print is far below what the loss has even on one plain view of CIFAR-10: {bare:.1f}, Table 3."
    if name == "cifar100" and place.line.system == "POP":
        return "None yet. PRODEN with the same views is where POP is; RCR with its authors' numbers is within a point of print."
    if system == "PiCO":
        return "Our runs have 100 epochs, its authors' 800; accuracy still rises at the end."
    if name in REAL:
        edge, of = at_the_edge(rows, place.line)
        why = f"The oracle takes the largest learning rate of the grid in {edge} of {of} seeds"
        wider = with_wide_grid(rows, place.line)
        if wider:
            why += f"; with {len(WIDE.grid)} settings, to a rate of {max(WIDE.lr):g}, it has {np.mean(wider):.1f} ({len(wider)} other seeds)"
        if place.distance < 0 and edge > of / 2:
            return f"{why}." if wider else f"{why}: the grid ends too early."
        return f"None; ours is above print. {why}." if place.distance > 0 else f"None yet. {why}."
    return "None; ours is above print." if place.distance > 0 else "None yet."


def on_one_view(rows: Sequence[Row], system: str) -> float:
    """Return the accuracy of a loss on one plain view of CIFAR-10."""
    for row in rows:
        if row.get("variant") == "bare" and (row["dataset"], row["system"]) == ("cifar10", system):
            return 100 * float(row["accuracy"])
    raise LookupError(f"no row of {system} on one view of CIFAR-10")


def at_the_edge(rows: Sequence[Row], line: Line) -> tuple[int, int]:
    """Return in how many seeds, of how many, the oracle took the largest learning rate."""
    chosen = [
        row
        for row in rows
        if row.get("rule") == "oracle" and row["seed"] in SEEDS
        and (row["dataset"], row["system"]) == (line.name, line.system)
    ]  # fmt: skip
    largest = max(TABULAR.lr)
    return sum(row["lr"] == largest for row in chosen), len(chosen)


def explained(places: Sequence[Place], rows: Sequence[Row]) -> str:
    """Return cells as a table, each with what explains its distance."""
    head = ["table", "cell", "ours", "paper", "distance", "seeds", "experiment that explains it"]
    body = []
    for place in places:
        ours = place.line.ours["oracle"]
        mean = float(np.mean(ours))
        numbers = [f"{mean:.2f}", f"{mean - place.distance:.2f}", f"{place.distance:+.2f}", str(len(ours))]
        body.append([str(place.table), place.name, *numbers, explanation(place, rows)])
    return typeset(head, body, "markdown")


def with_wide_grid(rows: Sequence[Row], line: Line) -> list[float]:
    """Return the oracle's accuracies, seed by seed, of rows of a system on the wide grid."""
    wanted = (line.name, line.system, "oracle", to_serializable(WIDE))
    found = {}
    for row in rows:
        if (row["dataset"], row["system"], row.get("rule"), row.get("protocol")) == wanted:
            found[row["seed"]] = 100 * float(row["accuracy"])
    return list(found.values())


def page() -> str:
    """Return docs/research/reproduced.md."""
    rows = [row for name in ("tables", "wide_grid", "images") for row in read(ROOT / f"results/{name}.jsonl")]
    cells = {number: lines_of(number, rows) for number in TABLES}
    overview = [summary(number, lines) for number, lines in cells.items()]
    places = []
    for number, lines in cells.items():
        if number == 4:  # whose losses alone are those of Table 2
            lines = [line for line in lines if line.system.endswith("+POP")]
        places += [Place(number, line) for line in lines if "oracle" in line.ours]
    furthest = sorted(places, key=lambda place: -abs(place.distance))[:WORST]
    below = sorted((place for place in places if place.distance < -BELOW), key=lambda place: place.distance)
    protocols = [f"- Table {number}: {text}" for number, text in PROTOCOLS.items()]
    waits = []
    for number, lines in cells.items():
        waits += [f"- Table {number}. {reason}" for reason in tables.empty_cells(number, lines)]
    parts = [
        INTRODUCTION, typeset(HEAD, overview, "markdown"), "## Under which protocol", "\n".join(protocols),
        f"## The {WORST} cells furthest from print", explained(furthest, rows),
        f"## Every cell more than {BELOW} points below print", explained(below, rows), "## What is empty, and why",
        "\n".join(waits), PROVENANCE,
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"
