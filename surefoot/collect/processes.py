"""Rows played by worker processes, which are replaced when they are lost."""

from __future__ import annotations

import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from surefoot.collect import slab
from surefoot.collect.crew import (
    GRACE,
    SLICE,
    START_SECONDS,
    Lost,
    Member,
    WorkerTraceback,
    lost_error,
)
from surefoot.collect.record import Rows
from surefoot.collect.worker import COMMAND, LANES, Task
from surefoot.core import tree
from surefoot.core.errors import ConfigError, EnvError
from surefoot.core.metrics import Metrics
from surefoot.core.protocols import Step
from surefoot.core.seeding import EpisodeSeeds
from surefoot.core.spec import Spec
from surefoot.core.state import State
from surefoot.core.tree import Array, Tree
from surefoot.envs.make import Factory, ship

WINDOW = 600.0
"""Seconds for which a replacement counts."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds to wait before replacing a worker whose predecessor achieved nothing; they double."""
SHOWN_LINES = 12
"""Lines of a lost worker's last words that a person sees at once; the journal has them all."""
INCOMPARABLE = (
    "from here on this run is not comparable bit for bit with one in which no worker was replaced"
)


@dataclass(frozen=True)
class Care:
    """How workers are looked after."""

    step_timeout: float = 60.0
    """Seconds that one call into an environment may take."""
    restarts: int = 20
    """Replacements within ten minutes before the run is given up."""
    restart_on_error: bool = False
    """Whether an exception of the environment costs a worker rather than the run."""


class Shares:
    """Which worker plays which rows, in which lanes: some rows that are stepped together.

    `groups` are the rows that take turns.
    """

    def __init__(self, groups: list[slice], lanes: list[list[slice]]) -> None:
        self.groups, self.lanes = groups, lanes
        self.owner, self._lane = np.zeros((2, groups[-1].stop), np.int64)
        for worker, parts in enumerate(lanes):
            for number, lane in enumerate(parts):
                self.owner[lane], self._lane[lane] = worker, number
        self._known: dict[tuple[int, int], list[tuple[int, bytes]]] = {}

    def rows(self, worker: int) -> Array:
        return np.flatnonzero(self.owner == worker)

    def orders(self, rows: Rows) -> list[tuple[int, bytes]]:
        """List which lanes of which workers are to step these rows."""
        if not isinstance(rows, slice):
            return self._orders(rows)
        key = (rows.start, rows.stop)
        if key not in self._known:
            self._known[key] = self._orders(np.arange(rows.start, rows.stop))
        return self._known[key]

    def _orders(self, rows: Array) -> list[tuple[int, bytes]]:
        owners = self.owner[rows]
        return [
            (worker, bytes(dict.fromkeys(self._lane[rows[owners == worker]].tolist())))
            for worker in dict.fromkeys(owners.tolist())
        ]


