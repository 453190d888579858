"""Make a data set from a table, or from a table and votes on its rows, and collect warnings about it before the fit."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.column_uses import ColumnUse
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
from oneof.votes.records import ITEM_NAMES, find_name


def dataset_from_table(
    table: Table,
    folder: Path,
    cache: Path | None = None,
    pixel_file: Path | None = None,
    stream: bool | None = None,
) -> tuple[Dataset, list[str]]:
    """Encode the columns of a table; return the data set and remarks to print.

    Parameters
    ----------
    folder
        The folder of the picture files that the table names.
    cache
        Where embeddings of texts and pictures are kept.
    pixel_file
        Where pixels are kept while a network is trained on them, if they are not held in memory.
    stream
        Whether pixels are kept in that file. None: if they take more than half of the free memory.
    """
    encoding = learn_encoding(table.columns, table.roles, folder=folder, cache=cache, sets=table.candidates.mask)
    remarks = []
    if encoding.pixels:
        unused = [*table.columns.names, *table.roles.categories]
        if unused:
            remarks.append(
                f"columns other than the pictures are not learned from: {', '.join(unused)}. To use both, give --image-model patches."
            )
        if not stays_on_disk(len(table.columns), encoding.pixels[0], stream):
            pixel_file = None
        rows = EncodedRows(*encoding.pictures(table.columns, folder, pixel_file))
    else:
        models = [part.model for part in encoding.embedded]
        for model in models:
            if model == MODELS["image"]:
                remarks.append(
                    f"pictures are embedded by {model}. To train a network on them instead, give --architecture NAME."
                )
        rows = encoding.encode(table.columns, folder=folder, cache=cache, trusted_models=models)
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
    """Return how each column is used and why, for run.json."""
    uses = {name: asdict(use) for name, use in table.uses.items()}
    if data.are_pictures:
        for name in (*table.columns.names, *table.roles.categories):
            uses[name] = {"use": "left out", "reason": "a network on pictures learns from them alone"}
    return uses


def collect_warnings(data: Dataset, table: Table, seed: int, *, from_votes: bool = False) -> list[str]:
    """Return warnings about the data before the fit; raise ValueError where nothing can be learned from it.

    With pictures only the sets are inspected, since single pixels are not features. Sets that come from votes may all be full, since the number
    of votes for each label distinguishes the labels.
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
    warnings = []
    for finding in findings:
        if from_votes and finding.about == "full":
            continue
        if finding.severity == "stop":
            raise ValueError(f"{table.columns.source} cannot be learned from: {finding.text}")
        if finding.severity == "warn":
            warnings.append(finding.text)
    return warnings


@dataclass(frozen=True, eq=False)
class TableWithVotes:
    """A table and the votes on its rows."""

    source: TableSource
    roles: ColumnRoles  # of its columns; the column of item ids, and those of annotators in the table, are not features
    votes: Votes
    item: NDArray[np.intp]  # [n] index of each row's item in the votes, -1 where nobody voted
    remarks: list[str]
    ground_truth: dict[int, str]  # by row: labels that a Label Studio export marks as true
    on: str | None  # the column of item ids; None: they are row numbers


def read_table_with_votes(file: Path, votes_file: VotesFile, roles: ColumnRoles) -> TableWithVotes:
    """Read the votes and match their items with the rows of a table."""
    votes_path = Path(votes_file.path)
    in_same_file = votes_path.resolve() == file.resolve()
    votes = read_votes(votes_file, report_unused=not in_same_file)
    features = open_table(file)
    on: str | None = _id_column(votes_file, features.names)
    not_features = set(roles.ignore)
    if in_same_file:
        layout = table_layout(votes_file)
        if layout is not None:
            not_features.update(layout.columns, layout.truth)
            on = votes_file.on
            if on is None:
                on = layout.item
    source, item, remarks = attach_votes(features, votes, on)
    ground_truth = {}
    if is_label_studio(votes_path):
        ground_truth = _ground_truth_by_row(votes_file, votes, item)
    if on is not None:
        not_features.add(on)
    not_features -= {"", *roles.non_numeric}  # a column of pictures may also hold the ids of the items
    roles = replace(roles, candidates=CANDIDATES, empty="unlabelled", ignore=tuple(sorted(not_features)))
    return TableWithVotes(source, roles, votes, item, [*votes.remarks, *remarks], ground_truth, on)


def with_uses_of_votes(table: Table, voted: TableWithVotes, requested: ColumnRoles) -> Table:
    """Return the table with the reason why columns that belong to the votes, and that no option leaves out, are not features."""
    uses = dict(table.uses)
    for name in voted.roles.ignore:
        if name not in uses or name in requested.ignore:
            continue
        reason = "part of the votes"
        if name == voted.on:
            reason = "ids of the items"
        uses[name] = ColumnUse("left out", reason)
    return replace(table, uses=uses)


def _id_column(votes_file: VotesFile, names: Sequence[str]) -> str:
    """Return the column of a table with these columns that holds the items' ids: the one of --on, or one of a usual name, or that of the votes."""
    requested = votes_file.on or votes_file.item
    column = find_name(requested, ITEM_NAMES, names)
    if column is None and votes_file.item in names:
        return votes_file.item
    return column or requested


def _ground_truth_by_row(export: VotesFile, votes: Votes, item: NDArray[np.intp]) -> dict[int, str]:
    """Return the labels that a Label Studio export marks as true, by the rows of their items, in the spelling of the votes."""
    label_of_item = read_ground_truth(export.path)
    read_labels = export.spelling.reader()
    ids = votes.items.to_pylist()
    ground_truth = {}
    for row, item_index in enumerate(item):
        if item_index >= 0 and ids[item_index] in label_of_item:
            labels = list(read_labels(label_of_item[ids[item_index]]))
            if len(labels) == 1 and labels[0] in votes.labels:
                ground_truth[row] = labels[0]
    return ground_truth


def add_votes(
    data: Dataset, voted: TableWithVotes, config: EnsembleConfig, seed: int
) -> tuple[Dataset, EnsembleConfig, dict[str, Any]]:
    """Return the data set with the evidence of the votes, the config adapted to it, and a description of the annotators."""
    return dataset_with_votes(data, voted.votes, voted.item, config, seed, voted.ground_truth)
