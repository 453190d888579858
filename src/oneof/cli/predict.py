"""`oneof predict RUN FILE... --out PREDICTIONS`: predict the labels of new rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import RESOURCES, CacheFolder, RunFolder, Unpacked
from oneof.cli.terminal import echo
from oneof.data.roles import ColumnRoles

if TYPE_CHECKING:
    from oneof.runs.predict_files import PredictionSummary
    from oneof.runs.predictor import Predictor

PIPE = Path("-")


class Engine(StrEnum):
    """Engine that predicts many files."""

    LOCAL = "local"
    RAY = "ray"


def predict(
    run: RunFolder,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", show_default=False, help="CSV, TSV or Parquet tables with the columns of the training table, or a pattern such as 'new/*.parquet'; a folder of pictures; or -, a CSV from standard input.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .parquet or .csv; or -, CSV to standard output. Several files: a folder, which gets a Parquet file for each.")],
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of FILE to copy to the result, such as an id. Repeatable.")] = None,
    distribution: Annotated[bool, typer.Option("--distribution", help="Also write the probability of every label.")] = False,
    accuracy: Annotated[float | None, typer.Option(metavar="SHARE", help="Give no label to the least certain rows, so that this share of the others is right, such as 0.95. Default: every row gets one.")] = None,
    sets: Annotated[float | None, typer.Option(metavar="SHARE", help="Also write a set of labels for every row that contains the right one in this share of rows, such as 0.9.")] = None,
    text_model: Annotated[str | None, typer.Option(metavar="NAME", help="The --text-model of oneof fit, if one was given there: models are opened only if you name them.")] = None,
    image_model: Annotated[str | None, typer.Option(metavar="NAME", help="The --image-model of oneof fit, likewise.")] = None,
    engine: Annotated[Engine, typer.Option(rich_help_panel=RESOURCES, help="With several files: 'ray' predicts them by Ray Data, on the cluster that RAY_ADDRESS names or on all cores of this machine.")] = Engine.LOCAL,
    unpacked: Unpacked = ColumnRoles.unpacked,
    cache_dir: CacheFolder = None,
) -> None:  # fmt: skip
    """Predict the label of every row, with its probability. Rows are read in batches, so that files may be larger than memory."""
    from oneof.runs.predictor import Predictor

    embedding_models = []
    for model in (text_model, image_model):
        if model:
            embedding_models.append(model)
    predictor = Predictor(
        run,
        columns=tuple(dict.fromkeys(column or ())),
        distribution=distribution,
        accuracy=accuracy,
        sets=sets,
        embedding_models=embedding_models,
        cache=cache_dir,
    )
    if _is_folder(out):
        summary = _predict_to_folder(predictor, files, out, engine, unpacked)
    else:
        if engine is Engine.RAY:
            raise ValueError(
                f"--engine ray requires a folder to write to; got --out {out}. Give a name without ending."
            )
        summary = _predict_to_file(predictor, files, out, unpacked)
    for warning in summary.warnings:
        echo(warning, err=True)
    echo(f"wrote {out}: {summary.describe(predictor)}", err=out == PIPE)


def _is_folder(out: Path) -> bool:
    """Return whether the result is a folder of files: a folder that exists, or a name without ending."""
    return out != PIPE and (out.is_dir() or not out.suffix)


def _predict_to_file(predictor: "Predictor", files: list[str], out: Path, unpacked: float) -> "PredictionSummary":
    """Predict one file into another; standard input and output count as files."""
    from oneof.data.files.batches import count_rows, find_files
    from oneof.runs.predict_files import predict_file
    from oneof.storage.progress import progress_bar
    from oneof.storage.sheets import check_out

    paths = [Path(name) for name in files]
    if paths != [PIPE]:
        paths = find_files(files)
    if len(paths) > 1:
        raise ValueError(
            f"--out must be a folder for {len(paths):,} files; got {str(out)!r}. Give a name without ending."
        )
    (file,) = paths
    if out != PIPE:
        check_out(out)
        if out.resolve() == file.resolve():
            raise ValueError(f"out must be another file than the table that is read; got {str(out)!r} for both.")
    predictor.model.check_predicts()
    picture_folder = None  # that of the table
    if file == PIPE:
        picture_folder = Path()
    with _files_for_pipes(file, out) as (source, result):
        n_rows = None
        if source.exists():
            n_rows = count_rows(source)
        with progress_bar("predict", n_rows or 0, show=bool(n_rows), unit="rows") as step:
            return predict_file(predictor, source, result, folder=picture_folder, unpacked=unpacked, step=step)


def _predict_to_folder(
    predictor: "Predictor", files: list[str], out: Path, engine: Engine, unpacked: float
) -> "PredictionSummary":
    """Predict files into a folder, except those that were predicted before."""
    from oneof.data.files.batches import find_files
    from oneof.runs.predict_files import plan_jobs, predict_to_folder
    from oneof.runs.ray_predict import predict_on_ray

    if out.is_file():
        raise ValueError(f"--out must end in .parquet or .csv, or be a folder; {out} is a file.")
    jobs = plan_jobs(predictor, find_files(files), out)
    n_done = sum(job.is_done for job in jobs)
    if n_done:
        echo(f"{n_done:,} of {len(jobs):,} files were predicted before", err=True)
    predictor.model.check_predicts()
    if engine is Engine.RAY:
        return predict_on_ray(predictor, jobs, unpacked=unpacked)
    return predict_to_folder(predictor, jobs, unpacked=unpacked)


@contextmanager
def _files_for_pipes(file: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files to read and to write: temporary ones in place of standard input and standard output."""
    with TemporaryDirectory() as folder:
        source = file
        if file == PIPE:
            source = Path(folder, "input.csv")
            source.write_bytes(sys.stdin.buffer.read())
        result = out
        if out == PIPE:
            result = Path(folder, "output.csv")
        try:
            yield source, result
        except (ValueError, TypeError) as error:
            if file != PIPE or str(source) not in str(error):
                raise
            raise ValueError(str(error).replace(str(source), "standard input")) from error
        if out == PIPE:
            sys.stdout.write(result.read_text(encoding="utf-8"))
