"""Google Drive as a store (the extra `drive`): the official client, Drive v3.

Files are found by properties that only this program sees, not by their names, which people may
change. They lie in folders of the same names as elsewhere, for people.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar

import google.auth.exceptions
import httplib2  # type: ignore[import-untyped]
from google_auth_httplib2 import AuthorizedHttp  # type: ignore[import-untyped]
from googleapiclient import discovery_cache  # type: ignore[import-untyped]
from googleapiclient.discovery import build_from_document  # type: ignore[import-untyped]
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]
from googleapiclient.http import (  # type: ignore[import-untyped]
    MediaFileUpload,
    MediaIoBaseDownload,
    build_http,
)

from surefoot.core.errors import ConfigError, Missing, StoreError, Unreachable
from surefoot.core.protocols import Kept
from surefoot.store.drive_login import LOGIN, credentials
from surefoot.store.places import redacted
from surefoot.store.plain import described

CHUNK = 4 << 20
"""Bytes that are sent, or received, at once: what is lost when a connection is."""
ATTEMPTS, CHUNK_ATTEMPTS = 3, 8
"""How often in a row one request may fail before it is left to others to try again: any, and one
that goes on with an upload."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 16.0
"""Seconds between two attempts, the first time and at most."""
FOLDER = "application/vnd.google-apps.folder"
FIELDS = "id, size, md5Checksum, modifiedTime, appProperties"
PIECE = 80
"""Characters of a property; Drive takes 124 bytes with its name."""
RATES = {"rateLimitExceeded", "userRateLimitExceeded", "sharingRateLimitExceeded"}
ENDPOINT = "SUREFOOT_DRIVE_ENDPOINT"
"""Environment variable with the URL of another server that speaks Drive v3, for tests."""
SHARED = "shared:"
FAILURES = (
    HttpError,
    OSError,
    HTTPException,
    httplib2.HttpLib2Error,
    google.auth.exceptions.GoogleAuthError,
)
"""What the client raises."""
T = TypeVar("T")
Found: TypeAlias = list[dict[str, Any]]

logging.getLogger("googleapiclient.http").setLevel(logging.ERROR)  # every 403 would be told


def open_drive(path: str) -> Drive:
    """Open a folder of the user's Drive, or of a shared one: `shared:ID/folder`. Its name would not
    do: to look that up, one has to be allowed to see everything."""
    service = build_service(os.environ.get(ENDPOINT, ""))
    if not path.startswith(SHARED):
        return Drive(service, path)
    drive, _, below = path.removeprefix(SHARED).partition("/")
    return Drive(service, below, drive)


def build_service(endpoint: str) -> Any:
    """Make a client out of the description that comes with the library."""
    description = json.loads(discovery_cache.get_static_doc("drive", "v3"))
    if endpoint:
        description["rootUrl"] = f"{endpoint}/"
        description["baseUrl"] = f"{endpoint}/drive/v3/"
    http = AuthorizedHttp(credentials(), http=build_http())
    return build_from_document(description, http=http)


def about_user() -> dict[str, Any]:
    """Ask who the user is, and how much room there is."""
    service = build_service(os.environ.get(ENDPOINT, ""))
    with _told(""):
        answer: dict[str, Any] = (
            service.about().get(fields="user(emailAddress), storageQuota").execute()
        )
    return answer


