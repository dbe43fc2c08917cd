"""A fork waits while a thread of relive imports modules."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from relive.record.process.fork_safety import import_lock

# The danger that Python warns of is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def test_a_fork_waits_until_an_import_is_over():
    begun, go_on = threading.Event(), threading.Event()

    def load() -> None:
        with import_lock:
            begun.set()
            go_on.wait()
            time.sleep(0.1)

    before = import_lock.times
    thread = threading.Thread(target=load)
    thread.start()
    begun.wait()
    go_on.set()
    pid = _fork()
    loaded = import_lock.times - before
    thread.join()

    assert loaded == 1
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_parent_and_child_can_import_after_a_fork():
    pid = _fork()
    with import_lock:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _fork() -> int:
    """Forks a child that exits with 0 if it can import something, and is killed if it hangs."""
    pid = os.fork()
    if pid == 0:
        import signal

        signal.alarm(10)
        with import_lock:
            os._exit(0)
    return pid


@pytest.mark.long
@pytest.mark.parametrize("own_thread", [False, True])
def test_a_fork_warns_only_if_it_would_without_relive(script, own_thread: bool) -> None:
    done = script(
        f"""
        import os, sys, threading, time, warnings
        import relive
        relive.log("loss", 1)
        before = list(warnings.filters)
        stop = threading.Event()
        if {own_thread}:
            threading.Thread(target=stop.wait).start()
        for _ in range(2):
            if os.fork() == 0:
                print(list(warnings.filters) == before, flush=True)
                os._exit(0)
            os.wait()
        stop.set()
        time.sleep(1.5)
        print(list(warnings.filters) == before)
        """
    )

    assert done.stdout == "True\n" * 3
    assert done.stderr.count("is multi-threaded") == (own_thread and sys.version_info >= (3, 12))
