"""Standard input and output in the place of files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PIPE = Path("-")


@contextmanager
def piped(file: Path, out: Path) -> Iterator[tuple[Path, Path]]:
    """Files to read and write. Where "-" is said they hold the CSV of standard input, and what goes to standard output at the end."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "input.csv") if file == PIPE else file
        result = Path(folder, "output.csv") if out == PIPE else out
        if file == PIPE:
            source.write_bytes(sys.stdin.buffer.read())
        yield source, result
        if out == PIPE:
            sys.stdout.write(result.read_text(encoding="utf-8"))
