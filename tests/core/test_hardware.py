"""What a process may have is counted, and memory that arrays leave behind stays with it."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.core import hardware

COUNTED = """
import resource
import numpy as np
from surefoot.core import hardware

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use_memory():
    return [np.ones(2**18) for _ in range(32)]

{keep}
use_memory()
before = page_faults()
use_memory()
print(page_faults() - before)
"""


def page_faults(keep: str) -> int:
    command = [sys.executable, "-c", COUNTED.format(keep=keep)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others do as they like")
def test_memory_of_arrays_that_are_gone_is_kept_for_the_next() -> None:
    assert page_faults("hardware.keep_memory()") < 0.1 * page_faults("")


@pytest.mark.parametrize(
    ("own", "told", "expected"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "900000 100000"}, 4),
        ("0::/", {"cpu.max": "max 100000"}, 4),
        ("0::/", {"cpu.max": ""}, 4),
        ("0::/", {}, 4),
        ("", {"cpu.max": "100000 100000"}, 4),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "300000 100000"}, 2),
        ("0::/a", {"b/cpu.max": "100000 100000"}, 4),
        (
            "3:memory:/\n1:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
        (
            "1:name=systemd:/x\n4:cpu,cpuacct:/a\n0::/y",
            {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("what is this\n0::/", {"cpu.max": "300000 0"}, 4),
    ],
)
def test_a_share_of_a_machines_time_counts_as_that_many_cores(
    own: str,
    told: dict[str, str],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "CGROUP", tmp_path)
    monkeypatch.setattr(hardware, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)), raising=False)
    for name, text in {"own": own, **told}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n" if text else "")
    assert hardware.cores() == expected
