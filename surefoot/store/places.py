"""Stores elsewhere, by URL: a directory, whatever fsspec reaches, and Google Drive."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from surefoot.core.errors import ConfigError
from surefoot.core.protocols import Store

SECRETS = (
    re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]+"),
    re.compile(r"\bya29\.[\w.-]+"),
    re.compile(r"\b1//[\w-]{20,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"(?i)(?<=token=)[\w.~%/-]+|(?<=secret=)[\w.~%/-]+|(?<=signature=)[\w.~%/-]+"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"),
)
"""What must not get into a message: passwords in URLs, tokens of Google's, keys of Amazon's."""


def is_url(place: str | Path) -> bool:
    return "://" in str(place)


def require_place(url: str) -> None:
    """Refuse what cannot be a place, and what would write a password into files."""
    if not url.strip("/ "):
        raise ConfigError(f"{url!r} names no place; give a directory or a URL")
    if not is_url(url):
        return
    parts = urlsplit(url.rpartition("::")[2])
    if parts.password or parts.query or "::" in url:
        raise ConfigError(
            f"{redacted(url.partition('?')[0])}: a URL with a password, ?options or :: would be "
            f"written into the run; put them where {parts.scheme} looks for them (environment "
            f"variables or its own config files)"
        )
    if not (parts.netloc + parts.path).strip("/"):
        raise ConfigError(f"{url} names no place: say which, as in {parts.scheme}://name/run")


def open_store(url: str) -> Store:
    """Reach for a place; nothing is asked of it yet."""
    require_place(url)
    scheme = urlsplit(url).scheme if is_url(url) else ""
    if scheme in ("", "file"):
        from surefoot.store.plain import Directory

        return Directory(Path(url.removeprefix("file://")).expanduser())
    if scheme == "gdrive":
        try:
            from surefoot.store.drive import open_drive
        except ImportError:
            raise ConfigError("gdrive:// needs pip install 'surefoot[drive]'") from None
        return open_drive(url.removeprefix("gdrive://").strip("/"))
    from surefoot.store.filesystem import FileSystem

    return FileSystem(url)


def same_directory(url: str, run: Path) -> bool:
    return not is_url(url) and Path(url).expanduser().resolve() == run.resolve()


def require_apart(url: str, run: Path) -> None:
    """Refuse a mirror within a run, or the other way round."""
    if is_url(url):
        return
    there, here = Path(url).expanduser().resolve(), run.resolve()
    if there == here or there in here.parents or here in there.parents:
        raise ConfigError(f"mirror={url}: it must not be within {run}, nor the other way round")


def settled(url: str, name: str) -> str:
    """Name the place of a run for good: its own within a folder, wherever we are."""
    if url.endswith("/"):
        url = joined(url, name)
    return url if is_url(url) or not url else str(Path(url).expanduser().absolute())


def resuming(url: str) -> str:
    """Say how to go on with a run from a place."""
    return f"surefoot resume {quote(url)}{'' if is_url(url) else ' --out DIR'}"


def joined(url: str, name: str) -> str:
    """Name a place within another."""
    return f"{url.rstrip('/')}/{name}"


def redacted(text: str) -> str:
    """Take secrets out of a message."""
    for secret in SECRETS:
        text = secret.sub("…", text)
    return text
