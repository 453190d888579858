"""A review as it goes: who is shown which row, what is written down, how good the labels are, and learning again beside it.

How often labels are right is told by rows drawn at random, in the order of `sample.csv`: an exact interval, whatever else was decided. The
sample is the beginning of that order, up to the last row that a person answered as a random one; a row of it that was decided because it
was hard counts as well, since chance put it there.
"""

import errno
import math
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.ensemble.accuracy import drawn_rows, share_limits
from oneof.ensemble.review_order import asking_order
from oneof.review.cards import Items, card
from oneof.review.ports import run_id
from oneof.runs.decisions import DRAWN, KINDS, Decision, Log, gold_decisions, resolve_decisions
from oneof.runs.folder import Run
from oneof.storage.schema import NUMBER, first_misfit

RANDOM_EVERY, REPEAT_EVERY = 5, 20  # of a person's rows one is drawn at random, and one comes a second time
_APART = 10  # other rows between an answer and its blind repeat
_HELD = 600.0  # seconds for which a row that is shown to one person is kept from others
_HISTORY = 10  # answers of a person that the page lists
_LAST = 25  # answers of the queue that tell whether more of them pay
POOLS = ("all", "doubtful", "random", "skipped")
_ANSWER = {"id": str, "row": int, "kind": KINDS, "labels": [str], "run": str, "drawn": DRAWN, "seconds": NUMBER}


