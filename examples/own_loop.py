"""The training loop by hand: collect facts, learn from them, count. That is all of it."""

import sys

from surefoot import resolve
from surefoot.collect.build import build_collector
from surefoot.core.progress import Progress
from surefoot.envs.make import factory
from surefoot.learn.build import build_learner

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
config = resolve("CartPole-v1", overrides={"total_steps": steps, "seed": 1})
collector = build_collector(config, factory(config.env))
learner = build_learner(config, collector.spec)

progress = Progress(config.total_steps)
while not progress.done:
    rollout = collector.collect(learner.actor())
    metrics = learner.update(rollout, progress)
    progress = progress.after(rollout, metrics)
    if rollout.episodes and progress.iterations % 20 == 0:
        mean = sum(episode.total for episode in rollout.episodes) / len(rollout.episodes)
        print(f"{progress.steps:>7} steps   return {mean:6.1f}   KL {metrics['ppo/approx_kl']:.4f}")
