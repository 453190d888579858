"""Make a data set of a table, or of a table and votes on its rows, and collect warnings before learning from it."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.dataset import Dataset
from oneof.data.embed import MODELS
from oneof.data.encode import EncodedRows, learn_encoding
from oneof.data.files.columns import open_table
from oneof.data.files.source import TableSource
from oneof.data.images import ImageSpec
from oneof.data.roles import ColumnRoles
from oneof.data.table import Table
from oneof.ensemble.with_votes import dataset_with_votes
from oneof.inspect import inspect_sets, inspect_table
from oneof.inspect.advice import Finding
from oneof.learners.config import EnsembleConfig
from oneof.training.device import best_device, free_memory
from oneof.votes.attach import CANDIDATES, attach_votes
from oneof.votes.ballots import Votes
from oneof.votes.label_studio import is_label_studio, read_ground_truth
from oneof.votes.read import VotesFile, read_votes, table_layout
from oneof.votes.records import ITEM_NAMES, first_name


def dataset_from_table(
    table: Table,
    folder: Path,
    cache: Path | None = None,
    pixel_file: Path | None = None,
    stream: bool | None = None,
) -> tuple[Dataset, list[str]]:
    """Encode the columns of a table; return the data set and remarks for a person.

    Parameters
    ----------
    folder
        Pictures that the table names are files in it.
    cache
        Where embeddings of texts and pictures are kept.
    pixel_file
        Where pixels are kept while a network learns from them, if they are not held in memory.
    stream
        Whether pixels are kept in that file. None: where they take more than half of the free memory.
    """
    encoding = learn_encoding(table.columns, table.roles, folder=folder, cache=cache, sets=table.candidates.mask)
    remarks = []
    if encoding.pixels:
        unused = [*table.columns.names, *table.roles.categories]
        if unused:
            remarks.append(
                f"columns beside the pictures are not learned from: {', '.join(unused)}. To use both, say --image-model patches."
            )
        if not stays_on_disk(len(table.columns), encoding.pixels[0], stream):
            pixel_file = None
        rows = EncodedRows(*encoding.pictures(table.columns, folder, pixel_file))
    else:
        models = [part.model for part in encoding.embedded]
        for model in models:
            if model == MODELS["image"]:
                remarks.append(
                    f"pictures are embedded by {model}. To train a network on them instead, say --architecture NAME."
                )
        rows = encoding.encode(table.columns, folder=folder, cache=cache, named=models)
    if rows.fault:
        remarks.append(rows.fault)
    data = Dataset.build(
        rows.features,
        table.candidates,
        encoding,
        gold=table.gold,
        groups=table.groups,
        observed=rows.readable,
    )
    return data, remarks


def stays_on_disk(n: int, image_spec: ImageSpec, stream: bool | None) -> bool:
    """Return whether n pictures stay in a file: as `stream` says, else if they take more than half of the free memory."""
    if stream is not None:
        return stream
    free = min(free_memory(torch.device("cpu")), free_memory(best_device()))
    return 2 * n * math.prod(image_spec.shape) > free


def column_metadata(table: Table, data: Dataset) -> dict[str, dict[str, str]]:
    """Return what each column became and why, for run.json."""
    uses = {name: asdict(use) for name, use in table.uses.items()}
    if data.are_pictures:
        for name in (*table.columns.names, *table.roles.categories):
            uses[name] = {"use": "left out", "reason": "a network on pictures learns from them alone"}
    return uses


def collect_warnings(data: Dataset, table: Table, seed: int, *, from_votes: bool = False) -> list[str]:
    """Return what to warn about before learning; raise an error where nothing can be learned.

    Of pictures only the sets are inspected, since a single pixel says little. Sets that come from votes may all be full: their counts
    tell the labels apart.
    """
    if data.features.shape[1] == 0:
        lines = table.remarks()
        lines.append("The table has no features: votes alone decide its labels, and new rows cannot be predicted.")
        findings = [Finding("warn", "reading", line) for line in lines]
    elif data.are_pictures:
        findings = list(inspect_sets(None, table.candidates, seed=seed, test_dependence=False).findings)
        findings += [Finding("warn", "reading", line) for line in table.remarks()]
    else:
        inspection = inspect_table(table, data.features, data.encoding.names, seed=seed, test_dependence=False)
        findings = list(inspection.findings)
    if from_votes:
        findings = [finding for finding in findings if finding.about != "full"]
    for finding in findings:
        if finding.severity == "stop":
            raise ValueError(f"{table.columns.source} cannot be learned from: {finding.text}")
    return [finding.text for finding in findings if finding.severity == "warn"]


@dataclass(frozen=True, eq=False)
class TableWithVotes:
    """A table and the votes on its rows."""

    source: TableSource
    roles: ColumnRoles  # uses of its columns; the item's, and those of annotators in the table, are no features
    votes: Votes
    item: NDArray[np.intp]  # [n] of each row, -1 where nobody voted
    remarks: list[str]
    ground_truth: dict[int, str]  # labels that a Label Studio export marks as true, by row
    on: str | None  # the column of the items' ids; None: they are the numbers of the rows


def read_table_with_votes(file: Path, votes_file: VotesFile, roles: ColumnRoles) -> TableWithVotes:
    """Read the votes and find those on each row of a table."""
    votes_path = Path(votes_file.path)
    in_same_file = votes_path.resolve() == file.resolve()
    votes = read_votes(votes_file, report_unused=not in_same_file)
    features = open_table(file)
    wanted = votes_file.on or votes_file.item
    on: str | None = first_name(wanted, ITEM_NAMES, features.names) or wanted
    not_features = set(roles.ignore)
    layout = table_layout(votes_file) if in_same_file else None
    if layout is not None:
        not_features.update(layout.columns, layout.truth)
        on = layout.item if votes_file.on is None else votes_file.on
    source, item, remarks = attach_votes(features, votes, on)
    ground_truth = {}
    if is_label_studio(votes_path):
        label_of_item = read_ground_truth(votes_path)
        items = votes.items.to_pylist()
        for row, i in enumerate(item):
            if i >= 0 and items[i] in label_of_item:
                ground_truth[row] = label_of_item[items[i]]
    if on is not None:
        not_features.add(on)
    not_features -= {"", *roles.non_numeric}  # pictures may be named by their files
    roles = replace(roles, candidates=CANDIDATES, empty="unlabelled", ignore=tuple(sorted(not_features)))
    return TableWithVotes(source, roles, votes, item, [*votes.remarks, *remarks], ground_truth, on)


def add_votes(
    data: Dataset, voted: TableWithVotes, config: EnsembleConfig, seed: int
) -> tuple[Dataset, EnsembleConfig, dict[str, Any]]:
    """Return the data set with what the votes say, the config that suits it, and what is known about the annotators."""
    return dataset_with_votes(data, voted.votes, voted.item, config, seed, voted.ground_truth)
