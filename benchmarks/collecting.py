"""How fast environments are stepped, by whom; and what workers cost.

    python benchmarks/collecting.py [speed | uneven | latency | start | recovery] …

Everything in one part runs interleaved, in repeats; figures are medians.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from surefoot.collect.build import build_collector
from surefoot.collect.care import Care
from surefoot.collect.crew import SPIN, Member
from surefoot.collect.pace import Cue, Padded
from surefoot.collect.processes import Manner, ProcessStage, in_parent
from surefoot.collect.worker import die_with_parent
from surefoot.config import Config, PPOConfig
from surefoot.core.seeding import EpisodeSeeds
from surefoot.envs.make import factory
from surefoot.learn.build import build_learner
from surefoot.policy.lean import Lean

CARE = Care(step_timeout=60.0, restarts=100, restart_on_error=False)
ENV, ROWS, HORIZON, REPEATS = "BipedalWalker-v3", 16, 512, 5
TRIPS = 3_000


class Idle(gymnasium.Env[Any, Any]):
    """Does nothing, as fast as possible."""

    observation_space = Box(-1, 1, (4,), np.float32)
    action_space = Discrete(2)
    seen = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen, {}

    def step(self, action: Any) -> Any:
        return self.seen, 0.0, False, False, {}


class Uneven(Idle):
    """One step in ten takes ten times as long as the others."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.default_rng(seed)
        return self.seen, {}

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + (2e-3 if self.random.random() < 0.1 else 2e-4)
        while time.perf_counter() < end:
            pass
        return self.seen, 0.0, False, False, {}


class Heavy(Lean):
    """One that cannot act in workers."""

    def light(self) -> Any:
        return None


def collecting(
    env: Any, workers: int | None, heavy: bool = False, **settings: Any
) -> Callable[[], float]:
    """Make a collector; return what plays a rollout with it and gives its steps per second."""
    config = Config(
        envs=ROWS,
        collector="processes" if workers else "local",
        n_proc=workers,
        ppo=PPOConfig(horizon=HORIZON),
        **settings,
    )
    collector = build_collector(config, factory(env), "fresh")
    actor: Any = build_learner(config, collector.spec).actor()
    actor = Heavy(**vars(actor)) if heavy else actor

    def play() -> float:
        begun = time.perf_counter()
        collector.collect(actor)
        return ROWS * HORIZON / (time.perf_counter() - begun)

    return play


def vectors(env: str, kind: str) -> Callable[[], float]:
    """The same work with a vector class of somebody else and our actor."""
    if kind == "sb3":
        from stable_baselines3.common.vec_env import SubprocVecEnv

        vector: Any = SubprocVecEnv([lambda: gymnasium.make(env) for _ in range(ROWS)])
        obs = vector.reset()
    else:
        vector = gymnasium.vector.AsyncVectorEnv([lambda: gymnasium.make(env)] * ROWS)
        obs, _ = vector.reset()
    config = Config(envs=ROWS)
    local = build_collector(config.model_copy(update={"collector": "local"}), factory(env), "fresh")
    actor = build_learner(config, local.spec).actor()
    noise = actor.noise(np.random.default_rng(0), HORIZON, ROWS)
    seen = [obs]

    def play() -> float:
        begun = time.perf_counter()
        for t in range(HORIZON):
            action, _ = actor.act(np.asarray(seen[0], np.float32), None, {}, noise[t])
            seen[0] = vector.step(local.spec.to_env(action))[0]
        return ROWS * HORIZON / (time.perf_counter() - begun)

    return play


def bare(env: str, count: int, steps: int, gate: Any, results: Any) -> None:
    """Step some environments in turn with random actions and do nothing else."""
    made = [gymnasium.make(env, disable_env_checker=True) for _ in range(count)]
    random = np.random.default_rng(os.getpid())
    for each in made:
        each.reset(seed=int(random.integers(2**31)))
    with suppress(EOFError):
        while gate.recv():
            actions = random.standard_normal((steps, 4)).astype(np.float32).clip(-1, 1)
            for each, action in zip(cycle(made), actions, strict=False):
                *_, terminated, truncated, _ = each.step(action)
                if terminated or truncated:
                    each.reset(seed=int(random.integers(2**31)))
            results.put(True)


