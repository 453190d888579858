"""What people decided about the rows of a run: the log, what all answers about a row come to, and the table as they left it.

The log is a file of JSON lines that only grows; an undo is a line too. A decision is on the disk before anybody is told that it
was taken. Several people, and several processes, may write at once. What a person said is final.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.storage.regular import check_regular
from oneof.storage.rows import append
from oneof.storage.schema import NOTHING, NUMBER, first_misfit

DECISIONS = "decisions.jsonl"
GOLD = "gold"  # who decided where a column of true labels did
KINDS = {"label", "set", "none", "skip"}
DRAWN = {"queue", "random", "repeat"}
_LINE = {"id": str, "who": str, "when": str}
_DECISION = _LINE | {
    "row": int, "kind": KINDS, "labels": [str], "run": str, "before": [str], "suggested": (str, NOTHING), "drawn": DRAWN, "seconds": NUMBER,
}  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Decision:
    """One answer of one person about one row."""

    row: int
    kind: str  # "label": this one; "set": unsure, but one of these; "none": none of the set; "skip": looked at and left
    labels: tuple[str, ...]  # the label; what is left of the set; for "none" the label that was typed, if any
    who: str
    run: str = ""  # fingerprint of the run that was looked at
    before: tuple[str, ...] = ()  # the set that was shown
    suggested: str | None = None  # the label that the run gave the row
    drawn: str = "queue"  # why the row was shown: worth asking, drawn at random, or a blind repeat
    seconds: float = 0.0
    id: str = field(default_factory=lambda: uuid4().hex)
    when: str = field(default_factory=_now)

    @property
    def label(self) -> str | None:
        """The one label that was named, if one was."""
        return self.labels[0] if self.kind in ("label", "none") and self.labels else None


class Verdict(NamedTuple):
    """What all answers about a row come to."""

    label: str | None  # final; None: the row is still a set
    labels: tuple[str, ...]  # what is left of the set; (): nobody shrank it
    excluded: tuple[str, ...]  # labels that were said to be wrong
    by: tuple[str, ...]  # who said so
    disputed: bool  # other people named other labels

    def leaves(self, labels: Sequence[str]) -> list[bool]:
        """Which of these labels may still be right."""
        return [label in self.labels if self.labels else label not in self.excluded for label in labels]


class Log:
    """The decisions in a run's folder, as far as they were read; every change goes to the file first."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DECISIONS
        self.torn = 0  # bytes of a last line that a killed writer left; the next line moves them to a file beside
        self._inode = -1
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        """Be as if nothing of the file had been read."""
        self._read = 0  # bytes
        self._lines = 0
        self._standing: dict[str, Decision] = {}
        self._undone: set[str] = set()

    @property
    def standing(self) -> list[Decision]:
        """The decisions that were not undone, in the order in which they were taken."""
        return list(self._standing.values())

    def refresh(self) -> None:
        """Read what was written since, by whomever; read all of it anew if the file was replaced or has become shorter."""
        check_regular(self.path, links=False)
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return
        if found.st_ino != self._inode or found.st_size < self._read:
            self._forget()
            self._inode = found.st_ino
        if found.st_size == self._read:
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content.rfind(b"\n") + 1
        self.torn = len(content) - whole
        self._read += whole
        for line in content[:whole].splitlines():
            self._lines += 1
            self._take(line)

    def write(self, *decisions: Decision) -> None:
        """Append decisions; one that is there already (a browser may send it twice) is not written again."""
        self.refresh()
        known = {*self._standing, *self._undone}
        self._append(*(asdict(one) for one in decisions if one.id not in known))

    def undo(self, who: str, decision_id: str | None = None) -> Decision | None:
        """Take back the person's last decision that stands, or the one with this id; return it, or None if there is none."""
        self.refresh()
        for decision in reversed(self.standing):
            if decision.who == who and decision_id in (None, decision.id):
                self.retract(decision.id, who)
                return decision
        return None

    def retract(self, decision: str, who: str) -> None:
        self._append({"undoes": decision, "who": who, "id": uuid4().hex, "when": _now()})

    def _append(self, *lines: dict[str, Any]) -> None:
        if lines:
            append(self.path, lines)
            self.refresh()

    def _take(self, text: bytes) -> None:
        """Read one line: a decision, or that one is undone."""
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        undo = isinstance(line, dict) and "undoes" in line
        if misfit := first_misfit(line, _LINE | {"undoes": str} if undo else _DECISION):
            where = f"in line {self._lines} {misfit}"
            raise ValueError(f"{self.path} must hold a decision per line; {where}. Delete the line.")
        if undo:
            self._standing.pop(line["undoes"], None)
            self._undone.add(line["undoes"])
        elif line["id"] not in self._undone:
            lists = {name: tuple(line[name]) for name in ("labels", "before")}
            known = {name: line[name] for name in Decision.__dataclass_fields__}
            self._standing.setdefault(line["id"], Decision(**known | lists))


