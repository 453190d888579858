"""Store what people decided about the rows of a run, and apply it to the purified table and to the sets to learn from.

The log is a file of JSON lines that only grows; an undo is a line too. A decision is on the disk before it is acknowledged.
Several people, and several processes, may write at once. Lines that are damaged, or that do not belong to the run, are reported
and ignored; they stay in the file.
"""

import hashlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.storage.regular import check_regular, read_regular
from oneof.storage.rows import append
from oneof.storage.schema import NOTHING, NUMBER, find_schema_error
from oneof.storage.strict_json import parse_json

DECISIONS = "decisions.jsonl"
GOLD = "gold"  # `by` of rows that a column of true labels decided
KINDS = {"label", "set", "none", "skip"}
DRAWN = {"queue", "random", "repeat"}
_LINE = {"id": str, "who": str, "when": str}
_UNDO = {**_LINE, "undoes": str}
_DECISION = {
    **_LINE,
    "row": int,
    "kind": KINDS,
    "labels": [str],
    "run": str,
    "before": [str],
    "suggested": (str, NOTHING),
    "drawn": DRAWN,
    "seconds": NUMBER,
}
_MAX_LOG_BYTES = 1 << 30  # some millions of decisions
_MAX_REPORTED = 5  # ignored lines that a message describes
_logger = logging.getLogger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Decision:
    """One answer of one person about one row."""

    row: int
    kind: str  # "label": this one; "set": one of these; "none": none of the candidates; "skip": left undecided
    labels: tuple[str, ...]  # the label; what is left of the set; for "none" the label that was typed, if any
    who: str
    run: str = ""  # id of the run that was reviewed
    before: tuple[str, ...] = ()  # the candidates that were shown
    suggested: str | None = None  # the label that the run gave the row
    drawn: str = "queue"  # why the row was shown: from the queue, drawn at random, or a blind repeat
    seconds: float = 0.0
    id: str = field(default_factory=lambda: uuid4().hex)
    when: str = field(default_factory=_now)

    @property
    def label(self) -> str | None:
        """Return the label that was chosen or typed, or None if the answer does not settle on one."""
        if self.kind in ("label", "none") and self.labels:
            return self.labels[0]
        return None


class ResolvedDecision(NamedTuple):
    """The combination of all answers about a row."""

    label: str | None  # final label; None if the row is still a set
    remaining: tuple[str, ...]  # candidates that are left; empty if nobody shrank the set
    excluded: tuple[str, ...]  # labels that people rejected
    by: tuple[str, ...]  # the people whose answers this follows
    disputed: bool  # people chose different labels

    def allows(self, label: str) -> bool:
        """Return whether a label may still be right."""
        if self.remaining:
            return label in self.remaining
        return label not in self.excluded


class Log:
    """Read and write the decisions in a run's folder; every change goes to the file first.

    Parameters
    ----------
    folder : Path
        The run's folder.
    candidates : sequence [n] of lists, optional
        The sets of the run. Decisions about rows that do not exist, or that were shown with other candidates, belong to
        another run; they are reported and ignored.
    """

    def __init__(self, folder: Path, candidates: Sequence[Any] | None = None) -> None:
        self.path = folder / DECISIONS
        self.truncated_bytes = 0  # of an incomplete last line; the next write moves it to another file
        self._candidates = candidates
        self._stamp: tuple[int, ...] = ()
        self._reset()
        self.refresh()

    def _reset(self) -> None:
        """Forget everything that was read."""
        self._n_bytes = 0
        self._digest = hashlib.sha256()  # of these bytes
        self._n_lines = 0
        self._active: dict[str, Decision] = {}
        self._undone: set[str] = set()

    @property
    def active_decisions(self) -> list[Decision]:
        """Return the decisions that were not undone, in the order in which they were made."""
        return list(self._active.values())

    def refresh(self) -> None:
        """Read what was written since the last call; read everything again if earlier lines have changed."""
        check_regular(self.path, links=False)
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._reset()
            self._stamp = ()
            self.truncated_bytes = 0
            return
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == self._stamp:
            return
        content = read_regular(self.path, _MAX_LOG_BYTES)
        self._stamp = stamp
        if hashlib.sha256(content[: self._n_bytes]).digest() != self._digest.digest():
            self._reset()
        end = content.rfind(b"\n") + 1
        new = content[self._n_bytes : end]
        self._digest.update(new)
        self._n_bytes = end
        self.truncated_bytes = len(content) - end
        self._read_lines(new)

    def _read_lines(self, content: bytes) -> None:
        """Read complete lines, and report those that are ignored."""
        problems = []
        for line in content.splitlines():
            self._n_lines += 1
            problem = self._read_line(line)
            if problem is not None:
                problems.append(f"line {self._n_lines} ({problem})")
        if problems:
            described = ", ".join(problems[:_MAX_REPORTED])
            more = len(problems) - _MAX_REPORTED
            if more > 0:
                described += f" and {more:,} more"
            _logger.warning(f"decisions are ignored in {self.path}: {described}.")

    def _read_line(self, text: bytes) -> str | None:
        """Read a decision or an undo; return why the line is ignored, or None."""
        try:
            line = parse_json(text)
        except ValueError as error:
            return f"it is not JSON that can be kept: {error}"
        if isinstance(line, dict) and "undoes" in line:
            problem = find_schema_error(line, _UNDO)
            if problem is None:
                self._active.pop(line["undoes"], None)
                self._undone.add(line["undoes"])
            return problem
        problem = find_schema_error(line, _DECISION)
        if problem is not None:
            return problem
        values = {column.name: line[column.name] for column in fields(Decision)}
        values["labels"] = tuple(values["labels"])
        values["before"] = tuple(values["before"])
        decision = Decision(**values)
        problem = self._foreign(decision)
        if problem is None and decision.id not in self._undone:
            self._active.setdefault(decision.id, decision)
        return problem

    def _foreign(self, decision: Decision) -> str | None:
        """Return why a decision does not belong to the run, or None."""
        if self._candidates is None:
            return None
        row = decision.row
        if not 0 <= row < len(self._candidates):
            return f"the run has no row {row}"
        candidates = self._candidates[row]
        if isinstance(candidates, pa.Scalar):
            candidates = candidates.as_py()
        if decision.before and set(decision.before) != set(candidates):
            return f"row {row} has other candidates in this run"
        return None

    def write(self, *decisions: Decision) -> None:
        """Append decisions, except those that are in the log already: a browser may send one twice."""
        self.refresh()
        lines = []
        for decision in decisions:
            if decision.id not in self._active and decision.id not in self._undone:
                lines.append(asdict(decision))
        self._append(*lines)

    def undo(self, who: str, decision_id: str | None = None) -> Decision | None:
        """Undo the last decision of a person, or the one with this id, and return it; None if there is none."""
        self.refresh()
        for decision in reversed(self.active_decisions):
            if decision.who == who and decision_id in (None, decision.id):
                self.retract(decision.id, who)
                return decision
        return None

    def retract(self, decision_id: str, who: str) -> None:
        """Append a line that undoes a decision."""
        self._append({"undoes": decision_id, "who": who, "id": uuid4().hex, "when": _now()})

    def _append(self, *lines: dict[str, Any]) -> None:
        if lines:
            append(self.path, lines)
            self.refresh()


def resolve_decisions(decisions: Iterable[Decision]) -> dict[int, ResolvedDecision]:
    """Combine the answers about each row.

    The last answer of each person counts. The label that most people chose is final, the first one if several are equal.
    Sets that people left are intersected. Blind repeats, which measure agreement, and skips do not count.
    """
    answers_by_row: dict[int, dict[str, Decision]] = {}
    for decision in decisions:
        if decision.kind != "skip" and decision.drawn != "repeat":
            answers_by_row.setdefault(decision.row, {})[decision.who] = decision
    resolved = {}
    for row, last_answers in answers_by_row.items():
        resolved[row] = _resolve(list(last_answers.values()))
    return resolved


def _resolve(answers: list[Decision]) -> ResolvedDecision:
    """Combine the last answers of all people about one row."""
    chosen: list[str] = []
    sets: list[tuple[str, ...]] = []
    excluded: list[str] = []
    for answer in answers:
        if answer.label is not None:
            chosen.append(answer.label)
        if answer.kind == "set":
            sets.append(answer.labels)
        if answer.kind == "none":
            excluded.extend(answer.before)
    disputed = len(set(chosen)) > 1
    if not chosen:
        everybody = tuple(answer.who for answer in answers)
        return ResolvedDecision(None, _common_labels(sets), _distinct(excluded), everybody, disputed)
    label = max(_distinct(chosen), key=chosen.count)  # the first of the most frequent ones
    rejected = list(_distinct(excluded))
    if label in rejected:
        rejected.remove(label)
    by = []
    for answer in answers:
        if answer.label == label:
            by.append(answer.who)
    return ResolvedDecision(label, (label,), tuple(rejected), tuple(by), disputed)


