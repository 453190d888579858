"""Find out how much memory is free, so that what does not fit is refused before it is allocated."""

import math
import os
import re
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


def available_memory() -> float:
    """Return the bytes of memory available to a program, file cache included; infinity where the system does not report it."""
    if _MEMINFO.is_file():
        match = re.search(r"MemAvailable:\s+(\d+) kB", _MEMINFO.read_text())
        if match is not None:
            return int(match[1]) * 1024
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf
