"""What this process runs on, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def described() -> str:
    """Say how many cores of what there are, and how much memory."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cpu = next(names, "") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{cores} core{'s' * (cores != 1)} of {cpu}, {memory / 2**30:.0f} GiB"
