"""Room in memory: sets are tables [items, labels], which the free text of a language model makes too large."""

import os
import re
from pathlib import Path

from oneof.storage.printable import shortened
from oneof.votes.ballots import Votes

_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes that a program may have now, with what the system would give up of its file cache; None where it does not say."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", _MEMINFO.read_text()) if _MEMINFO.is_file() else None
    if found is not None:
        return int(found[1]) * 1024
    known = getattr(os, "sysconf_names", {})
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in known else None


def refuse_without_room(votes: Votes, needed: int) -> None:
    """Refuse tables of so many bytes, before they are made."""
    free = available_memory()
    if free is None or needed <= free:
        return
    shown = ", ".join(repr(shortened(label, 30)) for label in votes.labels[:3])
    raise ValueError(
        f"labels must be few enough for tables of items by labels in memory; {len(votes.labels):,} distinct labels "
        f"({shown}, ...) of {len(votes.items):,} items need {needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free. "
        "Map the answers to a few labels (--map), or make their spelling one (--normalise)."
    )
