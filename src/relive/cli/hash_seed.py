"""The order of sets of texts differs from process to process, unless Python is told before it starts."""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONHASHSEED"
_SEED = "0"  # the same for all runs, so that one warm process serves the replays of all


def settle_order() -> None:
    """Start this process once more with a seed for hashes, so that `list(set(words))` can be had again by a replay.

    Whoever looks at the process from inside, a debugger or a coverage tool, would lose sight of it: then it stays.
    """
    if VARIABLE in os.environ or not sys.flags.hash_randomization or os.name != "posix" or _is_watched():
        return
    os.environ[VARIABLE] = _SEED
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _is_watched() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    tools = any(monitoring.get_tool(number) for number in range(6)) if monitoring is not None else False
    watchers = {"coverage", "debugpy", "pydevd", "pdb"} & set(sys.modules)
    return sys.gettrace() is not None or sys.getprofile() is not None or tools or bool(watchers)