class Drive:
    """A folder in Google Drive."""

    def __init__(self, service: Any, root: str, drive: str = "") -> None:
        """`drive` is the id of a shared one."""
        if not root:
            raise ConfigError("gdrive:// names no folder: say which, as in gdrive://surefoot/run")
        self._service, self._root, self._drive = service, root.strip("/"), drive
        self._known: dict[str, dict[str, Any]] = {}
        """What is there, by path, as far as we have heard."""
        self._folders: dict[str, str] = {}
        self._reserved: list[str] = []
        self._dice = random.Random()

    def put(self, key: str, file: Path) -> Kept:
        path, kept = self._path(key), described(file)
        with _told(path):
            there = self._sent(path, file)
            if there.get("md5Checksum") != kept.md5:
                self._known.pop(path, None)
                raise Unreachable(f"gdrive://{path} did not arrive as it was sent")
        return kept

    def get(self, key: str, file: Path) -> None:
        path = self._path(key)
        with _told(path):
            found = self._found(path)  # never what we know: somebody else may have replaced it
            if found is None:
                raise Missing(f"there is no gdrive://{path}")
            if not self._received(found, file):
                raise Unreachable(f"gdrive://{path} did not arrive as it is there")

    def list(self, prefix: str = "") -> dict[str, Kept]:
        base = self._path(prefix) if prefix else self._root
        depth = len(PurePosixPath(base).parts) - 1
        with _told(base):
            found = self._query(f"a{depth}", _mark(base)) + self._query("path", _mark(base))
        start, entries = len(self._root) + 1, dict[str, Kept]()
        for one in sorted(found, key=lambda one: str(one.get("modifiedTime", ""))):
            path = _path_of(one["appProperties"])
            self._known[path] = one
            entries[path[start:]] = Kept(int(one.get("size", 0)), one.get("md5Checksum"))
        return entries

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _told(path):
            self._known.pop(path, None)
            for found in self._query("path", _mark(path)):
                try:
                    self._insist(self._removal(found["id"]).execute)
                except HttpError as error:
                    if error.resp.status != 404:
                        raise

    def sweep(self) -> None:
        pass  # an upload that is not finished leaves nothing

    def _removal(self, file: str) -> Any:
        """Ask to delete a file; in a shared drive, to trash it, which more people may."""
        files = self._service.files()
        if self._drive:
            return files.update(fileId=file, body={"trashed": True}, supportsAllDrives=True)
        return files.delete(fileId=file)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _sent(self, path: str, file: Path) -> dict[str, Any]:
        """Send a file as a new one, or as the new content of what has its path; return what is
        there then."""
        kind = "application/octet-stream"
        media = _Bytes(str(file), mimetype=kind, chunksize=CHUNK, resumable=True)
        common = {"media_body": media, "fields": FIELDS, "supportsAllDrives": True}
        files = self._service.files()
        there = self._known.get(path) or self._found(path)
        known = there["id"] if there else ""
        about = {} if known else self._about(path)
        for _ in range(CHUNK_ATTEMPTS):
            if known:
                request = files.update(fileId=known, **common)
            else:
                request = files.create(body=about, **common)
            try:
                self._known[path] = self._upload(request)
                return self._known[path]
            except HttpError as error:
                if error.resp.status == 409 and not known:  # a create whose answer was lost
                    known = about["id"]
                elif error.resp.status in (404, 410) and request.resumable_uri is None and known:
                    self._known.pop(path, None)  # somebody has deleted it
                    known, about = "", self._about(path)
                elif error.resp.status not in (404, 410):  # else its session has expired
                    raise
        raise Unreachable(f"gdrive://{path} could not be sent in {CHUNK_ATTEMPTS} attempts")

    def _upload(self, request: Any) -> dict[str, Any]:
        """Send chunk by chunk; after a failure the client asks how much has arrived."""
        answer: dict[str, Any] | None = None
        while answer is None:
            answer = self._insist(request.next_chunk, CHUNK_ATTEMPTS)[1]
        return answer

    def _about(self, path: str) -> dict[str, Any]:
        """Describe a new file. Its id is reserved, so that one that is made twice is one."""
        parent, _, name = path.rpartition("/")
        return {
            "id": self._new_id(),
            "name": name,
            "parents": [self._folder(parent)],
            "appProperties": {"surefoot": "file", **_properties(path)},
        }

    def _folder(self, path: str) -> str:
        """Find or make a folder; return its id."""
        if not path:
            return self._drive or "root"
        if path not in self._folders:
            found = self._query("path", _mark(path), "folder")
            self._folders[path] = found[0]["id"] if found else self._made_folder(path)
        return self._folders[path]

    def _made_folder(self, path: str) -> str:
        parent, _, name = path.rpartition("/")
        body = {
            "id": self._new_id(),
            "name": name,
            "mimeType": FOLDER,
            "parents": [self._folder(parent)],
            "appProperties": {"surefoot": "folder", **_properties(path)},
        }
        request = self._service.files().create(body=body, fields="id", supportsAllDrives=True)
        try:
            self._insist(request.execute)
        except HttpError as error:
            if error.resp.status != 409:  # a create whose answer was lost
                raise
        return str(body["id"])

    def _new_id(self) -> str:
        if not self._reserved:
            ids = self._service.files().generateIds(count=50, space="drive")
            self._reserved = self._insist(ids.execute)["ids"]
        return self._reserved.pop()

    def _received(self, one: dict[str, Any], file: Path) -> bool:
        """Fetch a file; say whether it is there, and arrived as it was described."""
        request = self._service.files().get_media(fileId=one["id"], supportsAllDrives=True)
        try:
            with file.open("wb") as sink:
                download = MediaIoBaseDownload(sink, request, chunksize=CHUNK)
                while not self._insist(download.next_chunk, CHUNK_ATTEMPTS)[1]:
                    pass
        except HttpError as error:
            if error.resp.status != 404:
                raise
            return False
        return described(file).md5 == one.get("md5Checksum")

    def _found(self, path: str) -> dict[str, Any] | None:
        found = self._query("path", _mark(path))
        newest: Found = sorted(found, key=lambda one: str(one.get("modifiedTime", "")))
        return newest[-1] if newest else None

    def _query(self, name: str, value: str, kind: str = "file") -> Found:
        """Find what has a property."""
        wanted = {"surefoot": kind, name: value}
        terms = [f"appProperties has {{ key='{k}' and value='{v}' }}" for k, v in wanted.items()]
        given: dict[str, Any] = {
            "q": " and ".join([*terms, "trashed = false"]),
            "fields": f"nextPageToken, files({FIELDS})",
            "pageSize": 1000,
        }
        if self._drive:
            given |= {"corpora": "drive", "driveId": self._drive}
            given |= {"includeItemsFromAllDrives": True, "supportsAllDrives": True}
        request, found = self._service.files().list(**given), []
        while request is not None:
            page = self._insist(request.execute)
            found += page["files"]
            request = self._service.files().list_next(request, page)
        return found

    def _insist(self, ask: Callable[[], T], attempts: int = ATTEMPTS) -> T:
        """Ask until there is an answer, with pauses, but not forever."""
        for attempt in range(attempts):
            try:
                return ask()
            except FAILURES as error:
                if attempt == attempts - 1 or not _may_pass(error):
                    raise
            longest = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt)
            time.sleep(longest * self._dice.uniform(0.1, 1.0))
        raise AssertionError


