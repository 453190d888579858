"""Which column of a table plays which part: what a person asks for, and what that comes to in a given table."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from oneof.storage.did_you_mean import did_you_mean

Kind = Literal["number", "date", "category", "text", "blank", "other"]  # what a column holds


@dataclass(frozen=True)
class Roles:
    """Which column plays which part. A column has one part; what has no part is not read."""

    features: tuple[str, ...] = ("*",)  # names, or globs. Text by its name is a category; of a glob, its values decide
    categories: tuple[str, ...] = ()  # taken as categories, beside the features, even where they are numbers
    text: tuple[str, ...] = ()  # free text
    image: tuple[str, ...] = ()  # names of image files, to embed
    candidates: str | None = "candidates"
    exclude: str | None = None  # labels that a row does not have
    gold: str | None = None  # true labels of some rows
    group: str | None = None  # rows of one group stay on one side of a split
    ignore: tuple[str, ...] = ()  # never a feature
    separator: str = "|"
    empty: str = "error"  # or "unlabelled"
    dates: tuple[str, ...] = ()  # those of the features that hold dates; the reader fills this in
    text_model: str | None = None  # an embedder: a name that sentence-transformers knows, or a folder. None: TF-IDF
    image_model: str | None = None  # a name that timm knows, or a file of weights. None: the one oneof knows
    unpacked: float = 16.0  # gigabytes that a compressed file may hold

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("separator must not be empty; got ''.")
        if not self.unpacked > 0:
            raise ValueError(f"unpacked must be positive; got {self.unpacked}.")
        if self.empty not in ("error", "unlabelled"):
            raise ValueError(f"empty must be 'error' or 'unlabelled'; got {self.empty!r}.")

    @property
    def words(self) -> list[str]:
        """The columns of features that are read as texts."""
        return [*self.categories, *self.text, *self.image]


def resolve_roles(kinds: Mapping[str, Kind], where: str, roles: Roles) -> tuple[Roles, dict[str, str]]:
    """Replace every glob by the columns that it takes.

    Returns the roles, and the columns that match a glob but are not taken by their kind: "text", "blank" or "other". The values of
    the texts among them decide further (`oneof.data.text_columns`).
    """
    parts = [roles.candidates, roles.exclude, roles.gold, roles.group, *roles.words, *roles.ignore]
    taken = [name for name in parts if name]
    for i, name in enumerate(taken):
        check_column(name, list(kinds), where)
        if name in taken[:i]:
            raise ValueError(f"a column must have one part; {where}, column {name!r} was given two. Name it once.")
    free = {name: kind for name, kind in kinds.items() if name not in taken}
    chosen: set[str] = set()
    untaken: dict[str, str] = {}
    for pattern in roles.features:
        for name in _matching(pattern, free, where):
            if name == pattern or free[name] in ("number", "date", "category"):
                chosen.add(name)
            else:
                untaken[name] = free[name]
    words = tuple(name for name, kind in free.items() if name in chosen and kind in ("text", "category", "other"))
    resolved = replace(
        roles,
        features=tuple(name for name in free if name in chosen and name not in words),
        categories=(*roles.categories, *words),
        dates=tuple(name for name, kind in free.items() if name in chosen and kind == "date"),
    )
    return resolved, {name: untaken[name] for name in free if name in untaken and name not in chosen}


def check_column(name: str, columns: Sequence[str], where: str) -> None:
    """Refuse a name that is no column, with the nearest one that is."""
    if name not in columns:
        shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
        raise ValueError(f"column {name!r} must be in {where}; it has {shown or 'none'}.{did_you_mean(name, columns)}")


def _matching(pattern: str, free: Mapping[str, Kind], where: str) -> list[str]:
    """Return the columns that a name or a glob stands for."""
    if pattern in free:
        return [pattern]
    if not any(sign in pattern for sign in "*?["):
        check_column(pattern, list(free), where)
    matches = [name for name in free if fnmatch.fnmatchcase(name, pattern)]
    if not matches and pattern != "*":
        raise ValueError(f"features must match a column; {where} has none for {pattern!r}.")
    return matches
