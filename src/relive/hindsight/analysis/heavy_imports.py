"""Which heavy libraries a project imports, so that a fork server can load them before any worker starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

# Libraries that take long to load and do nothing else by being loaded, in the order in which they are loaded.
HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "torchvision")


# Torch loads this with the first optimizer that is made, and it takes about as long as torch itself.
LATER = {"torch": ("torch._dynamo",)}


_IMPORT = re.compile(r"^\s*(?:import\s+(.+)|from\s+([\w.]+)\s+import)", re.MULTILINE)


# A script that sets these in its code, before it imports a library, means it: nothing may be loaded ahead of it.
_STEERS = re.compile(
    r"(environ|putenv|setenv)[^\n]*(OMP|MKL|OPENBLAS|BLIS|KMP|NUMEXPR|CUDA|CUBLAS|TORCH|NCCL|GLOO|HIP)"
)


def heavy_imports(files: Mapping[str, str]) -> tuple[str, ...]:
    """What can be loaded before any of a project's code runs; nothing if that could make a difference to it."""
    found = [one for text in files.values() for match in _IMPORT.findall(text) for one in "".join(match).split(",")]
    named = {one.strip().partition(" ")[0].partition(".")[0] for one in found}
    own = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files}
    if any(_STEERS.search(text) for text in files.values()):
        return ()
    chosen = [name for name in HEAVY if name in named and name not in own]
    return tuple(one for name in chosen for one in (name, *LATER.get(name, ())))
