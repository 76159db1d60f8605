"""Every test runs on one thread: two test processes share two cores, and bits depend on it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
    threadpool_limits(limits=1, user_api="blas")


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "use the Google Drive that surefoot is logged in to, not a server on this machine"
    parser.addoption("--drive-live", action="store_true", help=told)


@pytest.fixture(params=("directory", "memory", "s3", "drive"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A place elsewhere, of every kind."""
    from tests.places import live_drive, place

    live = request.param == "drive" and request.config.getoption("--drive-live")
    with live_drive() if live else place(request.param, tmp_path) as found:
        yield found
