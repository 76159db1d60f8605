"""Every test runs on one thread: two test processes share two cores, and bits depend on it."""

import sys
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
    threadpool_limits(limits=1, user_api="blas")
