"""`oneof demo`: see it work on data that comes with it. The one command with logic: it makes up the votes and knows the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.str_]

CARE = {"ann": 0.8, "bob": 0.7, "cleo": 0.6, "dora": 0.5, "emil": 0.4}  # how often each is right
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NEW = 360  # digits that nobody votes on


def demo(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("oneof-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of training; fewer are quicker and worse. Default: as oneof fit.")] = None,
) -> None:  # fmt: skip
    """Show the whole way on digits: votes of five simulated people in; labels, a page and a model out."""
    out.mkdir(parents=True, exist_ok=True)  # before the imports, which take seconds
    from oneof.cli.clean import clean
    from oneof.cli.fit import fit
    from oneof.cli.predict import predict
    from oneof.cli.report import report

    digits = _digits()
    typer.echo(f"Five simulated people say which digit they see in {len(digits.votes):,} pictures: {out}/votes.csv")
    _write_tables(digits, out)
    _run(fit, out / "features.csv", votes=out / "votes.csv", epochs=epochs, out=out / "run")
    _run(clean, out / "run", out=out / "labels.csv")
    _run(predict, out / "run", out / "new.csv", out=out / "predictions.csv")
    _run(report, out / "run", out=out / "report.html")
    _show(digits, out)
    typer.echo(
        f"Open {out}/report.html in a browser.\n"
        "The commands above do the same with your own votes.csv (item, annotator, label) and features."
    )


class Digits(NamedTuple):
    """scikit-learn's digits in random order; the last NEW of them have no votes."""

    pixels: NDArray[np.float64]  # [n, 64]
    labels: Words  # [n]
    votes: Words  # [n - NEW, person]


def _run(command: Callable[..., None], *files: Path, **options: Any) -> None:
    """Show a command as one would type it, and run it as it was typed."""
    given = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
    typed = [*map(str, files), *(word for option in given for word in option)]
    typer.secho(f"\n$ oneof {command.__name__} {' '.join(typed)}", bold=True)
    app = typer.Typer(add_completion=False)
    app.command()(command)
    app(typed, standalone_mode=False)


def _digits(seed: int = 0) -> Digits:
    """People see what is there as often as they take care, else a digit that looks like it."""
    import numpy as np
    from sklearn.datasets import load_digits

    rng, source = np.random.default_rng(seed), load_digits()
    order = rng.permutation(len(source.data))
    pixels, digit = source.data[order], source.target[order]
    average = np.stack([pixels[digit == k].mean(0) for k in range(10)])
    distance = ((average[:, None] - average) ** 2).sum(-1)
    alike = np.exp(-3 * distance / distance.mean()) * (1 - np.eye(10))
    alike /= alike.sum(1, keepdims=True)  # [digit, what it is taken for]
    shown = digit[:-NEW]
    votes = []
    for care in CARE.values():
        mistaken = (rng.random((len(shown), 1)) > alike[shown].cumsum(1)).sum(1).clip(max=9)
        votes.append(np.where(rng.random(len(shown)) < care, shown, mistaken))
    names = np.array(NAMES)
    return Digits(pixels, names[digit], names[np.stack(votes, 1)])


def _write_tables(digits: Digits, out: Path) -> None:
    """votes.csv, a line per vote; features.csv and new.csv, a line per picture."""
    import numpy as np
    import pyarrow as pa

    from oneof.storage.sheets import write_sheet

    n, people = digits.votes.shape
    item = np.arange(len(digits.pixels))
    votes = {"item": item[:n].repeat(people), "annotator": [*CARE] * n, "label": digits.votes.ravel()}
    write_sheet(pa.table(votes), out / "votes.csv")
    for name, rows in (("features.csv", slice(n)), ("new.csv", slice(n, None))):
        pixels = {f"pixel{j}": column for j, column in enumerate(digits.pixels[rows].T)}
        write_sheet(pa.table({"item": item[rows], **pixels}), out / name)


def _show(digits: Digits, out: Path) -> None:
    """Print how often labels are right, and how often what learned from them is right about new digits.

    What one would do without this package is followed by logistic regression; last, what that learns from the truth.
    """
    import numpy as np
    from pyarrow.csv import read_csv
    from rich.console import Console
    from rich.table import Table
    from sklearn.linear_model import LogisticRegression

    from oneof.votes import dawid_skene, read_long

    n, names, read = len(digits.votes), np.array(NAMES), read_long(out / "votes.csv")
    counts = (digits.votes[..., None] == names).sum(1)
    at_random = np.random.default_rng(0).random(counts.shape)  # ties
    sheets = (read_csv(out / f"{name}.csv") for name in ("labels", "predictions"))
    ours, predicted = (np.array(sheet["label"].to_pylist()) for sheet in sheets)
    ways = {
        "majority vote": names[(counts + 0.1 * at_random).argmax(1)],
        "Dawid-Skene": np.array(read.labels)[dawid_skene(read).posterior.argmax(1)],
        "oneof": ours,
        "the truth": digits.labels[:n],
    }
    title = f"\nWhich labels are right? The truth of {n:,} digits with votes, {NEW} new ones; no command above saw it."
    table = Table("labels from", "right", "learner", "new digits right", title=title, title_justify="left")
    for whose, labels in ways.items():
        learner, later, style = "its networks", predicted, "bold"
        if whose != "oneof":
            learned = LogisticRegression(max_iter=1000).fit(digits.pixels[:n] / 16, labels)
            learner, later, style = "logistic regression", learned.predict(digits.pixels[n:] / 16), ""
        hits = (labels == digits.labels[:n], later == digits.labels[n:])
        right, new = (f"{100 * hit.mean():.1f} %" for hit in hits)
        table.add_row(whose, right, learner, new, style=style)
    Console().print(table)
