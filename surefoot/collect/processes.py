"""Rows played by worker processes, which are replaced when they are lost."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.collect import slab
from surefoot.collect.care import Care, Losses
from surefoot.collect.crew import (
    GRACE,
    JUDGING_SECONDS,
    SLICE,
    START_SECONDS,
    Lost,
    Member,
    give_up,
)
from surefoot.collect.facts import Rows
from surefoot.collect.lanes import Lane, deal, rows_of
from surefoot.collect.pace import Cue, Inference, Played, Scene, play
from surefoot.collect.record import Record
from surefoot.collect.reports import Gathered, Reports
from surefoot.collect.worker import ANSWER, Part, Task, await_news, shared_layout
from surefoot.core import tree
from surefoot.core.errors import ConfigError, EnvError
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Actor
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs.make import Factory, ship


def in_parent(actor: Actor) -> None:
    """Let no actor act in workers."""


def if_light(actor: Actor) -> Actor | None:
    """Let actors act in workers that need no torch there."""
    return actor.light()


def as_it_is(actor: Actor) -> Actor:
    """Let every actor act in workers, if need be with all of torch."""
    return actor.light() or actor


@dataclass(frozen=True)
class Manner:
    """How workers play."""

    inference: Inference
    minimum: int = 1
    """How many rows have to wait for an actor that acts in the parent."""
    lanes: int = 1
    """Of each worker."""
    delegate: Callable[[Actor], Actor | None] = if_light
    """What workers act with by themselves; None: they are sent step by step."""
    judges: bool = False
    """Whether a worker that acts for all rows finds log-probabilities too."""


class ProcessStage:
    """The parent's side: has rollouts played, waits for them, replaces workers that are lost.

    Workers act by themselves, or are sent step by step while the actor is asked here. When one is
    lost, the steps its rows were in are lost too, and the episodes with them; a new worker begins
    their next episodes. Between rollouts it is the episodes alone.
    """

    def __init__(
        self,
        make: Factory,
        rows: int,
        workers: int,
        horizon: int,
        manner: Manner,
        care: Care,
        spin: float = 0.0,
        rebuild: bool = False,
        tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
    ) -> None:
        self.replaced = 0
        self._make, self._shipped, self._rebuild, self._spin = make, ship(make), rebuild, spin
        self._horizon, self._manner, self._care = horizon, manner, care
        self._losses = Losses(make.name, care.restarts, workers, tell)
        self._memory, self._closed = slab.anonymous_file(), False
        self._poll = select.poll()
        self._workers: dict[int, Member] = {}
        self._by_wire: dict[int, int] = {}
        self._looked = time.monotonic()
        self._seeds = EpisodeSeeds(0)
        self._episode, self._broken = np.zeros((2, rows), np.int64)
        """The number of each row's episode before this rollout, or now if none is played; and how
        many of them were lost between rollouts since somebody asked."""
        self._playing = False
        self._order: tuple[Actor, Cue] | None = None
        """What workers were told to play by themselves, while they do."""
        self._due: set[Lane] = set()
        """Lanes that were sent and are not done."""
        self._landed: set[Lane] = set()
        """Those that are done and were not received."""
        self._said: dict[int, Part] = {}
        """What workers said at the end of their part."""
        try:
            for index in range(workers):
                self._engage(index)
            self.spec, native = self._look(rows)
            self._lanes = deal(rows, workers, 1 if native else manner.lanes)
            self._set_up(workers)
            for index in range(workers):
                self._begin(index)
            for index in range(workers):
                self._answer(index, "while environments were built")
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        self._seeds, self._episode = seeds, episodes.astype(np.int64)
        self._broken[:] = 0
        self._renew_crew()
        self._playing, self._order = False, None
        for worker in self._workers.values():
            worker.tell("reset", seeds, self._episode)
        for index in self._workers:
            self._see(index, self._answer(index, "while episodes began"))
        return self._seen

    def restart(self, rows: Array) -> Tree:
        self._episode[rows] += 1
        # One that is lost in it need not be told again: a new one begins new episodes anyway.
        for index, seen in self._ask_all("restart", rows, repeat=False).items():
            self._see(index, seen)
        return self._seen

    def begin(self, actor: Actor, cue: Cue, obs: Tree) -> None:
        self._record.begin(obs)
        self._playing, self._actor, self._cue = True, actor, cue
        self._since[:] = 0
        acting = self._manner.delegate(actor)
        if acting is not None:
            self._order = (acting, cue)
            self._said.clear()
            self._due.update(self._lanes)
            for worker in self._workers.values():
                worker.tell("play", *self._order)

    def finish(self) -> Played:
        begun = time.perf_counter()
        memory, spent, log_prob = self._by_themselves() if self._order else self._step_by_step()
        seconds = _attributed(time.perf_counter() - begun, spent)
        self._episode += self._record.passed()
        self._playing, self._order = False, None
        for index in self._workers:
            self._losses.fruit(index)
        self._since[:] = self._horizon
        return Played(self._record.copy(), memory, seconds, log_prob)

    def send(self, rows: Rows) -> None:
        orders: dict[int, list[int]] = {}
        for lane in self._lanes_of(rows):
            orders.setdefault(lane.worker, []).append(lane.number)
            self._due.add(lane)
        for index, lanes in orders.items():
            self._workers[index].go(bytes(lanes))

    def receive(self, count: int) -> Rows:
        while sum(lane.size for lane in self._landed) < count:
            self._attend()
        lanes = sorted(self._landed, key=_first_row)
        self._landed.clear()
        return rows_of(lanes)

    def broken(self) -> tuple[Array, Tree]:
        if not self._playing:
            self._attend(0.0)  # somebody may be gone
        episodes = self._broken.copy()
        self._broken[:] = 0
        return episodes, self._seen

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        index = self._lane_of[row].worker
        self._workers[index].tell("replay", row, action)
        result: tuple[Tree, Array] = self._answer(index, "while an episode was played again")
        return result

    def snapshot(self) -> State:
        merged: State = {}
        for states in self._ask_all("snapshot").values():
            for state in states:
                merged |= state
        return merged

    def recall(self, state: State) -> None:
        for worker in self._workers.values():
            worker.tell("recall", state)
        for index in self._workers:
            self._answer(index, "in set_state")

    def pids(self) -> list[int]:
        """Tell the process ids of workers, but not of those that are gone."""
        return [worker.pid for worker in self._workers.values() if worker.lives]

    def close(self) -> None:
        deadline = time.monotonic() + GRACE
        for worker in self._workers.values():
            worker.say_goodbye()
        for worker in self._workers.values():
            worker.close(deadline)
        self._workers.clear()
        if not self._closed:
            os.close(self._memory)
        self._closed = True

    def _look(self, rows: int) -> tuple[Spec, bool]:
        """See what the environment is like; a worker builds one, since it may do anything."""
        self._workers[0].tell("look", sys.path, self._shipped)
        spec, native = self._answer(0, "while one was built")
        divided = spec.rows != rows or len(self._workers) > 1
        if native and divided and not self._make.divisible:
            raise ConfigError(
                f"{self._make.name} makes a vector of {spec.rows} environments, which cannot be "
                f"dealt out; use --collector local, or --n-proc 1, with --envs {spec.rows}"
            )
        return replace(spec, rows=rows), native

    def _set_up(self, workers: int) -> None:
        """Lay out the memory, and note whose is what."""
        fields = shared_layout(self.spec, self._horizon, workers)
        slab.resize(self._memory, fields)
        shared = slab.attach(fields, self._memory)
        self._of: list[list[Lane]] = [[] for _ in range(workers)]
        for lane in self._lanes:
            self._of[lane.worker].append(lane)
        parts = [[lane.rows for lane in lanes] for lanes in self._of]
        reports = [Reports(shared, index, rows) for index, rows in enumerate(parts)]
        self._record = Record(shared, Gathered(reports))
        self._lane_of = [lane for lane in self._lanes for _ in range(lane.size)]
        self._numbered = {(lane.worker, lane.number): lane for lane in self._lanes}
        self._seen = self.spec.empty_observations(self.spec.rows)
        """What rows saw when they last began an episode that nobody played into."""
        self._since = np.zeros(self.spec.rows, np.int64)
        """How many steps of this rollout each row had made when its worker began."""

    def _engage(self, index: int) -> Member:
        """Start a worker."""
        worker = self._workers[index] = Member(self._care.step_timeout, self._memory)
        self._poll.register(worker.done, select.POLLIN)
        self._by_wire[worker.done] = index
        return worker

    def _begin(self, index: int) -> None:
        """Have a worker build its environments."""
        task = Task(
            worker=index,
            workers=len(self._of),
            spec=self.spec,
            lanes=[lane.rows for lane in self._of[index]],
            horizon=self._horizon,
            inference=self._manner.inference,
            rebuild=self._rebuild,
            slab=self._memory,
            spin=self._spin,
            judges=self._manner.judges,
        )
        self._workers[index].tell("begin", sys.path, self._shipped, task)

    def _answer(self, index: int, when: str) -> Any:
        """Wait for a worker that cannot be replaced."""
        try:
            return self._workers[index].answer(START_SECONDS)
        except Lost as lost:
            give_up(self._make.name, when, lost)

    def _ask_all(self, command: str, *arguments: Any, repeat: bool = True) -> dict[int, Any]:
        """Give all workers a command; one that is lost is replaced, and told again if need be."""
        for worker in self._workers.values():
            worker.tell(command, *arguments)
        answers = {}
        for index in list(self._workers):
            while True:
                try:
                    with self._faults_are_losses():
                        answers[index] = self._workers[index].answer()
                    break
                except Lost as lost:
                    self._replace(index, lost)
                if not repeat:
                    break
                self._workers[index].tell(command, *arguments)
        return answers

    def _renew_crew(self) -> None:
        """Replace those who are gone, or busy with what nobody waits for any more."""
        busy = {lane.worker for lane in self._due}
        for lanes in (self._due, self._landed):
            lanes.clear()
        unfit = [i for i, w in self._workers.items() if i in busy or w.owes or not w.lives]
        for index in unfit:
            self._dismiss(index)
            self._engage(index)
            self._begin(index)
        for index in unfit:
            self._answer(index, "while environments were built")

    def _see(self, index: int, seen: list[Tree]) -> None:
        """Take note of what the lanes of a worker see."""
        for lane, obs in zip(self._of[index], seen, strict=True):
            tree.write(self._seen, lane.rows, obs)

    def _by_themselves(self) -> Part:
        """Wait until workers have played; put together what they say, their time as that of one on
        average."""
        while self._due:
            self._attend()
        self._landed.clear()
        memory = tree.map(np.copy, self._cue.memory)
        spent: Metrics = {}
        for index, part in self._said.items():
            for lane in self._of[index]:
                tree.write(memory, lane.rows, tree.index(part.memory, lane.rows))
            for name, value in part.seconds.items():
                spent[name] = spent.get(name, 0.0) + value / len(self._said)
        log_prob = next((part.log_prob for part in self._said.values()), None)
        return Part(memory, spent, log_prob)

    def _step_by_step(self) -> Part:
        """Ask the actor here, and send workers; the time is what it took to ask."""
        scene = Scene.of(self._actor, self._cue, self._record)
        play(self, self._manner.inference, self._manner.minimum, scene)
        return Part(scene.memory, {"acting": scene.seconds}, None)

    def _lanes_of(self, rows: Rows) -> Iterable[Lane]:
        """List the lanes that these rows are."""
        if isinstance(rows, slice):
            return dict.fromkeys(self._lane_of[rows])
        return dict.fromkeys(self._lane_of[row] for row in rows.tolist())

    def _attend(self, patience: float = SLICE) -> None:
        """Wait a little, and see to what comes: steps that are done, faults, workers that end."""
        news = await_news(self._poll, self._spin) if self._spin and patience else []
        for wire, _ in news or self._poll.poll(1000 * patience):
            index = self._by_wire[wire]
            try:
                self._hear(index)
            except Lost as lost:
                self._replace(index, lost)
        now = time.monotonic()
        if now - self._looked >= SLICE:
            self._look_after(now - self._looked)
            self._looked = now

    def _hear(self, index: int) -> None:
        """Note which lanes a worker is done with; it may also have given up."""
        worker = self._workers[index]
        for said in worker.hear():
            if said == ANSWER:
                with self._faults_are_losses():
                    self._said[index] = worker.listen()
                for lane in self._of[index]:
                    self._land(lane)
            else:
                self._land(self._numbered[index, said])

    def _land(self, lane: Lane) -> None:
        """Take note that nothing is due from a lane any more."""
        if lane in self._due:
            self._due.discard(lane)
            self._landed.add(lane)

    @contextmanager
    def _faults_are_losses(self) -> Iterator[None]:
        """Let an environment's error cost the worker, if that is what was asked for."""
        try:
            yield
        except (EnvError, ConfigError) as error:
            if not self._care.restart_on_error:
                raise
            raise Lost(f"gave up: {error}", str(error.__cause__ or "")) from None

    def _look_after(self, seconds: float) -> None:
        """See whether those live and go on from whom something is due; one that has made its last
        step and finds log-probabilities may take its time."""
        for lane in {lane.worker: lane for lane in self._due}.values():
            index, through = lane.worker, self._record.made[lane.rows.start] == self._horizon
            judging = through and self._manner.judges
            longer = (JUDGING_SECONDS, "finding log-probabilities") if judging else ()
            try:
                self._workers[index].watch(seconds, *longer)
            except Lost as lost:
                self._replace(index, lost)

    def _replace(self, index: int, lost: Lost) -> None:
        """Put a new worker in the place of one that is lost; its rows begin new episodes."""
        self._dismiss(index)  # first: until then it may go on
        made = self._record.made > self._since
        if any(made[lane.rows].any() for lane in self._of[index]):
            self._losses.fruit(index)
        episode = self._episode + (self._record.passed() if self._playing else 0)
        tries = 0
        while True:
            tries += 1
            first = self.replaced == 0 and tries == 1
            self._losses.note(index, lost, self._workers[index].trail, first)
            try:
                with self._faults_are_losses():
                    worker = self._engage(index)
                    self._begin(index)
                    worker.answer(START_SECONDS)
                    worker.tell("reset", self._seeds, episode + tries)
                    self._see(index, worker.answer())
                break
            except Lost as again:
                lost = again
                self._dismiss(index)
        for lane in self._of[index]:
            self._cut(lane, tries)
        if self._order and self._due.intersection(self._of[index]):
            worker.tell("play", *self._order)
        self.replaced += 1

    def _cut(self, lane: Lane, episodes: int) -> None:
        """Take note that so many episodes of a lane are lost, and the step they were in."""
        if self._playing and self._record.made[lane.rows.start] < self._horizon:
            self._record.lose(lane.rows, episodes, tree.index(self._seen, lane.rows))
            if not self._order:  # else somebody plays on
                self._land(lane)
        else:  # it is through, or nobody plays
            self._land(lane)
            self._record.made[lane.rows] = self._horizon  # it may have been killed in saying so
            self._broken[lane.rows] += episodes
            self._episode[lane.rows] += episodes
        self._since[lane.rows] = self._record.made[lane.rows]

    def _dismiss(self, index: int) -> None:
        """Let go of a worker."""
        worker = self._workers[index]
        if not worker.ended:
            self._poll.unregister(worker.done)
            del self._by_wire[worker.done]
            worker.end()


def _attributed(waited: float, spent: Metrics) -> Metrics:
    """Divide the time that was waited by what those spent it on who were waited for; they may have
    begun before."""
    known = sum(spent.values())
    share = min(1.0, waited / known) if known else 0.0
    parts = {name: share * spent.get(name, 0.0) for name in ("environment", "acting")}
    return {**parts, "waiting": max(0.0, waited - sum(parts.values()))}


def _first_row(lane: Lane) -> int:
    return int(lane.rows.start)
