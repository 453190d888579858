"""A file that cannot be opened is named once, in the same words whatever its format."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_table import command

from oneof.data.files.columns import open_table


@pytest.mark.parametrize("name", ["gone.csv", "gone.tsv", "gone.csv.gz", "gone.parquet", "gone.npz", "gone.mat"])
def test_a_missing_file_is_named(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        open_table(tmp_path / name)
    assert caught.value.filename is not None
    code, _, err = command("inspect", tmp_path / name, capsys=capsys)
    assert (code, err) == (2, f"oneof: {tmp_path / name}: no such file or directory\n")
