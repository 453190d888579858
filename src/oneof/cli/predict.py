"""`oneof predict RUN FILE --out PRED`: labels for new rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from oneof.cli.columns import CacheFolder, RunFolder, Unpacked
from oneof.cli.terminal import say
from oneof.data.roles import Roles

PIPE = Path("-")


def predict(
    run: RunFolder,
    file: Annotated[Path, typer.Argument(help="A CSV, TSV or Parquet table with the columns that were learned from; or a folder of pictures; or -, a CSV from standard input.")],
    out: Annotated[Path, typer.Option(help="Where to write: .parquet or .csv; or -, CSV to standard output.")],
    distribution: Annotated[bool, typer.Option("--distribution", help="Also write the probability of every label.")] = False,
    accuracy: Annotated[float | None, typer.Option(help="Give no label to the least sure rows, so that the others are right in this share, such as 0.95. Default: every row gets one.")] = None,
    sets: Annotated[float | None, typer.Option(help="Also write a set of labels for every row, which holds the right one in this share of rows, such as 0.9.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="A column of FILE to copy to the result, such as an id. May be given again.")] = None,
    text_model: Annotated[str | None, typer.Option(help="The --text-model of oneof fit, if you named one then: a model is opened only if you name it.")] = None,
    image_model: Annotated[str | None, typer.Option(help="The --image-model of oneof fit, if you named one then: a model is opened only if you name it.")] = None,
    cache_dir: CacheFolder = None,
    unpacked: Unpacked = Roles.unpacked,
) -> None:  # fmt: skip
    """Predict the label of every row, with its probability."""
    import pyarrow as pa

    from oneof.data.files.columns import read_columns_of
    from oneof.data.images import folder_of
    from oneof.data.table import read_columns
    from oneof.runs.folder import Run
    from oneof.runs.predict import prediction_table
    from oneof.storage.sheets import check_out, write_sheet

    if out != PIPE:
        check_out(out)
        if out.resolve() == file.resolve():
            raise ValueError(f"out must be another file than the table that is read; got {str(out)!r} for both.")
    model = Run.open(run).model
    model.check_predicts()
    with piped(file, out) as (source, result):
        columns = read_columns(source, replace(model.encoding.roles, unpacked=unpacked))
        for line in model.encoding.unseen(columns):
            say(line, err=True)
        named = [name for name in (text_model, image_model) if name]
        beside = Path() if file == PIPE else folder_of(file)  # where pictures are looked up
        read = model.encoding.pictures(columns, beside) if model.encoding.pixels else None
        x = read.levels if read else model.encoding.transform(columns, folder=beside, cache=cache_dir, named=named)
        said, asked = model.probabilities(x), {"accuracy": accuracy, "sets": sets}
        found = prediction_table(said, model.classes, model.calibration, distribution=distribution, **asked)
        if read and read.fault:
            say(read.fault, err=True)
            seen = pa.array(range(len(columns)), mask=~read.readable)
            found = found.take(seen)  # nothing is said of what is not seen
        for name, cells in read_columns_of(source, column or [], found.column_names).items():
            found = found.append_column(name, [cells])
        write_sheet(found, result)
    say(f"wrote {out}: {_in_words(found, model.calibration, accuracy, sets)}", err=out == PIPE)


@contextmanager
def piped(file: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """Files to read and write. Where "-" is said they hold the CSV of standard input, and what goes to standard output at the end."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "input.csv") if file == PIPE else file
        result = Path(folder, "output.csv") if out == PIPE else out
        if file == PIPE:
            source.write_bytes(sys.stdin.buffer.read())
        yield source, result
        if out == PIPE:
            sys.stdout.write(result.read_text(encoding="utf-8"))


def _in_words(found: Any, calibration: dict[str, Any], accuracy: float | None, sets: float | None) -> str:
    words = [f"{found.num_rows:,} rows"]
    by = f"by {calibration['by']}" + (f", {calibration['reason']}" * (calibration["by"] != "gold labels"))
    if accuracy is not None:
        abstained = sum(found["abstained"].to_pylist())
        words.append(f"{abstained:,} abstained to be right in {accuracy:.0%} of the others ({by})")
    if sets is not None:
        size = sum(map(len, found["set"].to_pylist())) / max(1, found.num_rows)
        words.append(f"sets of {size:.2f} labels to hold the right one in {sets:.0%} of rows ({by})")
    return "; ".join(words)
