"""`oneof predict RUN FILE --out PREDICTIONS`: predict the labels of new rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from oneof.cli.columns import CacheFolder, RunFolder, Unpacked
from oneof.cli.terminal import echo
from oneof.data.roles import ColumnRoles

PIPE = Path("-")


def predict(
    run: RunFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="CSV, TSV or Parquet table with the columns of the training table; a folder of pictures; or -, a CSV from standard input.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .parquet or .csv; or -, CSV to standard output.")],
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of FILE to copy to the result, such as an id. Repeatable.")] = None,
    distribution: Annotated[bool, typer.Option("--distribution", help="Also write the probability of every label.")] = False,
    accuracy: Annotated[float | None, typer.Option(metavar="SHARE", help="Give no label to the least certain rows, so that this share of the others is right, such as 0.95. Default: every row gets one.")] = None,
    sets: Annotated[float | None, typer.Option(metavar="SHARE", help="Also write a set of labels for every row that contains the right one in this share of rows, such as 0.9.")] = None,
    text_model: Annotated[str | None, typer.Option(metavar="NAME", help="The --text-model of oneof fit, if one was given there: models are opened only if you name them.")] = None,
    image_model: Annotated[str | None, typer.Option(metavar="NAME", help="The --image-model of oneof fit, likewise.")] = None,
    unpacked: Unpacked = ColumnRoles.unpacked,
    cache_dir: CacheFolder = None,
) -> None:  # fmt: skip
    """Predict the label of every row, with its probability."""
    from oneof.runs.folder import Run
    from oneof.runs.predict_file import PredictOptions, describe_predictions, predict_file
    from oneof.storage.sheets import check_out, write_sheet

    if out != PIPE:
        check_out(out)
        if out.resolve() == file.resolve():
            raise ValueError(f"out must be another file than the table that is read; got {str(out)!r} for both.")
    model = Run.open(run).model
    model.check_predicts()
    options = PredictOptions(
        distribution=distribution,
        accuracy=accuracy,
        sets=sets,
        copied=column or (),
        models=[name for name in (text_model, image_model) if name],
        cache=cache_dir,
        unpacked=unpacked,
    )
    picture_folder = Path() if file == PIPE else None
    with _files_for_pipes(file, out) as (source, result):
        table, warnings = predict_file(model, source, picture_folder, options)
        for warning in warnings:
            echo(warning, err=True)
        write_sheet(table, result)
    echo(f"wrote {out}: {describe_predictions(table, model.calibration, options)}", err=out == PIPE)


@contextmanager
def _files_for_pipes(file: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files to read and to write: temporary ones in place of standard input and standard output."""
    with TemporaryDirectory() as folder:
        source = file
        if file == PIPE:
            source = Path(folder, "input.csv")
            source.write_bytes(sys.stdin.buffer.read())
        result = Path(folder, "output.csv") if out == PIPE else out
        yield source, result
        if out == PIPE:
            sys.stdout.write(result.read_text(encoding="utf-8"))
