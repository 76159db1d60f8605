"""Where settings become a collector."""

from __future__ import annotations

from surefoot.collect.local import LocalCollector
from surefoot.config import Config
from surefoot.core.protocols import Collector
from surefoot.envs.make import Factory, make_vector


def build_collector(config: Config, make: Factory) -> Collector:
    """Make the collector that `config.collector` names."""
    env = make_vector(make, config.envs)
    return LocalCollector(env, config.ppo.horizon, config.seed, config.inference_rows)
