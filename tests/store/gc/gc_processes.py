"""Collections in processes of their own: repeated while runs are recorded, or killed at every point."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.store import Home
from relive.store.gc import Policy, collect_garbage

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import shown

WRITE_EVENTS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.utime", "os.truncate", "shutil.rmtree"}
POLICY = Policy(keep=2)


def collect_repeatedly(home: Home, grace_s: float) -> None:
    """Collects until the file `stop` appears, and prints how much was removed. Creates the file `begun` first."""
    freed = dropped = 0
    (home.path / "begun").touch()
    while not (home.path / "stop").exists():
        report = collect_garbage(home, POLICY, grace_s=grace_s)
        assert not report.doubts, report.doubts
        freed += report.total_bytes
        dropped += sum(tally.count for tally in report.tallies if tally.reason.startswith("checkpoints"))
    print(freed, dropped)


def kill_at_every_point(template: Path, folder: Path) -> None:
    """Kills a collection before each of its changes in turn, then at random moments; prints the number of changes."""
    folder.mkdir()
    complete = _copy(template, folder)
    collect_garbage(complete, POLICY, grace_s=60)
    expected, before = shown(complete), shown(Home(template))
    point = 0
    while not _survives(template, folder, lambda point=point: die_at(point), before, expected):
        point += 1
    for _ in range(10):
        _survives(template, folder, lambda: None, before, expected, after_s=random.random() * 0.06)
    print(point)


def _copy(template: Path, folder: Path) -> Home:
    return Home(Path(shutil.copytree(template, tempfile.mkdtemp(dir=folder), dirs_exist_ok=True)))


def _survives(
    template: Path, folder: Path, prepare: Callable[[], None], before: Any, expected: Any, after_s: float | None = None
) -> bool:
    """Whether a collection finishes. Either way, all listed checkpoints are readable, and another one completes it."""
    home = _copy(template, folder)
    child = os.fork()
    if not child:
        prepare()
        collect_garbage(home, POLICY, grace_s=60)
        os._exit(0)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    left = shown(home)
    assert all(set(expected[run]) <= set(left[run]) <= set(before[run]) for run in before), (left, expected)
    assert not collect_garbage(home, POLICY, grace_s=60).doubts
    assert shown(home) == expected
    return not os.WIFSIGNALED(status)


def die_at(point: int) -> None:
    """Kills this process before the change with this number."""
    seen = iter(range(1 << 30))

    def step() -> None:
        if next(seen) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if event in WRITE_EVENTS or writes:
            step()

    for name in ("fsync", "fdatasync"):
        setattr(os, name, _call_after(step, getattr(os, name)))
    sys.addaudithook(audit)


def _call_after(step: Callable[[], None], call: Callable[[int], None]) -> Callable[[int], None]:
    def call_after_step(descriptor: int) -> None:
        step()
        call(descriptor)

    return call_after_step


if __name__ == "__main__":
    if sys.argv[1] == "repeatedly":
        collect_repeatedly(Home(Path(sys.argv[2])), float(sys.argv[3]))
    else:
        kill_at_every_point(Path(sys.argv[2]), Path(sys.argv[3]))
