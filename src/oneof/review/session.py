"""Conduct a review: choose the rows to show, write down the answers, and learn again from them in another process."""

import errno
import math
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

import numpy as np

from oneof.ensemble.review_order import reviewing_order
from oneof.review.audit import accuracy_curve_point, accuracy_of_labels, agreement, audit_order
from oneof.review.cards import Items, card
from oneof.review.ports import run_id
from oneof.runs.decisions import DRAWN, KINDS, Decision, Log, gold_decisions, resolve_decisions
from oneof.runs.folder import Run
from oneof.storage.printable import describe_error, one_line
from oneof.storage.schema import NUMBER, find_schema_error

RANDOM_EVERY = 5  # of the rows that a person is shown, one in so many is drawn at random
REPEAT_EVERY = 20  # and one in so many is shown a second time
POOLS = ("all", "doubtful", "random", "skipped")
_REPEAT_DISTANCE = 10  # answers between an answer and its blind repeat, at least
_LEASE_SECONDS = 600.0  # for which a row that is shown to one person is not shown to others
_GRID_SIZE = 24  # rows that are confirmed at once, at most
_MAX_HISTORY = 10  # answers of a person that the page lists
_RECENT = 25  # answers about rows of the queue that show whether more of them are worth the effort
_MAX_CURVE_POINTS = 60
MAX_LABEL_LENGTH = 200
_SEPARATOR = "|"  # of labels in the CSV files that `oneof clean` writes
MAX_ID_LENGTH = 200
_ANSWER = {"id": str, "row": int, "kind": KINDS, "labels": [str], "run": str, "drawn": DRAWN, "seconds": NUMBER}


class Lease(NamedTuple):
    """The right of a tab to decide a row."""

    tab: str
    expires: float  # by time.monotonic


