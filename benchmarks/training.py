"""Training steps per second beside other trainers: same environment, same settings, one run.

    python benchmarks/training.py [bipedal | cheetah | cartpole] … [--repeats 3] [--quick]
    python benchmarks/training.py bipedal --only "surefoot, EnvPool, overlap" --repeats 15

Every contestant trains in a process of its own, in turn, in repeats; figures are medians over
repeats of what follows the first iterations, so neither starting nor compiling counts. Nobody
learns (the learning rate is next to nothing), so that all play the same: the walker's steps take
longer by 4 % where a policy has learned a little, and a seventh less where it has learned more. The
limit is what the machine could do if all cores did nothing but what cannot be left out: cores /
(environment step + epochs × minibatch step / minibatch size + acting / rows). Its parts are
measured here, of the same policy after as many steps, just before the contestant that is held
against them, by as many processes at once as there are cores, which are as busy then as in a run;
what follows from parts that one process measures alone is in parentheses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

from apart import NO_RATE, alone, give, in_turn, spread, together

from surefoot.core import hardware

WARM, LAST = 2, 1
"""Iterations before it counts, and after that, when with overlap nobody plays."""
PEERS_WARM = 1
"""The same for peers, who take longer."""
SECONDS = 1.0
"""How long each part of the limit is measured: means, as of the contestants, over a time in which a
machine has good and bad moments."""

Policy: TypeAlias = Callable[[Any], Any]
"""From observations of rows to actions that environments take."""


@dataclass(frozen=True)
class Work:
    """What everybody has to do."""

    env: str
    rows: int
    horizon: int
    minibatch: int
    epochs: int
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    measured: int = 8
    """Iterations that count: some seconds."""
    peers_measured: int = 2
    """The same for peers."""
    contestants: Mapping[str, Ours | Peer] = field(default_factory=dict)
    """Who takes part, by name."""

    @property
    def steps(self) -> int:
        return self.rows * self.horizon

    @property
    def ppo(self) -> Any:
        sizes = {"horizon": self.horizon, "minibatch_size": self.minibatch, "epochs": self.epochs}
        return {**sizes, "learning_rate": NO_RATE}


@dataclass(frozen=True)
class Ours:
    """surefoot with some settings."""

    by: ClassVar = "surefoot"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> str:
        """Which part of the limit its environment is."""
        return "EnvPool" if self.settings.get("env_backend") == "envpool" else "environment"

    def speed(self, work: Work) -> float:
        """Train with all that a run does, and compiled; return steps per second."""
        import surefoot

        with tempfile.TemporaryDirectory() as directory:
            run = surefoot.train(
                work.env,
                config=surefoot.Config(
                    envs=work.rows,
                    total_steps=work.steps * (WARM + work.measured + LAST)
                    - work.rows,  # lost ones must not add another
                    compile="on",
                    device="cpu",
                    checkpoint_every="1000it",
                    hall_of_fame=0,
                    ppo=work.ppo,
                    policy={"hidden": work.hidden, "activation": work.activation},
                    **self.settings,
                ),
                out=Path(directory) / "run",
            )
            lines = (run.path / "metrics.jsonl").read_text().splitlines()
        counted = [json.loads(line) for line in lines[WARM : WARM + work.measured]]
        names = [k for row in counted for k in row if k.startswith("time/") and "per_" not in k]
        spent = sum(row.get(name, 0.0) for row in counted for name in set(names))
        return sum(row["rollout/steps"] for row in counted) / spent


@dataclass(frozen=True)
class Peer:
    """Stable-Baselines3, on so many threads of torch, or its sibling in JAX."""

    by: str
    vector: str
    threads: int = 1

    def speed(self, work: Work) -> float:
        """Train; return steps per second."""
        import torch
        from stable_baselines3.common import vec_env
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_vec_env

        settings: dict[str, Any] = {"n_steps": work.horizon, "batch_size": work.minibatch}
        settings |= {"n_epochs": work.epochs, "learning_rate": NO_RATE, "device": "cpu"}
        network: dict[str, Any] = {"net_arch": list(work.hidden)}
        if self.by == "SB3":
            from stable_baselines3 import PPO

            torch.set_num_threads(self.threads)
            activations = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}
            network["activation_fn"] = activations[work.activation]
        else:
            import flax.linen
            from sbx import PPO

            network["activation_fn"] = getattr(flax.linen, work.activation)
        stamps: list[float] = []

        class Clock(BaseCallback):
            def _on_rollout_start(self) -> None:
                stamps.append(time.perf_counter())

            def _on_step(self) -> bool:
                return True

        kind = getattr(vec_env, self.vector)
        env = make_vec_env(work.env, n_envs=work.rows, vec_env_cls=kind)
        model = PPO("MlpPolicy", env, policy_kwargs=network, **settings)
        model.learn(work.steps * (PEERS_WARM + work.peers_measured), callback=Clock())
        return work.steps * work.peers_measured / (time.perf_counter() - stamps[PEERS_WARM])


WORKERS = {"collector": "processes", "n_proc": 2}
POOL = {**WORKERS, "env_backend": "envpool"}
"""As `auto` settles for runs of usual length."""
POOLS = {
    "surefoot, EnvPool": Ours(POOL),
    "surefoot, EnvPool, overlap": Ours({**POOL, "n_proc": 1, "overlap": True}),
}
PEERS = {
    "SB3, DummyVecEnv": Peer("SB3", "DummyVecEnv"),
    "SB3, DummyVecEnv, 2 threads": Peer("SB3", "DummyVecEnv", threads=2),
    "SB3, SubprocVecEnv": Peer("SB3", "SubprocVecEnv"),
    "SBX, DummyVecEnv": Peer("SBX", "DummyVecEnv"),
    "SBX, SubprocVecEnv": Peer("SBX", "SubprocVecEnv"),
}
QUICK = ("surefoot", "surefoot, EnvPool, overlap", "SB3, DummyVecEnv")
"""Who takes part when time is short."""
ALONE = {name: peer for name, peer in PEERS.items() if peer.vector == "DummyVecEnv"}
"""Without workers, which one environment cannot be dealt out to, and steps of 10 µs do not repay.
"""
WORKS = {
    "bipedal": Work(
        "BipedalWalker-v3",
        rows=16,
        horizon=512,
        minibatch=64,
        epochs=10,
        contestants={
            "surefoot": Ours(WORKERS),
            "surefoot, overlap": Ours({**WORKERS, "overlap": True}),
            **POOLS,
            **PEERS,
        },
    ),
    "cheetah": Work(
        "HalfCheetah-v5",
        rows=1,
        horizon=512,
        minibatch=64,
        epochs=20,
        hidden=(256, 256),
        activation="relu",
        contestants={"surefoot": Ours(), "surefoot, overlap": Ours({"overlap": True}), **ALONE},
    ),
    "cartpole": Work(
        "CartPole-v1",
        rows=64,
        horizon=128,
        minibatch=2048,
        epochs=4,
        measured=64,
        peers_measured=8,
        contestants={**POOLS, **ALONE},
    ),
}


def parts(work: Work) -> dict[str, float]:
    """Measure, in microseconds, what cannot be left out; as a run does it."""
    import numpy as np
    import torch
    from threadpoolctl import threadpool_limits

    from surefoot.collect.build import build_collector
    from surefoot.config import Config
    from surefoot.core import hardware
    from surefoot.core.progress import Progress
    from surefoot.envs.make import factory
    from surefoot.learn.build import build_learner

    hardware.keep_memory()
    torch.set_num_threads(1)
    threadpool_limits(limits=1, user_api="blas")
    network: Any = {"hidden": work.hidden, "activation": work.activation}
    config = Config(envs=work.rows, collector="local", compile="on", ppo=work.ppo, policy=network)
    collector = build_collector(config, factory(work.env), "fresh")
    learner = build_learner(config, collector.spec)
    rollout = collector.collect(learner.actor())
    learner.update(rollout, Progress(10**9))
    actor, random, seen = learner.actor(), np.random.default_rng(0), rollout.obs[0]
    noise = actor.noise(random, work.rows)

    def policy(obs: Any) -> Any:
        action, _ = actor.act(obs, None, {}, actor.noise(random, len(obs)))
        return collector.spec.to_env(action)

    return {
        "environment": _environment(work, policy),
        "EnvPool": _pool(work, policy),
        "minibatch": _step(work, learner, rollout),
        "acting": _timed(lambda: actor.act(seen, None, {}, noise)),
    }


def _timed(function: Callable[[], Any]) -> float:
    """Return how many microseconds it takes."""
    begun, times = time.perf_counter(), 0
    while (gone := time.perf_counter() - begun) < SECONDS:
        function()
        times += 1
    return 1e6 * gone / times


def _step(work: Work, learner: Any, rollout: Any) -> float:
    """Take one optimizer step, and nothing else that an update does."""
    from surefoot.learn.experience import Deck

    samples = learner._samples(rollout, *learner._valued(rollout))
    batch = Deck(samples, work.minibatch).deal(0, 0, 0)[0]
    knobs = learner._knobs({"clip_range": 0.2, "entropy_coefficient": 0.0}, 0.0)
    vector, adam = learner._optimizer.flat.vector, learner._optimizer.adam
    bias = learner._optimizer.biases(1)[0]
    return _timed(lambda: learner._step(vector, adam, batch, knobs, bias))


def _environment(work: Work, policy: Policy) -> float:
    """Let a policy play a core's share of Gymnasium's environments in turn: each finds what it
    needs in caches less often than one by itself, which nobody who has all of them to step can
    help."""
    import gymnasium
    import numpy as np

    rows = range(max(1, work.rows // hardware.cores()))
    envs = [gymnasium.make(work.env, disable_env_checker=True) for _ in rows]
    first = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]

    def step(actions: Any) -> tuple[list[Any], int]:
        seen = []
        for env, action in zip(envs, actions, strict=True):
            obs, _, terminated, truncated, _ = env.step(action)
            seen.append(env.reset()[0] if terminated or truncated else obs)
        return seen, len(envs)

    return _played(work, lambda seen: policy(np.stack(seen)), first, step)


def _pool(work: Work, policy: Policy) -> float:
    """Let a policy play EnvPool's environments on one thread, without EnvPool's Python code. Those
    that begin an episode make no step meanwhile, which takes time all the same."""
    import numpy as np

    from surefoot.envs.envpool import Pool

    pool = Pool(work.env, work.rows, threads=1)
    first, _ = pool.reset(seed=range(work.rows))

    def step(actions: Any) -> tuple[Any, int]:
        obs, _, terminated, truncated, _ = pool.step(actions)
        return obs, work.rows - np.count_nonzero(terminated | truncated)

    return _played(work, policy, first, step)


def _played(work: Work, policy: Policy, obs: Any, step: Callable[[Any], tuple[Any, int]]) -> float:
    """Return how many microseconds a step takes when episodes are as long as in a run that has
    begun, waking a pool's thread included, as in a run; `step` returns what is seen next, and how
    many steps it was."""
    seconds, steps, rounds = 0.0, 0, 0
    while seconds < SECONDS:
        actions = policy(obs)
        begun = time.perf_counter()
        obs, made = step(actions)
        gone = time.perf_counter() - begun
        rounds += 1
        if rounds > WARM * work.horizon:
            seconds, steps = seconds + gone, steps + made
    return 1e6 * seconds / steps


def limit(work: Work, costs: dict[str, float], environment: str) -> float:
    step = costs[environment] + work.epochs * costs["minibatch"] / work.minibatch
    return 1e6 * hardware.cores() / (step + costs["acting"] / work.rows)


def one(name: str, contestant: str) -> None:
    """Let one contestant train, in this process."""
    work = WORKS[name]
    give(parts(work) if contestant == "parts" else work.contestants[contestant].speed(work))


class Turn(NamedTuple):
    """What was measured of a contestant, and of the limit just before."""

    speed: float
    parts: dict[str, dict[str, float]]
    """On cores that are all busy, and on one alone; empty for peers."""


def _turn(name: str, contestant: str) -> Turn:
    if isinstance(WORKS[name].contestants[contestant], Peer):
        return Turn(alone(__file__, name, contestant), {})
    lone = alone(__file__, name, "parts")
    every = together(__file__, *[(name, "parts")] * hardware.cores())
    busy = {part: statistics.fmean(one[part] for one in every) for part in every[0]}
    return Turn(alone(__file__, name, contestant), {"busy": busy, "lone": lone})


def compare(name: str, repeats: int, quick: bool, only: str | None) -> None:
    """Let contestants train in turn, and print what came of it."""
    work = WORKS[name]
    chosen = (only,) if only else QUICK if quick else tuple(work.contestants)
    who = [c for c in work.contestants if c in chosen]
    if not who:
        return
    found = in_turn(who, lambda contestant: _turn(name, contestant), repeats)
    print(
        f"\n{work.env}, {work.rows} × {work.horizon}, minibatch {work.minibatch}, {work.epochs} "
        f"epochs, {work.hidden} {work.activation}; steps per second, medians of {repeats}, of "
        f"{work.measured} iterations each, peers of {work.peers_measured}"
    )
    _print_parts([turn.parts for turns in found.values() for turn in turns if turn.parts])
    medians = {c: statistics.median(turn.speed for turn in turns) for c, turns in found.items()}
    best = {
        by: max((medians[c] for c in who if work.contestants[c].by == by), default=0)
        for by in ("SB3", "SBX")
    }
    for contestant, turns in found.items():
        speeds = spread([turn.speed for turn in turns])
        ratios = "  ".join(
            f"{medians[contestant] / fastest:5.2f} × {by}"
            for by, fastest in best.items()
            if fastest
        )
        share = _share(work, work.contestants[contestant], turns)
        print(f"  {contestant:<28}{speeds:<28}{ratios}  {share}".rstrip(), flush=True)


def _print_parts(costs: list[dict[str, dict[str, float]]]) -> None:
    if not costs:
        return
    busy, lone = (
        {part: statistics.median(cost[way][part] for cost in costs) for part in costs[0][way]}
        for way in ("busy", "lone")
    )
    shown = ", ".join(f"{part} {value:.1f} ({lone[part]:.1f})" for part, value in busy.items())
    print(f"  µs on cores that are all busy (on one alone): {shown}")


def _share(work: Work, contestant: Ours | Peer, turns: list[Turn]) -> str:
    """Say how much of the limit it reached; of peers, nothing."""
    if isinstance(contestant, Peer):
        return ""
    busy, lone = (
        [100 * turn.speed / limit(work, turn.parts[way], contestant.environment) for turn in turns]
        for way in ("busy", "lone")
    )
    return f"{spread(busy)} % of the limit ({statistics.median(lone):.0f} %)"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", choices=[[], *WORKS], metavar="|".join(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    names = sorted({name for work in WORKS.values() for name in work.contestants})
    parser.add_argument("--only", choices=names, metavar="CONTESTANT")
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
    for each in options.works or WORKS:
        compare(each, options.repeats, options.quick, options.only)