def verdicts(standing: Iterable[Decision]) -> dict[int, Verdict]:
    """What the answers about each row come to.

    The last answer of each person counts. A label with most votes is final, of equals the first; sets that people left are cut
    with each other. A blind repeat only shows how far people agree, and a skip says nothing.
    """
    rows: dict[int, dict[str, Decision]] = {}
    for one in standing:
        if one.kind != "skip" and one.drawn != "repeat":
            rows.setdefault(one.row, {})[one.who] = one
    found = {}
    for row, last in rows.items():
        answers = list(last.values())
        named = [one.label for one in answers if one.label is not None]
        excluded = dict.fromkeys(label for one in answers if one.kind == "none" for label in one.before)
        sets = [one.labels for one in answers if one.kind == "set"]
        common = tuple(label for label in (sets or [()])[0] if all(label in other for other in sets))
        left, label = common or tuple(dict.fromkeys(label for one in sets for label in one)), None
        if named:
            label = max(dict.fromkeys(named), key=named.count)  # of equals the first
            left, excluded = (label,), {other: None for other in excluded if other != label}
        by = tuple(one.who for one in answers if label is None or one.label == label)
        found[row] = Verdict(label, left, tuple(excluded), by, len(set(named)) > 1)
    return found


def decided_table(purified: pa.Table, said: Mapping[int, Verdict]) -> pa.Table:
    """The table with decided labels, nothing asked about them, and the columns `decided` (is the label final?) and `by`.

    Gold labels are decisions too; what people said in a review comes before them.
    """
    n = purified.num_rows
    all_said = gold_verdicts(purified) | {row: one for row, one in said.items() if 0 <= row < n}
    rows = sorted(all_said)
    old = purified.take(pa.array(rows, pa.int64())).to_pylist()
    new = [_decided(row, all_said[place]) for place, row in zip(rows, old, strict=True)]
    source, final = np.arange(n), np.zeros(n, dtype=bool)
    source[rows] = n + np.arange(len(rows))
    final[rows] = [all_said[row].label is not None for row in rows]
    by = [", ".join(all_said[row].by) if row in all_said else None for row in range(n)]
    whole = purified
    if rows:  # a copy of all columns
        whole = pa.concat_tables([purified, pa.Table.from_pylist(new, schema=purified.schema)]).take(pa.array(source))
    return whole.append_column("decided", [final]).append_column("by", [pa.array(by, pa.string())])


def gold_verdicts(purified: pa.Table) -> dict[int, Verdict]:
    if "gold" not in purified.column_names:
        return {}
    named = enumerate(purified["gold"].to_pylist())
    return {row: Verdict(label, (label,), (), (GOLD,), False) for row, label in named if label is not None}


def _decided(row: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    """A row of the purified table after a verdict: the model chooses among what people left."""
    given, shares = row["original"], row["distribution"]
    row |= {"ask": False, "gain": 0.0}
    if verdict.label is not None:
        row |= {"label": verdict.label, "kept": [verdict.label], "probability": 1.0, "margin": 1.0, "outside": None}
        return row | {"distribution": [float(label == verdict.label) for label in given]}
    left = verdict.leaves(given)
    if not any(left):
        return row
    inside = [share * stays for share, stays in zip(shares, left, strict=True)]
    inside = [share / (sum(inside) or 1.0) for share in inside]
    first, second = (*sorted(inside, reverse=True), 0.0)[:2]
    kept = [label for label, stays in zip(given, left, strict=True) if stays]
    label = given[inside.index(first)]
    return row | {"label": label, "kept": kept, "probability": first, "margin": first - second, "distribution": inside}


def decided_sets(
    mask: NDArray[np.bool_], classes: Sequence[str], said: Mapping[int, Verdict]
) -> tuple[NDArray[np.bool_], list[str]]:
    """The sets [n, c] to learn from: decided rows are sets of one, others shrink or widen; typed labels become classes."""
    names = list(dict.fromkeys([*classes, *(one.label for _, one in sorted(said.items()) if one.label is not None)]))
    sets = np.zeros((len(mask), len(names)), dtype=bool)
    sets[:, : mask.shape[1]] = mask
    for row, one in said.items():
        left = one.leaves(names)
        if any(left):
            sets[row] = left
    return sets, names
