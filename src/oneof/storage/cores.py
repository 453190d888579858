"""Count the processors that this process may use, and those that are idle."""

import os
import time
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_IDLE_COLUMNS = (1, 3, 4)  # of a processor's line in /proc/stat: nice, which yields to this process, idle and iowait
_FIRST_GUEST_COLUMN = 8  # guest time is part of the first two columns already
_SAMPLE_SECONDS = 0.25


def cores() -> int:
    """Return how many processors this process may use, by its affinity and by the quota of its container."""
    count = _affinity()
    quota = _cgroup_quota()
    if quota is None:
        return count
    return max(1, min(count, int(quota)))


def idle_cores() -> int:
    """Return how many of these processors other processes leave idle, measured for a quarter of a second; 0 if all are busy.

    All count as idle on systems that do not report what their processors do.
    """
    busy_before = _busy_seconds()
    if busy_before is None:
        return cores()
    start = time.monotonic()
    own_before = sum(os.times()[:4])
    time.sleep(_SAMPLE_SECONDS)
    busy_after = _busy_seconds()
    elapsed = time.monotonic() - start
    if busy_after is None:
        return cores()
    own_seconds = sum(os.times()[:4]) - own_before
    others_seconds = max(0.0, (busy_after - busy_before) - own_seconds)
    n_idle = round(len(os.sched_getaffinity(0)) - others_seconds / elapsed)
    return min(cores(), n_idle)


def _affinity() -> int:
    """Return how many processors the system schedules this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _busy_seconds() -> float | None:
    """Return how long the processors of this process were busy since the system started; None if that is not reported."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    reported = set()
    try:
        for line in (_PROC / "stat").read_text().splitlines():
            name, *columns = line.split()
            if name not in allowed:
                continue
            reported.add(name)
            for i, value in enumerate(columns[:_FIRST_GUEST_COLUMN]):
                if i not in _IDLE_COLUMNS:
                    ticks += int(value)
    except (OSError, ValueError):
        return None
    if reported != allowed:
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def _cgroup_quota() -> float | None:
    """Return how many processors the control groups of this process allow, the minimum over all levels; None if unlimited."""
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
            if not folder.is_relative_to(root):
                continue
            quota = _read_quota(folder)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _read_quota(folder: Path) -> float | None:
    """Return how many processors a control group allows, of version 2 or 1; None if unlimited."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        if int(quota) <= 0:
            return None
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max", or no such file: no limit
        return None
