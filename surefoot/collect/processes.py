"""Rows played by worker processes, which are replaced when they are lost."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.collect import slab
from surefoot.collect.care import Budget, Care, Pauses
from surefoot.collect.crew import GRACE, SLICE, START_SECONDS, Lost, Member, give_up
from surefoot.collect.lanes import Lane, deal, rows_of
from surefoot.collect.record import Rows
from surefoot.collect.worker import ANSWER, NOTABLE, REPORTING, Task, await_news
from surefoot.core import tree
from surefoot.core.errors import ConfigError, EnvError
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs.make import Factory, ship

SHOWN_LINES = 12
"""Lines of a lost worker's last words that a person sees at once; the journal has them all."""
INCOMPARABLE = (
    "from here on this run is not comparable bit for bit with one in which no worker was replaced"
)


class ProcessStage:
    """The parent's side: sends actions, waits for steps, replaces workers that are lost.

    When a worker is lost, the steps its rows were in are lost too, and the episodes with them; a
    new worker begins their next episodes. Between steps it is the episodes alone.
    """

    def __init__(
        self,
        make: Factory,
        rows: int,
        workers: int,
        care: Care,
        lanes: int = 2,
        spin: float = 0.0,
        rebuild: bool = False,
        tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
    ) -> None:
        self.replaced = 0
        self._make, self._shipped, self._rebuild, self._spin = make, ship(make), rebuild, spin
        self._care, self._tell = care, tell
        self._budget, self._pauses = Budget(make.name, care.restarts), Pauses(workers)
        self._memory = slab.anonymous_file()
        self._poll = select.poll()
        self._workers: dict[int, Member] = {}
        self._by_wire: dict[int, int] = {}
        self._looked = time.monotonic()
        self._seeds = EpisodeSeeds(0)
        self._episode, self._broken = np.zeros((2, rows), np.int64)
        self._due: set[Lane] = set()
        """Lanes that were sent and not received."""
        self._landed: dict[Lane, int] = {}
        """Those of them that are done, and what about them is out of the ordinary."""
        self._lost: dict[Lane, int] = {}
        """Those of them whose step nobody made, and how many episodes that cost."""
        try:
            for index in range(workers):
                self._engage(index)
            self.spec, native = self._look(rows)
            self._lanes = deal(rows, workers, 1 if native else lanes)
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
        for lanes in (self._due, self._landed, self._lost):
            lanes.clear()
        for index, worker in list(self._workers.items()):
            if not worker.lives:  # it was lost in playing an episode again
                self._dismiss(index)
                self._engage(index)
                self._begin(index)
                self._answer(index, "while environments were built")
        for worker in self._workers.values():
            worker.tell("reset", seeds, self._episode)
        for index in self._workers:
            self._answer(index, "while episodes began")
        return self._slab["obs"]

    def restart(self, rows: Array) -> Tree:
        self._episode[rows] += 1
        # One that is lost in it need not be told again: a new one begins new episodes anyway.
        self._ask_all("restart", rows, repeat=False)
        return self._slab["obs"]

    def send(self, rows: Rows, action: Tree) -> None:
        tree.write(self._slab["action"], rows, action)
        orders: dict[int, list[int]] = {}
        for lane in self._lanes_of(rows):
            orders.setdefault(lane.worker, []).append(lane.number)
            self._due.add(lane)
        for index, lanes in orders.items():
            self._workers[index].go(bytes(lanes))

    def receive(self, count: int) -> tuple[Rows, Step]:
        while sum(lane.size for lane in self._landed) < count:
            self._attend()
        lanes, flags = sorted(self._landed, key=_first_row), 0
        for lane in lanes:
            flags |= self._landed[lane]
        self._landed.clear()
        self._due.difference_update(lanes)
        rows = rows_of(lanes)
        info = self._info(rows) if flags & REPORTING else {}
        if flags & NOTABLE:
            return rows, self._notable(rows, lanes, info)
        return rows, self._plain(rows, info)

    def broken(self) -> tuple[Array, Tree]:
        episodes = self._broken.copy()
        self._broken[:] = 0
        return episodes, self._slab["obs"]

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        index = self._lane_of[row].worker
        self._workers[index].tell("replay", row, action)
        result: tuple[Tree, Array] = self._answer(index, "while an episode was played again")
        return result

    def snapshot(self) -> State:
        merged: State = {}
        for states in self._ask_all("snapshot"):
            for state in states:
                merged |= state
        return merged

    def recall(self, state: State) -> None:
        for worker in self._workers.values():
            worker.tell("recall", state)
        for index in self._workers:
            self._answer(index, "in set_state")

    def close(self) -> None:
        deadline = time.monotonic() + GRACE
        for worker in self._workers.values():
            worker.say_goodbye()
        for worker in self._workers.values():
            worker.close(deadline)
        if self._workers:
            os.close(self._memory)
        self._workers.clear()

    def _look(self, rows: int) -> tuple[Spec, bool]:
        """See what the environment is like; a worker builds one, since it may do anything."""
        self._workers[0].tell("look", sys.path, self._shipped)
        spec, native = self._answer(0, "while one was built")
        if native and (spec.rows != rows or len(self._workers) > 1):
            raise ConfigError(
                f"{self._make.name} makes a vector of {spec.rows} environments, which cannot be "
                f"dealt out; use --collector local, or --n-proc 1, with --envs {spec.rows}"
            )
        return replace(spec, rows=rows), native

    def _set_up(self, workers: int) -> None:
        """Lay out the memory, and what a step is like in which nothing special happens."""
        fields, rows = slab.layout(self.spec, workers), self.spec.rows
        slab.resize(self._memory, fields)
        self._slab = slab.attach(fields, self._memory)
        self._slab["metrics"][:] = self._slab["success"][:] = np.nan
        self._slab["valid"][:] = True
        self._names: list[list[str]] = [[] for _ in range(workers)]
        self._lane_of = [lane for lane in self._lanes for _ in range(lane.size)]
        self._numbered = {(lane.worker, lane.number): lane for lane in self._lanes}
        self._no, self._yes = np.zeros(rows, bool), np.ones(rows, bool)
        self._zero = np.zeros(rows, np.int64)
        self._none, self._no_final = np.full(rows, np.nan), self.spec.empty_observations(0)

    def _engage(self, index: int) -> Member:
        """Start a worker."""
        worker = self._workers[index] = Member(self._care.step_timeout, self._memory)
        self._poll.register(worker.done, select.POLLIN)
        self._by_wire[worker.done] = index
        return worker

    def _begin(self, index: int) -> None:
        """Have a worker build its environments."""
        lanes = [lane.rows for lane in self._lanes if lane.worker == index]
        task = Task(
            worker=index,
            workers=len(self._names),
            spec=self.spec,
            lanes=lanes,
            rebuild=self._rebuild,
            slab=self._memory,
            spin=self._spin,
        )
        self._workers[index].tell("begin", sys.path, self._shipped, task)

    def _answer(self, index: int, when: str) -> Any:
        """Wait for a worker that cannot be replaced."""
        try:
            return self._workers[index].answer(START_SECONDS)
        except Lost as lost:
            give_up(self._make.name, when, lost)

    def _ask_all(self, command: str, *arguments: Any, repeat: bool = True) -> list[Any]:
        """Give all workers a command; one that is lost is replaced, and told again if need be."""
        for worker in self._workers.values():
            worker.tell(command, *arguments)
        answers = []
        for index in list(self._workers):
            while True:
                try:
                    with self._faults_are_losses():
                        answers.append(self._workers[index].answer())
                    break
                except Lost as lost:
                    self._replace(index, lost)
                if not repeat:
                    break
                self._workers[index].tell(command, *arguments)
        return answers

    def _lanes_of(self, rows: Rows) -> Iterable[Lane]:
        """List the lanes that these rows are."""
        if isinstance(rows, slice):
            return dict.fromkeys(self._lane_of[rows])
        return dict.fromkeys(self._lane_of[row] for row in rows.tolist())

    def _attend(self) -> None:
        """Wait a little, and see to what comes: steps that are done, faults, workers that end."""
        news = await_news(self._poll, self._spin) if self._spin else []
        for wire, _ in news or self._poll.poll(1000 * SLICE):
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
        for flags, number in worker.hear():
            if flags == ANSWER:
                with self._faults_are_losses():
                    worker.listen()
            self._landed[self._numbered[index, number]] = flags
            self._pauses.fruit(index)

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
        """See whether those live and go on from whom a step is due."""
        for index in {lane.worker for lane in self._due if lane not in self._landed}:
            try:
                self._workers[index].watch(seconds)
            except Lost as lost:
                self._replace(index, lost)

    def _replace(self, index: int, lost: Lost) -> None:
        """Put a new worker in the place of one that is lost; its rows begin new episodes."""
        mine = [lane for lane in self._lanes if lane.worker == index]
        rows = np.concatenate([np.arange(self.spec.rows)[lane.rows] for lane in mine])
        tries = 0
        while True:
            tries += 1
            self._report(index, lost)
            self._dismiss(index)
            self._budget.spend(lost)
            self._pauses.take(index)
            self._episode[rows] += 1
            try:
                with self._faults_are_losses():
                    worker = self._engage(index)
                    self._begin(index)
                    worker.answer(START_SECONDS)
                    worker.tell("reset", self._seeds, self._episode)
                    worker.answer()
                break
            except Lost as again:
                lost = again
        for lane in mine:
            if lane in self._due:
                self._lost[lane] = self._lost.get(lane, 0) + tries
                self._landed[lane] = NOTABLE
            else:
                self._broken[lane.rows] += tries
        self.replaced += 1

    def _dismiss(self, index: int) -> None:
        """Let go of a worker and of all that it left in the slab."""
        worker = self._workers[index]
        rows = np.flatnonzero([lane.worker == index for lane in self._lane_of])
        if worker.done in self._by_wire:
            self._poll.unregister(worker.done)
            del self._by_wire[worker.done]
        worker.end()
        for name in ("reward", "terminated", "truncated", "metric_count"):
            self._slab[name][rows] = 0
        self._slab["valid"][rows] = True
        self._slab["success"][rows] = self._slab["metrics"][:, rows] = np.nan
        self._slab["metric_names"][index] = 0
        self._names[index] = []

    def _report(self, index: int, lost: Lost) -> None:
        place, said = self._place(index), lost.said.strip().splitlines()
        part = said[:SHOWN_LINES] if "most recent call first" in lost.said else said[-SHOWN_LINES:]
        where = "" if self._make.name in lost.how else f": {place}"
        message = [f"lost worker {index}, which {lost.how}{where}"]
        message += [f"  {line}" for line in part]
        message += [] if self.replaced else [INCOMPARABLE]
        self._tell(
            {
                "event": "worker-lost",
                "worker": index,
                "how": lost.how,
                "place": place,
                "traceback": lost.said,
                "message": "\n".join(message),
            }
        )

    def _place(self, index: int) -> str:
        """Say where a worker was last: environment, row, episode and step."""
        _, row, episode, step = self._workers[index].trail.tolist()
        where = f"row {row}, episode {episode}, step {step}" if step >= 0 else "while it was built"
        return f"{self._make.name}, {where}"

    def _plain(self, rows: Rows, info: dict[str, Array]) -> Step:
        """Read a step in which nothing ended, and nothing went wrong."""
        reward = self._slab["reward"][rows]
        some = slice(0, len(reward))
        no = self._no[some]
        return Step(
            obs=tree.index(self._slab["obs"], rows),
            reward=reward,
            terminated=no,
            truncated=no,
            valid=self._yes[some],
            lost=self._zero[some],
            final_obs=self._no_final,
            success=self._none[some],
            info=info,
            notable=False,
        )

    def _notable(self, rows: Rows, lanes: list[Lane], info: dict[str, Array]) -> Step:
        """Read a step whatever happened in it."""
        shared, numbers = self._slab, np.arange(self.spec.rows)[rows]
        terminated, truncated = shared["terminated"][rows], shared["truncated"][rows]
        ended = numbers[terminated | truncated]
        self._episode[ended] += 1
        lost = np.concatenate([np.full(lane.size, self._lost.pop(lane, 0)) for lane in lanes])
        return Step(
            obs=tree.index(shared["obs"], rows),
            reward=shared["reward"][rows],
            terminated=terminated,
            truncated=truncated,
            valid=shared["valid"][rows] & (lost == 0),
            lost=lost,
            final_obs=tree.index(shared["final_obs"], ended),
            success=shared["success"][rows],
            info=info,
            notable=True,
        )

    def _info(self, rows: Rows) -> dict[str, Array]:
        """Read what environments reported; each worker has its own order of names."""
        numbers, counts = np.arange(self.spec.rows)[rows], self._slab["metric_count"][rows]
        owners = np.array([self._lane_of[row].worker for row in numbers.tolist()])
        info: dict[str, Array] = {}
        for index in dict.fromkeys(owners.tolist()):
            mine = owners == index
            names = self._names_of(index, int(counts[mine].max()))
            for place, name in enumerate(names):
                if name not in info:
                    info[name] = np.full(len(owners), np.nan)
                info[name][mine] = self._slab["metrics"][place, numbers[mine]]
        return info

    def _names_of(self, index: int, count: int) -> list[str]:
        """Read the first so many names of a worker's metrics."""
        names, written = self._names[index], self._slab["metric_names"][index]
        while len(names) < count:
            names.append(written[len(names)].tobytes().rstrip(b"\0").decode())
        return names[:count]


def _first_row(lane: Lane) -> int:
    return int(lane.rows.start)
