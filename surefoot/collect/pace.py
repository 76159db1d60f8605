"""How a rollout is played. Rows are stepped in lanes, some rows together: here in turn, or by
others, each of whom is sent on a step when it is done with the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from surefoot.collect.facts import Rows, Time
from surefoot.collect.record import Record
from surefoot.core import seeding, tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Acting, VectorEnv
from surefoot.core.seeding import Purpose
from surefoot.core.tree import Array, Tree


class Players(Protocol):
    """Those who step rows: they find actions in a record, and leave there what came of them."""

    def send(self, rows: Rows) -> None:
        """Let whole lanes take their next step."""

    def receive(self, count: int) -> Rows:
        """Wait until this many of the rows that were sent are done; return all that are."""


class Played(NamedTuple):
    """A rollout that is over."""

    record: Record
    memory: Tree
    """What rows remember [N, …]."""
    seconds: Metrics
    """Where the time went that somebody waited for it."""
    log_prob: Array | None = None
    """Of actions [T, N], if those who played have found them."""


class Cue(NamedTuple):
    """What it takes to play a rollout, besides an actor."""

    seed: int
    iteration: int
    memory: Tree
    """What rows remember [N, …] before it."""
    begun: Array
    """Which rows [N] begin an episode with it."""


@dataclass
class Scene:
    """What a rollout is played with: the actor, its noise [T, N, …], what rows remember [N, …], and
    which of them [N] have just begun an episode."""

    actor: Acting
    noise: Tree
    memory: Tree
    blank: Tree
    """What rows [N, …] remember that begin an episode."""
    begun: Array
    record: Record
    remembers: bool
    """Whether there is anything to remember."""
    seconds: float = 0.0
    """Time spent on choosing actions."""

    @classmethod
    def of(cls, actor: Acting, cue: Cue, record: Record) -> Scene:
        """Set the scene for what is left to play of a rollout."""
        rows, made = np.arange(len(record.made)), record.made
        random = seeding.generator(cue.seed, Purpose.ACTION, cue.iteration)
        return cls(
            actor=actor,
            noise=actor.noise(random, record.horizon, len(rows)),
            memory=tree.map(np.copy, cue.memory),  # what was handed out stays as it was
            blank=actor.memory(len(rows)),
            begun=np.where(made > 0, record.facts.breaks((made - 1, rows)), cue.begun),
            record=record,
            remembers=bool(tree.leaves(cue.memory)),
        )

    def look(self, t: Time, rows: Rows) -> None:
        """See which rows begin an episode, of some that have made so many steps: one or more."""
        if self.remembers:
            self.begun[rows] = self.record.facts.breaks((t - 1, rows))

    def choose(self, inference: Inference, t: Time, rows: Rows) -> None:
        """Put down the actions of the step that these rows take next."""
        if self.remembers and self.begun[rows].any():
            fresh = np.arange(len(self.begun))[rows][self.begun[rows]]
            tree.write(self.memory, fresh, tree.index(self.blank, fresh))
        begun = time.perf_counter()
        action = inference.act(self, t, rows)
        self.seconds += time.perf_counter() - begun
        tree.write(self.record.action, (t, rows), action)


class Inference(Protocol):
    """How the actor is asked."""

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        """Choose the actions of these rows; let them remember."""


def play_here(
    lanes: Sequence[tuple[slice, VectorEnv]],
    inference: Inference,
    scene: Scene,
    heed: Callable[[], None] = lambda: None,
) -> Metrics:
    """Fill the scene's record with what rows do whose lanes take their steps in turn, in this
    process; call `heed` before each. Return where the time went."""
    made, in_environments = scene.record.made, 0.0
    for t in range(scene.record.horizon):
        for rows, env in lanes:
            if made[rows.start] > t:  # somebody else has played that far
                continue
            heed()
            if t:
                scene.look(t, rows)
            scene.choose(inference, t, rows)
            in_environments += take_step(scene.record, rows, env)
    return {"environment": in_environments, "acting": scene.seconds}


def take_step(record: Record, rows: slice, env: VectorEnv) -> float:
    """Let a lane take the next step that a record has actions for; return how long it took."""
    action = tree.index(record.action, (int(record.made[rows.start]), rows))
    begun = time.perf_counter()
    step = env.step(action)
    seconds = time.perf_counter() - begun
    record.add(rows, step)
    return seconds


def play(players: Players, inference: Inference, minimum: int, scene: Scene) -> None:
    """Fill the scene's record; the actor is asked for all rows, and from then on as soon as
    `minimum` of them wait for it."""
    playing = len(scene.begun)
    playing -= _turn(players, inference, scene, *_time(scene.record, slice(0, playing)))
    while playing:
        t, rows = _time(scene.record, players.receive(min(minimum, playing)))
        scene.look(t, rows)
        playing -= _turn(players, inference, scene, t, rows)


def _time(record: Record, rows: Rows) -> tuple[Time, Rows]:
    """Say how many steps rows have made; those that are a range and at one step stay a range."""
    times = record.made[rows]
    if isinstance(rows, slice):
        first, *others = times.tolist()
        if others.count(first) == len(others):
            return first, rows
        rows = np.arange(rows.start, rows.stop)
    return times.copy(), rows


def _turn(players: Players, inference: Inference, scene: Scene, t: Time, rows: Rows) -> int:
    """Choose actions for those of these rows that have a step to make, and let them take it; return
    how many have none."""
    through = 0
    if isinstance(t, int):
        if t == scene.record.horizon:
            return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    else:
        going = t < scene.record.horizon
        through = len(going) - int(np.count_nonzero(going))
        if through == len(going):
            return through
        t, rows = t[going], np.arange(len(scene.begun))[rows][going]
    scene.choose(inference, t, rows)
    players.send(rows)
    return through


class Padded:
    """Ask for the same `width` rows together every time; keep the answers for those in question.

    The last bits of an action depend on how many are computed with it. So they are the same
    whoever collects, and in whatever order rows get ready.
    """

    def __init__(self, width: int) -> None:
        self._width = width

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        if self._is_call(rows):  # as in most runs
            return _alone(scene, t, rows)
        calls, theirs = self._calls(rows)
        answers = [scene.actor.act(*self._given(scene, t, call)) for call in calls]
        action, memory = answers[0] if len(answers) == 1 else _joined(answers)
        tree.write(scene.memory, rows, tree.index(memory, theirs))
        return tree.index(action, theirs)

    def _is_call(self, rows: Rows) -> bool:
        """Say whether these rows are those of one call."""
        if not isinstance(rows, slice) or rows.stop - rows.start != self._width:
            return False
        return not rows.start % self._width

    def _calls(self, rows: Rows) -> tuple[Sequence[int], Rows]:
        """Number the calls that these rows are in, and say where in all of them they are."""
        if isinstance(rows, slice):
            first = rows.start // self._width
            skipped = first * self._width
            calls = range(first, -(-rows.stop // self._width))
            return calls, slice(rows.start - skipped, rows.stop - skipped)
        numbers, place = np.unique(rows // self._width, return_inverse=True)
        return numbers.tolist(), place * self._width + rows % self._width

    def _given(self, scene: Scene, t: Time, call: int) -> tuple[Tree, None, Tree, Tree]:
        """Take together what a call is given; nobody looks at the answers for rows that are not in
        question, so they may be anywhere."""
        start, stop, last = call * self._width, (call + 1) * self._width, len(scene.begun) - 1
        if isinstance(t, int) and stop <= last + 1:
            return _given(scene, t, slice(start, stop))
        # The last call is filled up with the last row, again and again.
        rows = np.arange(start, stop).clip(max=last)
        times = (
            t if isinstance(t, int) else scene.record.made[rows].clip(max=scene.record.horizon - 1)
        )
        return _given(scene, times, rows)


class AsTheyCome:
    """Ask for those in question alone: cheaper, but which rows meet in a call is chance."""

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        return _alone(scene, t, rows)


def _alone(scene: Scene, t: Time, rows: Rows) -> Tree:
    """Ask for the actions of these rows in a call of their own; let them remember."""
    action, memory = scene.actor.act(*_given(scene, t, rows))
    if scene.remembers:
        tree.write(scene.memory, rows, memory)
    return action


def _given(scene: Scene, t: Time, rows: Rows) -> tuple[Tree, None, Tree, Tree]:
    """Take together what an actor chooses the actions of rows by."""
    place = (t, rows)
    memory = tree.index(scene.memory, rows) if scene.remembers else scene.memory
    return tree.index(scene.record.obs, place), None, memory, tree.index(scene.noise, place)


def _joined(answers: Sequence[tuple[Tree, Tree]]) -> Iterator[Tree]:
    """Put rows together that were asked for in several calls: their actions, and what they
    remember."""
    return (
        tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        for parts in zip(*answers, strict=True)
    )