class _Bytes(MediaFileUpload):  # type: ignore[misc]
    """Sends chunks as bytes: a stream would be at its end when a request is repeated."""

    def has_stream(self) -> bool:
        return False


def _mark(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:40]


def _properties(path: str) -> dict[str, str]:
    """Describe a path in properties: all of it, in pieces, and marks of it and what is above."""
    parts = PurePosixPath(path).parts
    above = ["/".join(parts[: end + 1]) for end in range(len(parts) - 1)]
    text = path.encode("unicode_escape").decode("ascii")
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    return {
        "path": _mark(path),
        **{f"a{depth}": _mark(folder) for depth, folder in enumerate(above)},
        **{f"k{number}": piece for number, piece in enumerate(pieces)},
    }


def _path_of(properties: dict[str, str]) -> str:
    pieces = (properties[f"k{number}"] for number in range(30) if f"k{number}" in properties)
    return "".join(pieces).encode("ascii").decode("unicode_escape")


def _reason(error: HttpError) -> str:
    """Say by which word Drive explains a refusal."""
    try:
        return str(json.loads(error.content)["error"]["errors"][0]["reason"])
    except (ValueError, KeyError, TypeError, IndexError):
        return ""


def _may_pass(error: Exception) -> bool:
    """Say whether a failure may go away by itself."""
    if isinstance(error, HttpError):
        status = int(error.resp.status)
        return status >= 500 or status in (408, 429) or _reason(error) in RATES
    return not isinstance(error, google.auth.exceptions.RefreshError)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the client raises into errors of stores, with advice."""
    place = f"gdrive://{path}"
    try:
        yield
    except StoreError:
        raise
    except HttpError as error:
        raise _explained(place, error) from None
    except google.auth.exceptions.RefreshError as error:
        what = redacted(str(error.args[0] if error.args else error))
        raise StoreError(f"Google does not accept the login any more ({what}); {LOGIN}") from None
    except FAILURES as error:
        raise Unreachable(f"{place}: {type(error).__name__}: {redacted(str(error))}") from None


def _explained(place: str, error: HttpError) -> StoreError:
    """Put a refusal into words that say what to do."""
    status, reason = int(error.resp.status), _reason(error)
    if _may_pass(error):
        return Unreachable(f"{place}: Google Drive answers {status} {reason}".rstrip())
    if status == 404:
        return Missing(f"there is no {place}")
    if status == 401:
        return StoreError(f"Google does not accept the login any more; {LOGIN}")
    if reason == "storageQuotaExceeded" and b"service account" in error.content.lower():
        return StoreError(
            f"{place}: a service account has no storage of its own. Make it a member of a shared "
            f"drive and use gdrive://{SHARED}ID/folder, or log in as a person"
        )
    if reason in ("storageQuotaExceeded", "teamDriveFileLimitExceeded"):
        return StoreError(f"{place}: this Google Drive is full; make room, or use another")
    if reason == "dailyLimitExceeded":
        return StoreError(f"{place}: today's quota of the OAuth client is used up")
    if status == 403:
        return StoreError(
            f"{place}: these credentials may not do that ({reason or 'forbidden'}). They see only "
            f"what surefoot made with them; {LOGIN}"
        )
    return StoreError(f"{place}: Google Drive answers {status} {reason}".rstrip())
