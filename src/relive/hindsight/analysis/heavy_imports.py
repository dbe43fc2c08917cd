"""The heavy libraries that a project imports, which a fork server can load before any worker starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

# Libraries that take long to load and have no other effect, in the order in which they are loaded.
HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "torchvision")
# Torch loads this with the first optimizer, and it takes about as long as torch itself.
LOADED_LATER = {"torch": ("torch._dynamo",)}
_IMPORT = re.compile(r"^\s*(?:import\s+(.+)|from\s+([\w.]+)\s+import)", re.MULTILINE)
# If a script sets one of these variables itself, libraries must be loaded after that: no fork server is used.
_SETS_LIBRARY_VARIABLES = re.compile(
    r"(environ|putenv|setenv)[^\n]*(OMP|MKL|OPENBLAS|BLIS|KMP|NUMEXPR|CUDA|CUBLAS|TORCH|NCCL|GLOO|HIP)"
)


def heavy_imports(files: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the libraries that can be loaded before the project's code; none if that could change its behaviour."""
    found = [one for text in files.values() for match in _IMPORT.findall(text) for one in "".join(match).split(",")]
    named = {one.strip().partition(" ")[0].partition(".")[0] for one in found}
    local = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files}
    if any(_SETS_LIBRARY_VARIABLES.search(text) for text in files.values()):
        return ()
    chosen = [name for name in HEAVY if name in named and name not in local]
    return tuple(one for name in chosen for one in (name, *LOADED_LATER.get(name, ())))
