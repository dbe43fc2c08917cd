"""Makes the calls of a writer in a process of its own, whose Python can't hold training up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from relive.errors import ReliveError
from relive.record.background.deferred_calls import METHOD, Failures, described
from relive.record.background.ring_buffer import Parcel, Ring, SharedBuffer

RECORD = struct.Struct("<BQQ")  # kind, where its parcel begins, and how large it is
SIZE = struct.Struct("<Q")  # of an answer
BEGIN, CALL, ASK, FLUSH, CLOSE = range(5)
PIPE_BYTES = 1 << 20
PAUSE_S = 0.001
# Threads of numeric libraries would only get in the way of training's own, and wait for each other in busy loops.
ENVIRONMENT = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {"RELIVE_OFF": "1"}
INSTEAD = "give the writer itself instead of its class, and a thread of this process makes its calls"


class InProcess:
    """The end in the training's process: copies what is given into shared memory, and sends a short record of it."""

    def __init__(self, factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: int) -> None:
        self._name = described(getattr(factory, "__qualname__", repr(factory)), args, kwargs)
        self._methods = _methods_of(factory)
        self._failures = Failures()
        self._is_lost = False
        self._order = threading.Lock()
        self._ring = Ring(max_bytes)
        try:
            parcel = Parcel(self._name, (factory, args, kwargs))
        except Exception as error:
            told = f"{self._name} can't be made in a process of its own ({error}); {INSTEAD}"
            raise ReliveError(told) from error
        self._shared = SharedBuffer()
        self._shared.reserve(max_bytes)
        self._start()
        self._post(BEGIN, parcel)

    def _start(self) -> None:
        theirs, self._records = os.pipe()
        answers, ours = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # as many records as the system lets wait
            fcntl.fcntl(self._records, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # A fresh Python, not multiprocessing: that would run the user's script again unless it is written for it.
        path = [str(entry) for entry in sys.path]
        code = f"import sys; sys.path[:] = {path}; from relive.record.background.writer_host import main; main"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{code}({theirs}, {ours}, {self._shared.file})"], stdin=subprocess.DEVNULL,
            pass_fds=(theirs, ours, self._shared.file), env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
        os.close(theirs)
        os.close(ours)
        self._answers = os.fdopen(answers, "rb")

    def attribute(self, name: str) -> Any:
        if name in self._methods:
            return METHOD
        kind, value = self._asked(ASK, Parcel(name)) or ("lost", None)
        if kind == "lost":
            raise ReliveError(f"{name} of {self._name} can't be read, its process is gone; {INSTEAD}")
        if kind == "error":
            raise AttributeError(value)
        if kind == "method":
            self._methods.add(name)
        return METHOD if kind == "method" else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            parcel = Parcel((name, time.time()), (args, kwargs))
            with self._order:
                self._post(CALL, parcel)
        except Exception as error:  # noqa: BLE001 - arguments that can't be sent; the user's training must go on
            self._failures.add(described(name, args, kwargs), error)

    def flush(self) -> None:
        self._failures.extend(*(self._asked(FLUSH, Parcel()) or ([], 0)))
        self._failures.raise_any()

    def close(self) -> None:
        self._failures.extend(*(self._asked(CLOSE, Parcel()) or ([], 0)))
        self._let_go()
        self._process.wait()
        self._failures.raise_any()

    def abandon(self) -> None:
        self._let_go()
        self._process.returncode = 0  # it is the parent's child, not ours

    def _let_go(self) -> None:
        self._is_lost = True
        self._answers.close()
        self._shared.close()
        with contextlib.suppress(OSError):
            os.close(self._records)

    def _asked(self, kind: int, parcel: Parcel) -> Any:
        """What the process answers, after all the calls before; None if it is gone."""
        with self._order:
            self._post(kind, parcel)
            size = self._answers.read(SIZE.size) if not self._is_lost else b""
            if len(size) == SIZE.size:
                return pickle.loads(self._answers.read(*SIZE.unpack(size)))
            self._lose()
            return None

    def _post(self, kind: int, parcel: Parcel) -> None:
        """Copy a parcel to where the process finds it. While there is no room, wait."""
        begin = self._placed(parcel.size_bytes)
        if begin is None:
            self._failures.extend([(f"{self._name}: its process is gone", "")], 1)
            return
        self._shared.reserve(begin + parcel.size_bytes)  # a parcel larger than the ring, alone in it
        parcel.write(self._shared.bytes_at(begin, parcel.size_bytes))
        try:
            os.write(self._records, RECORD.pack(kind, begin, parcel.size_bytes))
        except BrokenPipeError:
            self._lose()

    def _placed(self, size_bytes: int) -> int | None:
        while not self._is_lost:
            self._ring.take_out(int(self._shared.taken[0]))
            begin = self._ring.put(size_bytes)
            if begin is not None:
                return begin
            if self._process.poll() is not None:
                self._lose()
            time.sleep(PAUSE_S)
        return None

    def _lose(self) -> None:
        """The process is gone, and with it the calls that wait."""
        if self._is_lost:
            return
        self._is_lost = True
        self._ring.take_out(int(self._shared.taken[0]))
        status = self._process.wait()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        waiting = max(len(self._ring.waiting), 1)
        told = f"{self._name}: its process {self._process.pid} was {how}, and calls that waited are lost; {INSTEAD}"
        self._failures.extend([(told, "")], waiting)


def _methods_of(factory: Any) -> set[str]:
    """What a class says can be called; for other factories the process has to be asked."""
    if not isinstance(factory, type):
        return set()
    return {name for name in dir(factory) if callable(getattr(factory, name, None))}
