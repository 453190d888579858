"""The purified table: what became of every training row's candidate set, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import restrict
from oneof.storage.files import written_beside
from oneof.training.state import Fit

FALL = pa.struct([("label", pa.string()), ("round", pa.int32()), ("margin", pa.float32())])


def purified_table(fitted: Fit, trial: int, x: Any, original: NDArray[np.bool_], classes: Sequence[Any]) -> pa.Table:
    """One row per training row of a trial, in the order of the data.

    Columns: row, original (list), kept (list), label (the resolved one), probability and margin (within the kept set),
    removed (list of label, round, margin).
    """
    rows = fitted.rows[trial].cpu()
    order = rows.argsort()
    kept = fitted.candidates[trial].cpu()[order]
    rows = rows[order]
    probability = restrict(fitted.probabilities(x)[trial].cpu()[rows], kept)
    names = np.asarray(classes).astype(str)
    best = probability.topk(2, dim=-1)
    return pa.table(
        {
            "row": pa.array(rows.numpy()),
            "original": _label_lists(original[rows.numpy()], names),
            "kept": _label_lists(kept.numpy(), names),
            "label": pa.array(names[best.indices[:, 0].numpy()]),
            "probability": pa.array(best.values[:, 0].numpy()),
            "margin": pa.array((best.values[:, 0] - best.values[:, 1]).numpy()),
            "removed": _falls(fitted, trial, order, names),
        }
    )


def _label_lists(mask: NDArray[np.bool_], names: NDArray[Any]) -> pa.ListArray:
    offsets = np.concatenate([[0], mask.sum(1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(names[mask.nonzero()[1]]))


def _falls(fitted: Fit, trial: int, order: torch.Tensor, names: NDArray[Any]) -> pa.ListArray:
    """Per row, in the table's order, the labels that fell with their round and margin."""
    n = len(order)
    if fitted.removals is None:
        return pa.array([[]] * n, type=pa.list_(FALL))
    own = fitted.removals.trial == trial
    row, label, round, margin = (column[own].cpu() for column in fitted.removals[1:])
    position = torch.empty_like(order)
    position[order] = torch.arange(n)
    at = position[row]
    by_row = at.argsort(stable=True)
    offsets = np.concatenate([[0], np.bincount(at.numpy(), minlength=n).cumsum()]).astype(np.int32)
    columns = [names[label[by_row].numpy()], round[by_row].numpy().astype(np.int32), margin[by_row].numpy()]
    values = pa.StructArray.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, FALL, strict=True)], fields=list(FALL)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write beside, then rename: no reader ever sees half a file."""
    with written_beside(path) as file:
        pq.write_table(table, file)