def by_group(rows: int, workers: int) -> Shares:
    """Cut rows into two groups, one of which steps while the actor is asked for the other, and deal
    each out to the workers: a lane each. The second begins where the first left off, so that no
    worker gets all that does not divide evenly."""
    middle = -(-rows // 2)
    groups = [slice(0, middle), slice(middle, rows)] if rows > 1 else [slice(0, rows)]
    lanes: list[list[slice]] = [[] for _ in range(workers)]
    first = 0
    for group in groups:
        parts = _cut(group.start, group.stop, workers)
        for offset, part in enumerate(parts):
            lanes[(first + offset) % workers].append(part)
        first += (group.stop - group.start) % workers
    return Shares(groups, lanes)


def by_row(rows: int, workers: int) -> Shares:
    """Deal rows out to the workers one by one, so that each goes at its own pace."""
    mine = _cut(0, rows, workers)
    return Shares([slice(0, rows)], [_cut(part.start, part.stop, LANES) for part in mine])


def whole(rows: int, workers: int) -> Shares:
    """Give all rows to one worker in one lane, for a vector that cannot be cut."""
    return Shares([slice(0, rows)], [[slice(0, rows)]])


def _cut(start: int, stop: int, count: int) -> list[slice]:
    """Cut a range into so many parts, or as many as it has members; the first may be larger."""
    size, larger = divmod(stop - start, min(count, stop - start))
    sizes = [size + 1] * larger + [size] * (min(count, stop - start) - larger)
    ends = [start, *(start + end for end in accumulate(sizes))]
    return [slice(a, b) for a, b in pairwise(ends)]


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
        deal: Callable[[int, int], Shares] = by_group,
        rebuild: bool = False,
        care: Care | None = None,
        tell: Callable[[Mapping[str, Any]], None] = lambda entry: None,
    ) -> None:
        self._make, self._shipped, self._rebuild = make, ship(make), rebuild
        self._care, self._tell = care or Care(), tell
        self._memory = slab.anonymous_file()
        self._workers: dict[int, Member] = {}
        self._by_wire: dict[int, int] = {}
        self._poll = select.poll()
        self._due, self._landed, self._lost, self._broken = np.zeros((4, rows), bool)
        self._episode, self._length = np.zeros((2, rows), np.int64)
        self._seeds = EpisodeSeeds(0)
        self._losses: deque[float] = deque()
        self._first_loss: Lost | None = None
        self._fruitless = [0] * workers
        self._replaced = 0
        self._looked = time.monotonic()
        try:
            for index in range(workers):
                self._engage(index)
            self.spec, native = self._look(rows)
            self._shares = (whole if native else deal)(rows, workers)
            fields = slab.layout(self.spec, workers)
            slab.resize(self._memory, fields)
            self._slab = slab.attach(fields, self._memory)
            self._slab["metrics"][:] = np.nan
            self._names: list[list[str]] = [[] for _ in range(workers)]
            for index in range(workers):
                self._begin(index)
            for index in range(workers):
                self._answer(index, "while environments were built")
        except BaseException:
            self.close()
            raise

    @property
    def groups(self) -> list[slice]:
        """The rows that take turns."""
        return self._shares.groups

    def reset(self, seeds: EpisodeSeeds, episodes: Array) -> Tree:
        self._seeds, self._episode = seeds, episodes.astype(np.int64)
        self._length[:] = 0
        for marks in (self._due, self._landed, self._lost, self._broken):
            marks[:] = False
        for worker in self._workers.values():
            worker.tell("reset", seeds, self._episode)
        for index in self._workers:
            self._answer(index, "while episodes began")
        return self._slab["obs"]

    def restart(self, rows: Array) -> Tree:
        self._episode[rows] += 1
        self._length[rows] = 0
        self._ask_all("restart", rows)
        return self._slab["obs"]

    def send(self, rows: Rows, action: Tree) -> None:
        tree.write(self._slab["action"], rows, action)
        self._due[rows] = True
        for index, lanes in self._shares.orders(rows):
            self._workers[index].go(lanes)

    def receive(self, rows: Rows) -> Step:
        while not self._landed[rows].all():
            self._attend()
        self._due[rows] = self._landed[rows] = False
        shared = self._slab
        terminated, truncated = shared["terminated"][rows], shared["truncated"][rows]
        lost, ended = self._lost[rows].copy(), terminated | truncated
        self._lost[rows] = False
        self._length[rows] += 1
        if ended.any():
            numbers = np.arange(self.spec.rows)[rows][ended]
            self._episode[numbers] += 1
            self._length[numbers] = 0
            final = tree.index(shared["final_obs"], numbers)
        else:
            final = self.spec.empty_observations(0)
        return Step(
            obs=tree.index(shared["obs"], rows),
            reward=shared["reward"][rows],
            terminated=terminated,
            truncated=truncated,
            valid=shared["valid"][rows],
            lost=lost,
            final_obs=final,
            success=shared["success"][rows],
            info=self._info(rows),
        )

    def ready(self, count: int) -> Array:
        while np.count_nonzero(self._landed) < count:
            self._attend()
        return np.flatnonzero(self._landed)

    def broken(self) -> tuple[Array, Tree]:
        rows = self._broken.copy()
        self._broken[:] = False
        return rows, self._slab["obs"]

    def metrics(self) -> Metrics:
        return {"collect/workers_replaced": float(self._replaced)} if self._replaced else {}

    def replay(self, row: int, action: Tree) -> tuple[Tree, Array]:
        index = int(self._shares.owner[row])
        self._workers[index].tell("replay", row, action)
        result: tuple[Tree, Array] = self._answer(index, "while an episode was played again")
        self._length[row] = len(result[1]) - 1
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

    def _engage(self, index: int) -> Member:
        """Start a worker."""
        worker = self._workers[index] = Member(self._care.step_timeout, self._memory)
        self._poll.register(worker.done, select.POLLIN)
        self._by_wire[worker.done] = index
        return worker

    def _begin(self, index: int) -> None:
        """Have a worker build its environments."""
        lanes, workers = self._shares.lanes[index], len(self._shares.lanes)
        task = Task(index, workers, self.spec, lanes, self._rebuild, self._memory)
        self._workers[index].tell("begin", sys.path, self._shipped, task)

    def _answer(self, index: int, when: str) -> Any:
        """Wait for a worker that cannot be replaced."""
        try:
            return self._workers[index].answer(START_SECONDS)
        except Lost as lost:
            raise lost_error(self._make.name, when, lost) from None

    def _ask_all(self, command: str, *arguments: Any) -> list[Any]:
        """Give all workers a command; one that is lost is replaced and told again."""
        for worker in self._workers.values():
            worker.tell(command, *arguments)
        answers = []
        for index in list(self._workers):
            while True:
                try:
                    answers.append(self._workers[index].answer())
                    break
                except Lost as lost:
                    self._replace(index, lost)
                    self._workers[index].tell(command, *arguments)
        return answers

    def _attend(self) -> None:
        """Wait a little, and see to what comes: steps that are done, faults, workers that end."""
        for wire, _ in self._poll.poll(1000 * SLICE):
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
        worker, lanes = self._workers[index], self._shares.lanes[index]
        for said in worker.hear():
            if said != COMMAND:
                self._landed[lanes[said]] = True
                self._fruitless[index] = 0
                continue
            try:
                worker.listen()
            except EnvError as error:
                if not self._care.restart_on_error:
                    raise
                raise Lost(f"gave up: {error}", str(error.__cause__ or "")) from None

    def _look_after(self, seconds: float) -> None:
        for index in self._waiting():
            try:
                self._workers[index].watch(seconds)
            except Lost as lost:
                self._replace(index, lost)

    def _waiting(self) -> list[int]:
        """List the workers from whom a step is due."""
        waiting: list[int] = np.unique(self._shares.owner[self._due & ~self._landed]).tolist()
        return waiting

    def _replace(self, index: int, lost: Lost) -> None:
        """Put a new worker in the place of one that is lost; its rows begin new episodes."""
        rows = self._shares.rows(index)
        due = rows[self._due[rows]]
        self._lost[due] = True
        self._broken[rows[~self._due[rows]]] = True
        while True:
            self._dismiss(index)
            self._report(index, lost)
            self._afford(lost)
            self._pause(index)
            self._episode[rows] += 1
            self._length[rows] = 0
            try:
                worker = self._engage(index)
                self._begin(index)
                worker.answer(START_SECONDS)
                worker.tell("reset", self._seeds, self._episode)
                worker.answer()
                break
            except Lost as again:
                lost = again
            except EnvError as error:
                if not self._care.restart_on_error:
                    raise
                lost = Lost(f"gave up: {error}", str(error.__cause__ or ""))
        self._blank(due)
        self._landed[due] = True
        self._replaced += 1

    def _dismiss(self, index: int) -> None:
        worker = self._workers[index]
        self._poll.unregister(worker.done)
        del self._by_wire[worker.done]
        worker.end()
        self._names[index] = []
        rows = self._shares.rows(index)
        self._slab["metrics"][:, rows] = np.nan
        self._slab["metric_count"][rows] = 0
        self._slab["metric_names"][index] = 0

    def _blank(self, rows: Array) -> None:
        """Leave nothing of a step that nobody finished."""
        for name in ("reward", "terminated", "truncated", "valid"):
            self._slab[name][rows] = 0
        self._slab["success"][rows] = np.nan

    def _report(self, index: int, lost: Lost) -> None:
        place = self._place(index)
        said = lost.said.strip().splitlines()
        part = said[:SHOWN_LINES] if "most recent call first" in lost.said else said[-SHOWN_LINES:]
        shown = [f"  {line}" for line in part]
        message = f"worker {index} {lost.how}: {place}; replacing it"
        note = [] if self._replaced else [INCOMPARABLE]
        self._tell(
            {
                "event": "worker-lost",
                "worker": index,
                "how": lost.how,
                "place": place,
                "traceback": lost.said,
                "message": "\n".join([message, *shown, *note]),
            }
        )

    def _place(self, index: int) -> str:
        """Say where a worker was last: environment, row, episode and step."""
        mine, last = self._shares.rows(index), int(self._workers[index].trail[1])
        row = last if last in mine else int(mine[0])
        where = f"row {row}, episode {self._episode[row]}, step {self._length[row]}"
        return f"{self._make.name}, {where}"

    def _afford(self, lost: Lost) -> None:
        """Count a replacement; give up where there were too many."""
        now = time.monotonic()
        self._first_loss = self._first_loss or lost
        self._losses.append(now)
        while self._losses[0] < now - WINDOW:
            self._losses.popleft()
        if len(self._losses) > self._care.restarts:
            first = self._first_loss
            said = WorkerTraceback(first.said) if first.said else None
            raise EnvError(
                f"{self._make.name}: {len(self._losses)} workers were lost within "
                f"{WINDOW / 60:g} minutes, which is more than worker_restarts="
                f"{self._care.restarts}. The first {first.how}. Mend the environment, and go on "
                f"with `surefoot resume`"
            ) from said

    def _pause(self, index: int) -> None:
        """Wait before another try where the last ones achieved nothing."""
        tries = self._fruitless[index]
        self._fruitless[index] += 1
        if tries:
            time.sleep(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (tries - 1)))

    def _info(self, rows: Rows) -> dict[str, Array]:
        """Read what environments reported; each worker has its own order of names."""
        counts = self._slab["metric_count"][rows]
        if not counts.any():
            return {}
        owners = self._shares.owner[rows]
        info: dict[str, Array] = {}
        for index in dict.fromkeys(owners.tolist()):
            mine = owners == index
            names = self._names_of(index, int(counts[mine].max()))
            values = self._slab["metrics"][: len(names), rows][:, mine]
            for name, numbers in zip(names, values, strict=True):
                if name not in info:
                    info[name] = np.full(len(owners), np.nan)
                info[name][mine] = numbers
        return info

    def _names_of(self, index: int, count: int) -> list[str]:
        """Read the first so many names of a worker's metrics."""
        names, written = self._names[index], self._slab["metric_names"][index]
        while len(names) < count:
            names.append(written[len(names)].tobytes().rstrip(b"\0").decode())
        return names[:count]
