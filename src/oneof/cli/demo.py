"""`oneof demo`: see it work on data that comes with it."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from oneof.cli.terminal import Terminal

if TYPE_CHECKING:
    from oneof.runs.demo import LabelQuality


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write to.")] = Path("oneof-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Epochs of training; fewer are faster and less accurate. Default: that of oneof fit.")] = None,
) -> None:  # fmt: skip
    """Show all steps on digits: votes of five simulated people in; labels, a page and a model out."""
    out.mkdir(parents=True, exist_ok=True)  # before the imports, which take seconds
    from oneof.cli.clean import clean
    from oneof.cli.fit import fit
    from oneof.cli.predict import predict
    from oneof.cli.report import report
    from oneof.runs.demo import compare_labels, simulate_votes, write_tables

    digits = simulate_votes()
    typer.echo(f"Five simulated people say which digit they see in {len(digits.votes):,} pictures: {out}/votes.csv")
    write_tables(digits, out)
    _run(fit, out / "features.csv", votes=out / "votes.csv", ignore="picture", epochs=epochs, out=out / "run")
    _run(clean, out / "run", out=out / "labels.csv")
    _run(predict, out / "run", out / "new.csv", out=out / "predictions.csv")
    _run(report, out / "run", out=out / "report.html")
    n_voted = len(digits.votes)
    _print_comparison(compare_labels(digits, out), n_voted, len(digits.labels) - n_voted)
    typer.echo(
        f"Open {out}/report.html in a browser.\n"
        "The commands above do the same with your own votes.csv (item, annotator, label) and features."
    )
    _offer_review(out / "run")


def _offer_review(run: Path) -> None:
    """Ask whether to review the doubtful digits now; where nobody can answer, say how."""
    command = f"oneof review {shlex.quote(str(run))}"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo(f"Decide the doubtful digits yourself, with their pictures: {command}")
        return
    if not typer.confirm(
        "Decide the doubtful digits yourself, with their pictures, in your browser now?", default=True
    ):
        typer.echo(f"Later: {command}")
        return
    from oneof.cli.review import review

    _run(review, run)


def _run(command: Callable[..., None], *files: Path, **options: Any) -> None:
    """Print a command as a person would type it, and run it."""
    words = [str(file) for file in files]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    typer.secho(f"\n$ oneof {command.__name__} {' '.join(words)}", bold=True)
    app = typer.Typer(add_completion=False)
    app.command()(command)
    app(words, standalone_mode=False)


def _print_comparison(qualities: "list[LabelQuality]", n_voted: int, n_new: int) -> None:
    """Print how often labels are right, and how often classifiers trained on them are right about new digits."""
    title = f"\nWhich labels are right? The truth of {n_voted:,} digits with votes, {n_new} new ones; no command above saw it."
    table = Table("labels from", "right", "learner", "new digits right", title=title, title_justify="left")
    for quality in qualities:
        style = ""
        if quality.source == "oneof":
            style = "bold"
        table.add_row(
            quality.source,
            f"{100 * quality.labels_right:.1f} %",
            quality.learner,
            f"{100 * quality.new_digits_right:.1f} %",
            style=style,
        )
    Terminal().print(table)
