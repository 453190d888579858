"""`oneof paper ablation`: the paper's ablation in small, on digits."""

from pathlib import Path
from typing import Annotated

import typer


def ablation(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("oneof-ablation"),
    seeds: Annotated[int, typer.Option(min=1, max=100, help="How many trials of each system.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training; fewer are quicker and worse.")] = 100,
) -> None:
    """Train PRODEN and CC with and without POP on digits with candidate sets; about a minute."""
    out.mkdir(parents=True, exist_ok=True)  # before the imports, which take seconds
    from oneof_paper.ablation import show

    show(out, seeds, epochs)
