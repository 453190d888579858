"""Exchange tables with the package `datasets` of Hugging Face: a dataset to fit on, and the labels of a run as a dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.data.files.columns import open_table
from oneof.data.files.hugging_face import dataset_table
from oneof.runs.explain import with_explanations
from oneof.runs.folder import Run, check_unchanged
from oneof.storage.optional_packages import load_package
from oneof.storage.sheets import check_out, write_sheet

EXTRA = "huggingface"


def write_dataset(dataset: Any, path: str | Path) -> None:
    """Write a dataset as a table that `oneof fit` reads: .parquet, or .csv.

    Classes that the dataset stores as numbers (`ClassLabel`) are written by name, in lists too.

    Examples
    --------
    >>> write_dataset(load_dataset("me/juries", split="train"), "juries.parquet")  # doctest: +SKIP
    """
    path = Path(path)
    check_out(path, (".parquet", ".csv"))
    write_sheet(dataset_table(dataset), path)


def labels_dataset(run: str | Path | Run, columns: Sequence[str] = ()) -> Any:
    """Return the label of every training row as a `datasets.Dataset`.

    Parameters
    ----------
    run
        A run, or the folder that `oneof fit` wrote; what people decided is applied.
    columns
        Columns of the training table to copy.

    Returns
    -------
    datasets.Dataset
        The columns of `oneof clean`; `label` is a `ClassLabel`.
    """
    if isinstance(run, Run):
        opened = run
    else:
        opened = Run.open(run)
    table = with_explanations(opened.decided, opened.n_models)
    if columns:
        path = Path(opened.metadata["file"])
        check_unchanged(path, opened)
        source = open_table(path)
        for name in columns:
            if name in table.column_names:
                raise ValueError(
                    f"columns must not have the name of a column of the result; got {name!r}. Leave it out."
                )
            chunks = [values for _, _, values in source.chunks([], [name])]
            table = table.append_column(name, pa.chunked_array(chunks))
    dataset = as_dataset(table)
    decided_labels = set(table["label"].to_pylist())
    classes = [*opened.metadata["classes"], *sorted(decided_labels - set(opened.metadata["classes"]))]
    class_label = load_package("datasets", "a dataset of labels", "ClassLabel", extra=EXTRA)
    return dataset.cast_column("label", class_label(names=classes))


def as_dataset(table: pa.Table) -> Any:
    """Return an Arrow table as a `datasets.Dataset`."""
    make_dataset = load_package("datasets", "a dataset of Hugging Face", "Dataset", extra=EXTRA)
    plain = table.replace_schema_metadata(None)
    columns = {name: plain[name].combine_chunks() for name in plain.column_names}
    return make_dataset(pa.table(columns))
