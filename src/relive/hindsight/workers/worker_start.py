"""How workers are started: each as a process of its own, or forked from one that has loaded what they need."""

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

import msgspec

from relive.hashing import stable_hash
from relive.hindsight.workers.wire import ForkserverMessage, Job, WorkerStart
from relive.installation import PACKAGE_FOLDER

# What libraries, and Python itself, look at when they are loaded; all else is set for each worker.
_READ_WHEN_LOADED = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "CUDA_", "CUBLAS_", "TORCH_", "PYTORCH_", "NCCL_",
    "GLOO_", "HIP_", "ROCR_", "LD_", "PYTHON", "MALLOC_", "GOMP_", "DNNL_", "ONEDNN_", "ATEN_", "LANG", "LC_",
    "HOME", "PATH",
)  # fmt: skip
PATIENCE_S = 10.0
POLL_S = 0.005
GREETING_S = 0.2  # a process that has loaded everything answers at once


class Process(Protocol):
    """A worker that was started."""

    waited_s: float  # until there was a process at all: libraries were being loaded

    def poll(self) -> int | None: ...
    def end(self) -> None: ...


class WorkerStarter:
    """Starts workers for one replay. The process that they are forked from stays for `warm_s` after it."""

    def __init__(self, warm_s: float = 0.0) -> None:
        self._warm_s = warm_s
        self._nurseries: dict[str, ForkserverClient] = {}

    def start(self, python: str, job: Job, env: Mapping[str, str], modules: Iterable[str]) -> Process:
        folder, names = Path(job.folder), tuple(modules)
        if names and sys.platform == "linux":
            with contextlib.suppress(OSError):  # it died, or there is no room for it: a process will do
                return self._nursery(python, env, names).start(
                    WorkerStart(str(job.write()), job.cwd, dict(env), str(folder / "stdout"), str(folder / "stderr"))
                )
        return _SpawnedWorker(python, job, env)

    def loaded_s(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> float | None:
        """How long it took to load these, if there is a process that has done it already."""
        if not modules or sys.platform != "linux":
            return None
        name = _name(python, env, modules)
        if name not in self._nurseries and (line := _call(name)) is not None:
            self._nurseries[name] = ForkserverClient(line)
        return self._nurseries[name].loaded_s(GREETING_S) if name in self._nurseries else None

    def wait(self, timeout_s: float) -> None:
        """Until a process that forks for us has something to tell, or so long."""
        lines = [one for one in self._nurseries.values() if not one.is_gone]
        select.select(lines, [], [], timeout_s)

    def _nursery(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> ForkserverClient:
        name = _name(python, env, modules)
        if name in self._nurseries and self._nurseries[name].is_gone:
            self._nurseries.pop(name).close()
        if name not in self._nurseries:
            self._nurseries[name] = ForkserverClient(_call(name) or _begin(name, python, env, modules, self._warm_s))
        return self._nurseries[name]

    def __enter__(self) -> WorkerStarter:
        return self

    def __exit__(self, *_: object) -> None:
        for nursery in self._nurseries.values():
            nursery.close()


def _name(python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> str:
    """What a process answers to that has loaded these libraries for us, as they and relive are now."""
    steering = sorted(f"{name}={value}" for name, value in env.items() if name.startswith(_READ_WHEN_LOADED))
    return f"relive-{stable_hash([os.getuid(), python, sys.version, list(modules), steering, _state_of(python)])[:32]}"


@lru_cache(maxsize=8)
def _state_of(python: str) -> list[Any]:
    """What changes when packages are installed, or relive itself is; looked at once for all runs of a plan."""
    prefix = Path(python).parent.parent
    installed = [(str(path), path.stat().st_mtime_ns) for path in sorted(prefix.glob("lib*/python3*/site-packages"))]
    ours = [path.stat().st_mtime_ns for path in sorted(Path(PACKAGE_FOLDER).rglob("*.py"))]
    return [installed, ours]


def _call(name: str) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect("\0" + name)
    except OSError:
        line.close()
        return None
    return line


def _begin(
    name: str, python: str, env: Mapping[str, str], modules: tuple[str, ...], warm_s: float
) -> socket.socket:  # fmt: skip
    begun = subprocess.Popen(
        [python, "-P", "-m", "relive.hindsight.workers.forkserver", name, str(warm_s), str(time.monotonic()), *modules],
        cwd="/", env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (line := _call(name)) is not None:
            begun.returncode = 0  # it outlives us, and nobody waits for it
            return line
        if begun.poll() is not None:
            break
        time.sleep(POLL_S)
    begun.kill()
    raise ChildProcessError(f"{python} -m relive.hindsight.workers.forkserver does not answer")


class ForkserverClient:
    """Our end of the line to the process that workers are forked from."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._line.setblocking(False)
        self.is_gone = False
        self._loaded_s: float | None = None
        self._codes: dict[int, int] = {}
        self._pids: dict[str, int] = {}
        self._pending = b""

    def start(self, what: WorkerStart) -> Process:
        self._line.setblocking(True)
        self._line.sendall(msgspec.json.encode(what) + b"\n")
        self._line.setblocking(False)
        return _ForkedWorker(self, what.job)

    def loaded_s(self, patience_s: float = 0.0) -> float | None:
        """What loading took; None while it goes on."""
        if self._loaded_s is None:  # a plan asks for each of its runs, and waits for the greeting once
            select.select([self._line], [], [], patience_s)
            self._hear()
        return self._loaded_s

    def fileno(self) -> int:
        return self._line.fileno()

    def pid(self, job: str) -> int | None:
        """The process that does a job, once there is one."""
        self._hear()
        return self._pids.get(job)

    def code(self, pid: int) -> int | None:
        self._hear()
        return self._codes.get(pid)

    def close(self) -> None:
        self._line.close()

    def _hear(self) -> None:
        try:
            while data := self._line.recv(1 << 16):
                *lines, self._pending = (self._pending + data).split(b"\n")
                for line in lines:
                    self._note(msgspec.json.decode(line, type=ForkserverMessage))
        except BlockingIOError:
            return  # that was all for now
        except ConnectionError:
            pass  # it died before it had read everything
        self.is_gone = True

    def _note(self, told: ForkserverMessage) -> None:
        if told.loaded_s is not None:
            self._loaded_s = told.loaded_s
        elif told.code is None:
            self._pids[told.job] = told.pid
        else:
            self._codes[told.pid] = told.code


class _ForkedWorker:
    """A worker that a nursery forked, or will when it is ready."""

    def __init__(self, nursery: ForkserverClient, job: str) -> None:
        self._nursery = nursery
        self._job = job
        self._begun = time.perf_counter()
        self.waited_s = 0.0

    def poll(self) -> int | None:
        pid = self._nursery.pid(self._job)
        if pid is None:
            self.waited_s = time.perf_counter() - self._begun
        code = self._nursery.code(pid) if pid is not None else None
        return -signal.SIGKILL if code is None and self._nursery.is_gone else code

    def end(self) -> None:
        pid = self._nursery.pid(self._job)
        if pid is not None:
            _kill_group(pid)


class _SpawnedWorker:
    """A worker in a process of its own."""

    waited_s = 0.0

    def __init__(self, python: str, job: Job, env: Mapping[str, str]) -> None:
        folder = Path(job.folder)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            # A session of its own: Ctrl-C at the terminal is ours to answer.
            self._process = subprocess.Popen(
                [python, "-P", "-m", "relive.hindsight.workers.worker", str(job.write())],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), cwd=job.cwd, start_new_session=True,
            )  # fmt: skip

    def poll(self) -> int | None:
        return self._process.poll()

    def end(self) -> None:
        _kill_group(self._process.pid)
        self._process.wait()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
