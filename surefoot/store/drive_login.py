"""Who surefoot is to Google Drive: a login that is kept in a file nobody else may read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from surefoot.core.errors import ConfigError, StoreError
from surefoot.store.places import redacted

SCOPES = ["https://www.googleapis.com/auth/drive.file"]
"""Files that surefoot made, and no others."""
LOGIN = "run `surefoot drive login`"
NAMES = ("client_id", "client_secret", "refresh_token", "token_uri")


def require_installed() -> None:
    if find_spec("googleapiclient") is None or find_spec("google_auth_oauthlib") is None:
        raise ConfigError("Google Drive needs pip install 'surefoot[drive]'")


def place() -> Path:
    """Say where the login is kept."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "surefoot" / "drive.json"


def credentials() -> Any:
    """Return what requests to Drive are signed with."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        kept = json.loads(place().read_text())
    except FileNotFoundError:
        try:
            return google.auth.default(scopes=SCOPES)[0]
        except DefaultCredentialsError:
            raise ConfigError(f"gdrive:// needs a login: {LOGIN}") from None
    except (OSError, ValueError):
        raise ConfigError(f"{place()} cannot be read; {LOGIN} again") from None
    try:
        return _credentials(kept)
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{place()} is no login; {LOGIN} again") from None


def log_in(
    client: Path | None,
    service_account: Path | None,
    browser: bool,
    ask: Callable[[str], str],
    tell: Callable[[str], None],
) -> str:
    """Become somebody to Google Drive, and remember it; return what to say."""
    if service_account is not None:
        kept = _read(service_account, "--service-account")
        if kept.get("type") != "service_account":
            raise ConfigError(f"--service-account {service_account}: this is no key of one")
        _keep(kept)
        return f"Logged in as {kept.get('client_email')}; the key is in {place()}."
    if client is None:
        raise ConfigError(
            "Google wants to know which program asks. In the Google Cloud console, enable the "
            'Google Drive API, make an OAuth client of type "Desktop app", download its JSON '
            "file, and name it: surefoot drive login --client FILE"
        )
    about = _read(client, "--client")
    if "installed" not in about:
        raise ConfigError(f'--client {client}: this is no OAuth client of type "Desktop app"')
    _keep(_consent(about, browser, ask, tell))
    return f"Logged in; the login is in {place()}. Surefoot sees only files that it made itself."


def log_out() -> str:
    """Forget the login."""
    try:
        place().unlink()
    except FileNotFoundError:
        return "There was no login."
    return "Logged out. Google lists programs that may still use your account, to revoke them."


def status() -> str:
    """Say who surefoot is to Google Drive."""
    from surefoot.store.drive import about_user

    about = about_user()
    quota = about.get("storageQuota", {})
    used, limit = int(quota.get("usage", 0)), quota.get("limit")
    room = f"{used / 1e9:.1f} of {int(limit) / 1e9:.1f} GB used" if limit else "no limit"
    return f"{about.get('user', {}).get('emailAddress', 'somebody')}: {room}"


def _consent(
    about: dict[str, Any], browser: bool, ask: Callable[[str], str], tell: Callable[[str], None]
) -> dict[str, Any]:
    """Let a person agree in a browser, here or elsewhere."""
    from google_auth_oauthlib.flow import InstalledAppFlow  # type: ignore[import-untyped]

    flow = InstalledAppFlow.from_client_config(about, SCOPES)
    try:
        if browser and _can_browse():
            found = flow.run_local_server(port=0, timeout_seconds=300)
        else:
            found = _pasted(flow, ask, tell)
    except Exception as error:  # oauthlib has many of its own
        if isinstance(error, ConfigError):
            raise
        what = redacted(f"{type(error).__name__}: {error}")
        raise StoreError(f"Google did not agree ({what}); try again") from None
    return {"type": "authorized_user", **{name: getattr(found, name) for name in NAMES}}


def _pasted(flow: Any, ask: Callable[[str], str], tell: Callable[[str], None]) -> Any:
    """Let a person agree elsewhere, and paste where the browser ended."""
    os.environ.setdefault("OAUTHLIB_RELAX_TOKEN_SCOPE", "1")
    with socket.socket() as free:  # nobody listens there, here or where the browser is
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flow.redirect_uri = f"http://localhost:{port}"
    url, _ = flow.authorization_url(access_type="offline", prompt="consent")
    tell(f"Open this in a browser, on any machine, and agree:\n\n  {url}\n")
    tell("It ends at a page that cannot be shown, whose address begins with http://localhost.")
    said = ask("Paste that address, or the code in it: ").strip()
    code = parse_qs(urlsplit(said).query).get("code", [said])[0]
    if not code:
        raise ConfigError("no code was pasted; try again")
    flow.fetch_token(code=code)
    return flow.credentials


def _credentials(kept: dict[str, Any]) -> Any:
    if kept["type"] == "service_account":
        from google.oauth2.service_account import Credentials as OfService

        make: Any = OfService.from_service_account_info
        return make(kept, scopes=SCOPES)
    from google.oauth2 import credentials as of_people

    person: Any = of_people.Credentials
    return person(None, **{name: kept[name] for name in NAMES}, scopes=SCOPES)


def _read(path: Path, option: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise ConfigError(f"{option} {path}: {why}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{option} {path}: it is no JSON object")
    return content


def _keep(content: dict[str, Any]) -> None:
    """Write a login that nobody else may read, not even for a moment."""
    path = place()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    os.replace(new, path)


def _can_browse() -> bool:
    """Say whether a browser can be opened here for a person to see."""
    import webbrowser

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name != "posix"):
        import sys

        if sys.platform != "darwin":
            return False
    with suppress(webbrowser.Error):
        webbrowser.get()
        return True
    return False
