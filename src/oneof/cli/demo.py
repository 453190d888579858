"""`oneof demo`: see it work, on data that comes with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from oneof.storage.rows import Row


def demo(
    seeds: Annotated[int, typer.Option(min=1, max=100, help="How many trials of each system.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each trial.")] = 100,
    out: Annotated[Path, typer.Option(help="Where to write rows, the purified table and the picture.")] = Path(
        "oneof-demo"
    ),
) -> None:
    """Train PRODEN and CC, with and without POP, on digits whose labels are ambiguous."""
    out.mkdir(parents=True, exist_ok=True)  # before the imports, which take seconds
    from dataclasses import replace

    import torch
    from rich.console import Console

    from oneof.paper.ablation import SYSTEMS, TRAINING, digits, run
    from oneof.paper.curves import draw_curves
    from oneof.paper.purified import purified_table, write_parquet
    from oneof.storage.rows import append

    torch.set_num_threads(1)  # its tensors are so small that a second thread only waits
    console = Console()
    data = digits(range(seeds))
    console.print(
        f"scikit-learn's digits, {seeds} splits; a classifier's own doubts add wrong labels: "
        f"{data.candidates.sum(-1).mean():.2f} candidates per image, and only one of them is right."
    )
    results = {system.name: run(data, system, replace(TRAINING, epochs=epochs)) for system in SYSTEMS}
    console.print(_table({name: rows for name, (_, rows) in results.items()}))

    rows_path = out / "rows.jsonl"
    rows_path.unlink(missing_ok=True)
    append(rows_path, [row for _, rows in results.values() for row in rows])
    fitted = results["PRODEN + POP"][0]
    write_parquet(purified_table(fitted, 0, data.x, data.candidates[0], list(range(10))), out / "purified.parquet")
    draw_curves(
        {name: fit.history for name, (fit, _) in results.items()}, out / "demo.png", title="Digits, candidate labels"
    )
    console.print(_next_steps(out), highlight=False)


def _table(results: dict[str, list[Row]]) -> Table:
    from rich.table import Table

    table = Table(caption="mean ± standard deviation over trials; the last epoch is taken, true labels only report")
    for heading in ("system", "test accuracy %", "labels per set", "after", "true labels removed %"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for name, rows in results.items():
        before, after = (_mean([row[key] for row in rows]) for key in ("set_size_before", "set_size"))
        spread = _mean_and_deviation([100 * row["accuracy"] for row in rows])
        removed = _mean([100 * row["true_labels_removed"] for row in rows])
        table.add_row(name, spread, f"{before:.2f}", f"{after:.2f}", f"{removed:.1f}")
    return table


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _mean_and_deviation(values: list[float]) -> str:
    from statistics import stdev

    return f"{_mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def _next_steps(out: Path) -> str:
    return (
        f"\nWritten to [bold]{out}[/]: rows.jsonl (every trial), purified.parquet (what became of every set, and when), "
        "demo.png (curves).\nTry next: open the picture; read the parquet with pandas; "
        "[bold]PartialLabelClassifier().fit(X, sets)[/] on a table of your own (README)."
    )
