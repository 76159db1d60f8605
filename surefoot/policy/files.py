"""Policies as files for people: plain state dicts that `torch.load(weights_only=True)` reads."""

from __future__ import annotations

import io
from collections.abc import Mapping

import torch

from surefoot.core.tree import Array

CRITIC = ("critic.", "critic_scale.")
ACTING = ("actor.", "head.")


def actor_file(policy: Mapping[str, Array]) -> bytes:
    """Return all that acting needs, normalizer included, of a policy's arrays by name."""
    return _file({name: value for name, value in policy.items() if not name.startswith(CRITIC)})


def critic_file(policy: Mapping[str, Array]) -> bytes:
    """Return all that valuing needs, normalizer included, of a policy's arrays by name."""
    return _file({name: value for name, value in policy.items() if not name.startswith(ACTING)})


def _file(arrays: Mapping[str, Array]) -> bytes:
    buffer = io.BytesIO()
    torch.save({name: torch.tensor(value) for name, value in arrays.items()}, buffer)
    return buffer.getvalue()
