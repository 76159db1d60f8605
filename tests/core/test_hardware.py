"""Memory that arrays leave behind stays with the process."""

import platform
import subprocess
import sys

import pytest

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
