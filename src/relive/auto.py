"""`import relive.auto`: restarts the importing script hands-free, and then exits this first execution."""

from __future__ import annotations

import sys

from relive.record import session
from relive.record.process import is_pool_worker, warn_once


def _restart_hands_free() -> None:
    if session.instrumented is not None or is_pool_worker():
        return
    from relive.handsfree import find_running_script, run_script

    start = find_running_script()
    if start is None:
        warn_once("no-script", "import relive.auto works only in scripts; in a notebook, use %load_ext relive")
        return
    run_script(start)
    sys.exit()


_restart_hands_free()
