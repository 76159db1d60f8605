"""Writing that survives a crash: what has a name is complete, and stays after power is lost."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from surefoot.core.errors import CheckpointError

STAGING = ".staging-"
"""What the name of an unfinished or doomed thing begins with; no reader matches it."""


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, that stay after power is lost."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all; an older one of that name is replaced."""
    staged = path.with_name(f"{STAGING}{path.name}-{os.getpid()}")
    try:
        _write(staged, content)
        os.rename(staged, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise
    sync(path.parent)


def write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a directory of files in place, whole or not at all, under a name that is free."""
    staged = path.with_name(f"{STAGING}{path.name}-{os.getpid()}")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        os.mkdir(staged)
        for name, content in files.items():
            _write(staged / name, content)
        sync(staged)
        os.rename(staged, path)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync(path.parent)


def take_away(path: Path) -> Path:
    """Take a directory that is to be removed from its name, so that nobody sees half of it."""
    doomed = path.with_name(f"{STAGING}{path.name}-{os.getpid()}-removed")
    os.rename(path, doomed)
    return doomed


def sweep(directory: Path) -> None:
    """Remove what interrupted writers left behind; the caller owns the directory."""
    for path in directory.glob(f"{STAGING}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def read_file(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes; whatever else has the name is refused."""
    try:
        # A named pipe must not block us, nor a link lead out of the run.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be opened: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointError(f"{path.name} is not a regular file")
        if found.st_size > limit:
            raise CheckpointError(f"{path.name} has {found.st_size:,} bytes, more than {limit:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(directory: Path) -> None:
    """Make sure of what a directory holds."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
