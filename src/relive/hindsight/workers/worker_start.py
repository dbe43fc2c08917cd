"""Starts workers: each as a process of its own, or forked by a fork server that has loaded its libraries."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from relive.hashing import stable_hash
from relive.hindsight.workers.wire import (
    RECEIVE_BYTES,
    ForkserverMessage,
    ForkserverStart,
    Job,
    LineDecoder,
    WorkerStart,
    encode_line,
)
from relive.installation import PACKAGE_FOLDER

# Variables that libraries, and Python itself, read when they are loaded; all others are set for each worker.
_READ_WHEN_LOADED = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "CUDA_", "CUBLAS_", "TORCH_", "PYTORCH_", "NCCL_",
    "GLOO_", "HIP_", "ROCR_", "LD_", "PYTHON", "MALLOC_", "GOMP_", "DNNL_", "ONEDNN_", "ATEN_", "LANG", "LC_",
    "HOME", "PATH",
)  # fmt: skip
CONNECT_S = 10.0
POLL_S = 0.005
GREETING_S = 0.2  # a fork server that has loaded everything answers at once


class Process(Protocol):
    """A worker that was started."""

    waited_s: float  # until the process existed: libraries were being loaded

    @property
    def pid(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def end(self) -> None: ...


class WorkerStarter:
    """Starts the workers of one replay. Their fork servers stay for `warm_s` after it."""

    def __init__(self, warm_s: float = 0.0) -> None:
        self._warm_s = warm_s
        self._forkservers: dict[str, ForkserverClient] = {}

    def start(self, python: str, job: Job, env: Mapping[str, str], modules: Iterable[str]) -> Process:
        names = tuple(modules)
        if names and sys.platform == "linux":
            with contextlib.suppress(OSError):  # the fork server died or could not start: spawn a process instead
                return self._forkserver(python, env, names).start(
                    WorkerStart(str(job.write()), job.cwd, dict(env), str(job.stdout), str(job.stderr))
                )
        return _SpawnedWorker(python, job, env)

    def loaded_s(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> float | None:
        """How long a running fork server took to load these libraries; None if there is no such server."""
        if not modules or sys.platform != "linux":
            return None
        name = _forkserver_name(python, env, modules)
        if name not in self._forkservers and (connection := _connect(name)) is not None:
            self._forkservers[name] = ForkserverClient(connection)
        return self._forkservers[name].loaded_s(GREETING_S) if name in self._forkservers else None

    def wait(self, timeout_s: float) -> None:
        """Waits until a fork server has sent something, or for the timeout."""
        connections = [one for one in self._forkservers.values() if not one.is_gone]
        select.select(connections, [], [], timeout_s)

    def _forkserver(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> ForkserverClient:
        name = _forkserver_name(python, env, modules)
        if name in self._forkservers and self._forkservers[name].is_gone:
            self._forkservers.pop(name).close()
        if name not in self._forkservers:
            connection = _connect(name) or _start_forkserver(name, python, env, modules, self._warm_s)
            self._forkservers[name] = ForkserverClient(connection)
        return self._forkservers[name]

    def __enter__(self) -> WorkerStarter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for forkserver in self._forkservers.values():
            forkserver.close()


def _forkserver_name(python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> str:
    """The name of the fork server for these libraries; it changes when they, their settings or relive change."""
    read = sorted(f"{name}={value}" for name, value in env.items() if name.startswith(_READ_WHEN_LOADED))
    identity = [os.getuid(), python, sys.version, list(modules), read, _installation_state(python)]
    return f"relive-{stable_hash(identity)[:32]}"


@lru_cache(maxsize=8)
def _installation_state(python: str) -> list[Any]:
    """Times that change when packages, or relive itself, are installed; read once for all runs of a plan."""
    prefix = Path(python).parent.parent
    installed = [(str(path), path.stat().st_mtime_ns) for path in sorted(prefix.glob("lib*/python3*/site-packages"))]
    ours = [path.stat().st_mtime_ns for path in sorted(Path(PACKAGE_FOLDER).rglob("*.py"))]
    return [installed, ours]


def _connect(name: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect("\0" + name)
    except OSError:
        connection.close()
        return None
    return connection


def _start_forkserver(
    name: str, python: str, env: Mapping[str, str], modules: tuple[str, ...], warm_s: float
) -> socket.socket:  # fmt: skip
    """Starts a fork server, and returns a connection to it."""
    start = ForkserverStart(name, warm_s, time.monotonic(), modules)
    process = subprocess.Popen(
        [python, "-P", "-m", "relive.hindsight.workers.forkserver", start.to_argument()],
        cwd="/", env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + CONNECT_S
    while time.monotonic() < deadline:
        if (connection := _connect(name)) is not None:
            process.returncode = 0  # it outlives this process, which never waits for it
            return connection
        if process.poll() is not None:
            break
        time.sleep(POLL_S)
    process.kill()
    raise ChildProcessError(f"{python} -m relive.hindsight.workers.forkserver does not answer")


class ForkserverClient:
    """The client side of the connection to a fork server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setblocking(False)
        self._messages = LineDecoder(ForkserverMessage)
        self.is_gone = False
        self._loaded_s: float | None = None
        self._codes: dict[int, int] = {}
        self._pids: dict[str, int] = {}

    def start(self, request: WorkerStart) -> Process:
        self._connection.setblocking(True)
        self._connection.sendall(encode_line(request))
        self._connection.setblocking(False)
        return _ForkedWorker(self, request.job)

    def loaded_s(self, timeout_s: float = 0.0) -> float | None:
        """How long loading took; None while it goes on."""
        if self._loaded_s is None:  # a plan asks for each of its runs, and waits for the greeting once
            select.select([self._connection], [], [], timeout_s)
            self._receive()
        return self._loaded_s

    def fileno(self) -> int:
        return self._connection.fileno()

    def pid(self, job: str) -> int | None:
        """The process that executes a job, once it exists."""
        self._receive()
        return self._pids.get(job)

    def code(self, pid: int) -> int | None:
        self._receive()
        return self._codes.get(pid)

    def close(self) -> None:
        self._connection.close()

    def _receive(self) -> None:
        try:
            while data := self._connection.recv(RECEIVE_BYTES):
                for message in self._messages.feed(data):
                    self._handle(message)
        except BlockingIOError:
            return  # nothing more for now
        except ConnectionError:
            pass  # it died before it had read everything
        self.is_gone = True

    def _handle(self, message: ForkserverMessage) -> None:
        if message.loaded_s is not None:
            self._loaded_s = message.loaded_s
        elif message.code is None:
            self._pids[message.job] = message.pid
        else:
            self._codes[message.pid] = message.code


