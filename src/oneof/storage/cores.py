"""Count the processors that this process may use, and those that are idle."""

import os
import time
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NOT_BUSY = (1, 3, 4)  # columns of a processor's line in /proc/stat: nice, which gives way to us, idle and iowait
_OF_GUESTS = 8  # columns from here on are counted in the first two already
_SAMPLE_SECONDS = 0.25


def cores() -> int:
    """Return how many processors this process may use: by its affinity, and by the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return count if quota is None else max(1, min(count, int(quota)))


def idle_cores() -> int:
    """Return how many of these processors other processes leave idle, by a look of a quarter second; 0 where all are busy.

    Where the system does not say what its processors do, all count as idle.
    """
    before = _busy_seconds()
    if before is None:
        return cores()
    begun = time.monotonic()
    ours = sum(os.times()[:4])
    time.sleep(_SAMPLE_SECONDS)
    after = _busy_seconds()
    elapsed = time.monotonic() - begun
    if after is None:
        return cores()
    by_others = max(0.0, (after - before) - (sum(os.times()[:4]) - ours))
    return min(cores(), round(len(os.sched_getaffinity(0)) - by_others / elapsed))


def _busy_seconds() -> float | None:
    """Return how long the processors that we may use were busy since the system started; None where it does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    seen = set()
    try:
        for line in (_PROC / "stat").read_text().splitlines():
            name, *columns = line.split()
            if name in allowed:
                seen.add(name)
                ticks += sum(int(value) for i, value in enumerate(columns[:_OF_GUESTS]) if i not in _NOT_BUSY)
    except (OSError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK") if seen == allowed else None


def _cgroup_quota() -> float | None:
    """Return the processors that the control groups of this process allow it, the least of all levels; None: no limit."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CGROUPS / controllers
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                quotas.append(_quota_of(folder))
    known = [quota for quota in quotas if quota is not None]
    return min(known, default=None)


def _quota_of(folder: Path) -> float | None:
    """Return the processors that a control group allows, in the form of version 2 or 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max", or no such file: no limit
        return None
