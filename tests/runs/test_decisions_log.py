"""The log of decisions: nothing acknowledged is lost, whatever is killed, and every undo and second vote counts as agreed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneof.runs.decisions import DECISIONS, Decision, Log, resolve_decisions

CAT = Decision(3, "label", ("cat",), "ann", before=("cat", "dog"))


def test_a_decision_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    decision = Decision(7, "set", ("<b>", "🦊"), "ann", "f00", ("<b>", "🦊", "x"), "x", "random", 2.5)
    Log(tmp_path).write(decision)
    assert Log(tmp_path).active_decisions == [decision]


def test_a_decision_that_is_sent_twice_is_one_decision(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(CAT)
    log.write(CAT)
    assert log.undo("ann") == CAT
    log.write(CAT)  # the browser's first try, which comes late
    assert Log(tmp_path).active_decisions == []
    assert len((tmp_path / DECISIONS).read_text().splitlines()) == 2


acts = st.lists(
    st.tuples(st.sampled_from(["decide", "undo", "restart"]), st.sampled_from(["ann", "bob"]), st.integers(0, 4))
)


@given(acts)
def test_a_restart_changes_nothing_and_undo_goes_back_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, acts
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, other, stands = Log(folder), Log(folder), []
    for act, who, row in acts:
        if act == "decide":
            stands.append(Decision(row, "label", ("cat",), who))
            log.write(stands[-1])
        elif act == "undo":
            last = next((one for one in reversed(stands) if one.who == who), None)
            assert log.undo(who) == last
            stands = [one for one in stands if one is not last]
        else:
            log = Log(folder)
        assert log.active_decisions == stands
    other.refresh()
    assert other.active_decisions == Log(folder).active_decisions == stands


def test_a_line_that_is_torn_anywhere_costs_nothing_before_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Log(tmp_path).write(CAT)
    second = replace(CAT, row=4, id="second")
    whole = (tmp_path / DECISIONS).read_bytes()
    Log(tmp_path).write(second)
    line = (tmp_path / DECISIONS).read_bytes()[len(whole) :]
    for length in range(len(line)):
        (tmp_path / DECISIONS).write_bytes(whole + line[:length])
        log = Log(tmp_path)
        assert (log.active_decisions, log.truncated_bytes) == ([CAT], length)
        caplog.clear()
        log.write(second)
        assert ["moved to" in told for told in caplog.messages] == ([True] if 0 < length < len(line) - 1 else [])
        assert log.active_decisions == Log(tmp_path).active_decisions == [CAT, second]


def _write_until_killed(folder: Path, pipe: int) -> None:
    log = Log(folder)
    while True:
        decision = replace(CAT, id=os.urandom(8).hex())
        log.write(decision)
        os.write(pipe, decision.id.encode() + b"\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.filterwarnings("ignore")
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Ten logs are written by ten processes each, one after the other: a log of a hundred would be long, and slow to read."""
    n_acknowledged = 0
    draw = random.Random(0)
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        acknowledged: set[str] = set()
        for _ in range(10):
            ends = os.pipe()
            child = os.fork()
            if child == 0:
                _write_until_killed(folder, ends[1])
            os.close(ends[1])
            os.read(ends[0], 1)  # it has begun
            time.sleep(draw.random() * 0.04)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(ends[0], "rb") as pipe:
                text = pipe.read()
            acknowledged |= {line[-16:] for line in text.decode().splitlines()[1:]}  # of the first a byte was read
        assert acknowledged <= {decision.id for decision in Log(folder).active_decisions}
        n_acknowledged += len(acknowledged)
    assert n_acknowledged > 100


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([("ann", "label", ["cat"]), ("bob", "label", ["cat"])], ("cat", ("cat",), (), ("ann", "bob"), False)),
        ([("ann", "label", ["cat"]), ("bob", "label", ["dog"])], ("cat", ("cat",), (), ("ann",), True)),
        ([("ann", "label", ["cat"]), ("bob", "label", ["dog"]), ("eve", "label", ["dog"])], ("dog", ("dog",), (), ("bob", "eve"), True)),
        ([("ann", "label", ["cat"]), ("ann", "label", ["dog"])], ("dog", ("dog",), (), ("ann",), False)),
        ([("ann", "set", ["cat", "dog"]), ("bob", "set", ["dog", "fox"])], (None, ("dog",), (), ("ann", "bob"), False)),
        ([("ann", "set", ["cat"]), ("bob", "label", ["fox"])], ("fox", ("fox",), (), ("bob",), False)),
        ([("ann", "none", [])], (None, (), ("cat", "dog", "fox"), ("ann",), False)),
        ([("ann", "none", ["emu"])], ("emu", ("emu",), ("cat", "dog", "fox"), ("ann",), False)),
    ],
)  # fmt: skip
def test_what_several_answers_come_to(answers, wanted) -> None:
    said = [Decision(1, kind, tuple(labels), who, before=("cat", "dog", "fox")) for who, kind, labels in answers]
    assert resolve_decisions(said) == {1: wanted}


def test_skips_and_blind_repeats_decide_nothing() -> None:
    assert resolve_decisions([replace(CAT, kind="skip", labels=())]) == {}
    assert resolve_decisions([CAT, replace(CAT, labels=("dog",), drawn="repeat")])[3].label == "cat"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "not JSON"),
        ("[" * 100_000, "nested"),
        ('{"id": "1", "who": "ann", "when": ""}', "row is missing"),
        ('{"undoes": 7, "id": "1", "who": "ann", "when": ""}', "undoes must be text, not 7"),
        (json.dumps(asdict(replace(CAT, id="2", seconds=float("nan")))), "not JSON"),
        (json.dumps(asdict(replace(CAT, id="2", who="\ud800"))), "Unicode"),
    ],
)
def test_a_damaged_line_is_told_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, problem: str
) -> None:
    log = Log(tmp_path)
    log.write(CAT)
    with (tmp_path / DECISIONS).open("a") as file:
        file.write(line + "\n")
    later = replace(CAT, row=4, id="later")
    log.write(later)
    (message,) = caplog.messages
    for words in (str(tmp_path / DECISIONS), "line 2", problem):
        assert words in message
    assert log.active_decisions == Log(tmp_path).active_decisions == [CAT, later]


def test_a_log_that_is_edited_in_place_or_deleted_is_noticed(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(CAT, replace(CAT, row=4, id="second"))
    path = tmp_path / DECISIONS
    text = path.read_text()
    path.write_text(text.replace('"row": 3', '"row": 5') + text.splitlines()[1].replace('"second"', '"third"') + "\n")
    log.refresh()
    assert [decision.row for decision in log.active_decisions] == [5, 4, 4]
    path.unlink()
    log.refresh()
    assert log.active_decisions == []


def test_of_labels_with_as_many_votes_the_first_is_final_and_disputed():
    ann, bob = Decision(7, "label", ("cat",), "ann"), Decision(7, "label", ("dog",), "bob")
    assert resolve_decisions([ann, bob])[7] == ("cat", ("cat",), (), ("ann",), True)
