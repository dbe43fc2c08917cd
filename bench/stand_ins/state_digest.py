"""One number for all that a training has learnt and drawn: it differs as soon as one bit of that does."""

import gc
import hashlib
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
    parts = [_bytes(one) for one in found.values()]
    parts += [_bytes(torch.get_rng_state()), repr(random.getstate()).encode()]
    if "numpy.random" in sys.modules:
        parts.append(
            repr([part.tolist() if hasattr(part, "tolist") else part for part in np.random.get_state()]).encode()
        )
    whole = hashlib.sha256(b"".join(sorted(hashlib.sha256(part).digest() for part in parts)))
    return float(int(whole.hexdigest()[:13], 16))  # so many bits as a float holds


def _bytes(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return repr((tensor.dtype, tuple(tensor.shape))).encode() + flat.view(torch.uint8).numpy().tobytes()