class _ForkedWorker:
    """A worker that a fork server has forked, or will fork when its libraries are loaded."""

    def __init__(self, forkserver: ForkserverClient, job: str) -> None:
        self._forkserver = forkserver
        self._job = job
        self._requested = time.perf_counter()
        self.waited_s = 0.0

    @property
    def pid(self) -> int | None:
        return self._forkserver.pid(self._job)

    def poll(self) -> int | None:
        pid = self.pid
        if pid is None:
            self.waited_s = time.perf_counter() - self._requested
        code = self._forkserver.code(pid) if pid is not None else None
        return -signal.SIGKILL if code is None and self._forkserver.is_gone else code

    def end(self) -> None:
        pid = self.pid
        if pid is not None:
            _kill_group(pid)


class _SpawnedWorker:
    """A worker in a new Python process."""

    waited_s = 0.0

    def __init__(self, python: str, job: Job, env: Mapping[str, str]) -> None:
        with job.stdout.open("wb") as out, job.stderr.open("wb") as err:
            # A session of its own: the parent handles Ctrl-C at the terminal.
            self._process = subprocess.Popen(
                [python, "-P", "-m", "relive.hindsight.workers.worker", str(job.write()), str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), cwd=job.cwd, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def end(self) -> None:
        _kill_group(self._process.pid)
        self._process.wait()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
