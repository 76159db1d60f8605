"""Train a server that has two kinds of jobs, and compare it with a rule from theory.

    python examples/control_a_queue.py

What counts is what a step costs in the long run. docs/queues.md tells more.
"""

import surefoot

NETWORK = {"instance": "two_queues"}

run = surefoot.train(
    "surefoot/QueueNetwork-v0",
    env_args=NETWORK,
    total_steps=300_000,
    ppo={"objective": "average"},
)
trained = run.evaluate(episodes=64, steps=10_000)
rule = surefoot.evaluate_baseline("back_pressure", NETWORK, episodes=64, steps=10_000, seed=0)
print(f"{'trained':<16}{trained.lta_return_mean:8.3f} a step")
print(f"{'back-pressure':<16}{rule.lta_return_mean:8.3f} a step")
