"""Read Hugging Face datasets as Arrow tables, with the names of classes in place of their numbers.

They are recognised by their attributes, so that the package `datasets` is not imported here.
"""

from typing import Any

import pyarrow as pa


def is_dataset(table: Any) -> bool:
    """Return whether a table is a `datasets.Dataset`."""
    return all(hasattr(table, name) for name in ("with_format", "features", "column_names"))


def is_dataset_column(values: Any) -> bool:
    """Return whether values are a column of a `datasets.Dataset`, as `dataset["name"]` returns it."""
    return hasattr(values, "column_name") and is_dataset(getattr(values, "source", None))


def dataset_table(dataset: Any) -> pa.Table:
    """Return a dataset as an Arrow table; the numbers of a `ClassLabel` column become names of classes."""
    table = pa.table(dataset.with_format("arrow")[:])
    for position, name in enumerate(table.column_names):
        names = _class_names(dataset.features[name])
        if names is not None:
            table = table.set_column(position, name, _name_classes(table[name], names))
    return table.replace_schema_metadata(None)


def column_values(column: Any) -> list[Any]:
    """Return the values of a column of a dataset, with the names of classes in place of numbers."""
    table = dataset_table(column.source.select_columns([column.column_name]))
    values: list[Any] = table.column(0).to_pylist()
    return values


def _class_names(feature: Any) -> list[str] | None:
    """Return the names of the classes of a column, or of lists in it; None for other columns."""
    element = getattr(feature, "feature", feature)
    return getattr(element, "names", None)


def _name_classes(column: pa.ChunkedArray, names: list[str]) -> pa.Array:
    """Replace the numbers of classes in a column, or in a column of lists, by names; -1 is a missing value."""
    cells = column.to_pylist()
    if not pa.types.is_list(column.type):
        return pa.array([_name(number, names) for number in cells], pa.string())
    lists: list[list[str | None] | None] = []
    for numbers in cells:
        if numbers is None:
            lists.append(None)
        else:
            lists.append([_name(number, names) for number in numbers])
    return pa.array(lists, pa.list_(pa.string()))


def _name(number: int | None, names: list[str]) -> str | None:
    if number is None or number < 0:
        return None
    return names[number]
