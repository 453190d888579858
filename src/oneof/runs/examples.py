"""From a table that was read to what is learned from, and what to say of it beforehand."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from oneof.data.embed import MODELS
from oneof.data.encode import learn_encoding
from oneof.data.table import Table
from oneof.inspect import inspect_sets, inspect_table
from oneof.inspect.advice import Finding
from oneof.runs.learn import Examples
from oneof.runs.sample import read_sample


def examples_of(mixed: Table, folder: Path, cache: Path | None = None) -> tuple[Examples, list[str]]:
    """What is learned from a table, and what to say of it; names of images in it are of files in the folder."""
    encoding = learn_encoding(mixed.columns, mixed.roles, folder=folder, cache=cache)
    named = [part.model for part in encoding.embedded]
    told = [f"pictures are embedded by {name}. To train a network on them instead, say --network NAME." for name in named if name == MODELS["image"]]  # fmt: skip
    if not encoding.pixels:
        x = encoding.transform(mixed.columns, folder=folder, cache=cache, named=named)
        return Examples(x, mixed.candidates, encoding, mixed.gold, mixed.groups), told
    read = encoding.pictures(mixed.columns, folder)
    beside = [*mixed.columns.names, *mixed.roles.categories]
    told = [f"columns beside the pictures are not learned from: {', '.join(beside)}. To use both, say --image-model NAME."] * bool(beside)  # fmt: skip
    told += [read.fault] if read.fault else []
    return Examples(read.levels, mixed.candidates, encoding, mixed.gold, mixed.groups, blank=~read.readable), told


def with_answers(examples: Examples, path: str | None) -> Examples:
    """The examples with the answers of a person beside the gold labels that the table has."""
    if path is None:
        return examples
    said = read_sample(Path(path), examples.candidates.classes, len(examples.x))
    return replace(examples, gold=said if examples.gold is None else np.where(said >= 0, said, examples.gold))


def look_at(examples: Examples, mixed: Table, seed: int) -> list[str]:
    """What to warn of; what cannot be learned is an error. Of pictures the sets alone are looked at: no single pixel says much."""
    if not examples.encoding.pixels:
        findings = inspect_table(mixed, examples.x, examples.encoding.names, seed=seed).findings
    else:
        said = tuple(Finding("warn", "reading", line) for line in mixed.remarks())
        findings = inspect_sets(None, mixed.candidates, seed=seed).findings + said
    stop = next((finding.text for finding in findings if finding.severity == "stop"), None)
    if stop is not None:
        raise ValueError(f"{mixed.columns.source} cannot be learned from: {stop}")
    return [finding.text for finding in findings if finding.severity == "warn"]
