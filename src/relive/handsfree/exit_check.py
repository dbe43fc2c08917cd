"""Starts a self-check of a hands-free run when it ends: a replay in the background, if that is cheap enough."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from relive.handsfree.capture import scopes
from relive.record import session
from relive.record.process import LaunchContext

AUTO, ALWAYS, NEVER = "auto", "always", "never"
_STARTUP_S = 1.0  # time to start a process that reads the run
_ALWAYS_ALLOWED_S = 3600.0


def schedule_self_check(context: LaunchContext) -> None:
    """Schedules a trial replay for the end of the run; its result is stored in the run folder."""
    begun, pid, driver = time.monotonic(), os.getpid(), session.driver
    mode = context.settings.self_check
    if mode == NEVER or driver is None or not driver.run or context.launched.world_size > 1:
        return
    run = driver.run

    def start() -> None:
        if os.getpid() != pid or scopes.first_begun is None:
            return  # in a forked child, or in a script without a main loop
        allowed_s = (time.monotonic() - begun) * context.settings.overhead if mode == AUTO else _ALWAYS_ALLOWED_S
        if allowed_s > scopes.first_begun - begun + _STARTUP_S:
            _start_self_check(context.home.path, run, allowed_s)

    session.at_exit.append(start)


def _start_self_check(home: Path, run: str, allowed_s: float) -> None:
    env = {name: value for name, value in os.environ.items() if name != "RELIVE_PARENT"} | {"RELIVE_OFF": "1"}
    with contextlib.suppress(OSError):  # if no process can be started, only the check is lost
        subprocess.Popen(
            [sys.executable, "-P", "-m", "relive.hindsight.self_check", str(home), run, str(allowed_s)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
            start_new_session=True,
        )  # fmt: skip
