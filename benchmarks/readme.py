"""The results in README and docs, made from rows: what stands between marks is written by this script and checked by a test.

python benchmarks/readme.py --write
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent / "robustness"))

import balance_signal
import default_study
import digits
import few_labels
import given_probabilities
import missing_truth
import numpy as np
import paper_pages
import pictures
import realworld
import reproduced
import rivals
import votes_kinds
import votes_tables
from on_images import report, sets
from on_tables import report as suite_report
from on_votes import cifar10n_tables

from oneof.storage.rows import Row, read
from oneof_paper import tables, theory
from oneof_paper.data.catalogue import NAMED
from oneof_paper.experiments import TABLES
from oneof_paper.printed import printed

ROOT = Path(__file__).parents[1]
KEEL_SEEDS = range(405, 410)  # of the rows that are published; an earlier default was judged by others
MARK = "<!-- {}: made by benchmarks/readme.py -->", "<!-- {}: end -->"
MARKED = (
    "README.md", "docs/research/results.md", "docs/research/methods.md", "docs/research/findings.md", "docs/research/tries.md",
    "docs/research/votes.md", "docs/research/theory.md", "docs/research/pictures.md", "docs/research/default.md", "docs/research/suite.md",
    "docs/research/votes-kinds.md",
)  # fmt: skip
SETS = ("lost", "birdsong", "msrcv2")
SEEDS = range(100, 110)
DEFAULTS = range(300, 310)  # for the default estimator: those before had been looked at
HEAD = "| data set | loss | alone | with POP | gain | p (Holm) | oracle: alone | with POP | paper: alone | with POP |"


def section(rows: list[Row]) -> str:
    """Table 4 in short, and what is to be said of it."""
    scores = tables.scores_of(4, TABLES[4], rows, SEEDS)
    gains = tables.gains(TABLES[4], scores, "covering")
    lines = [HEAD, "|---|---|---|---|---|---|---|---|---|---|"]
    for gain in gains:
        plain = TABLES[4].pairs[gain.system]
        mean = {
            (system, rule): _mean(scores, gain.dataset, system, rule)
            for system in (plain, gain.system)
            for rule in ("covering", "oracle")
        }
        paper = [f"{cell.mean:.2f}" for cell in (printed(4, one, gain.dataset) for one in (plain, gain.system)) if cell]
        ours = [
            mean[plain, "covering"],
            mean[gain.system, "covering"],
            f"{gain.paired.gain:+.2f}",
            f"{gain.holm_p:.2g}",
        ]
        cells = [NAMED[gain.dataset].title, plain, *ours, mean[plain, "oracle"], mean[gain.system, "oracle"], *paper]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_words(scores, rows)])


def _mean(scores: tables.Scores, dataset: str, system: str, rule: str) -> str:
    values = list(scores[dataset, system, rule].values())
    return f"{sum(values) / len(values):.2f}"


def _words(scores: tables.Scores, rows: list[Row]) -> list[str]:
    said = []
    for rule in ("covering", "approximated", "oracle"):
        gains = tables.gains(TABLES[4], scores, rule)
        above, below = (sum(sign * gain.paired.gain > 1e-9 for gain in gains) for sign in (1, -1))
        said.append(f"{tables.HEADS[rule]}: above in {above} of {len(gains)} pairs, below in {below}")
    close = [
        f"{times} of {of} by {tables.HEADS[rule]}"
        for rule in ("covering", "approximated")
        for times, of in [agreement(scores, rule)]
    ]
    own = [row for row in rows if row.get("rule") == "covering" and row["seed"] in SEEDS and row["dataset"] in SETS]
    mine = {row["setting"]: row for row in own if row["setting"] in _settings()}
    minutes = sum(row["cpu_seconds"] for row in mine.values()) * 120 / 60
    return [
        f"POP against the same loss alone, in the mean: {'; '.join(said)}. A choice without true labels comes within one standard deviation "
        f"of the oracle's in {' and '.join(close)}.",
        f"The {120 * len(mine):,} trials took {minutes:.0f} minutes of processor time.",
    ]


def _settings() -> set[str]:
    from oneof_paper.compute_rows import Cell

    table = TABLES[4]
    return {Cell(name, one, table.protocol(name), ()).setting for name in SETS for one in table.systems.values()}


def agreement(scores: tables.Scores, rule: str) -> tuple[int, int]:
    """How often a truth-free choice is within one std (over seeds) of the oracle's, seed by seed: (times, of)."""
    times = of = 0
    for (dataset, system, by), oracle in scores.items():
        free = scores.get((dataset, system, rule))
        if by == "oracle" and free and len(oracle) > 1:
            spread = float(np.std(list(oracle.values()), ddof=1))
            close = [free[seed] >= oracle[seed] - spread for seed in oracle.keys() & free.keys()]
            times, of = times + sum(close), of + len(close)
    return times, of


