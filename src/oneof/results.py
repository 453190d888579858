"""Results are rows: every trial is one JSON line that says how it was obtained. Files of rows only ever grow."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from oneof.evaluate import true_labels_removed
from oneof.settings import plain_value
from oneof.state import Fit
from oneof.version import __version__

Row = dict[str, Any]


def rows_of(fitted: Fit, *, seeds: Iterable[int], seconds: float, labels: Any = None, **setting: Any) -> list[Row]:
    """One row per trial: the setting, what the chosen epoch showed, and where it ran. Seconds are for the whole stack."""
    history, chosen = fitted.history, fitted.epoch - 1
    t = fitted.stack.t
    measured = {"set_size": history.set_size, "covering": history.covering, "approximated": history.approximated}
    measured |= {"oracle": history.oracle, "accuracy": history.accuracy}
    at_epoch = {name: _at(column, chosen) for name, column in measured.items() if column is not None}
    if labels is not None:
        truth = torch.as_tensor(np.asarray(labels), device=fitted.rows.device)[fitted.rows]
        at_epoch["true_labels_removed"] = true_labels_removed(fitted.candidates, truth).tolist()
    plain = {name: plain_value(value) for name, value in setting.items()}
    return [
        {
            **plain,
            "seed": seed,
            "epoch": int(fitted.epoch[i]),
            **{name: round(column[i], 6) for name, column in at_epoch.items()},
            "seconds": round(seconds / t, 4),
            **origin(str(fitted.rows.device)),
        }
        for i, seed in enumerate(seeds)
    ]


def _at(column: torch.Tensor, epoch: torch.Tensor) -> list[float]:
    return column.gather(0, epoch[None])[0].tolist()


@cache
def origin(device: str) -> Row:
    """Where a row comes from: device, versions, commit."""
    name = (
        torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or platform.machine()
    )
    return {"device": f"{device} ({name})", "oneof": __version__, "torch": torch.__version__, "commit": _commit()}


def _commit() -> str | None:
    """The commit of the source tree, with a + if it was changed since; None when installed from a wheel."""
    here = Path(__file__).parent
    asked = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except OSError:  # no git on this machine
        return None
    return answer.stdout.strip() or None


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file of JSON lines; several processes may do so at once.

    What a writer that was killed left of its last line is moved to a file beside, whose name ends in `.damaged`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with path.open("ab+", buffering=0) as file, _locked(file, fcntl.LOCK_EX):
        _mend(path, file)
        left = memoryview(text)
        while left:  # a write may be short when the disk is nearly full; the next one then says so
            left = left[file.write(left) :]


def read(path: Path) -> list[Row]:
    """All rows of a file of JSON lines, without a last line that was cut short when its writer was killed."""
    with path.open("rb") as file, _locked(file, fcntl.LOCK_SH):
        content = file.read()
    whole, tail = _parted(content)
    if tail:
        warnings.warn(f"{path} ends in a damaged line of {len(tail)} bytes, which is left out.", stacklevel=2)
    return [_row(path, number, line) for number, line in enumerate(whole.splitlines(), 1)]


def _row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(
            f"{path} must hold one JSON object per line; line {number} does not ({error}). Delete the line."
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{path} must hold one JSON object per line; line {number} holds another value. Delete it.")
    return row


@contextmanager
def _locked(file: IO[bytes], how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _mend(path: Path, file: IO[bytes]) -> None:
    """See that the file ends in a whole line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    if file.read() in (b"", b"\n"):
        return
    file.seek(0)
    whole, tail = _parted(file.read())
    if tail:
        aside = path.with_name(f"{path.name}.damaged")
        with aside.open("ab") as damaged:
            damaged.write(tail + b"\n")
        warnings.warn(f"{path} ended in a damaged line; it was moved to {aside}.", stacklevel=3)
        file.truncate(len(whole))
    elif whole and not whole.endswith(b"\n"):
        file.write(b"\n")


def _parted(content: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what a killed writer left of one: a last line without an end that is no JSON."""
    end = content.rfind(b"\n") + 1
    try:
        if content[end:]:
            json.loads(content[end:])
    except ValueError:
        return content[:end], content[end:]
    return content, b""
