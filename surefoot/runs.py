"""Many runs: which there are, and which is best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.core.errors import RunError, SurefootError
from surefoot.envs.names import absolute
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
    exact = {path: entry for path, entry in found.items() if entry.env_args == env_args}
    if not found or (env_args and not exact):
        raise RunError(f"no champion of {env} in {runs / DIRECTORY}; `surefoot best` lists them")
    chosen = exact or found
    if len(chosen) > 1:
        known = "; ".join(str(entry.env_args) for entry in found.values())
        raise RunError(f"there are champions of {env} with {known}; choose by --env-args")
    ((path, entry),) = chosen.items()
    return path / entry.directory
