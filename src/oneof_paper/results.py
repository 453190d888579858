"""Results are rows: every trial is one JSON line that says how it was obtained."""

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
from oneof.storage.settings import plain_value
from oneof.training.state import Fit
from oneof.version import __version__


def rows_of(fitted: Fit, *, seeds: Iterable[int], seconds: float, labels: Any = None, **setting: Any) -> list[Row]:
    """One row per trial: the setting, what the chosen epoch showed, and where it ran. Seconds are for the whole stack."""
    columns, chosen = fitted.history, fitted.epoch - 1
    measured = [name for name in ("set_size", *CRITERIA, "oracle", "accuracy") if name in columns]
    at_epoch = {name: columns[name].gather(0, chosen[None])[0].tolist() for name in measured}
    if labels is not None:
        truth = torch.as_tensor(np.asarray(labels), device=fitted.rows.device)[fitted.rows]
        at_epoch["true_labels_removed"] = true_labels_removed(fitted.candidates, truth).tolist()
    plain = {name: plain_value(value) for name, value in setting.items()}
    spent = {"seconds": round(seconds / fitted.stack.t, 4), **origin(str(fitted.rows.device))}
    rows = []
    for i, seed in enumerate(seeds):
        shown = {name: round(column[i], 6) for name, column in at_epoch.items()}
        rows.append({**plain, "seed": seed, "epoch": int(fitted.epoch[i]), **shown, **spent})
    return rows


_ROOT = Path(__file__).resolve().parents[2]  # of the repository, where the package is used from its source


@cache
def origin(device: str) -> Row:
    """Where a row comes from: device, versions, and the commit, with a + if the source was changed; of a wheel None."""
    name = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    versions = {"oneof": __version__, "torch": torch.__version__, "commit": _commit(_ROOT)}
    return {"device": f"{device} ({name})", **versions}


def _commit(root: Path) -> str | None:
    """Return the commit of the source tree at `root`; None where it is no repository.

    Git is not asked to look further up: an environment may lie in a repository of others, whose settings can run commands.
    """
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except OSError:  # no git on this machine
        return None
    return answer.strip() or None
