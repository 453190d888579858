"""Roles of the columns of a table: as a user writes them, and resolved for a table."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from oneof.storage.did_you_mean import did_you_mean

PATCHES = "patches"  # an `image_model` that is learned from the images themselves
SMALLEST_SIDE = 8  # pixels a side that images are read in, at least
LARGEST_SIDE = 512  # at most, where a user asks for it
_NAME_CANDIDATES = (
    "Name the column of candidate labels with --candidates, or give a file of votes to oneof fit with --votes."
)
Kind = Literal["number", "date", "category", "text", "blank", "other"]  # what a column holds


@dataclass(frozen=True)
class Notation:
    """Notation of the numbers or dates in a column of text; `oneof.data.notation` decides and applies it."""

    column: str
    form: str  # "." or ",", the sign of decimals; "time"; or the order of a date, a key of `oneof.data.written.DATE_ORDERS`
    units: Mapping[str, float] = field(default_factory=dict, hash=False)  # of numbers: unit -> factor
    gaps: tuple[str, ...] = ()  # texts that are read as gaps, besides those that are gaps in any column


@dataclass(frozen=True)
class ColumnRoles:
    """Role of each column. A column has at most one role; one without a role is not read."""

    STORED_KIND: ClassVar[str] = "Roles"  # its name in run folders

    # Names or globs. A text column named here is a category; for a glob, see `resolve_roles`.
    features: tuple[str, ...] = ("*",)
    categories: tuple[str, ...] = ()  # further features, read as categories even if they hold numbers
    text: tuple[str, ...] = ()  # free text
    image: tuple[str, ...] = ()  # images: names of files, or bytes
    candidates: str | None = "candidates"  # candidate sets, or columns of 0 and 1, one for each label: "is_*"
    exclude: str | None = None  # labels that a row does not have
    gold: str | None = None  # true labels of some rows
    group: str | None = None  # rows of one group stay on one side of a split
    ignore: tuple[str, ...] = ()  # never a feature
    separator: str = "|"
    empty: str = "error"  # or "unlabelled"
    dates: tuple[str, ...] = ()  # those of the features that hold dates; set by `resolve_roles`
    # Of the features: how text is read as numbers, and the number that stands for a missing value, such as -999.
    notations: tuple[Notation, ...] = field(default=(), metadata={"since": "0.2"})
    placeholders: tuple[tuple[str, float], ...] = field(default=(), metadata={"since": "0.2"})
    origins: tuple[tuple[str, float], ...] = field(
        default=(), metadata={"since": "0.2"}
    )  # subtracted from a column of numbers
    text_model: str | None = None  # embedder of texts: a model of sentence-transformers, or a folder. None: TF-IDF
    # encoder of images: a network of timm, a file of its weights, or "patches" (`oneof.data.patches`). None: train on pixels
    image_model: str | None = None
    image_side: int | None = None  # pixels a side that images are read in; None: by their size
    unpacked: float = 16.0  # gigabytes that a compressed file may unpack to

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("separator must not be empty; got ''.")
        if not self.unpacked > 0:
            raise ValueError(f"unpacked must be positive; got {self.unpacked}.")
        if self.image_side is not None and not SMALLEST_SIDE <= self.image_side <= LARGEST_SIDE:
            limits = f"{SMALLEST_SIDE} to {LARGEST_SIDE}"
            raise ValueError(
                f"side must be {limits} pixels; got {self.image_side}. Leave it out to read small pictures."
            )
        if self.empty not in ("error", "unlabelled"):
            raise ValueError(f"empty must be 'error' or 'unlabelled'; got {self.empty!r}.")

    @property
    def non_numeric(self) -> list[str]:
        """Return the features that are not read as numbers: categories, texts and images."""
        return [*self.categories, *self.text, *self.image]

    @property
    def read_as_numbers(self) -> list[str]:
        """Return the features that a file holds as numbers or as dates."""
        written = {notation.column for notation in self.notations}
        return [name for name in self.features if name not in written]

    @property
    def read_as_cells(self) -> list[str]:
        """Return the features that are read as they are written: those that are not numbers, and numbers in a notation."""
        return [*self.non_numeric, *(notation.column for notation in self.notations)]


def resolve_roles(kinds: Mapping[str, Kind], where: str, roles: ColumnRoles) -> tuple[ColumnRoles, dict[str, str]]:
    """Replace every glob by the columns that it matches.

    Parameters
    ----------
    kinds
        What each column of the table holds.
    where
        What messages call the table.
    roles
        Roles as a user wrote them.

    Returns
    -------
    resolved : ColumnRoles
        Roles without globs: `features` are the columns of numbers and dates, `categories` all categories.
    unassigned : dict
        Columns that match a glob but whose kind, "text", "blank" or "other", is not a feature by itself. The values of the texts
        among them decide further (`oneof.data.text_columns`).
    """
    named = [roles.candidates, roles.exclude, roles.gold, roles.group, *roles.non_numeric, *roles.ignore]
    assigned: list[str] = []
    for name in named:
        if not name:
            continue
        remedy = ""
        if name == roles.candidates:
            remedy = _NAME_CANDIDATES
        check_column(name, list(kinds), where, remedy)
        if name in assigned:
            raise ValueError(f"a column must have one role; {where}, column {name!r} was given two. Name it once.")
        assigned.append(name)
    free = {name: kind for name, kind in kinds.items() if name not in assigned}
    chosen: set[str] = set()
    matched_only: set[str] = set()  # by a glob, and of a kind that is not a feature by itself
    for pattern in roles.features:
        for name in _matching(pattern, free, where):
            if name == pattern or free[name] in ("number", "date", "category"):
                chosen.add(name)
            else:
                matched_only.add(name)
    features = []
    categories = list(roles.categories)
    dates = []
    unassigned: dict[str, str] = {}
    for name, kind in free.items():
        if name in chosen:
            if kind in ("text", "category", "other"):
                categories.append(name)
            else:
                features.append(name)
            if kind == "date":
                dates.append(name)
        elif name in matched_only:
            unassigned[name] = kind
    resolved = replace(roles, features=tuple(features), categories=tuple(categories), dates=tuple(dates))
    return resolved, unassigned


def check_column(name: str, columns: Sequence[str], where: str, remedy: str = "") -> None:
    """Raise if there is no column of that name, and suggest the nearest one, or else the remedy."""
    if name in columns:
        return
    shown = ", ".join(columns[:8])
    if len(columns) > 8:
        shown += ", ..."
    hint = did_you_mean(name, columns)
    if remedy and not hint:
        hint = f" {remedy}"
    raise ValueError(f"column {name!r} must be in {where}; it has {shown or 'none'}.{hint}")


def _matching(pattern: str, free: Mapping[str, Kind], where: str) -> list[str]:
    """Return the columns that a name or a glob matches."""
    if pattern in free:
        return [pattern]
    is_glob = any(character in pattern for character in "*?[")
    if not is_glob:
        check_column(pattern, list(free), where)
    matches = [name for name in free if fnmatch.fnmatchcase(name, pattern)]
    if not matches and pattern != "*":
        raise ValueError(f"features must match a column; {where} has none for {pattern!r}.")
    return matches
