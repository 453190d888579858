"""The machine: how much memory a device has to give."""

from __future__ import annotations

import os

import torch


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device now; a guess of 4 GiB where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30
