"""Whatever fsspec reaches as a store: s3://, sftp://, memory:// and many more."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec  # type: ignore[import-untyped]

from surefoot.core.errors import ConfigError, Missing, StoreError, Unreachable
from surefoot.core.protocols import Kept
from surefoot.store.durable import STAGING
from surefoot.store.places import redacted
from surefoot.store.plain import described

WHOLE = {"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2", "oci"}
"""Where a file appears only when it is complete; elsewhere it is renamed then."""
EXTRAS = {"s3": "pip install 'surefoot[s3]'", "s3a": "pip install 'surefoot[s3]'"}
BOTO = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 3}}
"""Seconds and attempts after which Amazon's library gives up; what is left is ours."""
MD5 = re.compile(r'"?([0-9a-f]{32})"?')
REFUSED = ("NoCredentials", "PartialCredentials", "AuthenticationException", "InvalidAccessKey")
"""Parts of the names of errors that do not go away by themselves."""


class FileSystem:
    """Files below a URL."""

    def __init__(self, url: str) -> None:
        self._scheme = urlsplit(url).scheme
        try:
            self._files: Any
            given: dict[str, Any] = {}
            given |= {"use_listings_cache": False} if self._scheme in WHOLE else {}
            given |= {"config_kwargs": BOTO} if self._scheme in ("s3", "s3a") else {}
            self._files, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **given)
        except ImportError as error:
            remedy = EXTRAS.get(self._scheme, "install it")
            raise ConfigError(f"{url}: {error}; {remedy}") from None
        except ValueError as error:
            raise ConfigError(f"{url}: {error}") from None
        except Exception as error:  # some connect at once, each with errors of its own
            raise Unreachable(f"{url}: {redacted(str(error))}") from None
        self._root = root.rstrip("/")

    def put(self, key: str, file: Path) -> Kept:
        path, kept = self._path(key), described(file)
        with self._told(path):
            if self._scheme in WHOLE:
                self._send(file, path)
            else:
                folder, _, name = path.rpartition("/")
                staged = f"{folder}/{STAGING}{name}-{os.getpid()}"
                self._files.makedirs(folder, exist_ok=True)
                self._send(file, staged)
                self._files.mv(staged, path)
            there = _described(self._files.info(path))
        if there.size != kept.size:  # what is in it, libraries check by sums of their own
            raise Unreachable(f"{path} was not written as it should be")
        return kept

    def get(self, key: str, file: Path) -> None:
        path = self._path(key)
        with self._told(path):
            self._files.get_file(path, str(file))

    def list(self, prefix: str = "") -> dict[str, Kept]:
        path = self._path(prefix)
        with self._told(path):
            try:
                self._files.invalidate_cache()
                found = self._files.find(path, detail=True)
            except FileNotFoundError:
                return {}
        start = len(self._files._strip_protocol(self._root).strip("/")) + 1
        return {
            name.strip("/")[start:]: _described(about)
            for name, about in found.items()
            if not name.rpartition("/")[2].startswith(STAGING)
        }

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._told(path), suppress(FileNotFoundError):
            self._files.rm_file(path)

    def sweep(self) -> None:
        if self._scheme in WHOLE:
            return
        with self._told(self._root), suppress(FileNotFoundError):
            for path in self._files.find(self._root):
                if path.rpartition("/")[2].startswith(STAGING):
                    self._files.rm_file(path)

    def _send(self, file: Path, path: str) -> None:
        self._files.put_file(str(file), path)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn all that libraries may raise into errors of stores."""
        place = f"{self._scheme}://{path.lstrip('/')}"
        try:
            yield
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise Missing(f"there is no {place} ({redacted(str(error))})") from None
        except PermissionError as error:
            raise StoreError(
                f"{place} may not be read or written ({redacted(str(error))}): check the "
                f"credentials and their rights"
            ) from None
        except (Exception, asyncio.CancelledError) as error:
            what = f"{place}: {type(error).__name__}: {redacted(str(error))}"
            if any(name in type(error).__name__ for name in REFUSED):
                hint = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials)"
                amazon = hint * (self._scheme in EXTRAS)
                raise StoreError(f"{what}; check the credentials{amazon}") from None
            raise Unreachable(what) from None


def _described(about: dict[str, Any]) -> Kept:
    whole = MD5.fullmatch(
        str(about.get("ETag", ""))
    )  # what came in pieces, or is encrypted, differs
    return Kept(int(about["size"]), whole.group(1) if whole else None)
