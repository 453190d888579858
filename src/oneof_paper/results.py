"""Rows of results: every trial is one JSON line with its setting, what it showed, and where it ran."""

import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneof.metrics import CRITERIA, true_labels_removed
from oneof.storage.rows import Row
from oneof.storage.settings import to_serializable
from oneof.training.state import Fit
from oneof.version import __version__


def rows_of(fitted: Fit, *, seeds: Iterable[int], seconds: float, labels: Any = None, **setting: Any) -> list[Row]:
    """Return one row per trial: the setting, what the chosen epoch showed, and where it ran.

    `seconds` is the time of the whole stack; a row has the share of one trial.
    """
    history = fitted.history
    chosen_epoch = fitted.epoch - 1
    at_epoch: dict[str, list[float]] = {}
    for name in ("set_size", *CRITERIA, "oracle", "accuracy"):
        if name in history:
            at_epoch[name] = history[name].gather(0, chosen_epoch[None])[0].tolist()
    if labels is not None:
        truth = torch.as_tensor(np.asarray(labels), device=fitted.rows.device)[fitted.rows]
        at_epoch["true_labels_removed"] = true_labels_removed(fitted.candidates, truth).tolist()
    plain = {name: to_serializable(value) for name, value in setting.items()}
    spent = {"seconds": round(seconds / fitted.stack.t, 4), **origin(str(fitted.rows.device))}
    rows = []
    for i, seed in enumerate(seeds):
        measured = {name: round(values[i], 6) for name, values in at_epoch.items()}
        rows.append({**plain, "seed": seed, "epoch": int(fitted.epoch[i]), **measured, **spent})
    return rows


_ROOT = Path(__file__).resolve().parents[2]  # of the repository, if the package is used from its source


@cache
def origin(device: str) -> Row:
    """Return where a row comes from: device, versions, and the commit (with a + if the source was changed; None for a wheel)."""
    name = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    versions = {"oneof": __version__, "torch": torch.__version__, "commit": _commit(_ROOT)}
    return {"device": f"{device} ({name})", **versions}


def _commit(root: Path) -> str | None:
    """Return the commit of the source tree at `root`; None if it is not a repository.

    Git does not search the folders above: an environment may lie in a repository of others, whose settings can run commands.
    """
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except OSError:  # no git on this machine
        return None
    return answer.strip() or None