@cache
def made() -> dict[str, str]:
    """Every marked section, from rows."""
    on_images = read(ROOT / "results/images.jsonl")
    reported = report.reported(on_images)
    suite_rows = suite_report.published_rows(read(ROOT / "results/suite.jsonl"))
    keel_rows = [row for row in read(ROOT / "results/keel_tables.jsonl") if row["seed"] in KEEL_SEEDS]
    return {
        "results": section(read(ROOT / "results/tables.jsonl")),
        "realworld": realworld.table(_reported("realworld", DEFAULTS)),
        "rivals": rivals.report(read(ROOT / "results/rivals.jsonl"), [*rivals.REAL, *rivals.MADE]),
        "suite": suite_report.accuracy_section(suite_rows),
        "suite-short": suite_report.short_section(suite_rows, keel_rows),
        "suite-behind": suite_report.behind_section(suite_rows),
        "suite-keel": suite_report.accuracy_section(keel_rows),
        "suite-keel-behind": suite_report.behind_section(keel_rows),
        "suite-keel-untouched": suite_report.untouched_section(keel_rows),
        "suite-resolved": suite_report.resolved_section(suite_rows),
        "suite-probabilities": suite_report.probability_section(read(ROOT / "results/label_probabilities.jsonl")),
        "few-labels": few_labels.report(read(ROOT / "results/few_labels.jsonl")),
        "given-probabilities": given_probabilities.report(read(ROOT / "results/given_probabilities.jsonl")),
        "suite-made": suite_report.cells_section(read(ROOT / "results/made_tables.jsonl")),
        "strangers": default_study.report_strangers(read(ROOT / "results/default_study.jsonl")),
        "kinds": default_study.report_kinds(read(ROOT / "results/default_study.jsonl")),
        "default-study": default_study.report(read(ROOT / "results/default_study.jsonl")),
        "balance": balance_signal.report(read(ROOT / "results/balance_signal.jsonl")),
        "missing-truth": missing_truth.report(ROOT / "results/missing_truth.jsonl"),
        "digits": digits.table(_reported("digits")),
        "reached": report.reached(on_images),
        "images": report.table(reported, on_images),
        "theory": theory.table(read(ROOT / "results/theory.jsonl")),
        "sets": sets.table(ROOT / "results/sets"),
        "choice": report.choice(on_images),
        "signs": report.signs_table(on_images),
        "pictures": pictures.table(read(ROOT / "results/pictures.jsonl")),
        "cifar10n": cifar10n_tables.forms_table(read(ROOT / "results/votes_cifar10n.jsonl")),
        "cifar10n-held-out": cifar10n_tables.held_out_table(read(ROOT / "results/votes_cifar10n.jsonl")),
        "votes-tables": votes_tables.report(ROOT / "results/votes_tables.jsonl"),
        "votes-short": votes_tables.short_report(
            *(ROOT / f"results/votes_{name}.jsonl" for name in ("tables", "cifar10n"))
        ),
        "votes-kinds-labels": votes_kinds.labels_section(read(votes_kinds.ROWS)),
        "votes-kinds-fresh": votes_kinds.labels_section(
            read(votes_kinds.ROWS), votes_kinds.FRESH, votes_kinds.FRESH_RIVALS
        ),
        "votes-kinds-crowdlab": votes_kinds.crowdlab_section(read(votes_kinds.ROWS)),
        "votes-kinds-reliability": votes_kinds.reliability_section(read(votes_kinds.ROWS)),
        "cifar10h": cifar10n_tables.humans_table(read(ROOT / "results/votes_cifar10n.jsonl")),
        "votes-simulated": votes_tables.simulated_report(ROOT / "results/votes_tables.jsonl"),
        "search": report.table([row for row in on_images if row["seed"] not in SEEDS], on_images),
        "earlier": report.table([row for row in on_images if row["seed"] in SEEDS and row not in reported], on_images),
    }


def renewed(page: str) -> str:
    """A page with its marked sections made anew."""
    for name, text in made().items():
        begin, end = (mark.format(name) for mark in MARK)
        if begin in page:
            before, rest = page.split(begin)
            page = f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"
    return page


def _reported(name: str, seeds: range = SEEDS) -> list[Row]:
    """The rows of a file on the seeds that nothing was chosen on."""
    return [row for row in read(ROOT / f"results/{name}.jsonl") if row["seed"] in seeds]


PAGES = {**paper_pages.PAGES, "docs/research/reproduced.md": reproduced.page}  # made from end to end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put it into the pages; without, print them")
    write = parser.parse_args().write
    new = {name: renewed((ROOT / name).read_text()) for name in MARKED}
    new |= {name: page() for name, page in PAGES.items()}
    for name, text in new.items():
        if write:
            (ROOT / name).write_text(text)
        else:
            print(text)


if __name__ == "__main__":
    main()
