"""What this process runs on."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CGROUP, OWN_GROUPS = "/sys/fs/cgroup", "/proc/self/cgroup"
"""Where it says what control groups, and so containers, may have; and in which this process is."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT, LARGE = 128 << 20, 32 << 20
"""Bytes at the end of the heap that are kept for arrays to come; and of an array that lies outside.
"""


def keep_memory() -> None:
    """Let this process keep what arrays leave behind, from now on, where it has glibc: that would
    give most of it back to the kernel at once, and get it again for the next ones, page by page,
    which is 5 % of the time of an update with minibatches of 2048."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    # Both: to set one fixes the other where it is.
    if hasattr(library, "mallopt") and library.mallopt(M_MMAP_THRESHOLD, LARGE):
        library.mallopt(M_TRIM_THRESHOLD, KEPT)


def described() -> str:
    """Say how many cores of what there are, and how much memory."""
    lines = _lines("/proc/cpuinfo")
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cpu = next(names, "") or platform.processor() or platform.machine()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{cores()} core{'s' * (cores() != 1)} of {cpu}, {memory / 2**30:.0f} GiB"


def cores() -> int:
    """Count the cores that this process may use: those it may run on, or fewer where a container
    has a share of the time of all, rounded down."""
    bound = hasattr(os, "sched_getaffinity")
    free = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    return max(1, int(min([free, *_shares()])))


def whole_cores() -> bool:
    """Say whether threads can be bound to the cores that this process may use: on Linux, unless a
    container has a share of the time of more cores than that."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) == cores()


def _shares() -> Iterator[float]:
    """Find the limits, in cores, of the control groups around this process, of either version."""
    for line in _lines(OWN_GROUPS):
        _, kinds, group = (*line.split(":", 2), "", "")[:3]
        if kinds and "cpu" not in kinds.split(","):
            continue
        top = Path(CGROUP, "cpu" if kinds else "")
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if kinds else ("cpu.max",)
        own = top / group.lstrip("/")
        for place in (own, *own.parents):
            told = [word for name in names for word in " ".join(_lines(place / name)).split()]
            quota, period = (int(word) if word.isdigit() else 0 for word in (*told, "", "")[:2])
            if quota and period:
                yield quota / period
            if place == top:
                break


def free_memory() -> int:
    """Count the bytes of memory that could be had; all there is where nobody tells."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    told = (line.split() for line in _lines("/proc/meminfo"))
    found += [1024 * int(words[1]) for words in told if words[:1] == ["MemAvailable:"]]
    limit, used = (_lines(f"{CGROUP}/memory.{name}") for name in ("max", "current"))
    if limit and used and limit[0].isdigit():  # a container may have less than its machine
        told = (line.split() for line in _lines(f"{CGROUP}/memory.stat"))
        cached = sum(int(words[1]) for words in told if words[:1] == ["inactive_file"])
        found.append(int(limit[0]) - int(used[0]) + cached)
    return min(found)


def _lines(path: str | Path) -> list[str]:
    """Read a file that not every system has."""
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
