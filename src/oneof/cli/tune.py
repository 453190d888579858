"""`oneof tune FILE --out SETTINGS`: search settings for `oneof fit --settings` on held-out candidate sets."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import LEARNING, RESOURCES, CacheFolder, TableFile, with_column_options
from oneof.data.roles import ColumnRoles


@with_column_options
def tune(
    file: TableFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write the best settings to, as JSON.")],
    roles: ColumnRoles,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of settings to try in all; a search that was stopped continues up to this number.")] = 50,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", rich_help_panel=LEARNING, help="Epochs to train each setting.")] = 15,
    seed: Annotated[int, typer.Option(metavar="N", rich_help_panel=LEARNING, help="Seed of all random choices.")] = 0,
    storage: Annotated[str | None, typer.Option(metavar="URL", rich_help_panel=RESOURCES, help="Optuna's database, such as sqlite:///x.db. Default: a file beside --out.")] = None,
    cache_dir: CacheFolder = None,
) -> None:  # fmt: skip
    """Search settings without true labels, and write the best for `oneof fit --settings`. A search that was stopped is resumed. Needs optuna.

    Where RAY_ADDRESS names a Ray cluster, settings are tried on all its cores at once.
    """
    import os

    import torch

    from oneof.data.table import read_table
    from oneof.ensemble.tune import load_optuna, make_folds, search_settings
    from oneof.estimator.settings_file import write_settings
    from oneof.learners.config import FitConfig
    from oneof.runs.folder import fingerprint
    from oneof.runs.read_dataset import dataset_from_table
    from oneof.storage.settings import to_serializable
    from oneof.version import __version__

    load_optuna()  # if it is missing, say so before a file is read
    torch.set_num_threads(1)
    if roles.image and not roles.image_model:
        raise ValueError(
            "--image needs --image-model here: networks on pixels are not tuned. Give --image-model patches, or name a timm model."
        )
    data, _ = dataset_from_table(read_table(file, roles), file.parent, cache_dir)
    config = FitConfig(seed=seed)
    identity = {"oneof": __version__, "data": fingerprint(file), "roles": roles, "epochs": epochs, "seed": seed}
    database = storage or f"sqlite:///{out.with_suffix('.db')}"
    if os.environ.get("RAY_ADDRESS"):
        from oneof.ensemble.ray_tune import search_on_ray

        best = search_on_ray(data, config, epochs, trials, database, to_serializable(identity), echo=typer.echo)
    else:
        folds = make_folds(data, config, epochs)
        best = search_settings(folds, trials, database, to_serializable(identity), echo=typer.echo)
    settings = write_settings(best.setting, out)
    typer.echo(
        f"best of {best.tried} ({best.stopped} stopped early): {best.score:.4f} on held-out sets, {settings}\n"
        f"written to {out}: oneof fit {file} --settings {out}, "
        f"or PartialLabelClassifier(**json.load(open({str(out)!r})))"
    )