class Review:
    """The decisions about one run, and about those that are learned from it; methods may be called from many threads."""

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
        self.offers = dict[int, tuple[str, float]]()  # rows that are shown: in which tab, and until when
        self.items = Items(self.run, self.columns)
        table = self.run.purified
        self.labels: list[str] = table["label"].to_pylist()
        self.asked = set(np.flatnonzero(table["ask"].to_numpy()).tolist())
        self.queue = asking_order(table)
        self.final = gold_decisions(table)
        order, taught = drawn_rows(table.num_rows), {*self.final, *self.run.metadata.get("taught", ())}
        self.drawn = order[~np.isin(order, list(taught))]  # rows that the run was not taught, in random order
        self._figured: tuple[Any, dict[str, Any]] = (None, {})
        self._points = dict[tuple[int, str], tuple[int, float, float, float]]()

    def next(self, tab: str, who: str, count: int, random: bool = False, pool: str = "all") -> list[dict[str, Any]]:
        """Return cards for a person's tab, about rows that others are not shown meanwhile.

        `pool` is one of POOLS: all rows, the doubtful ones first; the doubtful rows alone; rows drawn at random, as with
        `random`; or the rows that the person skipped. Rows skipped once come back by themselves after the doubtful ones.
        """
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(POOLS)}; got {pool!r}. Reload the page.")
        if random:
            pool = "random"
        with self.lock:
            if tab in self.closed_tabs:
                return []
            self.log.refresh()
            now = time.monotonic()
            self.offers = {row: offer for row, offer in self.offers.items() if offer[1] > now}
            cards: list[dict[str, Any]] = []
            while len(cards) < count:
                choice = self._choose(tab, who, pool)
                if choice is None:
                    break
                row, drawn = choice
                cards.append(self._offer(tab, who, row, drawn))
            return cards

    def close_tab(self, tab: str) -> None:
        """Give the rows that a tab was shown back to the others; a request of the tab that comes late gets none."""
        with self.lock:
            self.closed_tabs.add(tab)
            self.offers = {row: offer for row, offer in self.offers.items() if offer[0] != tab}

    def keep_offers(self, tab: str, rows: Container[int]) -> None:
        """Give back the rows that a tab was shown and does not hold any more."""
        with self.lock:
            self.offers = {row: offer for row, offer in self.offers.items() if offer[0] != tab or row in rows}

    def _offer(self, tab: str, who: str, row: int, drawn: str) -> dict[str, Any]:
        self.offers[row] = tab, time.monotonic() + _HELD
        skipped = row in self._skips(who)
        return card(self.run, self.items, row) | {"drawn": drawn, "run": self.id, "skipped": skipped}

    def _choose(self, tab: str, who: str, pool: str) -> tuple[int, str] | None:
        """Return the next row for a tab, and why it is shown; None where there is none."""
        mine = [decision for decision in self.log.active_decisions if decision.who == who]
        place = len(mine) + sum(holder == tab for holder, _ in self.offers.values())
        skips = self._skips(who)
        taken = self._answered() | self.offers.keys() | self.final.keys()
        fresh = taken | skips.keys()
        skipped = _first_outside(skips, taken)
        skipped_once = _first_outside((row for row, times in skips.items() if times == 1), taken)
        if pool == "skipped":
            return None if skipped is None else (skipped, "queue")
        doubtful = _first_outside(self.queue[: len(self.asked)], fresh)
        rest = None
        if pool != "doubtful":
            rest = _first_outside(self.queue[len(self.asked) :], fresh)
        queued = next((row for row in (doubtful, skipped_once, rest) if row is not None), None)
        if queued is None and pool != "random":
            return None
        if place % REPEAT_EVERY == REPEAT_EVERY - 1 and pool != "random":
            repeat = self._repeat(mine)
            if repeat is not None:
                return repeat, "repeat"
        if place % RANDOM_EVERY == RANDOM_EVERY - 1 or pool == "random":
            drawn = _first_outside(self.drawn, fresh)
            if drawn is not None:
                return drawn, "random"
        return None if queued is None else (queued, "queue")

    def _repeat(self, mine: list[Decision]) -> int | None:
        """Return a row for a person to answer a second time, none of the last ones; None where there is none."""
        repeated = {decision.row for decision in mine if decision.drawn == "repeat"} | self.offers.keys()
        old = [decision.row for decision in mine[:-_APART] if decision.label is not None]
        eligible = [row for row in old if row not in repeated]
        return eligible[len(eligible) // 2] if eligible else None

    def _answered(self) -> set[int]:
        """Return the rows about which somebody decided something."""
        return {decision.row for decision in self.log.active_decisions if decision.kind != "skip"}

    def _skips(self, who: str) -> dict[int, int]:
        """Return how often a person skipped each row that nobody has answered, the row that was skipped last at the end."""
        answered = self._answered()
        skips: dict[int, int] = {}
        for decision in self.log.active_decisions:
            if decision.kind == "skip" and decision.who == who and decision.row not in answered:
                skips[decision.row] = skips.pop(decision.row, 0) + 1
        return skips

    def decide(self, answer: Any, who: str) -> str:
        """Write an answer down; a word for the person where others or the model were quicker."""
        if misfit := first_misfit(answer, _ANSWER):
            raise ValueError(f"an answer must be such as the page sends; {misfit}. Reload the page.")
        if not 0 <= answer["seconds"] < math.inf:
            raise ValueError(f"seconds must be a finite number from 0 on; got {answer['seconds']}. Reload the page.")
        with self.lock:
            self._check_folder()
            self.log.refresh()
            row, note = answer["row"], ""
            if not 0 <= row < len(self.labels):
                raise ValueError(f"row must be one of the run's {len(self.labels):,}; got {row}. Reload the page.")
            others = {one.who: one for one in self.log.active_decisions if one.row == row and one.who != who}
            if others and answer["drawn"] != "repeat":
                note = f"{', '.join(others)} answered row {row} before you: yours is kept as a second vote."
            elif answer["run"] != self.id:
                note = "The model has learned again since this page was shown; your answer is kept."
            before = tuple(self.run.purified["original"][row].as_py())
            labels = tuple(label.strip() for label in answer["labels"])
            self._check_labels(answer["kind"], labels, before)
            if (
                answer["kind"] == "none"
                and labels
                and labels[0] not in self.known_labels()
                and answer.get("new") is not True
            ):
                raise ValueError(
                    f"label must be a class of the run, or be sent as a new one; got {labels[0]!r}. Confirm it."
                )
            seen = (answer["run"], before, self.labels[row], answer["drawn"], answer["seconds"], answer["id"])
            self.log.write(Decision(row, answer["kind"], labels, who, *seen))
            self.offers.pop(row, None)
            return note

    def _check_folder(self) -> None:
        """Raise OSError if the run is not where it was: its log would be written into a new folder that nobody reads."""
        if not self.run.folder.is_dir() or run_id(self.run.folder) != self.id:
            text = "the run was moved or replaced; start oneof review again"
            raise FileNotFoundError(errno.ENOENT, text, str(self.run.folder))

    @staticmethod
    def _check_labels(kind: str, labels: tuple[str, ...], before: tuple[str, ...]) -> None:
        """Raise ValueError if the labels are none that an answer of the kind may have about the set `before`."""
        if kind == "label":
            fits = len(labels) == 1 and labels[0] in before
        elif kind == "set":
            fits = 0 < len(set(labels)) <= len(before) and set(labels) <= set(before)
        elif kind == "none":
            fits = len(labels) <= 1 and not set(labels) & {*before, ""} and all(len(label) <= 200 for label in labels)
        else:
            fits = not labels
        if not fits:
            got = f"got {list(labels)!r}. Choose again"
            raise ValueError(f"labels must fit an answer of kind {kind!r}; {got}.")

    def known_labels(self) -> list[str]:
        """Return the classes of the run, and the labels that people added in this review."""
        with self.lock:
            added = [
                label for decision in self.log.active_decisions if decision.kind == "none" for label in decision.labels
            ]
            return list(dict.fromkeys([*self.run.metadata["classes"], *added]))

    def undo(self, tab: str, who: str, decision_id: str | None = None) -> dict[str, Any] | None:
        """Take back the person's last answer, or the one with this id, and return its row's card; None if there is none."""
        with self.lock:
            self._check_folder()
            undone = self.log.undo(who, decision_id)
            return None if undone is None else self._offer(tab, who, undone.row, undone.drawn)

    def state(self, who: str) -> dict[str, Any]:
        """What is known of the labels and of the people, for the page's side."""
        with self.lock:
            self.log.refresh()
            standing = self.log.active_decisions
            if self._figured[0] != (now := [one.id for one in standing]):
                self._figured = now, self._figures(standing)
            mine = [decision for decision in standing if decision.who == who]
            skipped = self._skips(who).keys()
            return {
                **self._figured[1],
                "who": who,
                "mine": len(mine),
                "history": [_summary(decision) for decision in mine[: -_HISTORY - 1 : -1]],
                "skipped": len(skipped),
                "elsewhere": len(self.asked - self._answered() - self.final.keys() - skipped),
                "run": self.id,
                "lineage": sorted({self.id, self.ancestor, *(decision.run for decision in standing)} - {""}),
                "folder": self.run.folder.name,
                "next_command": f"oneof clean {shlex.quote(str(self.run.folder))} --out labels.csv",
                "learning": self.learning,
            }

    def _figures(self, standing: list[Decision]) -> dict[str, Any]:
        said = resolve_decisions(standing)
        found = accuracy_of_labels(self.drawn, self.labels, standing, self.id)
        queued = [one for one in standing if one.drawn == "queue" and one.label and one.run == self.id][-_LAST:]
        changed = sum(one.label != one.suggested for one in queued)
        to_ask = len(self.asked - said.keys() - self.final.keys())
        advice = ""
        if len(queued) == _LAST and changed <= 1:
            advice = f"Of the last {_LAST} rows of the queue {changed} got another label: more decisions pay little."
        told = {"accuracy": found and found._asdict(), "agreement": agreement(standing), "curve": self._curve(standing)}
        doubtful = len(self.asked - self.final.keys())
        left = len(self.labels) - len(self._answered() | self.final.keys())
        counts = {"rows": len(self.labels), "left": left, "doubtful": doubtful, "to_ask": to_ask, "decided": len(said)}
        return {**counts, "advice": advice, **told}

    def _curve(self, standing: list[Decision]) -> list[tuple[int, float, float, float]]:
        """Decisions so far, and the accuracy of the labels as they then stood with its interval: some sixty points."""
        counts = [k + 1 for k, one in enumerate(standing) if one.drawn == "random" and one.run == self.id]
        counts = counts[:: 1 << (len(counts) // 60).bit_length()]
        keys = [(count, standing[count - 1].id) for count in counts]
        drawn = len(self.drawn) / len(self.labels)  # the others were taught: they are right
        for key in (key for key in keys if key not in self._points):
            some, mended = standing[: key[0]], self.labels.copy()
            for one in some:
                if one.drawn == "queue" and one.label:
                    mended[one.row] = one.label  # a wrong label that was decided because it was hard is wrong no more
            found = accuracy_of_labels(self.drawn, mended, some, self.id)
            limits = (0.5, 0.0, 1.0) if found is None else (found.right / found.rows, found.low, found.high)
            value, low, high = (1 - drawn * (1 - share) for share in limits)
            self._points[key] = len(some), value, low, high
        return [self._points[key] for key in keys]

    def learn(self) -> None:
        """Learn again from what was decided, in a process of its own; the review goes on with the new run when it is there."""
        with self.lock:
            if self.learning["state"] == "running":
                return
            self.learning = {"state": "running", "text": "learning from your decisions"}
            threading.Thread(target=self._learn, args=(self.run.folder,), daemon=True).start()

    def _learn(self, folder: Path) -> None:
        stem, _, number = folder.resolve().name.rpartition("-")  # RUN-2 after RUN, RUN-3 after RUN-2
        if not stem or not number.isdigit():
            stem, number = folder.resolve().name, "1"
        names = (folder.resolve().with_name(f"{stem}-{k}") for k in count(int(number) + 1))
        out = next(path for path in names if not path.exists())
        # -P: not from the current folder, where a module of the same name may lie
        command = [sys.executable, "-P", "-m", "oneof", "fit", "--from", str(folder), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        with self.lock:
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it was stopped"])[-1]
                self.learning = {"state": "failed", "text": last}
                return
            self.log.refresh()
            Log(out).write(*self.log.active_decisions)  # also what was decided meanwhile
            self._open(out)
            self.on_new_run(out)
            self.learning = {"state": "done", "text": f"learned again: {out}"}


def _summary(decision: Decision) -> dict[str, Any]:
    """Return what the page lists about an answer."""
    return {"id": decision.id, "row": decision.row, "kind": decision.kind, "labels": list(decision.labels)}


def _first_outside(rows: Iterable[int], excluded: Container[int]) -> int | None:
    """Return the first row that is not excluded, or None."""
    return next((int(row) for row in rows if int(row) not in excluded), None)


class Accuracy(NamedTuple):
    """The share of labels that are right, with its exact 95 % interval."""

    rows: int
    right: int
    unsure: int  # answers without a label: the interval allows that all are wrong, and that all are right
    low: float
    high: float


def accuracy_of_labels(
    order: NDArray[np.intp], labels: Sequence[str], standing: Sequence[Decision], run: str = ""
) -> Accuracy | None:
    """How many of the run's labels are right, by the answers to its random sample; None before the first."""
    said = resolve_decisions(standing)
    answered = {one.row for one in standing if one.drawn != "repeat"}
    at_random = [one.row for one in standing if one.drawn == "random" and one.run == run]
    places = np.flatnonzero(np.isin(order, at_random))
    if not len(places):
        return None
    sample = [int(row) for row in order[: places[-1] + 1] if int(row) in answered]
    found = [said[row].label if row in said else None for row in sample]
    unsure = sum(label is None for label in found)
    right = sum(label == labels[row] for label, row in zip(found, sample, strict=True))
    low = share_limits(right, len(sample))[0]
    return Accuracy(len(sample), right, unsure, low, share_limits(right + unsure, len(sample))[1])


def agreement(standing: Iterable[Decision]) -> tuple[int, int]:
    """Of the pairs of labels that a row got, by two people or by one at a blind repeat: how many are equal, and how many there are."""
    first: dict[int, Decision] = {}
    equal = pairs = 0
    for one in standing:
        if one.label is None:
            continue
        before = first.setdefault(one.row, one)
        if before is not one and (one.drawn == "repeat" or before.who != one.who):
            equal, pairs = equal + (before.label == one.label), pairs + 1
    return equal, pairs
