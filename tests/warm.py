"""Loads what torch loads when it is first used, so that processes forked from here need not."""

import numpy as np
import torch

from surefoot.config import Config
from surefoot.core.spec import Box, Discrete, Spec
from surefoot.learn.build import build_learner

torch.set_num_threads(1)  # a fork does not inherit a pool of threads, and would wait for it
build_learner(Config(), Spec(Box(np.zeros(1), np.ones(1), "float32"), Discrete(2), 1))
