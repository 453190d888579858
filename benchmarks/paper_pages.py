"""The pages docs/research/table-1.md to table-7.md and figures.md: the paper's tables with our rows beside them, made from rows."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

from oneof.storage.rows import Row, read
from oneof_paper import tables
from oneof_paper.data_sets import data_sets, read_figures
from oneof_paper.experiments import CHARACTERISTICS, TABLES, WIDE_SEEDS
from oneof_paper.typeset import typeset

ROOT = Path(__file__).parents[1]
FILES = ("tables.jsonl", "wide_grid_*.jsonl", "images.jsonl")  # of rows, in results/
SEEDS = range(100, 110)
FRESH = range(130, 140)  # which nothing was ever chosen on
MAKERS = {
    1: "images.py",
    2: "wide_grid.py",
    3: "image_tables.py",
    4: "wide_grid.py",
    5: "image_tables.py",
}  # beside `oneof paper`
APART = "hard sets"  # a difference from the paper's setting: sets that it does not have
FIGURES = {
    "region": "Rows in the purified region by epoch. The region is the largest level set of the posterior's margin on which classifier and posterior agree but for 5 % of the rows. "
    "Left as the paper has it, with the posterior of a network trained on true labels: PRODEN's region ends at 0.89, POP's at 0.91. Right with the exact posterior of a Gaussian mixture, where POP makes the region smaller: 0.88 in place of 0.93. Seeds 0-9.",
    "sensitivity-margin": "Lost, PRODEN+POP: one number of the margin rule varied, the others as in the tables. Learning rate 0.1, weight decay 0.01, last epoch, seeds 0-9. The paper's figure on CIFAR-10 is in the [findings](findings.md).",
    "sensitivity-ratio": "The same for the released code's ratio rule.",
    "set-size": "Digits, sets by a classifier's own doubts, from few labels to many: each system of the ablation on the same sets. Last epoch, seeds 0-9. The paper says that POP's advantage is stable under the number of candidates, and never shows it. Here POP's advantage over PRODEN grows with the sets, to four points. CC+POP is up to 1.2 points above CC with two to three labels and 1.6 below with four.",
    "warm-up": "Table 5 as a picture: epochs of warm-up before POP's first round, chosen by oracle as the paper does, one of twelve settings on Lost, BirdSong and MSRCv2.",
    "ranks": "Systems of Tables 2 and 4, twelve settings each, chosen by covering rate, ranked within each of thirty blocks: three data sets by ten seeds. Bars join systems whose ranks differ by less than the critical difference. "
    "Seeds of one set are not independent sets, so this is generous. Over the three data sets alone the critical difference would be 10.5 ranks, and no two systems would differ.",
}


def read_rows() -> list[Row]:
    """Read the rows of all tables."""
    rows = []
    for pattern in FILES:
        for path in sorted((ROOT / "results").glob(pattern)):
            rows += read(path)
    return rows


def table_page(number: int) -> str:
    """Return the page of a table: its lines beside the paper's, what POP adds, and what the paper does not have."""
    table = TABLES[number]
    rows = read_rows()
    scores = tables.scores_of(number, table, rows, SEEDS)
    lines = tables.lines(number, table, scores, table.datasets, list(table.systems))
    beside_the_paper = [line for line in lines if APART not in line.dataset]
    parts = [
        f"# Table {number}",
        f"Seeds {SEEDS[0]}-{SEEDS[-1]}, or those of them that have rows{_wide_seeds(lines)}. Made from rows, which name their commits, by `python benchmarks/readme.py --write`. `oneof paper table {number} --show` prints it, `oneof paper table {number}` and `benchmarks/accuracy/{MAKERS[number]}` run what is missing. "
        "How far it is from print, and why: [what was reproduced](reproduced.md).",
        tables.render(number, table, beside_the_paper, "markdown"),
    ]
    for search, rule in product(("", tables.WIDE_GRID), ("covering", "approximated", "oracle")):
        gains = tables.gains(table, scores, rule, search)
        if gains:
            parts.append(tables.gains_text(gains, rule, search=search))
    hard = [line for line in lines if APART in line.dataset]
    if hard:
        parts.append("## Hard sets, which the paper does not have")
        parts.append(
            "The classifier that drew these sets was trained for 20 epochs only, so most top wrong labels are candidates."
        )
        parts.append(_without_paper(hard))
    if number == 2:
        fresh_scores = tables.scores_of(2, table, rows, FRESH)
        fresh = [
            line
            for line in tables.lines(2, table, fresh_scores, table.datasets, list(table.systems))
            if line.ours and line.dataset == line.name
        ]
        parts.append(f"## Seeds {FRESH[0]}-{FRESH[-1]}, which nothing was ever chosen on")
        rules = ("covering", "approximated", "oracle")
        parts.append(typeset(tables.header(fresh), [tables.cells(line, rules) for line in fresh], "markdown"))
    return "\n\n".join(parts) + "\n"


def _wide_seeds(lines: list[tables.Line]) -> str:
    """Return which seeds the lines of the wide grid have, where there are such lines."""
    if not any(tables.WIDE_GRID in line.dataset for line in lines):
        return ""
    return f"; {WIDE_SEEDS[0]}-{WIDE_SEEDS[-1]} in lines with {tables.WIDE_GRID}"


def _without_paper(lines: list[tables.Line]) -> str:
    """Return lines as a table without the paper's columns."""
    head = ["data set", "system", "last epoch", "oracle", "trials"]
    body = []
    for line in lines:
        dataset, system, last, oracle, *_, trials = tables.cells(line, ("last", "oracle"))
        body.append([dataset, system, last, oracle, trials])
    return typeset(head, body, "markdown")


def data_sets_page(number: int) -> str:
    """Return the page of a table of the appendix: the data sets as printed and as their files are."""
    parts = [
        f"# Table {number}",
        f"Made from rows by `python benchmarks/readme.py --write`; `oneof paper table {number} --data-dir DIR` reads the files.",
        data_sets(number, read_figures(ROOT / "results/data_sets.jsonl"), "markdown"),
    ]
    return "\n\n".join(parts) + "\n"


def figures_page() -> str:
    """Return the page of the paper's figures."""
    parts = ["# The paper's figures", "Made from rows by `python benchmarks/accuracy/figures.py`."]
    for name, text in FIGURES.items():
        parts.append(f"![{name}](../figures/{name}.png)\n\n{text}")
    return "\n\n".join(parts) + "\n"


PAGES = {f"docs/research/table-{number}.md": partial(table_page, number) for number in TABLES}
PAGES |= {f"docs/research/table-{number}.md": partial(data_sets_page, number) for number in CHARACTERISTICS}
PAGES["docs/research/figures.md"] = figures_page
