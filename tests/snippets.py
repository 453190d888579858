"""Code in the docs: found, run in a folder of its own, and its output compared with what the page shows, or written into it.

    python tests/snippets.py docs/guide/start.md      # run a page and write its real output into it

A page's blocks share a folder, and its Python blocks one set of names. A `python` block may be followed by a `text` block: what it
prints. In a `console` block the lines that begin with `$ ` are run, and the lines below each are what it prints. Blocks may be indented,
as those in tabs are. Three comments steer this:

- `<!-- continues start.md -->`: the page begins in a copy of the folder that the other page leaves, with its runs and tables.
- `<!-- needs PACKAGE -->` ... `<!-- end -->`: left out where there is no such package.
- `<!-- not run: REASON -->`: the `sh` block below it needs a cluster, a server or another program.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import traceback
from contextlib import chdir, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple
from unittest import mock

NEEDS = re.compile(r"<!-- needs (\w+) -->(.*?)<!-- end -->", re.DOTALL)
CONTINUES = re.compile(r"<!-- continues (\S+) -->")
NOT_RUN = re.compile(r"<!-- not run: .+ -->\n+ *```sh\n")
FENCE = re.compile(r"^( *)```(python|console|text)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
FRAME = re.compile(r"[─-╿\s]+")  # lines of tables, and how wide they are
KEPT_NETWORKS = re.compile(r"\b(?:networks|linear) (\d+%)")
PROGRESS = re.compile(
    r"^[\w ]+(?: \([\d,]+ of [\d,]+\))?: [\d,]+ of [\d,]+(?: \w+)? after .*\n", re.MULTILINE
)  # printed by long commands only
SECONDS = re.compile(r"(│ seconds +│ )([\d.,]+ *)")
PIPE = re.compile(r"[|<>;&]")


class Block(NamedTuple):
    """A fenced block of a page, how far it is indented, and where its content begins and ends."""

    kind: str
    content: str
    indent: str
    start: int
    end: int


class Step(NamedTuple):
    """What is run, what the page says it prints, and where the page says so."""

    kind: str
    code: str
    output: str
    indent: str = ""
    start: int = -1  # of the output; -1 where the page shows none
    end: int = -1  # of the output, or of the code


def steps(page: str) -> list[Step]:
    """Return everything on a page that can be run here, in its order."""
    missing = [match.span() for match in NEEDS.finditer(page) if find_spec(match[1]) is None]
    blocks = []
    for match in FENCE.finditer(page):
        if not any(start < match.start() < end for start, end in missing):
            blocks.append(Block(match[2], match[3], match[1], match.start(3), match.end(3)))
    found: list[Step] = []
    for block, after in zip_longest(blocks, blocks[1:]):
        if block.kind == "python":
            found.append(_python_step(page, block, after))
        elif block.kind == "console":
            found.extend(_console_steps(block))
    return found


def _python_step(page: str, block: Block, after: Block | None) -> Step:
    """Return a block of Python with the block below it, if that is what it prints."""
    code = textwrap.dedent(block.content)
    if after is None or after.kind != "text" or page[block.end : after.start].split() != ["```", "```text"]:
        return Step("python", code, "", block.indent, end=block.end + len(f"{block.indent}```\n"))
    return Step("python", code, textwrap.dedent(after.content), after.indent, after.start, after.end)


def _console_steps(block: Block) -> list[Step]:
    """Return the commands of a block, each with the lines below it."""
    found = []
    prompt = re.escape(block.indent) + r"\$ "
    for match in re.finditer(rf"^{prompt}(.*)\n((?:(?!{prompt}).*\n)*)", block.content, re.MULTILINE):
        start = block.start + match.start(2)
        end = block.start + match.end(2)
        found.append(Step("console", match[1], _unindent(match[2], block.indent), block.indent, start, end))
    return found


def _unindent(text: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def run(page: str, folder: Path) -> list[str]:
    """Return the real output of every step. Python blocks of a page share one set of names, which are none of ours."""
    names: dict[str, object] = {"__name__": "__main__"}
    outputs = []
    with chdir(folder):
        for step in steps(page):
            if step.kind == "python":
                outputs.append(python(step.code, names))
            else:
                outputs.append(command(step.code, folder))
    return outputs


def python(code: str, names: dict[str, object]) -> str:
    """Run Python, and return what it prints."""
    with redirect_stdout(StringIO()) as printed:
        try:
            exec(compile(code, "snippet", "exec", dont_inherit=True), names)
        except Exception:
            traceback.print_exc(file=sys.stdout)
    return printed.getvalue()


def command(code: str, folder: Path) -> str:
    """Run a line of a shell, and return what it prints on both streams; a plain `oneof` command is run in this process."""
    if code.startswith("oneof ") and not PIPE.search(code.replace("'*", "")):
        printed = _oneof(shlex.split(code)[1:], folder)
    else:
        done = subprocess.run(
            code, shell=True, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )  # fmt: skip
        printed = done.stdout
    lines = [line.rstrip() for line in PROGRESS.sub("", printed).splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _oneof(arguments: list[str], folder: Path) -> str:
    from commands import call

    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        done = call(*arguments, cwd=folder)
    return done.stderr + done.stdout  # what it remarks comes first


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `oneof` is the package under test, even where it is not installed."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    (tools / "oneof").write_text(f"#!{sys.executable}\nfrom oneof.cli import main\nmain()\n")
    (tools / "oneof").chmod(0o755)
    paths = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return os.environ | paths | {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


def same(shown: str, real: str) -> bool:
    """Return whether the words are the same, and the numbers near. Another machine rounds otherwise. `...` stands for anything.

    >>> same("12 rows, ... seconds", "13 rows, 4.5 seconds"), same("12 rows", "40 rows"), same("12 rows", "12 files")
    (True, False, False)
    """
    shown = plain(shown)
    real = plain(real)
    pattern = ".*?".join(r"(\S+)".join(map(re.escape, NUMBER.split(part))) for part in shown.split("..."))
    found = re.fullmatch(pattern.replace(r"(\S+)", f"({NUMBER.pattern})"), real, re.DOTALL)
    wanted = [number for part in shown.split("...") for number in NUMBER.findall(part)]
    return found is not None and all(map(near, wanted, found.groups()))


def plain(text: str) -> str:
    """Return the text without frames, and without what rounding decides on easy tables: whether networks or linear models are kept.

    >>> plain("| networks 25%, trees 25% |") == plain("| linear 25%, trees 25% |")
    True
    """
    return KEPT_NETWORKS.sub(r"networks or linear \1", FRAME.sub(" ", text)).strip()


def near(one: str, other: str) -> bool:
    """Return whether counts are within a quarter of the larger, or within 3; numbers with a point within a tenth, or within 0.05."""
    a, b = (float(number.replace(",", "")) for number in (one, other))
    share, least = (0.1, 0.05) if "." in one else (0.25, 3.0)
    return abs(a - b) <= max(least, share * max(abs(a), abs(b)))


class Pages:
    """The pages of a folder, each run once at most, also where others continue it."""

    def __init__(self, docs: Path, scratch: Path) -> None:
        self.docs = docs
        self.scratch = scratch
        self.outputs: dict[str, list[str]] = {}

    def run(self, name: str) -> list[str]:
        """Return the real output of every step of a page."""
        if name not in self.outputs:
            page = (self.docs / name).read_text("utf-8")
            folder = self.folder(name)
            continued = CONTINUES.search(page)
            if continued:
                before = (Path(name).parent / continued[1]).as_posix()
                self.run(before)
                shutil.copytree(self.folder(before), folder)
            else:
                folder.mkdir(parents=True)
            self.outputs[name] = run(page, folder)
        return self.outputs[name]

    def folder(self, name: str) -> Path:
        """Return the folder that a page runs in."""
        return self.scratch / name.replace("/", "-").removesuffix(".md")

    def rewrite(self, name: str) -> None:
        """Write the real output into a page, where it differs from what the page shows."""
        path = self.docs / name
        page = path.read_text("utf-8")
        for step, real in reversed(list(zip(steps(page), self.run(name), strict=True))):
            printed = shortened(step.output, SECONDS.sub(_dots, real))
            shown = textwrap.indent(printed, step.indent)
            if step.start < 0:
                block = f"\n{step.indent}```text\n{shown}{step.indent}```\n" if real else ""
                page = page[: step.end] + block + page[step.end :]
            elif "..." not in step.output or not same(step.output, real) or _same_words(step.output, printed):
                page = page[: step.start] + shown + page[step.end :]
        path.write_text(page, "utf-8")


def shortened(shown: str, real: str) -> str:
    """Return real output without the lines for which the page shows a line of "..."; all of it if the page has no such line.

    >>> shortened("one\\n...\\n3 rows\\n", "one\\ntwo\\nmore\\n4 rows\\n")
    'one\\n...\\n4 rows\\n'
    """
    lines = shown.splitlines()
    if lines.count("...") != 1:
        return real
    n_before = lines.index("...")
    n_after = len(lines) - n_before - 1
    real_lines = real.splitlines()
    kept = [*real_lines[:n_before], "...", *real_lines[len(real_lines) - n_after :]]
    return "".join(f"{line}\n" for line in kept)


def _same_words(shown: str, real: str) -> bool:
    """Return whether two outputs differ in numbers only, so that no `...` of one stands for words of the other."""
    return NUMBER.sub("0", plain(shown)) == NUMBER.sub("0", plain(real))


def _dots(match: re.Match[str]) -> str:
    return match[1] + "...".ljust(len(match[2]))


if __name__ == "__main__":
    import tempfile

    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        pages = Pages(Path.cwd(), Path(made))
        for given in sys.argv[1:]:
            pages.rewrite(given)
