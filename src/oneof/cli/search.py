"""`oneof search FILE --out BEST`: settings for a table, by what held-out candidate sets say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def search(
    file: Annotated[Path, typer.Argument(help="A CSV, TSV, Parquet or npz table, or a named data set's .mat.")],
    out: Annotated[Path, typer.Option(help="Where to write the best setting, as JSON.")],
    features: Annotated[
        list[str] | None,
        typer.Option(help="A column, or a glob such as 'x*'; may be given again. All numbers by default."),
    ] = None,
    candidates: Annotated[str, typer.Option(help="The column of candidate sets.")] = "candidates",
    category: Annotated[list[str] | None, typer.Option(help="A column of numbers that are names.")] = None,
    group: Annotated[str | None, typer.Option(help="Rows with one value here stay on one side of a split.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column to keep out, such as an id.")] = None,
    separator: Annotated[str, typer.Option(help="What stands between the labels of a text cell.")] = "|",
    empty: Annotated[str, typer.Option(help="What an empty set means: 'error' or 'unlabelled'.")] = "error",
    trials: Annotated[
        int, typer.Option(help="Settings to try, in all: a search that was stopped goes on to so many.")
    ] = 50,
    epochs: Annotated[int, typer.Option(help="To train each.")] = 15,
    storage: Annotated[
        str | None, typer.Option(help="Optuna's database, such as sqlite:///x.db. Default: beside --out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
) -> None:
    """Search settings without true labels, and write the best for PartialLabelClassifier(**json). It resumes (extra 'sweep')."""
    import torch

    from oneof.data.encode import learn_encoding
    from oneof.data.roles import Roles
    from oneof.data.table import read_table
    from oneof.runs.folder import fingerprint, write_json
    from oneof.selection.space import Space
    from oneof.selection.tune import load_optuna, task_of, tune
    from oneof.storage.settings import plain_value
    from oneof.version import __version__

    for name, given in (("trials", trials), ("epochs", epochs)):
        if given < 1:
            raise ValueError(f"--{name} must be at least 1; got {given}.")
    load_optuna()  # so that one who has none hears of it before a file is read
    torch.set_num_threads(1)
    roles = Roles(
        tuple(features or ("*",)),
        tuple(category or ()),
        candidates=candidates,
        group=group,
        ignore=tuple(ignore or ()),
        separator=separator,
        empty=empty,
    )
    table = read_table(file, roles)
    x = learn_encoding(table.columns, table.roles, folder=file.parent).transform(table.columns, folder=file.parent)
    task = task_of(x, table.candidates.mask, space=Space(trial_epochs=epochs), groups=table.groups, seed=seed)
    asked = plain_value(
        {"oneof": __version__, "data": fingerprint(file), "roles": roles, "epochs": epochs, "seed": seed}
    )
    found = tune(task, trials, storage or f"sqlite:///{out.with_suffix('.db')}", asked, say=typer.echo)
    write_json(found.setting, out)
    typer.echo(
        f"best of {found.tried} ({found.stopped} stopped early): {found.score:.4f} on held-out sets, {found.setting}"
    )
    typer.echo(f"written to {out}: PartialLabelClassifier(**json.load(open({str(out)!r})))")
