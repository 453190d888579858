"""Files of rows: they only grow, several processes may write, and what a killed writer left is set aside."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from oneof.storage.rows import append, read


def write_many(path: Path, writer: int, count: int) -> None:
    for number in range(count):
        append(path, [{"writer": writer, "number": number, "words": "x" * (number % 300)}])


def test_lines_of_several_writers_do_not_mix(tmp_path):
    path, writers, count = tmp_path / "rows.jsonl", 4, 60
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=write_many, args=(path, writer, count)) for writer in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = {(row["writer"], row["number"]) for row in read(path)}
    assert len(read(path)) == len(found) == writers * count


def test_where_there_is_no_fcntl_a_byte_behind_the_end_is_locked(tmp_path, monkeypatch):
    """As on Windows, where others cannot read what is locked."""
    path, calls = tmp_path / "rows.jsonl", []

    def locking(descriptor, how, count):
        calls.append((how, count))
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 2**32 > path.stat().st_size

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_LOCK=1, LK_UNLCK=0))
    append(path, [{"seed": 1}])
    append(path, [{"seed": 2}])
    assert calls == [(1, 1), (0, 1)] * 2
    assert read(path) == [{"seed": 1}, {"seed": 2}]
    assert calls == [(1, 1), (0, 1)] * 3


def test_a_line_that_was_cut_short_is_left_out_and_set_aside(tmp_path, caplog):
    path = tmp_path / "rows.jsonl"
    append(path, [{"seed": 1}, {"seed": 2}])
    with path.open("a") as file:
        file.write('{"seed": 3, "accu')
    assert read(path) == [{"seed": 1}, {"seed": 2}]
    append(path, [{"seed": 4}])
    aside = tmp_path / "rows.jsonl.damaged"
    left_out = f"{path} ends in a damaged line of 17 bytes, which is left out."
    assert caplog.messages == [left_out, f"{path} ended in a damaged line; it was moved to {aside}."]
    assert read(path) == [{"seed": 1}, {"seed": 2}, {"seed": 4}]
    assert (tmp_path / "rows.jsonl.damaged").read_text() == '{"seed": 3, "accu\n'


def test_a_torn_line_that_is_nested_without_end_is_set_aside(tmp_path, caplog):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"seed": 1}\n' + "[" * 100_000)
    append(path, [{"seed": 2}])
    assert "ended in a damaged line" in caplog.messages[0]
    assert read(path) == [{"seed": 1}, {"seed": 2}]


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"seed": 1}')
    append(path, [{"seed": 2}])
    assert read(path) == [{"seed": 1}, {"seed": 2}]


@pytest.mark.parametrize("line", ["not json", "[1, 2]", "\x00\x01", "[" * 100_000])
def test_a_damaged_line_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"seed": 1}) + f"\n{line}\n" + json.dumps({"seed": 2}) + "\n")
    with pytest.raises(ValueError, match=r"rows.jsonl must hold one JSON object per line; line 2"):
        read(path)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"seed": 1}\n\xff\xfe\n')
    with pytest.raises(ValueError, match=r"line 2 does not"):
        read(path)
