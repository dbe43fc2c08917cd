"""A fixed hash seed for `relive run`, without which the order of sets of strings differs between processes."""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONHASHSEED"
_SEED = "0"  # the same for all runs, so that one warm process can replay any of them


def restart_with_fixed_hash_seed() -> None:
    """Restarts this process with a fixed hash seed, so that a replay reproduces `list(set(words))`.

    Does nothing under a debugger, profiler or coverage tool, which would lose track of the process.
    """
    if VARIABLE in os.environ or not sys.flags.hash_randomization or os.name != "posix" or _is_traced():
        return
    os.environ[VARIABLE] = _SEED
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _is_traced() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    tools = any(monitoring.get_tool(number) for number in range(6)) if monitoring is not None else False
    watchers = {"coverage", "debugpy", "pydevd", "pdb"} & set(sys.modules)
    return sys.gettrace() is not None or sys.getprofile() is not None or tools or bool(watchers)
