"""`make demo`: train CartPole to a perfect score, evaluate it, and say what to try next."""

import sys
import time

import surefoot

started = time.monotonic()
run = surefoot.train("CartPole-v1", seed=1)
result = run.evaluate(episodes=100)
print(
    f"\nCartPole-v1: {result.return_mean:.1f} of 500 on average over 100 new episodes, "
    f"after {time.monotonic() - started:.0f} seconds.\n\n"
    f"Next:\n"
    f"  .venv/bin/surefoot config CartPole-v1          see every setting\n"
    f"  .venv/bin/surefoot train LunarLander-v3        something harder (4 minutes)\n"
    f"  .venv/bin/surefoot check-env my_env.py:make    examine an environment of your own\n"
    f"  .venv/bin/surefoot eval {run.path}"
)
sys.exit(0 if result.return_mean == 500 else 1)
