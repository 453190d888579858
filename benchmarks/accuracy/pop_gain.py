"""Where POP's gain in Table 4 comes from: at equal settings, and after the choice of a setting.

    python benchmarks/accuracy/pop_gain.py [--rows results/tables.jsonl]

"Equal settings": the same seed, learning rate and weight decay with and without POP, last epoch, mean over seeds and all twelve
settings. "Chosen": what the table shows, the setting chosen for each system by the covering rate of held-out sets. The rest is
what the choice adds or takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from oneof.storage.rows import Row, read
from oneof_paper.compute_rows import Cell
from oneof_paper.data.catalogue import NAMED
from oneof_paper.experiments import TABLES

SETS = ("lost", "birdsong", "msrcv2")
SEEDS = range(100, 110)
HEAD = (
    "| data set | system | equal settings: gain | better in | chosen: gain | labels per set | true labels removed % |"
)


def table(rows: list[Row]) -> str:
    wanted = TABLES[4]
    settings = {
        (name, one.title): Cell(name, one, wanted.protocol(name), ()).setting
        for name in SETS
        for one in wanted.systems.values()
    }
    by = {(row["setting"], row["kind"], row.get("rule"), row["seed"]): row for row in rows if row["seed"] in SEEDS}
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for name in SETS:
        for title, plain in wanted.pairs.items():
            with_pop, without = settings[name, title], settings[name, plain]
            grids = [[by[one, "grid", None, seed]["last"]["accuracy"] for seed in SEEDS] for one in (with_pop, without)]
            equal = 100 * (np.array(grids[0]) - np.array(grids[1]))  # [seeds, settings]
            rows_with, rows_without = (
                [by[one, "chosen", "covering", seed] for seed in SEEDS] for one in (with_pop, without)
            )
            chosen = 100 * np.mean(
                [a["accuracy"] - b["accuracy"] for a, b in zip(rows_with, rows_without, strict=True)]
            )
            size, lost = (np.mean([row[key] for row in rows_with]) for key in ("set_size", "true_labels_removed"))
            better = f"{int((equal.mean(0) > 0).sum())} of {equal.shape[1]} settings"
            lines.append(
                f"| {NAMED[name].title} | {title} | {equal.mean():+.2f} | {better} | {chosen:+.2f} | {size:.2f} | {100 * lost:.1f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/tables.jsonl"))
    print(table(read(parser.parse_args().rows)))
