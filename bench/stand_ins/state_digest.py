"""One number for all that a training has learnt and drawn: it differs as soon as one bit of that does."""

import gc
import math
import random
import sys

import numpy as np
import torch


def now():
    """Of every module and optimizer alive, and of the global random generators; the order does not matter."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.nn.Module):
            tensors = [*thing.parameters(recurse=False), *thing.buffers(recurse=False)]
        elif isinstance(thing, torch.optim.Optimizer):
            tensors = [part for state in thing.state.values() for part in state.values()]
        else:
            continue
        found.update((id(one), one) for one in tensors if isinstance(one, torch.Tensor))
    sums = [float(one.detach().double().sum()) * (1 + one.numel()) for one in found.values()]
    drawn = [torch.get_rng_state().double().sum().item(), sum(random.getstate()[1]) % 2**40]
    if "numpy.random" in sys.modules:
        drawn.append(float(np.random.get_state()[1].astype(float).sum()))
    return math.fsum(sums) + math.fsum(drawn) * 1e-12
