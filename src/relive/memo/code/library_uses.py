"""What a use of Python or of a library means for a result: a clock, chance, the environment, the working folder."""

from __future__ import annotations

import os
import types
from typing import Any

from relive.memo.code.code_tokens import ABSENT, qualified_label

_CLOCKS = frozenset(
    "time.time time.time_ns time.localtime time.gmtime time.ctime time.strftime time.asctime datetime.datetime.now "
    "datetime.datetime.utcnow datetime.datetime.today datetime.date.today pandas.Timestamp.now "
    "pandas.Timestamp.today".split()
)
_CHANCE = frozenset("os.urandom uuid.uuid1 uuid.uuid4 random.SystemRandom secrets.SystemRandom".split())
_CHANCE_IF_UNSEEDED = frozenset(
    "random.Random numpy.random.default_rng numpy.random.RandomState numpy.random.Generator numpy.random.PCG64 "
    "numpy.random.SeedSequence".split()
)
_SEEDING = frozenset(
    {"seed", "manual_seed", "set_seed", "seed_everything", "setstate", "set_state", "set_rng_state", "fork_rng"}
)
_ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.getenvb")
_FOLDER = frozenset(
    "os.getcwd os.getcwdb os.path.abspath posixpath.abspath pathlib.Path.cwd pathlib.PosixPath.cwd".split()
)
_PROCESS = frozenset("os.getpid os.getppid".split())
# Containers of Python that differ from process to process, whatever the user does.
_CHANGING = frozenset(
    "sys.path sys.modules sys.meta_path sys.path_hooks sys.path_importer_cache sys.warnoptions sys.flags "
    "sys.stdlib_module_names sys.builtin_module_names sys.orig_argv sys.executable sys.prefix sys.exec_prefix "
    "sys.base_prefix".split()
)
_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS = (list, tuple, dict, set, frozenset)


def dotted_name(chain: tuple[str, ...], at: int, value: Any, module: types.ModuleType | None) -> str:
    """Returns the full name of what a chain refers to, whose part `at` is the value, found in a module or a global."""
    rest = chain[at + 1 :]
    if value is os.environ:
        return ".".join(["os.environ", *rest])
    if module is not None:
        found = ".".join([module.__name__, *chain[at:]])
    elif isinstance(value, types.ModuleType):
        found = ".".join([value.__name__, *rest])
    else:
        found = ".".join([qualified_label(value), *rest])
    return found.replace("posix.", "os.", 1) if found.startswith("posix.") else found


def volatile_reason(dotted: str, *, is_bare_call: bool) -> str | None:
    """Returns why a result differs each time, or None."""
    if dotted in _CLOCKS:
        return f"reads the clock ({dotted})"
    if dotted in _CHANCE or dotted.startswith("secrets.") or (is_bare_call and dotted in _CHANCE_IF_UNSEEDED):
        return f"draws random numbers ({dotted})"
    if dotted in _PROCESS:
        return f"asks for the number of the process ({dotted})"
    return None


def reads_environment(dotted: str) -> bool:
    return any(dotted == name or dotted.startswith(f"{name}.") for name in _ENVIRONMENT)


def reads_folder(dotted: str) -> bool:
    return dotted in _FOLDER


def seeds_generators(chain: tuple[str, ...]) -> bool:
    return chain[-1] in _SEEDING


def is_library_value(value: Any, dotted: str) -> bool:
    """Whether an attribute of a library's module counts by its value: `sys.argv`, a constant, a table of settings."""
    if value is ABSENT or dotted in _CHANGING:
        return False
    return isinstance(value, _SCALARS) or type(value) in _CONTAINERS
