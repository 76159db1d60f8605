"""The one place that knows where tensors live, and how many threads work on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from surefoot.core import tree
from surefoot.core.errors import ConfigError
from surefoot.core.tree import Array, Tree


def pick(name: str) -> torch.device:
    """Turn auto, cpu or cuda into a device that exists."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device='cuda' but torch finds no CUDA device; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def to_tensors(arrays: Tree, device: torch.device) -> Tree:
    """Put a tree of numpy arrays on the device; on the CPU they share memory."""
    return tree.map(lambda array: torch.from_numpy(np.asarray(array)).to(device), arrays)


def to_array(tensor: Tensor) -> Array:
    """Bring a tensor back as a numpy array."""
    array: Array = tensor.detach().cpu().numpy()
    return array


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use this many threads; and numpy one, in which policies act as in workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
