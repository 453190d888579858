"""`oneof paper generate`: draw candidate sets for a named data set, to try methods on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import DataFolder
from oneof.cli.terminal import echo

if TYPE_CHECKING:
    from oneof.candidates.generate import Kind


def generate(
    name: Annotated[str, typer.Argument(help="A data set that 'oneof paper data' lists.")],
    out: Annotated[Path, typer.Option(help="The .npz to write: candidates, classes, and how they were made.")],
    kind: Annotated[str, typer.Option(help="How wrong labels join the sets: flip, uniform_set, uniform_set_as_coded, pair, class, instance_paper or instance.")] = "instance",
    rate: Annotated[float | None, typer.Option(help="With flip, pair or instance: how readily wrong labels join. Default: 0.3, 0.5 or 0.4.")] = None,
    average: Annotated[float | None, typer.Option(help="With the instance kinds: how many labels a set should have on average. Default: as many as come.")] = None,
    matrix: Annotated[Path | None, typer.Option(help="With class: a CSV of c x c probabilities, in row y and column j that label j joins a set of class y.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 0,
    teacher_epochs: Annotated[int, typer.Option(min=1, help="With the instance kinds: epochs of the classifier, trained on true labels, whose doubts make the sets.")] = 20,
    data_dir: DataFolder = None,
    device: Annotated[str, typer.Option(help="Where to train that classifier: cpu or cuda.")] = "cpu",
) -> None:  # fmt: skip
    """Draw candidate sets for a named data set from its true labels."""
    import json

    import numpy as np

    from oneof.candidates.generate import Instance, calibrate_temperature
    from oneof.candidates.generate import generate as draw_sets
    from oneof.storage.files import atomic_write
    from oneof.storage.settings import to_serializable
    from oneof_paper.data.catalogue import NAMED, load
    from oneof_paper.teacher import dataset_logits

    generator = _generator(kind, rate, matrix)
    if average is not None and not isinstance(generator, Instance):
        raise ValueError(f"average goes with the instance kinds; got kind {kind!r}.")
    if not out.parent.is_dir() or out.is_dir():
        raise ValueError(f"out must be a file in a folder that is there; got {str(out)!r}.")
    data = load(name, data_dir)
    is_unknown = data.labels < 0
    if is_unknown.any():
        raise ValueError(f"{name} must have a true label in every row; row {int(is_unknown.argmax())} has none.")
    logits = None
    if isinstance(generator, Instance):
        title = f"classifier for {data.name}"
        logits = dataset_logits(data, seed=seed, epochs=teacher_epochs, device=device, progress=title)
        if average is not None:
            generator = calibrate_temperature(generator, average, logits, data.labels)
    sets = draw_sets(data.labels, len(data.classes), generator, seed=seed, logits=logits)
    made = {"dataset": name, "kind": to_serializable(generator), "seed": seed, "teacher_epochs": teacher_epochs}
    with atomic_write(out) as file:
        np.savez_compressed(file, candidates=sets, classes=np.asarray(data.classes), made=np.asarray(json.dumps(made)))
    paper = NAMED[name].paper
    printed = f"; the paper prints {paper.average}" if paper else ""
    echo(f"{name}: {sets.sum(1).mean():.2f} labels per set{printed}. Written to {out}.")


def _generator(name: str, rate: float | None, matrix: Path | None) -> Kind:
    """Return the generator of a kind, with its rate or its matrix."""
    from oneof.candidates.generate import KINDS

    if name not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {name!r}.")
    if name == "class" and matrix is None:
        raise ValueError("kind 'class' needs a matrix; give --matrix FILE, a CSV of c x c probabilities.")
    if name != "class" and matrix is not None:
        raise ValueError(f"matrix goes with kind 'class'; got kind {name!r}.")
    make: Callable[..., Kind] = KINDS[name]
    if rate is not None and "rate" not in KINDS[name].__dataclass_fields__:
        raise ValueError(f"kind {name!r} has no rate; got {rate}.")
    if matrix is not None:
        return make(matrix=_read_matrix(matrix))
    if rate is not None:
        return make(rate=rate)
    return make()


def _read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    """Read a CSV of numbers, as many in every row."""
    rows = []
    for line in path.read_text().splitlines():
        if line.strip():
            rows.append(tuple(float(cell) for cell in line.split(",")))
    if not rows or len({len(row) for row in rows}) > 1:
        raise ValueError(f"{path} must hold rows of as many numbers each; got {len(rows)} rows.")
    return tuple(rows)
