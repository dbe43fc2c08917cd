"""Collections in processes of their own: again and again while somebody records, or killed at every point."""

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

POINTS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.utime", "os.truncate", "shutil.rmtree"}
POLICY = Policy(keep=2)


def again_and_again(home: Home, grace_s: float) -> None:
    """Collect until the file `stop` appears; says how much went. The file `begun` tells that it is at it."""
    freed = dropped = 0
    (home.path / "begun").touch()
    while not (home.path / "stop").exists():
        report = collect_garbage(home, POLICY, grace_s=grace_s)
        assert not report.doubts, report.doubts
        freed += report.total_bytes
        dropped += sum(tally.count for tally in report.tallies if tally.reason.startswith("checkpoints"))
    print(freed, dropped)


def killed_at_every_point(template: Path, place: Path) -> None:
    """Kill a collection before each of its changes in turn, then at random moments; says how many changes there are."""
    place.mkdir()
    complete = _copy(template, place)
    collect_garbage(complete, POLICY, grace_s=60)
    expected, before = shown(complete), shown(Home(template))
    point = 0
    while not _survives(template, place, lambda point=point: die_at(point), before, expected):
        point += 1
    for _ in range(10):
        _survives(template, place, lambda: None, before, expected, after_s=random.random() * 0.06)
    print(point)


def _copy(template: Path, place: Path) -> Home:
    return Home(Path(shutil.copytree(template, tempfile.mkdtemp(dir=place), dirs_exist_ok=True)))


def _survives(
    template: Path, place: Path, prepare: Callable[[], None], before: Any, expected: Any, after_s: float | None = None
) -> bool:
    """Whether a collection comes to its end. Either way all that is shown is readable, and another one finishes it."""
    home = _copy(template, place)
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
    """From now on in this process: the change with this number isn't made, nor anything after it."""
    seen = iter(range(1 << 30))

    def step() -> None:
        if next(seen) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if event in POINTS or writes:
            step()

    for name in ("fsync", "fdatasync"):
        setattr(os, name, _after(step, getattr(os, name)))
    sys.addaudithook(heard)


def _after(step: Callable[[], None], call: Callable[[int], None]) -> Callable[[int], None]:
    def stepped(descriptor: int) -> None:
        step()
        call(descriptor)

    return stepped


if __name__ == "__main__":
    if sys.argv[1] == "again-and-again":
        again_and_again(Home(Path(sys.argv[2])), float(sys.argv[3]))
    else:
        killed_at_every_point(Path(sys.argv[2]), Path(sys.argv[3]))