def _common_labels(sets: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels that are in all sets, or in any set if they have none in common."""
    if not sets:
        return ()
    common = []
    for label in sets[0]:
        if all(label in labels for labels in sets):
            common.append(label)
    if common:
        return tuple(common)
    return _distinct(itertools.chain.from_iterable(sets))


def _distinct(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels without repetition, in the order in which they first occur."""
    return tuple(dict.fromkeys(labels))


def decided_table(purified: pa.Table, decisions: Mapping[int, ResolvedDecision]) -> pa.Table:
    """Return the purified table with the decisions applied, and two more columns.

    `decided` is whether the label is final; `by` names who decided. Gold labels count as decisions; those of people take
    precedence.
    """
    n = purified.num_rows
    applied = gold_decisions(purified)
    for row, decision in decisions.items():
        if 0 <= row < n:
            applied[row] = decision
    rows = sorted(applied)
    changed = []
    for row, cells in zip(rows, purified.take(pa.array(rows, pa.int64())).to_pylist(), strict=True):
        changed.append(_apply(cells, applied[row]))
    is_final = np.zeros(n, dtype=bool)
    by: list[str | None] = [None] * n
    for row in rows:
        is_final[row] = applied[row].label is not None
        by[row] = ", ".join(applied[row].by)
    table = purified
    if rows:  # otherwise no copy of all columns is made
        source = np.arange(n)
        source[rows] = n + np.arange(len(rows))
        appended = pa.concat_tables([purified, pa.Table.from_pylist(changed, schema=purified.schema)])
        table = appended.take(pa.array(source))
    table = table.append_column("decided", [is_final])
    return table.append_column("by", [pa.array(by, pa.string())])


def gold_decisions(purified: pa.Table) -> dict[int, ResolvedDecision]:
    """Return the gold labels of a purified table as decisions, by row."""
    decisions: dict[int, ResolvedDecision] = {}
    if "gold" in purified.column_names:
        for row, label in enumerate(purified["gold"].to_pylist()):
            if label is not None:
                decisions[row] = ResolvedDecision(label, (label,), (), (GOLD,), False)
    return decisions


def _apply(row: dict[str, Any], decision: ResolvedDecision) -> dict[str, Any]:
    """Return a row of the purified table after a decision; without a final label, the best of the remaining ones is taken."""
    candidates = row["original"]
    row = {**row, "ask": False, "gain": 0.0}
    if decision.label is not None:
        return {
            **row,
            "label": decision.label,
            "kept": [decision.label],
            "probability": 1.0,
            "margin": 1.0,
            "outside": None,
            "distribution": [float(label == decision.label) for label in candidates],
        }
    kept = []
    shares = []
    for label, share in zip(candidates, row["distribution"], strict=True):
        if decision.allows(label):
            kept.append(label)
            shares.append(share)
        else:
            shares.append(0.0)
    if not kept:
        return row
    total = sum(shares) or 1.0
    distribution = [share / total for share in shares]
    best, second = sorted([*distribution, 0.0], reverse=True)[:2]
    return {
        **row,
        "label": candidates[distribution.index(best)],
        "kept": kept,
        "probability": best,
        "margin": best - second,
        "distribution": distribution,
    }


def decided_sets(
    mask: NDArray[np.bool_], classes: Sequence[str], decisions: Mapping[int, ResolvedDecision]
) -> tuple[NDArray[np.bool_], list[str]]:
    """Return the sets [n, c] to learn from, and the names of their classes.

    Rows with a final label have only this candidate; other decisions shrink or widen the set. Labels that people typed become
    classes.
    """
    chosen = []
    for row in sorted(decisions):
        label = decisions[row].label
        if label is not None:
            chosen.append(label)
    names = list(_distinct([*classes, *chosen]))
    sets = np.zeros((len(mask), len(names)), dtype=bool)
    sets[:, : mask.shape[1]] = mask
    for row, decision in decisions.items():
        allowed = [decision.allows(name) for name in names]
        if any(allowed):
            sets[row] = allowed
    return sets, names
