"""Text from outside that attacks its reader: a terminal, a spreadsheet, a person; and what would hang or fill a machine."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folder import write_run

from oneof import cli
from oneof.cli.terminal import Terminal
from oneof.data.table import ColumnRoles, read_table
from oneof.inspect.identify import _count_pairs
from oneof.storage.printable import MOST, one_line
from oneof.storage.rows import read
from oneof.storage.sheets import write_sheet

ESCAPE = "\x1b[2Jgone\x07"


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out + printed.err


def test_escapes_in_labels_columns_and_file_names_stay_text(tmp_path, capsys, monkeypatch):
    path = tmp_path / f"{ESCAPE}.csv"
    path.write_text(f"x,{ESCAPE},candidates\n" + f"1,a,cat|{ESCAPE}\n2,b,cat\n" * 20)
    code, words = said(capsys, monkeypatch, "inspect", path)
    assert code == 0
    assert "\\x1b[2Jgone" in words
    assert not {"\x1b", "\x07"} & set(words)
    code, words = said(capsys, monkeypatch, "fit", tmp_path / f"{ESCAPE}.txt", "--out", tmp_path / "RUN")
    assert code == 2
    assert not {"\x1b", "\x07"} & set(words)


def test_a_console_shows_what_would_command_it(capsys):
    Terminal().print(f"a{ESCAPE}b\u202ec")
    assert capsys.readouterr().out == "a\\x1b[2Jgoneb\\u202ec\n"  # rich takes the bell out


def test_messages_are_bounded():
    assert len(one_line("x" * 10**6)) == MOST


def test_cells_that_a_spreadsheet_would_run_are_harmless_and_read_back_equal(tmp_path):
    labels = ["=1+1", "+cmd", "-x", "@sum", "\tTab", "'=already", "'quoted'", "plain", "-1.5"]
    path = tmp_path / "sheet.csv"
    write_sheet(pa.table({"size": list(range(9)), "candidates": [[one] for one in labels]}), path)
    cells = [line.split(",", 1)[1].strip('"') for line in path.read_text().splitlines()[1:]]
    assert [cell for cell in cells if cell[0] in "=+-@\t"] == ["-1.5"]
    found = read_table(path).candidates
    assert [found.classes[row][0] for row in found.mask] == [label.strip() for label in labels]


def test_a_label_that_holds_the_separator_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"labels in a CSV must not hold '\|', which separates them; got 'a\|b'\. Write \.parquet"
    ):
        write_sheet(pa.table({"kept": [["a|b", "c"]]}), tmp_path / "sheet.csv")
    assert list(tmp_path.iterdir()) == []


def test_labels_that_look_alike_are_told():
    sets = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "candidates": ["cat", "Cat", "caf\u00e9", "cafe\u0301"]})
    (line,) = read_table(sets).remarks()
    assert line.startswith("2 labels look like others, such as 'Cat' = 'cat'; ")


def test_a_stray_text_in_a_column_of_numbers_is_told_by_its_cell(tmp_path):
    path = tmp_path / "ages.csv"
    path.write_text(
        "age,size,candidates\n" + "".join(f"{'12 years' if i == 7 else i},{i % 5},a|b\n" for i in range(40))
    )
    (line,) = read_table(path).remarks()
    assert re.search(r"column 'age' is left out.* row 7 is '12 years'.* Write a number there", line)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, capsys, monkeypatch):
    os.mkfifo(tmp_path / "pipe.csv")
    for arguments in (["inspect", tmp_path / "pipe.csv"], ["fit", tmp_path / "pipe.csv", "--out", tmp_path / "RUN"]):
        code, words = said(capsys, monkeypatch, *arguments)
        assert code == 2
        assert "a table must be a file;" in words


def test_labels_beyond_counting_are_refused():
    with pytest.raises(ValueError, match=r"labels must be at most 10,000 different ones, .*; got 200,000"):
        _count_pairs(np.zeros((1, 200_000), dtype=bool))


@pytest.mark.parametrize("error", [MemoryError("298 GiB"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_too_little_memory_is_one_line(capsys, monkeypatch, error):
    def full(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", full)
    code, words = said(capsys, monkeypatch, "fit")
    assert code == 2
    assert words.count("\n") == 1
    assert "out of memory" in words


def test_what_unpacks_to_too_much_is_refused_unless_it_is_trusted(tmp_path):
    text = b"x,candidates\n" + b"1,a\n2,b\n" * 200_000
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(text))
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((2000, 100)), candidates=np.ones((2000, 2)))
    for file in (path, tmp_path / "bomb.npz"):
        with pytest.raises(ValueError, match=r"a compressed file must not hold more than 0\.001 GB; .*give --unpacked"):
            read_table(file, ColumnRoles(unpacked=0.001))
    assert len(read_table(path).columns) == 400_000
    with pytest.raises(ValueError, match="unpacked must be positive; got 0"):
        ColumnRoles(unpacked=0)


def test_predictions_are_for_tables_that_do_not_unpack_to_too_much(tmp_path, capsys, monkeypatch):
    (tmp_path / "table.csv").write_text("x,candidates\n" + "0.5,a|b\n1.5,b|c\n0.25,a\n" * 20)
    fit = ("fit", tmp_path / "table.csv", "--out", tmp_path / "run", "--quick")
    assert said(capsys, monkeypatch, *map(str, fit))[0] == 0
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1\n" * 1_000_000))
    predict = ("predict", tmp_path / "run", tmp_path / "bomb.csv.gz", "--out", tmp_path / "out.csv")
    code, words = said(capsys, monkeypatch, *map(str, predict), "--unpacked", "0.001")
    assert code == 2
    assert words.count("\n") == 1
    assert "a compressed file must not hold more than 0.001 GB" in words
    assert "--unpacked" in words
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("name", ["votes.csv.gz", "votes.jsonl.gz", "votes.json.gz", "votes.parquet"])
def test_votes_do_not_unpack_to_too_much(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("oneof.data.files.unpacked.GIGABYTES", 0.001)
    rows = 400_000
    if name.endswith(".parquet"):
        column = pa.array(["a"] * rows)
        pq.write_table(pa.table({"item": column, "annotator": column, "label": column}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(gzip.compress(b"item,annotator,label\n" + b"1,ann,cat\n" * rows))
    code, words = said(capsys, monkeypatch, "votes", str(tmp_path / name))
    assert code == 2
    assert words.count("\n") == 1
    assert f"a compressed file must not hold more than 0.001 GB; {tmp_path / name} does" in words
    assert "unpack it first" in words


def test_a_table_that_a_run_names_does_not_unpack_to_too_much(tmp_path, capsys, monkeypatch):
    table = tmp_path / "table.csv.gz"
    table.write_bytes(gzip.compress(b"x\n" + b"1\n" * 1_000_000))
    run = write_run(tmp_path / "run", n=20)
    facts = json.loads((run / "run.json").read_text())
    facts |= {"file": str(table), "fingerprint": hashlib.sha256(table.read_bytes()).hexdigest()}
    (run / "run.json").write_text(json.dumps(facts))
    monkeypatch.setattr("oneof.data.files.unpacked.GIGABYTES", 0.001)
    code, words = said(capsys, monkeypatch, "report", str(run), "--out", str(tmp_path / "page.html"))
    assert code == 2
    assert f"a compressed file must not hold more than 0.001 GB; {table} does" in words


def test_a_wide_table_is_read_in_blocks_of_many_rows(tmp_path: Path):
    from oneof.data.files.delimited import block_size

    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"x{j}" for j in range(50_000)) + "\n")
    assert block_size(path) > 30 * path.stat().st_size


def test_what_the_library_warns_of_is_a_line_without_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "red\x1b[31m.jsonl"
    path.write_text('{"seed": 1}\n{"se')
    assert read(path) == [{"seed": 1}]
    printed = capsys.readouterr().err
    assert printed == f"oneof: {tmp_path}/red\\x1b[31m.jsonl ends in a damaged line of 4 bytes, which is left out.\n"


@pytest.mark.parametrize(
    "error", [KeyError("asked"), AttributeError("x"), OverflowError("y"), RecursionError("z"), RuntimeError("w"), pa.ArrowKeyError("v")]
)  # fmt: skip
def test_a_fault_of_ours_is_one_line_that_names_the_traceback(error, tmp_path, capsys, monkeypatch):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "app", fail)
    code, words = said(capsys, monkeypatch, "fit")
    assert code == 1
    assert words.count("\n") == 1
    assert f"unexpected {type(error).__name__}" in words
    path = tmp_path / "oneof" / "traceback.txt"
    assert str(path) in words
    assert "in fail" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_fault_of_ours_is_one_line_where_nothing_can_be_written(tmp_path, capsys, monkeypatch):
    def fail(**_: object) -> None:
        raise LookupError("asked")

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cli, "app", fail)
    code, words = said(capsys, monkeypatch, "fit")
    assert code == 1
    assert words.count("\n") == 1
    assert "cannot be saved" in words


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_a_character_shows_its_escape(encoding, errors, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("x,candidates\n" + "1,\N{FOX FACE}|b\n2,b\n" * 20, encoding="utf-8")
    printed = BytesIO()
    terminal = TextIOWrapper(printed, encoding=encoding, errors=errors)
    monkeypatch.setattr(sys, "argv", ["oneof", "inspect", str(path)])
    with redirect_stdout(terminal), pytest.raises(SystemExit) as end:
        cli.main()
    terminal.flush()
    assert not end.value.code
    assert b"\\U0001f98a" in printed.getvalue()


def test_a_file_name_that_is_no_text_is_refused_by_its_name(tmp_path, capsys, monkeypatch):
    path = tmp_path / os.fsdecode(b"not-\xff.csv")
    path.write_text("x,candidates\n1,a|b\n2,b\n")
    code, words = said(capsys, monkeypatch, "inspect", path)
    assert code == 2
    assert words.count("\n") == 1
    assert "Rename" in words


def test_a_current_folder_that_was_deleted_is_one_line(tmp_path, capsys, monkeypatch):
    def gone() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr("oneof.cli.Path.cwd", gone)
    code, words = said(capsys, monkeypatch, "inspect", tmp_path / "table.csv")
    assert code == 2
    assert "current folder" in words
    assert words.count("\n") == 1
