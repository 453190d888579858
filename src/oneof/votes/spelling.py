"""Spelling: which labels the text of an answer names, or means where it is no plain label.

A vote for a parent in a taxonomy is one for all leaves below it, "not X" one for every label but X: both are vague
answers of several labels. "unsure" is no vote. A name that `classes` has is always a label.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.candidates.read import show
from oneof.storage.did_you_mean import did_you_mean
from oneof.votes.tables import load, load_json

Integers = NDArray[np.intp]
UNSURE = {"unsure", "not sure", "i'm not sure", "don't know", "i don't know", "can't tell", "cannot tell", "?"}
"""Answers, in small letters, that name nothing."""


class Taxonomy:
    """Labels below labels, from pairs (child, parent); a child may have several parents."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        children: dict[str, list[str]] = {}
        for child, parent in pairs:
            children.setdefault(parent, []).append(child)
        self.parents = list(children)
        self._leaves: dict[str, list[str]] = {}
        try:  # what is below comes first
            for name in TopologicalSorter(children).static_order():
                below = [leaf for child in children.get(name, ()) for leaf in self.leaves(child)]
                self._leaves[name] = list(dict.fromkeys(below)) or [name]
        except CycleError as error:
            cycle = " > ".join(reversed(error.args[1]))
            raise ValueError(f"a taxonomy must have no cycle; it has {cycle}. Drop one of these lines.") from error

    def leaves(self, name: str) -> list[str]:
        """The leaves below a label; a leaf, or a label that is not in the taxonomy, is its own."""
        return self._leaves.get(name, [name])


@dataclass(frozen=True)
class Spelling:
    """How a text becomes labels: looked up whole, separated, and each part stripped and looked up.

    A text that is mapped to nothing ("I cannot tell" -> "") is no answer.

    >>> list(Spelling(separator="|", synonyms={"kitty": "cat"}).reader()("kitty|dog"))
    ['cat', 'dog']
    """

    separator: str | None = None  # between the labels of one answer
    synonyms: Mapping[str, str] = field(default_factory=dict)
    normalise: bool = False  # strip and casefold texts, synonyms and classes before they are compared
    classes: Sequence[str] | None = None  # the whole vocabulary, in order; by default the labels that occur, sorted
    taxonomy: Taxonomy | None = None  # a vote for a parent is one for all leaves below it

    def reader(self) -> Callable[[str], Iterable[str]]:
        """A function from a text to the distinct labels that it names."""
        if self.separator == "":
            raise ValueError("separator must not be empty; leave it out where an answer is one label.")
        known = self._folded("classes", {name: name for name in self.classes or ()})
        synonyms = self._folded("synonyms", self.synonyms)

        def read(text: str) -> Iterable[str]:
            whole = synonyms.get(self._fold(text), text)
            parts = map(self._fold, whole.split(self.separator) if self.separator else [whole])
            meant = (synonyms.get(part, part) for part in parts)
            return dict.fromkeys(label for label in (known.get(self._fold(to), to) for to in meant) if label)

        return read

    def _fold(self, text: str) -> str:
        if self.normalise:
            return text.strip().casefold()
        return text.strip() if self.separator else text  # in "cat, dog" the blank belongs to the comma

    def _folded(self, what: str, names: Mapping[str, str]) -> dict[str, str]:
        """The mapping with its keys normalised, where that makes no two meanings one."""
        folded: dict[str, str] = {}
        for key, value in names.items():
            if folded.setdefault(self._fold(key), value) != value:
                raise ValueError(f"{what} must stay distinct when normalised; {key!r} and another are the same then.")
        return folded


AS_WRITTEN = Spelling()


def understand(
    named: list[list[str]], count: Sequence[int], classes: Sequence[str] | None, taxonomy: Taxonomy | None
) -> tuple[list[list[str]], list[str]]:
    """The labels that every distinct answer means, of the names in it, and remarks; `count` says how many gave it."""
    known, tree = set(classes or ()), taxonomy or Taxonomy(())
    silent, of, spread = 0, Counter[str](), []
    for names, times in zip(named, count, strict=True):
        unsure = len(names) == 1 and names[0].casefold() in UNSURE - known
        silent += times * unsure
        spread.append({} if unsure else dict.fromkeys(chain.from_iterable(map(tree.leaves, names)), times))
        of.update(spread[-1])
    meant = _negations(known | of.keys(), known, tree)
    found = [list(dict.fromkeys(chain.from_iterable(meant.get(name, [name]) for name in names))) for names in spread]
    return found, list(_remarks(silent, meant, of, known))


