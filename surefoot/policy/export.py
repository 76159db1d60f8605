"""A policy as a program of its own: raw observations in, the environment's actions out."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.spec import Box, Spec
from surefoot.policy.build import Policy

OPSET = 20


class Program(nn.Module):
    """Takes a batch [B, …] of every leaf of an observation, in order; returns the most probable
    actions [B, …] as the environment takes them."""

    low: Tensor
    high: Tensor

    def __init__(self, policy: Policy, spec: Spec) -> None:
        super().__init__()
        self.policy, self._tree = policy, spec.observation
        space = spec.action
        self._bounded = isinstance(space, Box)
        low, high = (space.low, space.high) if isinstance(space, Box) else (space.start, 0)
        self.register_buffer("low", torch.as_tensor(low).clone())
        self.register_buffer("high", torch.as_tensor(high).clone())
        starts = [getattr(part, "start", 0) for part in tree.leaves(spec.observation)]
        self._starts = [torch.as_tensor(start) for start in starts]
        self._kinds = [isinstance(part, Box) for part in tree.leaves(spec.observation)]

    def forward(self, *leaves: Tensor) -> Tensor:
        pairs = zip(leaves, self._starts, self._kinds, strict=True)
        given = iter([leaf if box else leaf - start for leaf, start, box in pairs])
        obs = tree.map(lambda _: next(given), self._tree)
        action = self.policy.distribution(self.policy.prepare(obs)).mode()
        if self._bounded:
            return torch.clamp(action, self.low, self.high)
        return action + self.low


def names(spec: Spec) -> list[str]:
    """Name the inputs of a program: `observation`, or one for each leaf."""
    paths = [path for path, _ in tree.items(spec.observation)]
    return [f"observation/{path}" if path else "observation" for path in paths]


def to_pt2(policy: Policy, spec: Spec) -> bytes:
    """Export by torch.export: `torch.export.load(file).module()(observations)`."""
    with tempfile.TemporaryDirectory() as place, _quiet():
        file = Path(place) / "policy.pt2"
        torch.export.save(_exported(policy, spec), file)
        return file.read_bytes()


def to_onnx(policy: Policy, spec: Spec) -> bytes:
    """Export as ONNX, with inputs named by `names` and one output, `action`."""
    if importlib.util.find_spec("onnxscript") is None:
        raise ConfigError("format='onnx' needs an extra: pip install 'surefoot[export]'")
    with tempfile.TemporaryDirectory() as place, _quiet():
        file = Path(place) / "policy.onnx"
        torch.onnx.export(
            _exported(policy, spec),
            f=file,
            input_names=names(spec),
            output_names=["action"],
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
        return file.read_bytes()


def _exported(policy: Policy, spec: Spec) -> torch.export.ExportedProgram:
    program = Program(policy, spec).eval().requires_grad_(False)
    batch = tree.leaves(tree.map(torch.from_numpy, spec.empty_observations(2)))
    rows = torch.export.Dim("rows", min=1)
    return torch.export.export(
        program, tuple(batch), dynamic_shapes={"leaves": tuple({0: rows} for _ in batch)}
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks on other packages and on itself from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
