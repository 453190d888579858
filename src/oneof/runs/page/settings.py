"""What was tried: the rows of the search, only the columns in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oneof.metrics import CRITERIA, MEANS

_SHOWN = 15
_SCORES = (*MEANS, *CRITERIA)  # truth-free; the first that is there sorts, all are shown last
_APART = {"seconds", "device", "oneof", "torch", "commit", "seed", "epoch", "loss", "set_size"}  # how, not what


class Settings(NamedTuple):
    """The best rows by the first truth-free score that they have."""

    columns: list[str]
    shown: list[list[str]]
    tried: int
    chosen: list[tuple[str, str]]  # name and value, or values


def list_settings(results: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any] | Sequence[Any]) -> Settings:
    """Tell the rows apart by what differs between them; an ensemble may have several chosen settings."""
    scores = [name for name in _SCORES if any(name in row for row in results)]
    names = list(dict.fromkeys(name for row in results for name in row))
    differing = [
        name for name in names if name not in _APART | set(_SCORES) and len({str(row.get(name)) for row in results}) > 1
    ]
    columns = [*differing, *scores]
    best = sorted(results, key=lambda row: -_number(row.get(scores[0])) if scores else 0)
    shown = [[_plain(row.get(name)) for name in columns] for row in best[:_SHOWN]]
    return Settings(columns, shown, len(results), _merged([chosen] if isinstance(chosen, Mapping) else chosen))


def _merged(chosen: Sequence[Any]) -> list[tuple[str, str]]:
    """Every name with the values that it takes; settings without names stand as they are.

    >>> _merged([{"lr": 0.1, "scaling": "ranks"}, {"lr": 0.1, "scaling": "root"}])
    [('lr', '0.1'), ('scaling', 'ranks; root')]
    >>> _merged([[[256], "ranks", 0.1]])
    [('setting', '((256), ranks, 0.1)')]
    """
    settings = [each if isinstance(each, Mapping) else {"setting": each} for each in chosen]
    names = dict.fromkeys(name for setting in settings for name in setting)
    values = {name: dict.fromkeys(_plain(setting[name]) for setting in settings if name in setting) for name in names}
    return [(name, "; ".join(found)) for name, found in values.items()]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("-inf")


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return str(value)
