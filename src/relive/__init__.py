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
    from typing import Any as _Any

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


def load_ipython_extension(ipython: "_Any") -> None:
    """Is called by `%load_ext relive`: later cells of the notebook are recorded hands-free."""
    from relive.handsfree import notebook_instruments

    notebook_instruments.load(ipython)


def unload_ipython_extension(ipython: "_Any") -> None:
    """Is called by `%unload_ext relive`."""
    from relive.handsfree import notebook_instruments

    notebook_instruments.unload(ipython)


# Importing has no side effects, with one exception that the user asks for on the command line: `--kwargs` is removed
# from argv here, because the script's own argument parser usually runs before the first verb and would reject it.
if "--kwargs" in _sys.argv:
    from relive.record import pop_kwargs as _take_out
    from relive.record import session as _session

    _session.kwargs.update(_take_out(_sys.argv))
