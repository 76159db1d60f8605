"""How a rollout is played: whoever is done with a step is asked for the next, until all have made
theirs. Rows are stepped in lanes, some rows together, and each lane goes at its own pace."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
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


class Ensemble:
    """Players in this process: lanes of rows, each with its environments, stepped in turn."""

    def __init__(self, lanes: Mapping[int, tuple[slice, VectorEnv]], record: Record) -> None:
        """`lanes` go by their first row."""
        self._lanes, self._record = lanes, record
        self._sent: deque[int] = deque()
        self.seconds = 0.0
        """Time spent in environments."""

    def send(self, rows: Rows) -> None:
        assert isinstance(rows, slice)  # lanes wait for nobody, so they come one by one
        self._sent.append(rows.start)

    def receive(self, count: int) -> Rows:
        return self.step(self._sent.popleft())

    def step(self, first: int) -> slice:
        """Let the lane with this first row take its next step; return its rows."""
        rows, env = self._lanes[first]
        action = tree.index(self._record.action, (int(self._record.made[first]), rows))
        begun = time.perf_counter()
        step = env.step(action)
        self.seconds += time.perf_counter() - begun
        self._record.add(rows, step)
        return rows


class Played(NamedTuple):
    """A rollout that is over: its record, what rows remember [N, …], and where the time went that
    somebody waited for it."""

    record: Record
    memory: Tree
    seconds: Metrics


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
    """What a rollout is played with: the actor, its noise [T, N, …], what rows see and remember
    [N, …], and which of them [N] have just begun an episode."""

    actor: Acting
    noise: Tree
    seen: Tree
    memory: Tree
    luck: Tree
    """What of the noise [N, …] each row's next action is chosen with."""
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
        noise = actor.noise(random, record.horizon, len(rows))
        return cls(
            actor=actor,
            noise=noise,
            seen=tree.index(record.obs, (made, rows)),
            memory=tree.map(np.copy, cue.memory),  # what was handed out stays as it was
            luck=tree.map(np.copy, tree.index(noise, 0)),
            begun=np.where(made > 0, record.facts.breaks((made - 1, rows)), cue.begun),
            record=record,
            remembers=bool(tree.leaves(cue.memory)),
        )

    def look(self, t: Time, rows: Rows) -> None:
        """See where rows are that have made so many steps."""
        tree.write(self.seen, rows, tree.index(self.record.obs, (t, rows)))
        if self.remembers:
            self.begun[rows] = self.record.facts.breaks((t - 1, rows))

    def forget(self, blank: Tree, rows: Rows) -> None:
        """Let those of these rows forget that have begun an episode."""
        if self.remembers and self.begun[rows].any():
            fresh = np.arange(len(self.begun))[rows][self.begun[rows]]
            tree.write(self.memory, fresh, tree.index(blank, fresh))


class Inference(Protocol):
    """How the actor is asked."""

    def act(self, scene: Scene, t: Time, rows: Rows) -> Tree:
        """Choose the actions of these rows; let them remember."""


def play(
    players: Players, inference: Inference, minimum: int, scene: Scene, parts: Sequence[slice]
) -> None:
    """Fill the scene's record; the actor is asked for the rows of each part, which are at the same
    step, and from then on as soon as `minimum` rows wait for it."""
    blank = scene.actor.memory(len(scene.begun))
    playing = sum(rows.stop - rows.start for rows in parts)
    for part in parts:
        playing -= _turn(players, inference, scene, blank, *_time(scene.record, part))
    while playing:
        t, rows = _time(scene.record, players.receive(min(minimum, playing)))
        scene.look(t, rows)
        playing -= _turn(players, inference, scene, blank, t, rows)


def _time(record: Record, rows: Rows) -> tuple[Time, Rows]:
    """Say how many steps rows have made; those that are a range and at one step stay a range."""
    times = record.made[rows]
    if isinstance(rows, slice):
        first, *others = times.tolist()
        if others.count(first) == len(others):
            return first, rows
        rows = np.arange(rows.start, rows.stop)
    return times.copy(), rows


def _turn(
    players: Players, inference: Inference, scene: Scene, blank: Tree, t: Time, rows: Rows
) -> int:
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
    scene.forget(blank, rows)
    begun = time.perf_counter()
    action = inference.act(scene, t, rows)
    scene.seconds += time.perf_counter() - begun
    tree.write(scene.record.action, (t, rows), action)
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
        tree.write(scene.luck, rows, tree.index(scene.noise, (t, rows)))
        if isinstance(rows, slice) and rows.start % self._width == rows.stop % self._width == 0:
            return self._whole_calls(scene, rows)
        if self._width == len(scene.begun):
            action, memory = scene.actor.act(scene.seen, None, scene.memory, scene.luck)
        else:
            action, memory = self._in_calls(scene, rows)
        tree.write(scene.memory, rows, tree.index(memory, rows))
        return tree.index(action, rows)

    def _whole_calls(self, scene: Scene, rows: slice) -> Tree:
        """Make the calls that these rows, and no others, are in."""
        actions = []
        for start in range(rows.start, rows.stop, self._width):
            call = slice(start, start + self._width)
            asked = (tree.index(part, call) for part in (scene.seen, scene.memory, scene.luck))
            obs, memory, luck = asked
            action, memory = scene.actor.act(obs, None, memory, luck)
            tree.write(scene.memory, call, memory)
            actions.append(action)
        return actions[0] if len(actions) == 1 else tree.map(_joined, *actions)

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


def _joined(*leaves: Array) -> Array:
    return np.concatenate(leaves)


def _space_for(answer: Tree, rows: int) -> Tree:
    """Make room for the answers to so many rows."""
    return tree.map(lambda leaf: np.zeros((rows, *leaf.shape[1:]), leaf.dtype), answer)
