"""`oneof tune FILE --out SETTINGS`: settings for `oneof fit --settings`, by what held-out candidate sets say."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import CacheFolder, TableFile, takes_roles
from oneof.data.roles import Roles


@takes_roles
def tune(
    file: TableFile,
    out: Annotated[Path, typer.Option(help="Where to write the best settings, as JSON.")],
    roles: Roles,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try in all; a search that was stopped goes on until there are so many.")] = 50,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train each setting.")] = 15,
    storage: Annotated[str | None, typer.Option(help="Optuna's database, such as sqlite:///x.db. Default: a file beside --out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    cache_dir: CacheFolder = None,
) -> None:  # fmt: skip
    """Search settings without true labels, and write the best for `oneof fit --settings`. It resumes. Needs optuna."""
    import torch

    from oneof.data.table import read_table
    from oneof.ensemble.tune import folds_of, load_optuna, search_settings
    from oneof.learners.config import Space
    from oneof.learners.scaled_rows import Search
    from oneof.runs.examples import examples_of
    from oneof.runs.folder import fingerprint, write_json
    from oneof.storage.settings import plain_value
    from oneof.version import __version__

    load_optuna()  # so that one who has none hears of it before a file is read
    torch.set_num_threads(1)
    if roles.image and not roles.image_model:
        raise ValueError("--image needs --image-model here: networks on pictures are not tuned. Name one of timm's.")
    examples, _ = examples_of(read_table(file, roles), file.parent, cache_dir)
    asked = Search(Space(trial_epochs=epochs), seed, groups=examples.groups)
    said = {"oneof": __version__, "data": fingerprint(file), "roles": roles, "epochs": epochs, "seed": seed}
    folds = folds_of(examples.x, examples.candidates.mask, asked)
    place = storage or f"sqlite:///{out.with_suffix('.db')}"
    found = search_settings(folds, trials, place, plain_value(said), say=typer.echo)
    write_json(found.setting, out)
    tried = f"best of {found.tried} ({found.stopped} stopped early)"
    typer.echo(f"{tried}: {found.score:.4f} on held-out sets, {found.setting}")
    in_python = f"PartialLabelClassifier(**json.load(open({str(out)!r})))"
    typer.echo(f"written to {out}: oneof fit {file} --settings {out}, or {in_python}")
