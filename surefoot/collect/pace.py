"""How a rollout is played: whoever is done with a step is asked for the next, until all have made
theirs. Rows are stepped in lanes, some rows together, and each lane goes at its own pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from surefoot.collect.record import Record, Rows, Time
from surefoot.core import tree
from surefoot.core.protocols import Actor, Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.tree import Array, Tree


class Stage(Protocol):
    """Where rows are played: like a vector environment, but some rows can be sent into a step while
    others are in one. What methods return may be overwritten by the next call."""

    spec: Spec
    replaced: int
    """How many of those who play had to be replaced, in the whole run."""

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree: ...

    def restart(self, rows: Array) -> Tree: ...

    def send(self, rows: Rows, action: Tree) -> None:
        """Let whole lanes take a step."""

    def receive(self, count: int) -> tuple[Rows, Step]:
        """Wait until this many of the rows that were sent are done; return all that are, and what
        their step gave."""

    def broken(self) -> tuple[Array, Tree]:
        """Say how many episodes each row [N] has lost since this was asked last, other than in a
        step; return what all rows see."""

    def close(self) -> None: ...


@dataclass
class Scene:
    """What a rollout is played with: the actor, its noise [T, N, …], what rows see and remember
    [N, …], and which of them [N] have just begun an episode."""

    actor: Actor
    noise: Tree
    seen: Tree
    memory: Tree
    luck: Tree
    """What of the noise [N, …] each row's next action is chosen with."""
    begun: Array
    record: Record

    def take(self, t: Time, rows: Rows, step: Step) -> None:
        """Record what a step gave."""
        self.record.add(t, rows, step)
        tree.write(self.seen, rows, step.obs)
        self.begun[rows] = (step.ended | (step.lost > 0)) if step.notable else False

    def forget(self, blank: Tree, rows: Rows) -> None:
        """Let those of these rows forget that have begun an episode."""
        if tree.leaves(self.memory) and self.begun[rows].any():
            fresh = np.arange(len(self.begun))[rows][self.begun[rows]]
            tree.write(self.memory, fresh, tree.index(blank, fresh))


class Inference(Protocol):
    """How the actor is asked."""

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        """Choose the actions of these rows; let them remember."""


def play(stage: Stage, inference: Inference, minimum: int, scene: Scene, horizon: int) -> None:
    """Fill the scene's record; the actor is asked as soon as `minimum` rows wait for it."""
    count = len(scene.begun)
    blank = scene.actor.memory(count)
    clock = Clock(count)
    _turn(stage, inference, scene, blank, 0, slice(0, count))
    playing = count
    while playing:
        done, step = stage.receive(min(minimum, playing))
        t, rows = clock.read(done)
        scene.take(t, rows, step)
        if clock.advance(rows) < horizon:
            _turn(stage, inference, scene, blank, t + 1, rows)
        else:  # some of them are through
            going = clock.before(horizon, rows)
            playing -= clock.count(rows) - len(going)
            if len(going):
                _turn(stage, inference, scene, blank, *clock.read(going))


def _turn(
    stage: Stage, inference: Inference, scene: Scene, blank: Tree, t: Time, rows: Rows
) -> None:
    """Choose actions for these rows and let them take a step."""
    scene.forget(blank, rows)
    action = inference.act(scene, t, rows)
    tree.write(scene.record.action, (t, rows), action)
    stage.send(rows, action)


class Clock:
    """Which step of the rollout every row is at."""

    def __init__(self, rows: int) -> None:
        self._times = [0] * rows

    def read(self, rows: Rows) -> tuple[Time, Rows]:
        """Say at which step these rows are; those that are a range at one step stay a range."""
        if isinstance(rows, slice):
            times = self._times[rows]
            if times.count(times[0]) == len(times):
                return times[0], rows
            rows = np.arange(rows.start, rows.stop)
        return np.array([self._times[row] for row in rows.tolist()]), rows

    def advance(self, rows: Rows) -> int:
        """Let these rows go on by a step; return how far the furthest is."""
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for row in numbers:
            self._times[row] += 1
        return max(self._times[row] for row in numbers)

    def before(self, horizon: int, rows: Rows) -> Array:
        """Pick those of these rows that have not made all their steps."""
        numbers = np.arange(len(self._times))[rows]
        return numbers[[self._times[row] < horizon for row in numbers.tolist()]]

    def count(self, rows: Rows) -> int:
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


class Padded:
    """Ask for the same `width` rows together every time; keep the answers for those in question.

    The last bits of an action depend on how many are computed with it. So they are the same
    whoever collects, and in whatever order rows get ready.
    """

    def __init__(self, width: int) -> None:
        self._width = width

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        tree.write(scene.luck, rows, tree.index(scene.noise, (t, rows)))
        if self._width == len(scene.begun):
            action, memory = scene.actor.act(scene.seen, None, scene.memory, scene.luck)
        else:
            action, memory = self._in_calls(scene, rows)
        tree.write(scene.memory, rows, tree.index(memory, rows))
        return tree.index(action, rows)

    def _in_calls(self, scene: Scene, rows: Rows) -> tuple[Tree, Tree]:
        """Make the calls that these rows are in; nobody looks at the answers for others."""
        count, width = len(scene.begun), self._width
        answers: Tree = None
        for call in dict.fromkeys((np.arange(count)[rows] // width).tolist()):
            # The last call is filled up with the last row, again and again.
            asked = np.arange(call * width, (call + 1) * width).clip(max=count - 1)
            parts = (tree.index(part, asked) for part in (scene.seen, scene.memory, scene.luck))
            obs, memory, luck = parts
            answer = dict(enumerate(scene.actor.act(obs, None, memory, luck)))
            answers = _space_for(answer, -(-count // width) * width) if answers is None else answers
            tree.write(answers, slice(call * width, (call + 1) * width), answer)
        return answers[0], answers[1]


class AsTheyCome:
    """Ask for those in question alone: cheaper, but which rows meet in a call is chance."""

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        obs, memory = tree.index(scene.seen, rows), tree.index(scene.memory, rows)
        action, memory = scene.actor.act(obs, None, memory, tree.index(scene.noise, (t, rows)))
        tree.write(scene.memory, rows, memory)
        return action


def _space_for(answer: Tree, rows: int) -> Tree:
    """Make room for the answers to so many rows."""
    return tree.map(lambda leaf: np.zeros((rows, *leaf.shape[1:]), leaf.dtype), answer)
