"""Tables from the rows of the suite: means, cells in which a system falls behind the rivals, processor time.

A cell is a table with one kind of sets. A system is *behind* in a cell if its accuracy is lower than that of the best rival by more than
a point and by more than two standard errors, in the paired mean over splits. The best rival of a cell is the one with the highest mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from on_tables.problems import CHOOSING_SEEDS, KEEL_HELD_BACK, KINDS, REAL, REAL_KIND, REPORTING_SEEDS
from on_tables.systems import CEILINGS, DEFAULT, RIVALS

from oneof.storage.rows import Row

Key = tuple[str, str]  # table and kind
Values = dict[int, float]  # by seed
Cells = dict[Key, dict[str, Values]]  # values of every system
POINT = 0.01
KIND_TITLES = {
    "doubts": "sets by a weak classifier's doubts",
    "people": "sets of what three simulated annotators name",
    "uniform": "sets with wrong labels by chance",
}


class Gap(NamedTuple):
    """A paired difference over splits."""

    mean: float
    error: float  # standard error; 0 of a single split
    splits: int

    @property
    def behind(self) -> bool:
        return self.mean < -POINT and self.mean < -2 * self.error

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ± {100 * self.error:.1f}"


class Comparison(NamedTuple):
    """A system beside the best rival of a cell."""

    key: Key
    rival: str
    mean: float
    rival_mean: float
    gap: Gap


class BestRival(NamedTuple):
    """A system beside the rival that is best in the mean over the cells of a kind of sets."""

    kind: str
    n_cells: int
    mean: float
    rival: str
    rival_mean: float


def collect(rows: Iterable[Row], measure: str = "accuracy") -> Cells:
    """Collect a measure by cell, system and seed; rows without it are left out."""
    cells: Cells = {}
    for row in rows:
        if row.get(measure) is not None:
            systems = cells.setdefault((row["table"], row["kind"]), {})
            systems.setdefault(row["system"], {})[row["seed"]] = row[measure]
    return cells


def paired_gap(values: Values, others: Values) -> Gap:
    """Compare on the splits that both have."""
    shared = sorted(values.keys() & others.keys())
    differences = np.array([values[seed] - others[seed] for seed in shared])
    error = 0.0
    if len(shared) > 1:
        error = float(differences.std(ddof=1) / np.sqrt(len(shared)))
    return Gap(float(differences.mean()), error, len(shared))


def compare_with_rivals(cells: Cells, subject: str) -> list[Comparison]:
    """Compare a system with the best rival of every cell of made sets, on the splits that it shares with that rival."""
    comparisons = []
    for key, systems in sorted(cells.items()):
        if key[1] == REAL_KIND or subject not in systems:
            continue
        values = systems[subject]
        rivals = {}
        for name in RIVALS:
            shared = {seed: accuracy for seed, accuracy in systems.get(name, {}).items() if seed in values}
            if shared:
                rivals[name] = shared
        if not rivals:
            continue
        best = max(rivals, key=lambda name: mean(rivals[name]))
        gap = paired_gap(values, rivals[best])
        rival_mean = mean(rivals[best])
        comparisons.append(Comparison(key, best, rival_mean + gap.mean, rival_mean, gap))
    return comparisons


def mean(values: Values) -> float:
    return float(np.mean(list(values.values())))


def columns(cells: Cells) -> dict[str, list[Key]]:
    """Return the columns of the table of means: the kinds, each over all tables, and each real set."""
    found = {kind: [key for key in cells if key[1] == kind] for kind in KINDS}
    found |= {name: [key for key in cells if key == (name, REAL_KIND)] for name in REAL}
    return {name: keys for name, keys in found.items() if keys}


def system_names(cells: Cells, subject: str) -> list[str]:
    """Order the systems: the subject, variants from the best mean to the worst, rivals, ceilings."""
    present = {name for systems in cells.values() for name in systems}
    known = [subject, *RIVALS, *CEILINGS]
    means = {}
    for name in present - set(known):
        means[name] = np.mean([mean(systems[name]) for systems in cells.values() if name in systems])
    variants = sorted(means, key=lambda name: (-means[name], name))
    return [name for name in (subject, *variants, *RIVALS, *CEILINGS) if name in present]


def means_table(cells: Cells, subject: str, seconds: Cells | None = None) -> str:
    """Return means over cells as Markdown, with the paired difference from the subject, and how many cells there are if not all."""
    heads = columns(cells)
    titles = ["system", *heads]
    if seconds:
        titles.append("processor seconds")
    lines = [_line(titles), "|---" * len(titles) + "|"]
    for name in system_names(cells, subject):
        texts = [name]
        for keys in heads.values():
            texts.append(_mean_text(cells, keys, name, subject))
        if seconds:
            texts.append(f"{total_seconds(seconds, name) / max(count_cells(seconds, name), 1):.1f}")
        lines.append(_line(texts))
    best = ["best for each table, by true labels"]
    for keys in heads.values():
        best.append(f"{100 * np.mean([_best_mean(cells[key]) for key in keys]):.1f}")
    lines.append(_line([*best, ""] if seconds else best))
    return "\n".join(lines)


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _mean_text(cells: Cells, keys: list[Key], name: str, subject: str) -> str:
    present = [key for key in keys if name in cells[key]]
    if not present:
        return ""
    text = f"{100 * np.mean([mean(cells[key][name]) for key in present]):.1f}"
    gaps = []
    for key in present:
        if name != subject and cells[key].get(subject, {}).keys() & cells[key][name].keys():
            gaps.append(paired_gap(cells[key][name], cells[key][subject]).mean)
    if gaps:
        text += f" ({100 * np.mean(gaps):+.1f})"
    if len(present) < len(keys):
        text += f" [{len(present)} of {len(keys)}]"
    return text


def _best_mean(systems: dict[str, Values]) -> float:
    """Return the highest mean of a cell, ceilings aside."""
    return max((mean(values) for name, values in systems.items() if name not in CEILINGS), default=np.nan)


def behind_table(comparisons: list[Comparison], subject: str) -> str:
    """Return the cells in which the subject is behind, the worst first, below a line with their number."""
    behind = sorted((one for one in comparisons if one.gap.behind), key=lambda one: one.gap.mean)
    lines = [f"{subject} is behind the best rival in {len(behind)} of {len(comparisons)} cells."]
    if behind:
        lines += ["", f"| table | sets | {subject} | best rival | | gap | splits |", "|---|---|---|---|---|---|---|"]
    for one in behind:
        means = [f"{100 * one.mean:.1f}", f"{100 * one.rival_mean:.1f}"]
        lines.append(_line([*one.key, *means, one.rival, str(one.gap), str(one.gap.splits)]))
    return "\n".join(lines)


def best_single_rivals(cells: Cells, subject: str) -> list[BestRival]:
    """Return, for each kind of sets, the subject beside the rival that is best in the mean over the cells that have all of them."""
    result = []
    for kind in KINDS:
        keys = [key for key in cells if key[1] == kind and {subject, *RIVALS} <= cells[key].keys()]
        if not keys:
            continue
        gaps = {}
        for name in RIVALS:
            gaps[name] = np.mean([paired_gap(cells[key][subject], cells[key][name]).mean for key in keys])
        rival = min(gaps, key=lambda name: gaps[name])
        mean_of_subject = float(np.mean([mean(cells[key][subject]) for key in keys]))
        result.append(BestRival(kind, len(keys), mean_of_subject, rival, mean_of_subject - float(gaps[rival])))
    return result


def single_rival_table(cells: Cells, subject: str) -> str:
    """Return the subject beside the rival that is best in the mean over the cells of each kind."""
    lines = [f"| sets | cells | {subject} | best single rival | | gap |", "|---|---|---|---|---|---|"]
    for best in best_single_rivals(cells, subject):
        percents = [f"{100 * best.mean:.1f}", f"{100 * best.rival_mean:.1f}"]
        gap = f"{100 * (best.mean - best.rival_mean):+.1f}"
        lines.append(_line([best.kind, str(best.n_cells), *percents, best.rival, gap]))
    return "\n".join(lines)


def total_seconds(seconds: Cells, name: str) -> float:
    """Return the processor seconds of a system, summed over the cells that it has, in the mean over splits."""
    return float(sum(mean(systems[name]) for systems in seconds.values() if name in systems))


def count_cells(seconds: Cells, name: str) -> int:
    return sum(name in systems for systems in seconds.values())


def time_line(seconds: Cells, subject: str) -> str:
    """Compare processor times with those of the rival that takes longest over all cells that have both."""
    made = {key: systems for key, systems in seconds.items() if {subject, *RIVALS} <= systems.keys()}
    if not made:
        return "No cell has times of all rivals."
    slowest = max(RIVALS, key=lambda name: total_seconds(made, name))
    ratio = total_seconds(made, subject) / total_seconds(made, slowest)
    return (
        f"Processor time of {subject}: {ratio:.1f} times that of the slowest rival ({slowest}), over {len(made)} cells."
    )


def accuracy_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return the means of all systems, and a line on what they are means of."""
    table = means_table(collect(rows), subject, collect(rows, "cpu_seconds"))
    seeds = sorted({row["seed"] for row in rows})
    tables = sorted({row["table"] for row in rows})
    commits = sorted({str(row.get("commit")) for row in rows})
    made = f"{len(rows):,} rows, made at {', '.join(commits)}. Seeds {seeds[0]} to {seeds[-1]} of {', '.join(tables)}."
    return f"{table}\n\n{made}"


