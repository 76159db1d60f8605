"""A directory as a store: a mounted folder of a cloud, a network disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from surefoot.core.errors import Missing, StoreError, Unreachable
from surefoot.core.protocols import Kept
from surefoot.store.durable import STAGING

BLOCK = 1 << 20


class Directory:
    """Files under a directory. Each is written under another name, read again, and renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._there = root.is_dir()

    def put(self, key: str, file: Path) -> Kept:
        path = self._root / key
        staged = path.with_name(f"{STAGING}{path.name}-{os.getpid()}")
        with self._reached(path):
            self._make_folders(key)
            try:
                kept = _copied(file, staged)
                if described(staged) != kept:
                    raise Unreachable(f"{path} was not written as it should be")
                os.replace(staged, path)
            finally:
                staged.unlink(missing_ok=True)
        return kept

    def get(self, key: str, file: Path) -> None:
        with self._reached(self._root / key):
            shutil.copyfile(self._root / key, file)

    def list(self, prefix: str = "") -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        start = self._root / prefix
        if start.is_file():
            return {prefix: Kept(start.stat().st_size, None)}
        with told(str(self._root)):
            for path in _within(start):
                if not path.name.startswith(STAGING):
                    with suppress(FileNotFoundError):  # it has just gone
                        size = path.stat().st_size
                        found[path.relative_to(self._root).as_posix()] = Kept(size, None)
            self._require_there()
        return found

    def delete(self, key: str) -> None:
        path = self._root / key
        with told(str(path)):
            path.unlink(missing_ok=True)
            self._require_there()
            if path.parent != self._root:
                with suppress(OSError):  # it is not empty, or gone
                    path.parent.rmdir()

    def sweep(self) -> None:
        with told(str(self._root)):
            for path in _within(self._root):
                if path.name.startswith(STAGING):
                    path.unlink(missing_ok=True)

    def _make_folders(self, key: str) -> None:
        """Make the folders of a file, but never the root again, where a disk was mounted."""
        if not self._there:
            self._root.mkdir(parents=True, exist_ok=True)
            self._there = True
        for folder in list(reversed(Path(key).parents))[1:]:
            (self._root / folder).mkdir(exist_ok=True)

    @contextmanager
    def _reached(self, path: Path) -> Iterator[None]:
        """Turn errors of files into those of stores. Whether the root has gone is asked after a
        file was not found: it may go at any moment, and nothing on it is missing then."""
        try:
            with told(str(path)):
                yield
        except Missing:
            self._require_there()
            raise

    def _require_there(self) -> None:
        if self._there and not self._root.is_dir():
            raise Unreachable(f"{self._root} is gone; is it still mounted?")


def described(file: Path) -> Kept:
    """Say what a store should have of a file."""
    return _read(file, lambda block: None)


def _copied(file: Path, target: Path) -> Kept:
    with target.open("wb") as sink:
        kept = _read(file, sink.write)
        sink.flush()
        os.fsync(sink.fileno())
    return kept


def _read(file: Path, use: Callable[[bytes], object]) -> Kept:
    """Read a file block by block, and describe it."""
    digest, size = hashlib.md5(usedforsecurity=False), 0
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            digest.update(block)
            size += len(block)
            use(block)
    return Kept(size, digest.hexdigest())


def _within(start: Path) -> Iterator[Path]:
    """Find all files below a directory."""
    for folder, _, names in os.walk(start, onerror=_raise):
        yield from (Path(folder) / name for name in names)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn errors of files into those of stores."""
    try:
        yield
    except FileNotFoundError as error:
        raise Missing(f"there is no {error.filename or path}") from None
    except PermissionError:
        raise StoreError(f"{path} may not be read or written: mend its permissions") from None
    except (NotADirectoryError, IsADirectoryError) as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise Unreachable(f"{path}: {error.strerror or error}") from None
