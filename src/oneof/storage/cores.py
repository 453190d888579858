"""How many processors there are for us."""

import os


def cores() -> int:
    """Those that this process may use; some systems say only how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