def behind_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return the cells in which the subject is behind, its gap to the best single rival, and its processor time."""
    cells = collect(rows)
    parts = [
        behind_table(compare_with_rivals(cells, subject), subject),
        single_rival_table(cells, subject),
        time_line(collect(rows, "cpu_seconds"), subject),
    ]
    return "\n\n".join(parts)


def short_section(rows: list[Row], further_rows: list[Row], subject: str = DEFAULT) -> str:
    """Return the subject beside the best single rival for each kind of sets, and in how many cells it is behind, for the README.

    Of the further rows only the cells in which it is behind are counted, on all of their tables and on those that nothing was chosen on.
    """
    cells = collect(rows)
    made_cells = {key: systems for key, systems in cells.items() if key[1] in KINDS}
    n_tables = len({table for table, _ in made_cells})
    lines = [_line([f"accuracy on new rows, %, mean over {n_tables} tables", "best rival", "oneof"]), "|---|---|---|"]
    for best in best_single_rivals(made_cells, subject):
        rival = f"{100 * best.rival_mean:.1f} ({best.rival})"
        lines.append(_line([KIND_TITLES[best.kind], rival, f"**{100 * best.mean:.1f}**"]))
    further_cells = collect(further_rows)
    n_further = len({table for table, _ in further_cells})
    untouched = {key: systems for key, systems in further_cells.items() if key[0] in KEEL_HELD_BACK}
    n_untouched = len({table for table, _ in untouched})
    behind = (
        f"`oneof` is behind the best rival of its table in {count_behind(made_cells, subject)} cases; "
        f"on {n_further} further tables in {count_behind(further_cells, subject)}, "
        f"and on the {n_untouched} of these that it was developed without in {count_behind(untouched, subject)}."
    )
    return "\n".join([*lines, "", behind])


def untouched_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return in how many cells of the tables that nothing was chosen on the subject is behind, and its gaps there."""
    cells = {key: systems for key, systems in collect(rows).items() if key[0] in KEEL_HELD_BACK}
    n_tables = len({table for table, _ in cells})
    count = f"On the {n_tables} of these tables that nothing was chosen on, {subject} is behind in {count_behind(cells, subject)} cells."
    return "\n\n".join([count, single_rival_table(cells, subject)])


def count_behind(cells: Cells, subject: str) -> str:
    """Return in how many cells the subject is behind, such as "1 of 36"."""
    comparisons = compare_with_rivals(cells, subject)
    return f"{sum(one.gap.behind for one in comparisons)} of {len(comparisons)}"


def resolved_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return the share of training rows whose resolved label is right."""
    return means_table(collect(rows, "resolved"), subject)


def probability_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return the share of labels that are right and, in brackets, their mean probability, table by table."""
    right = collect(rows, "resolved")
    probability = collect(rows, "probability")
    tables = sorted({table for table, _ in probability})
    kinds = sorted({kind for _, kind in probability})
    lines = [_line(["table", *kinds]), "|---" * (len(kinds) + 1) + "|"]
    for table in tables:
        texts = [table]
        for kind in kinds:
            text = ""
            if (table, kind) in probability:
                mean_right = 100 * mean(right[table, kind][subject])
                mean_probability = 100 * mean(probability[table, kind][subject])
                text = f"{mean_right:.1f} ({mean_probability:.1f})"
            texts.append(text)
        lines.append(_line(texts))
    return "\n".join(lines)


def cells_section(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return every cell by itself: accuracy, and in brackets processor seconds, of the subject and the rivals that have rows."""
    cells = collect(rows)
    seconds = collect(rows, "cpu_seconds")
    rivals = [name for name in RIVALS if any(name in systems for systems in cells.values())]
    lines = [_line(["table", "sets", "splits", subject, *rivals]), "|---" * (4 + len(rivals)) + "|"]
    for key, systems in sorted(cells.items()):
        texts = [*key, str(len(systems[subject]))]
        for name in (subject, *rivals):
            text = ""
            if name in systems:
                text = f"{100 * mean(systems[name]):.1f} ({mean(seconds[key][name]):.0f})"
            texts.append(text)
        lines.append(_line(texts))
    return "\n".join(lines)


def report(rows: list[Row], subject: str = DEFAULT) -> str:
    """Return everything as Markdown."""
    parts = [
        "Test accuracy in %, the mean over tables; in brackets the paired difference from the first system.",
        accuracy_section(rows, subject),
        behind_section(rows, subject),
        "Labels of training rows that are right, in %.",
        resolved_section(rows, subject),
    ]
    return "\n\n".join(parts)


def published_rows(rows: list[Row]) -> list[Row]:
    """Return the rows of reporting seeds, or those for choosing while there are none."""
    reporting = [row for row in rows if row["seed"] in REPORTING_SEEDS]
    return reporting or [row for row in rows if row["seed"] in CHOOSING_SEEDS]