def _negations(vocabulary: Iterable[str], known: set[str], tree: Taxonomy) -> Mapping[str, list[str]]:
    """What every "not X" means whose X is a label or a parent; a name that would mean nothing else is a label itself."""
    candidates = {name: name[4:].strip() for name in vocabulary if name[:4].casefold() == "not " and name not in known}
    plain = sorted(set(vocabulary) - candidates.keys())
    folded = {name.casefold(): name for name in [*tree.parents, *plain]}
    meant = {}
    for name, denied in candidates.items():
        below = set(tree.leaves(folded.get(denied.casefold(), denied)))
        rest = [label for label in plain if label not in below]
        if below & set(plain) and rest:
            meant[name] = rest
    return meant


def _remarks(unsure: int, meant: Mapping[str, list[str]], of: Mapping[str, int], known: set[str]) -> Iterable[str]:
    if unsure:
        yield f"{unsure:,} answers say that somebody is unsure: they are no votes."
    for name in list(meant)[:3]:
        yield f"{of[name]:,} answers {name!r} are votes for every other label. Name all labels as classes if it is a label itself."
    alone = [name for name, times in of.items() if times == 1 and name not in known and name not in meant]
    if alone and len(of) - len(alone) > 1:
        shown = ", ".join(map(repr, alone[:3])) + (", ..." if len(alone) > 3 else "")
        yield f"{len(alone):,} labels were named once ({shown}) and stay labels. Map them to others if they are misspelt."


def spell(
    texts: Any, spelling: Spelling, place: Callable[[int], str]
) -> tuple[list[str], Integers, Integers, list[str]]:
    """All labels [c]; the text (ascending) and the label of each of the m labels that r texts name; remarks."""
    # Every distinct text of an Arrow array is read once; `place` says where a text stands.
    encoded = texts.dictionary_encode()
    code = encoded.indices.to_numpy().astype(np.intp)  # [r]
    read = list(map(list, map(spelling.reader(), encoded.dictionary.to_pylist())))
    often = np.bincount(code, minlength=len(read)).tolist()
    named, remarks = understand(read, often, spelling.classes, spelling.taxonomy)
    labels = sorted(set(chain.from_iterable(named))) if spelling.classes is None else list(spelling.classes)
    wrong = next((name for j, name in enumerate(spelling.classes or ()) if not name or name in labels[:j]), None)
    if wrong is not None:
        raise ValueError(f"classes must be distinct names; got {wrong!r}{' twice' if wrong else ''}.")
    column = {name: j for j, name in enumerate(labels)}
    for u, name in ((u, name) for u, names in enumerate(named) for name in names if name not in column):
        at = place(int((code == u).argmax()))
        advice = f"{did_you_mean(name, labels)} Map it, or add it to the classes."
        raise ValueError(f"labels must be among the classes {show(labels)}; got {name!r} in {at}.{advice}")
    meant = pa.array([[column[name] for name in names] for names in named], pa.list_(pa.int64())).take(code)
    return labels, pc.list_parent_indices(meant).to_numpy(), pc.list_flatten(meant).to_numpy(), remarks


def read_map(path: str | Path) -> dict[str, str]:
    """Read synonyms: a table with the columns `from` and `to`, or a JSON object of texts; an empty `to` drops the answer."""
    synonyms: dict[str, str] = {}
    for source, target in _pairs(Path(path), "from", "to"):
        if synonyms.setdefault(source, target) != target:
            got = f"{path} maps {source!r} to {synonyms[source]!r} and {target!r}."
            raise ValueError(f"a map must give each text one meaning; {got}")
    return synonyms


def read_taxonomy(path: str | Path) -> Taxonomy:
    """Read labels below labels: a table with the columns `child` and `parent`, or a JSON object {child: parent}."""
    try:
        return Taxonomy((child, parent) for child, parent in _pairs(Path(path), "child", "parent") if parent)
    except ValueError as error:
        raise ValueError(f"{error} ({path})") from error


def _pairs(path: Path, key: str, value: str) -> Iterable[tuple[str, str]]:
    """Two columns of a table, or the members of a JSON object."""
    if path.suffix.lower() != ".json":
        table = load(path, [key], [value])
        return zip(table.strings(key).to_pylist(), table.strings(value).fill_null("").to_pylist(), strict=True)
    given = load_json(path)
    if not isinstance(given, dict) or not all(isinstance(to, str) for to in given.values()):
        raise ValueError(f'a map in JSON must be one object of texts, as {{"kitty": "cat"}}; {path} is not.')
    return given.items()
