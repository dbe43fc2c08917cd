"""The fork server: a process that has imported the heavy libraries of a project, and forks workers on request.

Importing them takes seconds for each process; forking takes milliseconds. No code of any script runs here: a worker
begins as a new process would, except that the libraries are loaded already. The process ends after some time without
clients.
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
import tempfile
import time
from typing import NoReturn

from relive.hindsight.workers import worker
from relive.hindsight.workers.wire import (
    RECEIVE_BYTES,
    ForkserverMessage,
    ForkserverStart,
    LineDecoder,
    WorkerStart,
    encode_line,
)

POLL_S = 0.005
FIRST_CLIENT_S = 10.0
_BACKLOG = 64


def main(start: ForkserverStart) -> int:
    """Serves under the name of `start` until no client has been connected for `warm_s`."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        # An abstract socket leaves no file: the name is free once the last process that holds it ends.
        listening.bind("\0" + start.name)
    except OSError:
        return 0  # another fork server has the name already
    listening.listen(_BACKLOG)
    _name_process("relive-warm")
    for module in start.modules:
        with contextlib.suppress(Exception):  # the script meets the same error, and the worker reports it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that a collection in a worker does not touch, and so copy, all pages
    return _Forkserver(listening, time.monotonic() - start.started_s, start.warm_s).serve()


class _Forkserver:
    """The clients, and the workers forked for each."""

    def __init__(self, listening: socket.socket, loaded_s: float, warm_s: float) -> None:
        self._listening = listening
        self._loaded_s = loaded_s
        self._warm_s = warm_s
        self._idle_s = max(warm_s, FIRST_CLIENT_S)  # the process that started this one is about to connect
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._clients: dict[socket.socket, LineDecoder[WorkerStart]] = {}
        self._workers: dict[int, socket.socket] = {}

    def serve(self) -> int:
        while True:
            is_idle = not self._clients
            ready = self._selector.select(POLL_S if self._workers else self._idle_s if is_idle else None)
            if is_idle and not ready and not self._workers:
                return 0
            for key, _ in ready:
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._fork_for(key.fileobj)  # type: ignore[arg-type]
            self._reap()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        if _user_of(client) != os.getuid():
            client.close()
            return
        self._clients[client], self._idle_s = LineDecoder(WorkerStart), self._warm_s
        self._selector.register(client, selectors.EVENT_READ)
        _send(client, ForkserverMessage(loaded_s=self._loaded_s))

    def _fork_for(self, client: socket.socket) -> None:
        """Forks a worker for each request of a client; in the worker this does not return."""
        try:
            data = client.recv(RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._disconnect(client)
            return
        for start in self._clients[client].feed(data):
            pid = os.fork()
            if pid == 0:
                self._close_all()
                _become_worker(start)
            self._workers[pid] = client
            _send(client, ForkserverMessage(pid, start.job))

    def _disconnect(self, client: socket.socket) -> None:
        """Forgets a client that is gone, and kills its workers."""
        self._selector.unregister(client)
        del self._clients[client]
        client.close()
        for pid in [pid for pid, owner in self._workers.items() if owner is client]:
            for kill in (os.killpg, os.kill):  # it may not lead its group yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Sends the exit codes of workers that have ended."""
        for pid, client in list(self._workers.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._workers[pid]
                _send(client, ForkserverMessage(pid, code=os.waitstatus_to_exitcode(status)))

    def _close_all(self) -> None:
        """In a forked worker: closes what belongs to the server."""
        self._selector.close()
        for one in (self._listening, *self._clients):
            one.close()


def _name_process(name: str) -> None:
    """Sets what `ps` and `top` call this process."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(name)


def _become_worker(start: WorkerStart) -> NoReturn:
    _name_process("relive-replay")
    os.setsid()  # Ctrl-C at the terminal is for the client
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
    tempfile.tempdir = None  # a library may have asked for it while it was loaded: it is that of another replay
    os.chdir(start.cwd)
    worker.leave(worker.main(start.job))


def _user_of(peer: socket.socket) -> int:
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


def _send(client: socket.socket, message: ForkserverMessage) -> None:
    with contextlib.suppress(OSError):  # the client is gone; the next read from it says so
        client.sendall(encode_line(message))


if __name__ == "__main__":
    sys.exit(main(ForkserverStart.from_argument(sys.argv[1])))
