"""Train CartPole to a perfect score and use the policy."""

import argparse

import gymnasium

import surefoot

parser = argparse.ArgumentParser()
parser.add_argument("--total-steps", type=int, default=100_000)
parser.add_argument("--out", default=None)
options = parser.parse_args()

run = surefoot.train(
    "CartPole-v1", total_steps=options.total_steps, seed=1, stop_at=495, out=options.out
)
print("mean return of 20 episodes:", run.evaluate(episodes=20).return_mean)

policy = surefoot.load(run.path)
env = gymnasium.make("CartPole-v1")
obs, _ = env.reset(seed=0)
total, ended = 0.0, False
while not ended:
    obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
    total, ended = total + float(reward), terminated or truncated
print("one more episode by hand:", total)