def two_bare(env: str, count: int) -> Callable[[], float]:
    """Two bare processes with half of the work each; both have to be done, as with workers."""
    context = multiprocessing.get_context("spawn")
    results, gates, steps = context.Queue(), [], ROWS * HORIZON // 2
    for _ in range(2):
        ours, theirs = context.Pipe()
        arguments = (env, count, steps, theirs, results)
        context.Process(target=bare, args=arguments, daemon=True).start()
        gates.append(ours)

    def play() -> float:
        begun = time.perf_counter()
        for gate in gates:
            gate.send(True)
        for _ in gates:
            results.get()
        return ROWS * HORIZON / (time.perf_counter() - begun)

    return play


def plain(env: str) -> Callable[[], float]:
    """The least that could do it: forked workers, shared memory, pipes, two groups in lockstep, our
    actor in the parent; nothing is recorded, checked or watched."""
    config = Config(envs=ROWS, collector="local")
    local = build_collector(config, factory(env), "fresh")
    actor = build_learner(config, local.spec).actor()
    obs, action = (_shared(leaf) for leaf in (local._obs, local.spec.empty_actions(ROWS)))
    groups = [slice(0, ROWS // 2), slice(ROWS // 2, ROWS)]
    pipes = []
    for worker in range(2):
        (go, ours), (theirs, done) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(ours)
            die_with_parent(os.getppid())
            _plain_worker(
                env, [range(ROWS)[group][worker::2] for group in groups], obs, action, go, done
            )
        pipes.append((ours, theirs))
    for _, theirs in pipes:
        os.read(theirs, 1)

    def play() -> float:
        begun = time.perf_counter()
        noise = actor.noise(np.random.default_rng(0), HORIZON, ROWS)
        for t in range(HORIZON + 1):
            for number, group in enumerate(groups):
                for _, theirs in pipes if t else []:
                    os.read(theirs, 1)
                if t < HORIZON:
                    chosen, _ = actor.act(obs[group], None, {}, noise[t, group])
                    action[group] = local.spec.to_env(chosen)
                    for ours, _ in pipes:
                        os.write(ours, bytes([number]))
        return ROWS * HORIZON / (time.perf_counter() - begun)

    return play


def _plain_worker(env: str, groups: list[range], obs: Any, action: Any, go: int, done: int) -> None:
    envs = {row: gymnasium.make(env, disable_env_checker=True) for group in groups for row in group}
    for row, each in envs.items():
        obs[row] = each.reset(seed=row)[0]
    os.write(done, b"r")
    seed = 1000 * (1 + groups[0][0])
    while order := os.read(go, 1):
        for row in groups[order[0]]:
            seen, _, terminated, truncated, _ = envs[row].step(action[row])
            if terminated or truncated:
                seed += 1
                seen, _ = envs[row].reset(seed=seed)
            obs[row] = seen
        os.write(done, order)
    os._exit(0)


def _shared(like: Any) -> Any:
    return np.frombuffer(mmap.mmap(-1, like.nbytes), like.dtype).reshape(like.shape)


def compare(players: dict[str, Callable[[], float]], against: str) -> None:
    speeds: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(REPEATS + 1):
        for name, play in players.items():
            speeds[name].append(play())
    for name, values in speeds.items():
        speed = statistics.median(values[1:])
        ratios = [a / b for a, b in zip(values[1:], speeds[against][1:], strict=True)]
        share = f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"  {name:<30}{speed:8,.0f} steps/s  {share} × {against}", flush=True)


def speed() -> None:
    print(f"{ENV}, {ROWS} environments, collecting only, medians of {REPEATS}")
    players = {"bare": two_bare(ENV, ROWS // 2), "bare, one environment each": two_bare(ENV, 1)}
    players |= {"plain pipes": plain(ENV), "local": collecting(ENV, None)}
    players |= {f"{n} workers": collecting(ENV, n) for n in (1, 2, 4)}
    players |= {"2 workers, the parent acts": collecting(ENV, 2, heavy=True)}
    players |= {"SB3 SubprocVecEnv": vectors(ENV, "sb3"), "AsyncVectorEnv": vectors(ENV, "async")}
    compare(players, "bare")


def uneven() -> None:
    print(f"steps of 0.2 or 2 ms, {ROWS} environments, 2 workers, medians of {REPEATS}")
    players = {"by default": collecting(Uneven, 2)}
    players |= {
        f"min_inference_size {m}": collecting(Uneven, 2, min_inference_size=m) for m in (1, 2, 4, 8)
    }
    compare(players, "by default")


def latency() -> None:
    """The way to a worker and back, by several means, and through the stage."""
    for name, make in {"pipe": _pipes, "eventfd": _eventfds, "semaphore": _semaphores}.items():
        print(f"  {name:<34}{_median(make()):8.1f} µs")
    for rows, spin in product((1, 4), (0.0, SPIN)):
        stage = stepped(Idle, rows, workers=1, horizon=TRIPS, spin=spin)

        def trip(stage: Any = stage, rows: int = rows) -> None:
            stage.send(slice(0, rows))
            stage.receive(rows)

        name = f"stage, {rows} idle rows{', spinning' if spin else ''}"
        print(f"  {name:<34}{_median(trip):8.1f} µs")
        stage.close()


def stepped(env: Any, rows: int, workers: int, horizon: int, spin: float = 0.0) -> ProcessStage:
    """Make a stage whose workers wait to be sent, with actions of 0."""
    manner = Manner(Padded(rows), delegate=in_parent)
    stage = ProcessStage(factory(env), rows, workers, horizon, manner, CARE, spin)
    obs = stage.reset(EpisodeSeeds(0), np.zeros(rows, np.int64))
    learner = build_learner(Config(), stage.spec)
    stage.begin(learner.actor(), Cue(0, 0, {}, np.ones(rows, bool)), obs)
    return stage


def _median(trip: Callable[[], None]) -> float:
    for _ in range(TRIPS // 10):
        trip()
    spans = []
    for _ in range(TRIPS - TRIPS // 10):
        begun = time.perf_counter()
        trip()
        spans.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(spans)


def _forked(work: Callable[[], object]) -> None:
    """Let a child do something again and again, until its parent ends."""
    parent = os.getpid()
    if os.fork() == 0:
        die_with_parent(parent)
        while True:
            work()


def _pipes() -> Callable[[], None]:
    (a, b), (c, d) = os.pipe(), os.pipe()
    _forked(lambda: os.write(d, os.read(a, 1)))
    poll = select.poll()
    poll.register(c, select.POLLIN)

    def trip() -> None:
        os.write(b, b"x")
        poll.poll(1000)
        os.read(c, 1)

    return trip


def _eventfds() -> Callable[[], None]:
    go, done = os.eventfd(0), os.eventfd(0)
    _forked(lambda: os.eventfd_write(done, os.eventfd_read(go)))
    poll = select.poll()
    poll.register(done, select.POLLIN)

    def trip() -> None:
        os.eventfd_write(go, 1)
        poll.poll(1000)
        os.eventfd_read(done)

    return trip


def _semaphores() -> Callable[[], None]:
    context = multiprocessing.get_context("fork")
    go, done = context.Semaphore(0), context.Semaphore(0)
    _forked(lambda: go.acquire() and done.release())

    def trip() -> None:
        go.release()
        done.acquire(timeout=1)

    return trip


def start() -> None:
    shipped, spans, sizes = factory("CartPole-v1"), [], []
    from surefoot.envs.make import ship

    for _ in range(7):
        begun = time.perf_counter()
        worker = Member(60)
        worker.tell("look", sys.path, ship(shipped))
        worker.answer()
        spans.append(time.perf_counter() - begun)
        sizes.append(memory(worker.pid))
        worker.end()
    print(f"  a worker makes its first CartPole {statistics.median(spans):.2f} s after its start")
    whole, own = (statistics.median(part) for part in zip(*sizes, strict=True))
    print(f"  and takes {whole:.0f} MB, {own:.0f} MB of which it shares with nobody")


def memory(pid: int) -> tuple[float, float]:
    """Return the resident and the private megabytes of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        fields[name.rstrip(":")] = int(value) / 1e3
    return fields["Rss"], fields["Private_Clean"] + fields["Private_Dirty"]


def recovery() -> None:
    """Kill a worker again and again; time until its rows have made a step again."""
    stage = stepped(ENV, ROWS, workers=2, horizon=HORIZON)
    everyone = slice(0, ROWS)
    spans = []
    for attempt in range(20):
        os.kill(stage._workers[attempt % 2].pid, signal.SIGKILL)
        begun = time.perf_counter()
        for _ in range(2):
            stage.send(everyone)
            stage.receive(ROWS)
        spans.append(time.perf_counter() - begun)
    stage.close()
    spans.sort()
    print(f"  {len(spans)} kills: median {statistics.median(spans):.2f} s, p95 {spans[18]:.2f} s")


PARTS = {part.__name__: part for part in (speed, uneven, latency, start, recovery)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="|".join(PARTS))
    for name in parser.parse_args().parts or PARTS:
        print(f"{name}:", flush=True)
        PARTS[name]()
    os._exit(0)  # some of what ran here cannot be closed in order
