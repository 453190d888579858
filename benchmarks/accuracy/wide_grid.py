"""Rows of Tables 2, 4 and 5 on the real sets with the wide grid: 60 settings, LW in four forms; resumable.

    python benchmarks/accuracy/wide_grid.py lost --rows results/wide_grid.jsonl --seeds 400-409
    python benchmarks/accuracy/wide_grid.py msrcv2 --systems RC CAVL LWS --device cuda

Every trial of a system is part of one stack, so that a GPU computes in a minute what takes a core an hour. Cells whose rows are in the file are not computed again.
`benchmarks/reproduced.py` shows these rows beside those of the tables' own grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from oneof.methods import LWS, LWSCrossEntropy, Proden, Valen
from oneof.purify import PopPrinted, PopReleased
from oneof.storage.rows import append, read
from oneof_paper.compute_rows import Cell, compute_rows, missing_cells
from oneof_paper.data.catalogue import load
from oneof_paper.experiments import LATE, LOSSES, REAL, WIDE, System

FORMS_OF_LW = (LWS(beta=2.0), LWSCrossEntropy(), LWSCrossEntropy(beta=2.0))
WARM_UPS = (0, 1, 5, 10, 15, 20)


def wide_systems() -> list[System]:
    """Return the systems of Tables 2, 4 and 5 with all forms of their losses."""
    systems = []
    for purify, suffix in ((None, ""), (LATE, "+POP")):
        for title, method in LOSSES.items():
            forms = FORMS_OF_LW if title == "LWS" else ()
            systems.append(System(f"{title}{suffix}", method, purify, forms))
    printed = PopPrinted(warm_up=20, e0=LATE.e0, e_end=LATE.e_end, e_s=LATE.e_s)
    systems.append(System("POP as printed", Proden(), printed))
    systems.append(System("POP as released", Proden(), PopReleased()))
    for warm_up in WARM_UPS:
        systems.append(System(f"warm-up {warm_up}", Proden(), replace(LATE, warm_up=warm_up)))
    systems.append(System("VALEN", Valen(beta=0.01, gamma=20.0, reconstruction=1.0)))
    return systems


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=[*REAL, "malagasy-rebuilt"])
    parser.add_argument("--rows", type=Path, default=Path("results/wide_grid.jsonl"))
    parser.add_argument("--seeds", default="400-409", help="first and last, such as 400-409")
    parser.add_argument("--systems", nargs="+", help="titles; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", help="default: ONEOF_DATA")
    options = parser.parse_args(arguments)
    first, last = map(int, options.seeds.split("-"))
    torch.set_num_threads(1)
    data = load(options.dataset, options.data_dir)
    for system in wide_systems():
        if options.systems and system.title not in options.systems:
            continue
        cell = Cell(options.dataset, system, WIDE, tuple(range(first, last + 1)))
        known = read(options.rows) if options.rows.exists() else []
        for missing in missing_cells([cell], known):
            start = time.perf_counter()
            append(options.rows, compute_rows(missing, data, device=options.device))
            print(f"{options.dataset} {system.title}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
