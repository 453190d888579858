"""What a newcomer stumbles over: each ends in one clear line, and leaves nothing that is in the way of the next try."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oneof.cli import main
from oneof.data.table import ColumnRoles, read_table
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.fit_spec import LOCK, FitSpec
from oneof.runs.fit_table import fit_table
from oneof.storage.files import atomic_write
from oneof.storage.locks import exclusive_lock

pytestmark = pytest.mark.usefixtures("small_forests")

SMALL = EnsembleConfig(scalings=("feature",), lr=0.1, weight_decay=1e-3, n_networks=2, epochs=2, n_folds=None)
ROWS = "".join(f"{i},{i % 3},{'cat|dog' if i % 2 else 'cat'}\n" for i in range(40))


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "pets.csv"
    path.write_text(f"size,age,labels\n{ROWS}")
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    old, sys.argv = sys.argv, ["oneof", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv = old
    return int(end.value.code or 0), capsys.readouterr().err


def test_a_mistake_in_the_command_leaves_nothing_behind(table, tmp_path, capsys):
    code, words = said(capsys, "fit", table, "--out", tmp_path / "RUN")
    assert code == 2
    assert "column 'candidates' must be in" in words
    assert "--candidates, or give a file of votes to oneof fit with --votes" in words
    assert not (tmp_path / "RUN").exists()
    run = fit_table(table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL)))
    assert run.purified.num_rows == 40


def test_a_run_killed_before_its_note_was_whole_begins_again(table, tmp_path):
    (tmp_path / "RUN/checkpoint").mkdir(parents=True)
    (tmp_path / "RUN/checkpoint/.0123.part").write_text('{"one')
    assert (
        fit_table(
            table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL))
        ).purified.num_rows
        == 40
    )
    (tmp_path / "RUN/checkpoint").mkdir()  # killed between its last two acts
    fit_table(table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL)))
    assert not (tmp_path / "RUN/checkpoint").exists()


def test_a_folder_that_another_process_works_in_is_refused_at_once(table, tmp_path):
    (tmp_path / "RUN/checkpoint").mkdir(parents=True)
    with (
        exclusive_lock(tmp_path / "RUN/checkpoint" / LOCK, "RUN"),
        pytest.raises(ValueError, match=r"RUN must not be in use; process \d+ on .* is at work there since"),
    ):
        fit_table(table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL)))


def test_a_folder_with_something_else_is_refused(table, tmp_path):
    (tmp_path / "RUN/checkpoint").mkdir(parents=True)
    (tmp_path / "RUN/checkpoint/mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="out must be a new or empty folder"):
        fit_table(table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL)))


def test_predict_does_not_write_over_what_it_reads(table, tmp_path, capsys):
    fit_table(table, tmp_path / "RUN", FitSpec(ColumnRoles(candidates="labels"), config=FitConfig(SMALL)))
    before = table.read_bytes()
    code, words = said(capsys, "predict", tmp_path / "RUN", table, "--out", table)
    assert code == 2
    assert "out must be another file than the table that is read" in words
    assert table.read_bytes() == before


@pytest.mark.parametrize("option", ["--networks", "--epochs", "--threads"])
def test_no_networks_are_not_the_default_number(table, tmp_path, capsys, option):
    code, words = said(capsys, "fit", table, "--candidates", "labels", "--out", tmp_path / "RUN", option, "0")
    assert code == 2
    assert option in words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"size,age,labels\n{ROWS}".encode("utf-16"), "must be UTF-8; it is UTF-16. Save it as UTF-8."),
        (f"size,age,labels\n{ROWS}1,2,caf\xe9\n".encode("latin-1"), "must be UTF-8; it has other bytes"),
        (b"size,age,labels\n", "must have at least one row; got none"),
    ],
)
def test_files_that_are_not_what_they_seem(tmp_path, capsys, content, message):
    (tmp_path / "odd.csv").write_bytes(content)
    code, words = said(capsys, "fit", tmp_path / "odd.csv", "--candidates", "labels", "--out", tmp_path / "RUN")
    assert code == 2
    assert message in words


def test_exclusions_stand_beside_sets(tmp_path):
    path = tmp_path / "both.csv"
    path.write_text("size,candidates,no\n1,cat|dog,\n2,cat|dog|cow,cow\n3,,dog\n")
    mixed = read_table(path, ColumnRoles(candidates=None, exclude="no"))
    sets = [set(mixed.candidates.classes[row]) for row in mixed.candidates.mask]
    assert sets == [{"cat", "dog"}, {"cat", "dog"}, {"cat", "cow"}]


def test_a_file_that_cannot_be_written_is_named_and_not_the_one_beside(tmp_path):
    with pytest.raises(OSError, match="No such file") as failed, atomic_write(tmp_path / "none" / "labels.csv"):
        pass
    assert failed.value.filename == str(tmp_path / "none" / "labels.csv")
