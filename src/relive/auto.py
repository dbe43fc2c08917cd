"""`import relive.auto`: the script that says so is started again, hands-free, and this first start ends with it."""

from __future__ import annotations

import sys

from relive.record import session
from relive.record.process import is_pool_worker, warn_once


def _start_again() -> None:
    if session.instrumented is not None or is_pool_worker():
        return
    from relive.handsfree import main_as_started, run

    start = main_as_started()
    if start is None:
        warn_once("no-script", "import relive.auto works in scripts only; here, call relive.loop and relive.log")
        return
    run(start)
    sys.exit()


_start_again()
