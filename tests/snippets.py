"""Code in the docs: found, run in an empty folder, and its output compared with what the page shows, or written into it.

    python tests/snippets.py docs/tutorial.md      # run a page and write its real output into it

A page's blocks share a folder, and its Python blocks one set of names. A `python` block may be followed by a `text` block: what it
prints. In a `console` block the lines that begin with `$ ` are run, and the lines below each are what it prints. What stands between
`<!-- needs PACKAGE -->` and `<!-- end -->` is left out where there is no such package.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from contextlib import chdir, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

NEEDS = re.compile(r"<!-- needs (\w+) -->(.*?)<!-- end -->", re.DOTALL)
FENCE = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
FRAME = re.compile(r"[─-╿\s]+")  # lines of tables, and how wide they are


class Block(NamedTuple):
    """A fenced block of a page, and where its content begins and ends."""

    kind: str
    content: str
    start: int
    end: int


class Step(NamedTuple):
    """What is run, what the page says it prints, and where the page says so."""

    kind: str
    code: str
    output: str
    start: int
    end: int


def steps(page: str) -> list[Step]:
    """Everything on a page that can be run here, in its order."""
    missing = [m.span() for m in NEEDS.finditer(page) if find_spec(m[1]) is None]
    blocks = [
        Block(m[1], m[2], m.start(2), m.end(2))
        for m in FENCE.finditer(page)
        if not any(start < m.start() < end for start, end in missing)
    ]
    found: list[Step] = []
    for block, after in zip_longest(blocks, blocks[1:]):
        if block.kind == "python":
            shown = (
                after
                if after is not None and after.kind == "text" and not page[block.end + 4 : after.start - 8].strip()
                else None
            )
            found.append(
                Step("python", block.content, *((shown.content, shown.start, shown.end) if shown else ("", -1, -1)))
            )
        elif block.kind == "console":
            for m in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.content, re.MULTILINE):
                found.append(Step("console", m[1], m[2], block.start + m.start(2), block.start + m.end(2)))
    return found


def run(page: str, folder: Path) -> list[str]:
    """The real output of every step. Python blocks of a page share one set of names, which are none of ours."""
    names: dict[str, object] = {"__name__": "__main__"}
    with chdir(folder):
        return [
            python(step.code, names) if step.kind == "python" else command(step.code, folder) for step in steps(page)
        ]


def python(code: str, names: dict[str, object]) -> str:
    with redirect_stdout(StringIO()) as printed:
        try:
            exec(compile(code, "snippet", "exec", dont_inherit=True), names)
        except Exception:
            traceback.print_exc(file=sys.stdout)
    return printed.getvalue()


def command(code: str, folder: Path) -> str:
    done = subprocess.run(
        code, shell=True, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + ("\n" if done.stdout else "")


def _environment(folder: Path) -> dict[str, str]:
    """`oneof` is the package under test, even where it is not installed."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    (tools / "oneof").write_text(f"#!{sys.executable}\nfrom oneof.cli import main\nmain()\n")
    (tools / "oneof").chmod(0o755)
    paths = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    return os.environ | paths | {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def same(shown: str, real: str) -> bool:
    """Are the words the same, and the numbers near? Another machine rounds otherwise. `...` stands for anything.

    >>> same("12 rows, ... seconds", "13 rows, 4.5 seconds"), same("12 rows", "40 rows"), same("12 rows", "12 files")
    (True, False, False)
    """
    shown, real = (FRAME.sub(" ", text).strip() for text in (shown, real))
    pattern = ".*?".join(r"(\S+)".join(map(re.escape, NUMBER.split(part))) for part in shown.split("..."))
    found = re.fullmatch(pattern.replace(r"(\S+)", f"({NUMBER.pattern})"), real, re.DOTALL)
    wanted = [number for part in shown.split("...") for number in NUMBER.findall(part)]
    return found is not None and all(map(near, wanted, found.groups()))


def near(one: str, other: str) -> bool:
    """Counts within a quarter of the larger, or within 3; numbers with a point within a tenth, or within 0.05."""
    a, b = (float(number.replace(",", "")) for number in (one, other))
    share, least = (0.1, 0.05) if "." in one else (0.25, 3.0)
    return abs(a - b) <= max(least, share * max(abs(a), abs(b)))


def rewrite(path: Path, folder: Path) -> None:
    """Write the real output into a page, where it differs from what the page shows."""
    page = path.read_text("utf-8")
    for step, real in reversed(list(zip(steps(page), run(page, folder), strict=True))):
        if step.start >= 0 and not ("..." in step.output and same(step.output, real)):
            page = page[: step.start] + real + page[step.end :]
    path.write_text(page, "utf-8")


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as made:
            rewrite(Path(name), Path(made))
