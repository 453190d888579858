"""Answers that are no plain label: a parent in a taxonomy, "not X", "unsure".

A vote for a parent is one for all leaves below it, "not X" one for every label but X: both are vague answers of several labels.
"unsure" is no vote. A name that `classes` has is always a label.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

UNSURE = frozenset(
    {"unsure", "not sure", "i'm not sure", "don't know", "i don't know", "can't tell", "cannot tell", "?"}
)
"""Answers, in small letters, that name nothing."""


class Taxonomy:
    """Labels below labels, from pairs (child, parent); a child may have several parents.

    >>> Taxonomy([("cat", "pet"), ("dog", "pet"), ("pet", "animal"), ("wolf", "animal")]).leaves("animal")
    ['cat', 'dog', 'wolf']
    >>> Taxonomy([("cat", "pet"), ("pet", "cat")])
    Traceback (most recent call last):
    ValueError: a taxonomy must have no cycle; it has pet > cat > pet. Drop one of these lines.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._children: dict[str, list[str]] = {}
        for child, parent in pairs:
            self._children.setdefault(parent, []).append(child)
        self._leaves: dict[str, list[str]] = {}
        for top in self._children:
            self._find(top)

    @property
    def parents(self) -> list[str]:
        """Labels with others below them."""
        return list(self._children)

    def leaves(self, name: str) -> list[str]:
        """The leaves below a label; a leaf, or a label that is not in the taxonomy, is its own."""
        return self._leaves.get(name, [name])

    def _find(self, top: str) -> None:
        """Fill in the leaves of everything below `top`, without recursion: a chain may be long."""
        path, left = [top], [iter(self._children[top])]
        while path:
            child = next(left[-1], None)
            if child is None:
                own = chain.from_iterable(map(self.leaves, self._children[path[-1]]))
                self._leaves[path.pop()] = list(dict.fromkeys(own))
                left.pop()
            elif child in path:
                cycle = " > ".join([*path[path.index(child) :], child])
                raise ValueError(f"a taxonomy must have no cycle; it has {cycle}. Drop one of these lines.")
            elif child in self._children and child not in self._leaves:
                path.append(child)
                left.append(iter(self._children[child]))


class Understood(NamedTuple):
    """Labels in the place of what was said, and lines for a person about it."""

    named: list[list[str]]
    remarks: list[str]


def understand(
    named: list[list[str]], count: Sequence[int], classes: Sequence[str] | None, taxonomy: Taxonomy | None
) -> Understood:
    """Find the labels that every distinct answer means, of the names in it; `count` says how many gave the answer.

    >>> understand([["cat"], ["dog"], ["not cat"], ["fox"], ["Unsure"]], [3, 2, 1, 1, 4], None, None).named
    [['cat'], ['dog'], ['dog', 'fox'], ['fox'], []]
    """
    known = set(classes or ())
    unsure = [names[0].casefold() in UNSURE - known if len(names) == 1 else False for names in named]
    tree = taxonomy or Taxonomy(())
    spread = [
        [] if nothing else list(dict.fromkeys(chain.from_iterable(map(tree.leaves, names))))
        for names, nothing in zip(named, unsure, strict=True)
    ]
    said = dict.fromkeys(chain.from_iterable(spread))
    meant = _negations(known | said.keys(), known, tree)
    found = [list(dict.fromkeys(chain.from_iterable(meant.get(name, [name]) for name in names))) for names in spread]
    of = dict.fromkeys(said, 0)
    for names, times in zip(spread, count, strict=True):
        of.update((name, of[name] + times) for name in names)
    return Understood(
        found, list(_remarks(sum(c for c, no in zip(count, unsure, strict=True) if no), meant, of, known))
    )


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