class Review:
    """Decide about the rows of a run, and of the runs that are learned from it.

    Methods may be called from many threads.
    """

    def __init__(self, folder: Path, columns: Sequence[str] = ()) -> None:
        self.lock = threading.RLock()
        self.columns = columns
        self.closed_tabs: set[str] = set()
        self.learning: dict[str, Any] = {"state": "idle", "text": ""}
        self.on_new_run: Callable[[Path], None] = lambda folder: None  # called when a run was learned
        self._open(folder)

    def _open(self, folder: Path) -> None:
        self.run = Run.open(folder)
        self.log = self.run.log
        self.id = run_id(folder)
        self.ancestor = str(self.run.metadata["asked"].get("from", ""))[:16]  # the run that this one was learned from
        self.leases: dict[int, Lease] = {}  # by row
        self.items = Items(self.run, self.columns)
        table = self.run.purified
        self.labels: list[str] = table["label"].to_pylist()
        self.doubtful = set(np.flatnonzero(table["ask"].to_numpy()).tolist())
        self.queue = reviewing_order(table)
        self.gold = gold_decisions(table)
        self.audit_order = audit_order(self.run)
        self._rows_by_candidate: dict[str, set[int]] = {}
        self._summary: tuple[list[str], dict[str, Any]] | None = None  # of the decisions with these ids
        self._curve_points: dict[tuple[int, str], tuple[int, float, float, float]] = {}

    def next(
        self, tab: str, who: str, count: int, random: bool = False, pool: str = "all", label: str = ""
    ) -> list[dict[str, Any]]:
        """Return cards for a person's tab, about rows that others are not shown meanwhile.

        Parameters
        ----------
        tab, who : str
            The page that shows the cards, and its user.
        count : int
            The largest number of cards.
        random : bool
            The same as the pool "random".
        pool : str
            One of POOLS: all rows, the doubtful ones first; the doubtful rows alone; rows drawn at random; or the rows
            that the person skipped. Rows skipped once come back by themselves after the doubtful ones.
        label : str
            Return only rows that have this label among their candidates, and none that are drawn at random.
        """
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(POOLS)}; got {pool!r}. Reload the page.")
        if random:
            pool = "random"
        with self.lock:
            if tab in self.closed_tabs:
                return []
            self.log.refresh()
            self._drop_expired_leases()
            cards: list[dict[str, Any]] = []
            while len(cards) < count:
                choice = self._choose(tab, who, pool, label)
                if choice is None:
                    break
                row, drawn = choice
                cards.append(self._lease(tab, who, row, drawn))
            return cards

    def _drop_expired_leases(self) -> None:
        """Release the rows whose leases have expired."""
        now = time.monotonic()
        for row, lease in list(self.leases.items()):
            if lease.expires <= now:
                del self.leases[row]

    def grid(self, tab: str, who: str, label: str = "") -> dict[str, Any]:
        """Return cards of rows that the model gives one label, to confirm many at once, and how many rows each label has left.

        The doubtful rows come first, the most probable of them at the head; then the others, the least sure first. Without a
        label, the one with most doubtful rows is taken. Other rows that the tab holds stay reserved for it.
        """
        with self.lock:
            self.log.refresh()
            unavailable = self._answered() | self.leases.keys() | self.gold.keys() | self._skips(who).keys()
            left = []
            doubtful = []
            for row in self.queue.tolist():
                if row in unavailable:
                    continue
                left.append(row)
                if row in self.doubtful:
                    doubtful.append(row)
            rows_of_label: dict[str, list[int]] = {}
            for row in doubtful or left:
                rows_of_label.setdefault(self.labels[row], []).append(row)
            label_counts = Counter({name: len(rows) for name, rows in rows_of_label.items()})
            if tab in self.closed_tabs or not label_counts:
                return {"cards": [], "label": label, "labels": []}
            if label not in label_counts:
                label, _ = label_counts.most_common(1)[0]
            rows = rows_of_label[label]
            if doubtful:
                probability = self.run.purified["probability"]
                rows.sort(key=lambda row: -float(probability[row].as_py()))
            cards = [self._lease(tab, who, row, "queue") for row in rows[:_GRID_SIZE]]
            return {"cards": cards, "label": label, "labels": label_counts.most_common()}

    def close_tab(self, tab: str) -> None:
        """Release the rows that a tab was shown; later requests of the tab get none."""
        with self.lock:
            self.closed_tabs.add(tab)
            self.retain_leases(tab, ())

    def retain_leases(self, tab: str, rows: Container[int]) -> None:
        """Release the rows that a tab was shown, except these."""
        with self.lock:
            for row, lease in list(self.leases.items()):
                if lease.tab == tab and row not in rows:
                    del self.leases[row]

    def _lease(self, tab: str, who: str, row: int, drawn: str) -> dict[str, Any]:
        """Reserve a row for a tab and return its card."""
        self.leases[row] = Lease(tab, time.monotonic() + _LEASE_SECONDS)
        content = card(self.run, self.items, row)
        return {**content, "drawn": drawn, "run": self.id, "skipped": row in self._skips(who)}

    def _choose(self, tab: str, who: str, pool: str, label: str) -> tuple[int, str] | None:
        """Return the next row for a tab, and why it is shown; None if there is none."""
        skips = self._skips(who)
        unavailable = self._answered() | self.leases.keys() | self.gold.keys()
        if pool == "skipped":
            return _from_queue(_first_outside(skips, unavailable))
        unseen = unavailable | skips.keys()
        queued = self._next_in_queue(pool, label, skips, unavailable, unseen)
        if label or (queued is None and pool != "random"):
            return _from_queue(queued)
        mine = self._decisions_of(who)
        n_leases = sum(lease.tab == tab for lease in self.leases.values())
        position = len(mine) + n_leases
        if position % REPEAT_EVERY == REPEAT_EVERY - 1 and pool != "random":
            repeat = self._next_repeat(mine)
            if repeat is not None:
                return repeat, "repeat"
        if position % RANDOM_EVERY == RANDOM_EVERY - 1 or pool == "random":
            random_row = _first_outside(self.audit_order, unseen)
            if random_row is not None:
                return random_row, "random"
        return _from_queue(queued)

    def _next_in_queue(
        self, pool: str, label: str, skips: dict[int, int], unavailable: Container[int], unseen: Container[int]
    ) -> int | None:
        """Return the first doubtful row, else one that was skipped once, else the first of the others; None if there is none."""
        n_doubtful = len(self.doubtful)
        doubtful = self.queue[:n_doubtful]
        skipped_once = []
        for skipped_row, times in skips.items():
            if times == 1:
                skipped_once.append(skipped_row)
        others = self.queue[n_doubtful:]
        if pool == "doubtful":
            others = others[:0]
        for rows, excluded in ((doubtful, unseen), (skipped_once, unavailable), (others, unseen)):
            row = _first_outside(self._with_candidate(rows, label), excluded)
            if row is not None:
                return row
        return None

    def _with_candidate(self, rows: Iterable[int], label: str) -> Iterable[int]:
        """Return the rows that have a label among their candidates; all of them for an empty label."""
        if not label:
            return rows
        if label not in self._rows_by_candidate:
            matching = set()
            for row, candidates in enumerate(self.run.purified["original"].to_pylist()):
                if label in candidates:
                    matching.add(row)
            self._rows_by_candidate[label] = matching
        matching = self._rows_by_candidate[label]
        return (row for row in rows if int(row) in matching)

    def _next_repeat(self, mine: Sequence[Decision]) -> int | None:
        """Return a row for a person to answer a second time, none of the last ones; None if there is none."""
        unavailable = set(self.leases)
        for decision in mine:
            if decision.drawn == "repeat":
                unavailable.add(decision.row)
        eligible = []
        for decision in mine[:-_REPEAT_DISTANCE]:
            if decision.label is not None and decision.row not in unavailable:
                eligible.append(decision.row)
        if not eligible:
            return None
        return eligible[len(eligible) // 2]

    def _decisions_of(self, who: str) -> list[Decision]:
        """Return the active decisions of a person."""
        return [decision for decision in self.log.active_decisions if decision.who == who]

    def _answered(self) -> set[int]:
        """Return the rows about which somebody decided something."""
        return _answered_rows(self.log.active_decisions)

    def _skips(self, who: str) -> dict[int, int]:
        """Return how often a person skipped each row that nobody has answered, the row that was skipped last at the end."""
        answered = self._answered()
        skips: dict[int, int] = {}
        for decision in self.log.active_decisions:
            if decision.kind == "skip" and decision.who == who and decision.row not in answered:
                skips[decision.row] = skips.pop(decision.row, 0) + 1
        return skips

    def decide(self, answer: Any, who: str) -> str:
        """Write down an answer; return a note if another person or a new run was quicker, else an empty string."""
        misfit = find_schema_error(answer, _ANSWER)
        if misfit is not None:
            raise ValueError(f"an answer must be one that the page sends; {misfit}. Reload the page.")
        if not 0 <= answer["seconds"] < math.inf:
            raise ValueError(f"seconds must be a finite number from 0 on; got {answer['seconds']}. Reload the page.")
        if max(len(answer["id"]), len(answer["run"])) > MAX_ID_LENGTH:
            raise ValueError(f"id and run must have at most {MAX_ID_LENGTH} characters. Reload the page.")
        with self.lock:
            self.check_folder()
            self.log.refresh()
            row = answer["row"]
            kind = answer["kind"]
            if not 0 <= row < len(self.labels):
                raise ValueError(f"row must be one of the run's {len(self.labels):,}; got {row}. Reload the page.")
            candidates = tuple(self.run.purified["original"][row].as_py())
            labels = tuple(label.strip() for label in answer["labels"])
            _check_labels(kind, labels, candidates)
            if kind == "none" and labels:
                self.check_typed_label(labels[0], is_new=answer.get("new") is True)
            note = self._note(answer, who)
            decision = Decision(
                row=row,
                kind=kind,
                labels=labels,
                who=who,
                run=answer["run"],
                before=candidates,
                suggested=self.labels[row],
                drawn=answer["drawn"],
                seconds=answer["seconds"],
                id=answer["id"],
            )
            self.log.write(decision)
            self.leases.pop(row, None)
            return note

    def check_folder(self) -> None:
        """Raise OSError if the run was moved: its log would be written into a new folder that nobody reads."""
        if not self.run.folder.is_dir() or run_id(self.run.folder) != self.id:
            text = "the run was moved or replaced; start oneof review again"
            raise FileNotFoundError(errno.ENOENT, text, str(self.run.folder))

    def check_typed_label(self, label: str, is_new: bool) -> None:
        """Raise ValueError for a label that is not a class of the run, unless it is sent as a new one that every file can hold."""
        if label in self.known_labels():
            return
        if not is_new:
            raise ValueError(f"label must be a class of the run, or be sent as a new one; got {label!r}. Confirm it.")
        has_control_character = any(category(character) == "Cc" for character in label)
        if has_control_character or _SEPARATOR in label:
            raise ValueError(
                f"a new label must be text on one line without {_SEPARATOR!r}, which separates labels in CSV files; "
                f"got {label!r}. Write it differently."
            )

    def _note(self, answer: dict[str, Any], who: str) -> str:
        """Return what a person should know about an answer that comes after others', or after the model has changed."""
        row = answer["row"]
        others = []
        for decision in self.log.active_decisions:
            if decision.row == row and decision.who != who:
                others.append(decision.who)
        if others and answer["drawn"] != "repeat":
            names = ", ".join(dict.fromkeys(others))
            return f"{names} answered row {row} before you: yours is kept as a second vote."
        if answer["run"] != self.id:
            return "The model has learned again since this page was shown; your answer is kept."
        return ""

    def known_labels(self) -> list[str]:
        """Return the classes of the run, and the labels that people added in this review."""
        with self.lock:
            added: list[str] = []
            for decision in self.log.active_decisions:
                if decision.kind == "none":
                    added.extend(decision.labels)
            return list(dict.fromkeys([*self.run.metadata["classes"], *added]))

    def undo(self, tab: str, who: str, decision_id: str | None = None) -> dict[str, Any] | None:
        """Undo the person's last answer, or the one with this id, and return the card of its row; None if there is none."""
        with self.lock:
            self.check_folder()
            undone = self.log.undo(who, decision_id)
            if undone is None:
                return None
            return self._lease(tab, who, undone.row, undone.drawn)

    def state(self, who: str) -> dict[str, Any]:
        """Return what the page shows about the run, its labels and the person."""
        with self.lock:
            self.check_folder()  # a log that is not there would read as no decisions
            self.log.refresh()
            decisions = self.log.active_decisions
            ids = [decision.id for decision in decisions]
            if self._summary is None or self._summary[0] != ids:
                self._summary = (ids, self._summarise(decisions))
            mine = self._decisions_of(who)
            last_answers = mine[: -_MAX_HISTORY - 1 : -1]
            skipped = self._skips(who).keys()
            doubtful_left = self.doubtful - self._answered() - self.gold.keys() - skipped
            lineage = {self.id, self.ancestor}
            lineage.update(decision.run for decision in decisions)
            lineage.discard("")
            return {
                **self._summary[1],
                "who": who,
                "mine": len(_answered_rows(mine)),
                "history": [_describe_answer(decision) for decision in last_answers],
                "skipped": len(skipped),
                "elsewhere": len(doubtful_left),
                "run": self.id,
                "lineage": sorted(lineage),
                "folder": self.run.folder.name,
                "next_command": f"oneof clean {shlex.quote(str(self.run.folder))} --out labels.csv",
                "learning": self.learning,
            }

    def _summarise(self, decisions: list[Decision]) -> dict[str, Any]:
        """Return counts of rows, the accuracy of the labels, and advice, the same for all people."""
        resolved = resolve_decisions(decisions)
        accuracy = None
        estimate = accuracy_of_labels(self.audit_order, self.labels, decisions, self.id)
        if estimate is not None:
            accuracy = estimate._asdict()
        doubtful = self.doubtful - self.gold.keys()
        return {
            "rows": len(self.labels),
            "left": len(self.labels) - len(self._answered() | self.gold.keys()),
            "doubtful": len(doubtful),
            "to_ask": len(doubtful - resolved.keys()),
            "decided": len(resolved),
            "advice": self._advise(decisions),
            "accuracy": accuracy,
            "agreement": agreement(decisions),
            "curve": self._curve(decisions),
        }

    def _advise(self, decisions: Sequence[Decision]) -> str:
        """Return advice to stop if the last answers hardly changed a label, else an empty string."""
        queued = []
        for decision in decisions:
            if decision.drawn == "queue" and decision.label and decision.run == self.id:
                queued.append(decision)
        recent = queued[-_RECENT:]
        n_changed = sum(decision.label != decision.suggested for decision in recent)
        if len(recent) < _RECENT or n_changed > 1:
            return ""
        return f"Of the last {_RECENT} rows of the queue {n_changed} got another label: more decisions pay little."

    def _curve(self, decisions: Sequence[Decision]) -> list[tuple[int, float, float, float]]:
        """Return about sixty points: the number of decisions, and the accuracy of the labels after them with its interval."""
        counts = []
        for k, decision in enumerate(decisions, 1):
            if decision.drawn == "random" and decision.run == self.id:
                counts.append(k)
        step = 1 << (len(counts) // _MAX_CURVE_POINTS).bit_length()
        points = []
        for k in counts[::step]:
            key = (k, decisions[k - 1].id)
            if key not in self._curve_points:
                self._curve_points[key] = accuracy_curve_point(self.audit_order, self.labels, decisions[:k], self.id)
            points.append(self._curve_points[key])
        return points

    def learn(self) -> None:
        """Learn again from the decisions, in another process; the review continues with the new run when it is finished."""
        with self.lock:
            if self.learning["state"] == "running":
                return
            self.learning = {"state": "running", "text": "learning from your decisions"}
            threading.Thread(target=self._learn, args=(self.run.folder,), daemon=True).start()

    def _learn(self, folder: Path) -> None:
        """Learn again, and continue with the new run; if that fails, the page shows why."""
        try:
            self._learn_from(folder)
        except (ValueError, OSError) as error:
            with self.lock:
                self.learning = {"state": "failed", "text": one_line(describe_error(error))}

    def _learn_from(self, folder: Path) -> None:
        out = _next_folder(folder.resolve())
        # -P: nothing is imported from the current folder, where a module of the same name may lie
        command = [sys.executable, "-P", "-m", "oneof", "fit", "--from", str(folder), "--out", str(out)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        with self.lock:
            if finished.returncode:
                lines = finished.stderr.strip().splitlines() or ["it was stopped"]
                self.learning = {"state": "failed", "text": lines[-1]}
                return
            self.log.refresh()
            Log(out).write(*self.log.active_decisions)  # including those that were made meanwhile
            self._open(out)
            self.on_new_run(out)
            self.learning = {"state": "done", "text": f"learned again: {out}"}


def _next_folder(folder: Path) -> Path:
    """Return a folder beside a run that does not exist: RUN-2 after RUN, RUN-3 after RUN-2."""
    stem, _, number = folder.name.rpartition("-")
    if not stem or not number.isdecimal():
        stem = folder.name
        number = "1"
    for k in count(int(number) + 1):
        path = folder.with_name(f"{stem}-{k}")
        if not os.path.lexists(path):  # not even a link that leads nowhere
            return path
    raise AssertionError("unreachable")


def _check_labels(kind: str, labels: tuple[str, ...], candidates: Collection[str]) -> None:
    """Raise ValueError if an answer of this kind cannot have these labels about a row with these candidates."""
    distinct = set(labels)
    if kind == "label":
        fits = len(labels) == 1 and labels[0] in candidates
    elif kind == "set":
        fits = 0 < len(distinct) <= len(candidates) and distinct <= set(candidates)
    elif kind == "none":
        is_short = all(len(label) <= MAX_LABEL_LENGTH for label in labels)
        fits = len(labels) <= 1 and is_short and not distinct & {*candidates, ""}
    else:
        fits = not labels
    if not fits:
        raise ValueError(f"labels must fit an answer of kind {kind!r}; got {list(labels)!r}. Choose again.")


def _describe_answer(decision: Decision) -> dict[str, Any]:
    """Return what the page lists about an answer."""
    return {"id": decision.id, "row": decision.row, "kind": decision.kind, "labels": list(decision.labels)}


def _answered_rows(decisions: Iterable[Decision]) -> set[int]:
    """Return the rows of all decisions except skips."""
    rows = set()
    for decision in decisions:
        if decision.kind != "skip":
            rows.add(decision.row)
    return rows


def _from_queue(row: int | None) -> tuple[int, str] | None:
    """Return a row with the reason why it is shown, or None."""
    if row is None:
        return None
    return row, "queue"


def _first_outside(rows: Iterable[int], excluded: Container[int]) -> int | None:
    """Return the first row that is not excluded, or None."""
    for row in rows:
        if int(row) not in excluded:
            return int(row)
    return None
