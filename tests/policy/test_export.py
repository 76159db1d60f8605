"""Exported policies give the same actions where there is no surefoot."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import surefoot
from surefoot.core.errors import ConfigError
from surefoot.run import Run

BATCH = 33


class Mixed(gymnasium.Env[Any, Any]):
    """Observations of every kind, several choices that do not start at 0."""

    observation_space = Dict(
        {
            "z": Box(-5, 5, (3,), np.float64),
            "a": Discrete(4, start=2),
            "pixels": Box(0, 255, (6,), np.uint8),
            "m": MultiDiscrete([2, 3]),
        }
    )
    action_space = MultiDiscrete([2, 3], start=[1, 5])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), float(action[0]), False, self.steps == 20, {}


def tight() -> Any:
    """Bounds that the mean of a new policy leaves."""
    return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1e-3, 1e-3)


KINDS: dict[str, Any] = {
    "discrete": "CartPole-v1",
    "continuous": tight,
    "mixed": Mixed,
}
SETTINGS: dict[str, Any] = {
    "total_steps": 512,
    "envs": 2,
    "seed": 4,
    "hall_of_fame": 0,
    "restore": "fresh",
    "ppo": {"horizon": 64, "minibatch_size": 64, "epochs": 1},
    "policy": {"hidden": [16, 16], "normalize_observations": True},
}
WITHOUT = """
import sys
sys.modules["surefoot"] = None  # importing it fails
import numpy as np
data = dict(np.load({data!r}))
names = [name for name in data if name != "action"]
leaves = [data[name] for name in names]
{run}
same = np.abs(np.asarray(action, np.float64) - data["action"]).max()
assert same <= 1e-5, same
"""
PT2 = """
import torch
action = torch.export.load({file!r}).module()(*map(torch.from_numpy, leaves)).numpy()
"""
ONNX = """
import onnxruntime
session = onnxruntime.InferenceSession({file!r})
(action,) = session.run(["action"], dict(zip(names, leaves)))
"""
PTH = """
import torch
from torch import nn
weights = torch.load({file!r}, weights_only=True)
mean, deviation = (weights.pop(f"normalizer.parts.0.{{name}}") for name in ("mean", "deviation"))
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
named = {{"0": "actor.0", "2": "actor.2", "4": "head.linear"}}
net.load_state_dict({{f"{{k}}.{{p}}": weights[f"{{v}}.{{p}}"] for k, v in named.items()
                      for p in ("weight", "bias")}})
scaled = ((torch.from_numpy(leaves[0]) - mean) / deviation).clamp(-10, 10).float()
action = net(scaled).argmax(-1).numpy()
"""


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("export") / request.param
    return surefoot.train(KINDS[request.param], out=out, **SETTINGS)


def observations(run: Run) -> tuple[dict[str, Any], Any]:
    """Draw raw observations, by the names of an exported program's inputs, and the actions."""
    space = KINDS[run.path.name]
    made = gymnasium.make(space) if isinstance(space, str) else space()
    space = made.observation_space
    space.seed(1)
    one = [space.sample() for _ in range(BATCH)]
    agent = run.load("last")
    if isinstance(space, Dict):
        batch = {key: np.stack([o[key] for o in one]) for key in space}
        return {f"observation/{key}": value for key, value in batch.items()}, agent.act(batch)
    batch = np.clip(np.stack(one), -10, 10)
    return {"observation": batch}, agent.act(batch)


@pytest.mark.parametrize("kind", ["pt2", "onnx", "pth"])
def test_an_export_acts_the_same_without_surefoot(run: Run, kind: str, tmp_path: Path) -> None:
    if kind == "pth" and run.path.name != "discrete":
        pytest.skip("weights alone are tested once; which net they belong to is in the docs")
    inputs, action = observations(run)
    if run.path.name == "continuous":
        assert (np.abs(action) == np.float32(1e-3)).any()  # clipped to the bounds
    else:
        assert len(np.unique(action, axis=0)) > 1
    file, data = tmp_path / f"policy.{kind}", tmp_path / "data.npz"
    np.savez(data, **inputs, action=action)
    assert run.export(kind, file, "last") == file
    script = {"pt2": PT2, "onnx": ONNX, "pth": PTH}[kind].format(file=str(file))
    text = WITHOUT.format(data=str(data), run=script)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_export_is_put_into_the_run_and_an_unknown_format_is_refused(run: Run) -> None:
    assert run.export("pth") == run.path / "models" / "exported.pth"
    with pytest.raises(ConfigError, match="choose one of pth, onnx, pt2"):
        run.export("h5")
