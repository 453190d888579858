"""What the paper prints: its tables' numbers, and what is wrong with them."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

EXCHANGED = {"kmnist": "fashion-mnist", "fashion-mnist": "kmnist"}  # columns of Table 1 in each other's place


class Printed(NamedTuple):
    """A cell of the paper, in percent."""

    mean: float
    std: float


def printed(table: int, system: str, dataset: str) -> Printed | None:
    """A cell as the paper means it: Table 1's exchanged columns are put right. None where there is no such cell.

    >>> printed(2, "POP", "lost"), printed(1, "POP", "fashion-mnist")
    (Printed(mean=78.57, std=0.45), Printed(mean=91.09, std=0.14))
    """
    column = EXCHANGED.get(dataset, dataset) if table == 1 else dataset
    cell = _paper()["tables"].get(str(table), {}).get(system.removesuffix(" as printed"), {}).get(column)
    return None if cell is None else Printed(*cell)


def errata(table: int) -> list[str]:
    """What a reader of this table must know."""
    return [entry["note"] for entry in _paper()["errata"] if table in entry["tables"]]


@cache
def _paper() -> dict[str, Any]:
    return json.loads(files("oneof_paper").joinpath("printed.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]
