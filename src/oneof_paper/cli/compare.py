"""`oneof paper compare`: compare a method of your own with POP, PRODEN and the others, on equal terms."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    method: Annotated[str, typer.Option(help="FILE.py:NAME of a oneof.Method of your own, or a name such as rc.")],
    data: Annotated[str, typer.Option(help="A named set such as lost, or a table with a column 'candidates'.")],
    seeds: Annotated[int, typer.Option(min=2, help="Splits to train on, from 130 on.")] = 10,
    against: Annotated[str, typer.Option(help="Rivals, with commas between: pop,proden,cc+pop, ...")] = "pop,proden",
    gold: Annotated[str, typer.Option(help="Of a table: the column of true labels; they never choose.")] = "label",
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX in place of Markdown.")] = False,
    rows: Annotated[Path, typer.Option(help="The file of rows; what it has is not run again.")] = Path("compare.jsonl"),
    data_dir: Annotated[Path | None, typer.Option(help="Where named sets lie; default: ONEOF_DATA.")] = None,
) -> None:
    """Compare a method of your own: the same splits, the same search of settings without true labels, paired tests with Holm."""
    import torch

    from oneof.storage.rows import read
    from oneof_paper import compare as comparing

    torch.set_num_threads(1)
    ours = comparing.own_method(method)
    chosen = comparing.open_data(data, gold, data_dir)
    names = against.lower().split(",")
    for title in comparing.compare(ours, chosen, names, range(130, 130 + seeds), rows):
        typer.echo(f"{chosen.name}: {title} is done", err=True)
    form = "latex" if latex else "markdown"
    typer.echo(comparing.comparison(read(rows), chosen.name, type(ours).__name__, form))
