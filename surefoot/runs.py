"""Many runs: which there are, and which is best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from surefoot.core.errors import RunError, SurefootError
from surefoot.envs.names import absolute, identity
from surefoot.run import Run
from surefoot.store.hall_of_fame import DIRECTORY, halls


def summaries(directory: Path) -> list[dict[str, Any]]:
    """Summarize the runs below a directory, oldest first; one that cannot be read says why."""
    places = [path.parent for path in directory.glob("**/run.json")]
    found = [path for path in places if DIRECTORY not in path.parts]
    rows = []
    for path in sorted(found, key=lambda path: (path / "run.json").stat().st_mtime):
        try:
            rows.append(Run.open(path).summary())
        except SurefootError as error:
            broken = {"environment": "-", "steps": 0, "best_return": None}
            rows.append({"run": str(path), **broken, "state": f"unreadable: {error}"})
    return rows


def champion(runs: Path, env: str, env_args: Mapping[str, Any]) -> Path:
    """Find the best model of all runs in an environment."""
    env = absolute(env)
    found = {
        hall.directory: entries[0]
        for hall in halls(runs)
        if (entries := hall.entries()) and entries[0].env == env
    }
    wanted = identity(env, env_args)
    exact = {p: entry for p, entry in found.items() if identity(env, entry.env_args) == wanted}
    if not found or (env_args and not exact):
        raise RunError(f"no champion of {env} in {runs / DIRECTORY}; `surefoot best` lists them")
    places = [path / entry.directory for path, entry in (exact or found).items()]
    if len(places) > 1:
        ways = "\n".join(f"  surefoot eval {quote(str(place))}" for place in places)
        raise RunError(
            f"there are champions of {env} by different arguments or scores; choose by --env-args, "
            f"or name one:\n{ways}"
        )
    return places[0]
