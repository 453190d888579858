"""The numbers that the paper prints in its tables, and what is wrong with them."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

EXCHANGED = {"kmnist": "fashion-mnist", "fashion-mnist": "kmnist"}  # these columns of Table 1 are swapped


class Printed(NamedTuple):
    """A cell of the paper, in percent."""

    mean: float
    std: float


def printed(table: int, system: str, dataset: str) -> Printed | None:
    """Return a cell as the paper means it, with the swapped columns of Table 1 put right; None if there is no such cell.

    >>> printed(2, "POP", "lost"), printed(1, "POP", "fashion-mnist")
    (Printed(mean=78.57, std=0.45), Printed(mean=91.09, std=0.14))
    """
    column = dataset
    if table == 1:
        column = EXCHANGED.get(dataset, dataset)
    systems = _paper()["tables"].get(str(table), {})
    cells = systems.get(system.removesuffix(" as printed").removesuffix(" as released"), {})
    if column not in cells:
        return None
    mean, std = cells[column]
    return Printed(mean, std)


def errata(table: int) -> list[str]:
    """Return what is wrong in a table of the paper, a note each."""
    return [entry["note"] for entry in _paper()["errata"] if table in entry["tables"]]


@cache
def _paper() -> dict[str, Any]:
    content = files("oneof_paper").joinpath("printed.json").read_text(encoding="utf-8")
    return json.loads(content)  # type: ignore[no-any-return]
