"""Where a run's settings become what saves it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any

from surefoot.core.errors import SaveError
from surefoot.run import Run
from surefoot.store.hall_of_fame import Entry, HallOfFame
from surefoot.store.mirror import Mirroring
from surefoot.store.models import Models
from surefoot.store.retention import Keeper
from surefoot.store.saver import Saver


def build_saver(
    run: Run,
    commit: Callable[[], None],
    tell: Callable[[Mapping[str, Any]], None],
    mirror: Mirroring,
) -> Saver:
    """Make what saves a run; `commit` makes sure of its metrics, `tell` takes events."""
    config = run.config
    named = not config.env.startswith("<")  # two lambdas are not one problem

    def stop(error: OSError) -> None:
        raise SaveError(
            f"cannot save in {run.path}: {error}; what was saved before is intact. When that is "
            f"mended, go on with `surefoot resume {quote(str(run.path))}`"
        )

    def go_on(error: OSError) -> None:
        message = f"cannot save in {run.path}: {error}; trying again at the next checkpoint"
        tell({"event": "save-error", "message": message})

    return Saver(
        commit=commit,
        models=Models(run.path / "models", config.num_checkpoints),
        keeper=Keeper(run.store, config.keep, mirror.removable),
        enter=(lambda: enter_hall(run)) if config.hall_of_fame and named else lambda: None,
        trouble={"stop": stop, "continue": go_on}[config.on_save_error],
        last_trouble=stop,
        tell=tell,
        saved=mirror.wake,
    )


def enter_hall(run: Run) -> None:
    """Offer a run's best checkpoint to the hall of fame beside it."""
    config, identity, best = run.config, run.identity, run.checkpoint("best")
    if best.score is None:
        return
    state = run.read(best)
    policy = state["learner"]["policy"]
    entry = Entry(
        run=identity["id"],
        step=best.step,
        score=best.score,
        by="return" if best.manifest.evaluation is None else "evaluation",
        env=config.env,
        env_args=config.env_args,
        seed=config.seed,
        path=str(run.path.absolute()),
        model=hashlib.sha256(b"".join(a.tobytes() for a in policy.values())).hexdigest()[:12],
    )
    hall = HallOfFame(run.path.parent, identity["problem"], config.hall_of_fame)
    hall.offer(entry, config, state)
