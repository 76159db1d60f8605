"""How rows take turns: in step, or each as fast as it can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from surefoot.collect.record import Record, Rows, Tally, Time
from surefoot.core import tree
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Actor, Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.tree import Array, Tree


class Stage(Protocol):
    """Where rows are played: like a vector environment, but some rows can be sent into a step while
    others are not. What methods return may be overwritten by the next call."""

    spec: Spec

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree: ...

    def restart(self, rows: Array) -> Tree: ...

    def send(self, rows: Rows, action: Tree) -> None:
        """Let these rows take a step."""

    def receive(self, rows: Rows) -> Step:
        """Wait for these rows, which were sent, and return what their step gave."""

    def ready(self, count: int) -> Array:
        """Wait until this many of the rows that were sent are done; return all that are."""

    def broken(self) -> tuple[Array, Tree]:
        """Mark the rows [N] that had to begin a new episode since this was asked last, other than
        in a step; return what all rows see."""

    def metrics(self) -> Metrics:
        """Return what there is to say about how rows are played."""

    def close(self) -> None: ...


@dataclass
class Scene:
    """What a rollout is played with: the actor, its noise [T, N, …], what rows remember [N, …],
    and which of them have just begun an episode."""

    actor: Actor
    noise: Tree
    memory: Tree
    begun: Array
    record: Record
    tally: Tally

    def take(self, t: Time, rows: Rows, step: Step) -> None:
        """Record what a step gave."""
        self.record.add(t, rows, step, self.tally)
        self.begun[rows] = step.terminated | step.truncated | step.lost

    def forget(self, blank: Tree, rows: Rows) -> None:
        """Let those of these rows forget that have begun an episode."""
        if tree.leaves(self.memory) and self.begun[rows].any():
            fresh = np.arange(len(self.begun))[rows][self.begun[rows]]
            tree.write(self.memory, fresh, tree.index(blank, fresh))


class Pace(Protocol):
    def play(self, stage: Stage, scene: Scene, horizon: int) -> None:
        """Fill the scene's record."""


class Lockstep:
    """Groups of rows take turns: while one steps, the actor is asked for the next.

    The actor is always asked for the same `width` rows together, and whatever is not of the group
    in question is thrown away: the last bits of an action depend on how many are computed with it.
    So the rollout is the same in however many groups it is played.
    """

    def __init__(self, spec: Spec, groups: list[slice], width: int) -> None:
        self._calls = [(rows, _calls(spec.rows, rows, width)) for rows in groups]

    def play(self, stage: Stage, scene: Scene, horizon: int) -> None:
        blank = scene.actor.memory(len(scene.begun))
        for t in range(horizon):
            for rows, calls in self._calls:
                if t:
                    scene.take(t - 1, rows, stage.receive(rows))
                scene.forget(blank, rows)
                action = _act(scene, t, rows, calls)
                stage.send(rows, action)
        for rows, _ in self._calls:
            scene.take(horizon - 1, rows, stage.receive(rows))


class WhoeverIsReady:
    """The actor is asked as soon as `minimum` rows wait for it, and for those alone.

    Faster where steps take unequal times; which rows meet in a call, and with it the last bits of
    their actions, is chance.
    """

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum

    def play(self, stage: Stage, scene: Scene, horizon: int) -> None:
        rows = np.arange(len(scene.begun))
        blank = scene.actor.memory(len(rows))
        time = np.zeros(len(rows), np.int64)
        self._turn(stage, scene, blank, time, rows)
        playing = len(rows)
        while playing:
            rows = stage.ready(min(self._minimum, playing))
            scene.take(time[rows], rows, stage.receive(rows))
            time[rows] += 1
            going = rows[time[rows] < horizon]
            playing -= len(rows) - len(going)
            if len(going):
                self._turn(stage, scene, blank, time, going)

    def _turn(self, stage: Stage, scene: Scene, blank: Tree, time: Array, rows: Array) -> None:
        scene.forget(blank, rows)
        place = (time[rows], rows)
        obs, noise = tree.index(scene.record.obs, place), tree.index(scene.noise, place)
        action, memory = scene.actor.act(obs, None, tree.index(scene.memory, rows), noise)
        tree.write(scene.memory, rows, memory)
        tree.write(scene.record.action, place, action)
        stage.send(rows, action)


def _act(scene: Scene, t: int, rows: slice, calls: list[tuple[Any, slice]]) -> Tree:
    """Choose the actions of a group of rows, call by call, and record them."""
    obs, noise = tree.index(scene.record.obs, t), tree.index(scene.noise, t)
    answers = []
    for asked, kept in calls:
        given = (tree.index(part, asked) for part in (obs, scene.memory, noise))
        call_obs, call_memory, call_noise = given
        answer = scene.actor.act(call_obs, None, call_memory, call_noise)
        answers.append([tree.index(part, kept) for part in answer])
    actions, memories = zip(*answers, strict=True)
    tree.write(scene.memory, rows, _join(memories))
    action = _join(actions)
    tree.write(scene.record.action, (t, rows), action)
    return action


def _calls(count: int, rows: slice, width: int) -> list[tuple[Any, slice]]:
    """List the calls that cover a group of rows: which of all rows to ask for, and which of the
    answers to keep. The last call is filled up with the last row, again and again."""
    if width == count:
        return [(slice(None), rows)]
    calls: list[tuple[Any, slice]] = []
    for start in range(0, count, width):
        first, end = max(start, rows.start), min(start + width, rows.stop)
        if first < end:
            asked = np.arange(start, start + width).clip(max=count - 1)
            calls.append((asked, slice(first - start, end - start)))
    return calls


def _join(parts: tuple[Tree, ...]) -> Tree:
    if len(parts) == 1:
        return parts[0]
    return tree.map(lambda *leaves: np.concatenate(leaves), *parts)
