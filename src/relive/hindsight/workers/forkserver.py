"""A process that has loaded the libraries that scripts load first; workers are forked from it.

Loading them takes seconds, every time; forking takes milliseconds. Nothing of any script runs here: a worker begins as
a new process would, but for the libraries that are there already. The process ends when nobody asked for a while.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
from typing import Any, NoReturn

import msgspec

from relive.hindsight.workers import worker
from relive.hindsight.workers.wire import ForkserverMessage, WorkerStart

POLL_S = 0.005
FIRST_S = 10.0
_BACKLOG = 64


def main(name: str, warm_s: float, begun_s: float, modules: list[str]) -> int:
    """Answer under a name, as long as somebody asks and for so long afterwards; `begun_s` is when we were started."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        # No file of that name is made: it is gone with the last process that has it open.
        listening.bind("\0" + name)
    except OSError:
        return 0  # another one was quicker
    listening.listen(_BACKLOG)
    for module in modules:
        with contextlib.suppress(Exception):  # the script will meet the same error, and tell of it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that a collection in a worker does not touch, and so copy, all pages
    return _Forkserver(listening, time.monotonic() - begun_s, warm_s).serve()


class _Forkserver:
    """Who asks, and the workers that were forked for each."""

    def __init__(self, listening: socket.socket, loaded_s: float, warm_s: float) -> None:
        self._listening = listening
        self._loaded_s = loaded_s
        self._warm_s = warm_s
        self._patience_s = max(warm_s, FIRST_S)  # who started us is on the way
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._pending: dict[socket.socket, bytes] = {}
        self._workers: dict[int, socket.socket] = {}

    def serve(self) -> int:
        while True:
            idle = not self._pending
            ready = self._selector.select(POLL_S if self._workers else self._patience_s if idle else None)
            if idle and not ready and not self._workers:
                return 0
            for key, _ in ready:
                if key.fileobj is self._listening:
                    self._greet()
                else:
                    self._fork_for(key.fileobj)  # type: ignore[arg-type]
            self._bury()

    def _greet(self) -> None:
        asking, _ = self._listening.accept()
        if _user_of(asking) != os.getuid():
            asking.close()
            return
        self._pending[asking], self._patience_s = b"", self._warm_s
        self._selector.register(asking, selectors.EVENT_READ)
        _tell(asking, ForkserverMessage(loaded_s=self._loaded_s))

    def _fork_for(self, asking: socket.socket) -> None:
        """Fork a worker for each line that somebody who asks has sent; they never come back here."""
        try:
            data = asking.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._part(asking)
            return
        *lines, self._pending[asking] = (self._pending[asking] + data).split(b"\n")
        for line in lines:
            start = msgspec.json.decode(line, type=WorkerStart)
            pid = os.fork()
            if pid == 0:
                self._leave()
                _become_worker(start)
            self._workers[pid] = asking
            _tell(asking, ForkserverMessage(pid, start.job))

    def _part(self, asking: socket.socket) -> None:
        """Nobody waits for these workers any more."""
        self._selector.unregister(asking)
        del self._pending[asking]
        asking.close()
        for pid in [pid for pid, its in self._workers.items() if its is asking]:
            for kill in (os.killpg, os.kill):  # it may not lead its group yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        for pid, asking in list(self._workers.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._workers[pid]
                _tell(asking, ForkserverMessage(pid, code=os.waitstatus_to_exitcode(status)))

    def _leave(self) -> None:
        """In a worker: none of this is its own."""
        self._selector.close()
        for one in (self._listening, *self._pending):
            one.close()


def _become_worker(start: WorkerStart) -> NoReturn:
    os.setsid()  # Ctrl-C at the terminal is for the one who asked
    for path, flags, fd in (
        (os.devnull, os.O_RDONLY, 0),
        (start.out, os.O_WRONLY | os.O_CREAT, 1),
        (start.err, os.O_WRONLY | os.O_CREAT, 2),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(start.env)
    os.chdir(start.cwd)
    worker.leave(worker.main(start.job))


def _user_of(peer: socket.socket) -> int:
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


def _tell(asking: socket.socket, what: Any) -> None:
    with contextlib.suppress(OSError):  # who asked is gone; the next look at it says so
        asking.sendall(msgspec.json.encode(what) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
