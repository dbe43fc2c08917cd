"""Hindsight logging for machine learning: record runs cheaply, and compute later the values that nobody logged."""

import sys as _sys
from typing import TYPE_CHECKING

from relive.api import (
    arg,
    artifact,
    background,
    checkpointing,
    data,
    dataframe,
    diverge,
    leaderboard,
    load,
    log,
    loop,
    replay,
    restore,
    run,
    should_prune,
    skew,
    skipblock,
    sql,
    state_handler,
)

if TYPE_CHECKING:
    from relive.memo import Memo as _Memo

    memo: _Memo
else:
    from relive import memo

__version__ = "0.1.0"

__all__ = [
    "arg",
    "artifact",
    "background",
    "checkpointing",
    "data",
    "dataframe",
    "diverge",
    "leaderboard",
    "load",
    "log",
    "loop",
    "memo",
    "replay",
    "restore",
    "run",
    "should_prune",
    "skew",
    "skipblock",
    "sql",
    "state_handler",
]

# Importing has no side effects, with one exception that the user asks for on the command line: `--kwargs` is removed
# from argv here, because the script's own argument parser usually runs before the first verb and would reject it.
if "--kwargs" in _sys.argv:
    from relive.record import pop_kwargs as _take_out
    from relive.record import session as _session

    _session.kwargs.update(_take_out(_sys.argv))
