"""How workers are started: each as a process of its own, or forked from one that has loaded what they need."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

from relive.hindsight.job import Job
from relive.hindsight.nursery import Start, Told

# Libraries that take long to load and do nothing else by being loaded, in the order in which they are loaded.
HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "torchvision")
# Torch loads this with the first optimizer that is made, and it takes about as long as torch itself.
LATER = {"torch": ("torch._dynamo",)}
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([\w.]+)", re.MULTILINE)
# A script that sets these in its code, before it imports a library, means it: nothing may be loaded ahead of it.
_STEERS = re.compile(
    r"(environ|putenv|setenv)[^\n]*(OMP|MKL|OPENBLAS|BLIS|KMP|NUMEXPR|CUDA|CUBLAS|TORCH|NCCL|GLOO|HIP)"
)
# These differ from worker to worker, and are not read when a library is loaded.
_OWN = frozenset({"TMPDIR", "WANDB_DIR", "MLFLOW_TRACKING_URI"})


class Process(Protocol):
    """A worker that was started."""

    def poll(self) -> int | None: ...
    def end(self) -> None: ...


def heavy_imports(files: Mapping[str, str]) -> tuple[str, ...]:
    """What can be loaded before any of a project's code runs; nothing if that could make a difference to it."""
    named = {match.partition(".")[0] for text in files.values() for match in _IMPORT.findall(text)}
    own = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files}
    if any(_STEERS.search(text) for text in files.values()):
        return ()
    chosen = [name for name in HEAVY if name in named and name not in own]
    return tuple(one for name in chosen for one in (name, *LATER.get(name, ())))


class Starter:
    """Starts workers for one replay; what it keeps warm ends with it."""

    def __init__(self) -> None:
        self._nurseries: dict[tuple[str, ...], Nursery] = {}

    def start(self, python: str, job: Job, env: Mapping[str, str], modules: Iterable[str]) -> Process:
        folder, names = Path(job.folder), tuple(modules)
        if names and sys.platform == "linux":
            with contextlib.suppress(OSError):  # it died, or there is no room for it: a process will do
                return self._nursery(python, env, names).start(
                    Start(str(job.write()), job.cwd, dict(env), str(folder / "stdout"), str(folder / "stderr"))
                )
        return _Plain(python, job, env)

    def warm(self, python: str, env: Mapping[str, str], modules: Iterable[str]) -> None:
        """Begin to load what a worker will need."""
        if names := tuple(modules):
            self._nursery(python, env, names)

    def _nursery(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> Nursery:
        shared = {name: value for name, value in env.items() if name not in _OWN}
        key = (python, *modules, *(f"{name}={value}" for name, value in sorted(shared.items())))
        if key not in self._nurseries:
            self._nurseries[key] = Nursery(python, shared, modules)
        return self._nurseries[key]

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, *_: object) -> None:
        for nursery in self._nurseries.values():
            nursery.close()


class Nursery:
    """Our end of the process that workers are forked from."""

    def __init__(self, python: str, env: Mapping[str, str], modules: tuple[str, ...]) -> None:
        self.ready_s: float | None = None
        self._codes: dict[int, int] = {}
        self._pids: dict[str, int] = {}
        self._pending = b""
        self._process = subprocess.Popen(
            [python, "-P", "-m", "relive.hindsight.nursery", *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=dict(env), start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def start(self, what: Start) -> Process:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(what) + b"\n")
        return _Forked(self, what.job)

    def pid(self, job: str) -> int | None:
        """The process that does a job, once there is one."""
        self._hear()
        return self._pids.get(job)

    def code(self, pid: int) -> int | None:
        self._hear()
        return self._codes.get(pid)

    @property
    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # it is still loading
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        while data := self._process.stdout.read(1 << 16):
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                told = msgspec.json.decode(line, type=Told)
                if told.ready_s is not None:
                    self.ready_s = told.ready_s
                elif told.code is None:
                    self._pids[told.job] = told.pid
                else:
                    self._codes[told.pid] = told.code


class _Forked:
    """A worker that a nursery forked, or will when it is ready."""

    def __init__(self, nursery: Nursery, job: str) -> None:
        self._nursery = nursery
        self._job = job

    def poll(self) -> int | None:
        pid = self._nursery.pid(self._job)
        code = self._nursery.code(pid) if pid is not None else None
        return -signal.SIGKILL if code is None and self._nursery.is_gone else code

    def end(self) -> None:
        pid = self._nursery.pid(self._job)
        if pid is not None:
            _kill_group(pid)


class _Plain:
    """A worker in a process of its own."""

    def __init__(self, python: str, job: Job, env: Mapping[str, str]) -> None:
        folder = Path(job.folder)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            # A session of its own: Ctrl-C at the terminal is ours to answer.
            self._process = subprocess.Popen(
                [python, "-P", "-m", "relive.hindsight.worker", str(job.write())],
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
