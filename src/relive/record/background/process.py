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
from relive.record.background.calls import METHOD, Call, Doer, Failure, Failures, described
from relive.record.background.copies import Lease, Pool
from relive.record.background.parcels import Parcel, Ring, Shared, Unpacker, packed
from relive.record.background.quick_events import quicken

RECORD = struct.Struct("<BQQQ")  # kind, where its parcel begins, bytes of the arrays, bytes of the rest
LENGTH = struct.Struct("<Q")  # before each answer
BEGIN, CALL, ASK, FLUSH, CLOSE = range(5)
PIPE_BYTES = 1 << 20
PAUSE_S = 0.001
NICENESS = 19
# Threads of numeric libraries would only get in the way of training's own, and wait for each other in busy loops.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
INSTEAD = "give the writer itself instead of its class, and a thread of this process makes its calls"


class InProcess:
    """The end in the training's process: copies what is given into shared memory, and sends a short record of it."""

    def __init__(self, factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: int) -> None:
        self._name = described(getattr(factory, "__qualname__", repr(factory)), args, kwargs)
        self._methods = _methods_of(factory)
        self._failures = Failures()
        self._lost: Failure | None = None
        self._order = threading.Lock()
        self._ring = Ring(max_bytes)
        try:
            parcel = packed(self._name, (factory, args, kwargs))
        except Exception as error:
            told = f"{self._name} can't be made in a process of its own ({error}); {INSTEAD}"
            raise ReliveError(told) from error
        self._shared = Shared()
        self._shared.reserve(max_bytes)
        self._start(max_bytes)
        self._post(BEGIN, parcel)

    def _start(self, max_bytes: int) -> None:
        theirs, self._records = os.pipe()
        answers, ours = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # as many records as the system lets wait
            fcntl.fcntl(self._records, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # A fresh Python, not multiprocessing: that would run the user's script again unless it is written for it.
        path = [str(entry) for entry in sys.path]
        code = f"import sys; sys.path[:] = {path}; from {__name__} import main; main"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{code}({theirs}, {ours}, {self._shared.file}, {max_bytes})"],
            stdin=subprocess.DEVNULL, pass_fds=(theirs, ours, self._shared.file), env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
        os.close(theirs)
        os.close(ours)
        self._answers = os.fdopen(answers, "rb")

    def attribute(self, name: str) -> Any:
        if name in self._methods:
            return METHOD
        kind, value = self._asked(ASK, packed(name)) or ("lost", None)
        if kind == "lost":
            raise ReliveError(f"{name} of {self._name} can't be read, its process is gone; {INSTEAD}")
        if kind == "error":
            raise AttributeError(value)
        if kind == "method":
            self._methods.add(name)
        return METHOD if kind == "method" else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            parcel = packed((name, time.time()), (args, kwargs))
            with self._order:
                self._post(CALL, parcel)
        except Exception as error:  # noqa: BLE001 - arguments that can't be sent; the user's training must go on
            self._failures.add(described(name, args, kwargs), error)

    def flush(self) -> None:
        self._failures.extend(*(self._asked(FLUSH, packed()) or ([], 0)))
        self._failures.raise_any()

    def close(self) -> None:
        self._failures.extend(*(self._asked(CLOSE, packed()) or ([], 0)))
        self._let_go()
        self._process.wait()
        self._failures.raise_any()

    def abandon(self) -> None:
        self._let_go()
        self._process.returncode = 0  # it is the parent's child, not ours

    def _let_go(self) -> None:
        self._lost = Failure(self._name, "it is closed", "")
        self._answers.close()
        self._shared.close()
        with contextlib.suppress(OSError):
            os.close(self._records)

    def _asked(self, kind: int, parcel: Parcel) -> Any:
        """What the process answers, after all the calls before; None if it is gone."""
        with self._order:
            self._post(kind, parcel)
            length = self._answers.read(LENGTH.size) if self._lost is None else b""
            if len(length) == LENGTH.size:
                return pickle.loads(self._answers.read(*LENGTH.unpack(length)))
            self._lose()
            return None

    def _post(self, kind: int, parcel: Parcel) -> None:
        """Copy a parcel to where the process finds it. While there is no room, wait."""
        begin = self._placed(parcel.size_bytes)
        if self._lost is not None:
            self._failures.extend([self._lost], 1)
            return
        self._shared.reserve(begin + parcel.size_bytes)  # a parcel larger than the ring, alone in it
        parcel.write(self._shared.bytes_at(begin, parcel.size_bytes))
        try:
            os.write(self._records, RECORD.pack(kind, begin, parcel.arrays_bytes, len(parcel.rest)))
        except BrokenPipeError:
            self._lose()

    def _placed(self, size_bytes: int) -> int:
        while self._lost is None:
            self._ring.take_out(int(self._shared.taken[0]))
            begin = self._ring.put(size_bytes)
            if begin is not None:
                return begin
            if self._process.poll() is not None:
                self._lose()
            time.sleep(PAUSE_S)
        return 0

    def _lose(self) -> None:
        """The process is gone, and with it the calls that wait."""
        if self._lost is None:
            self._ring.take_out(int(self._shared.taken[0]))
            status = self._process.wait()
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
            error = f"its process {self._process.pid} was {how}, and calls that waited are lost"
            remedy = f"see whether memory ran out, or {INSTEAD}"
            self._lost = Failure(self._name, error, "", remedy)
            self._failures.extend([self._lost], max(len(self._ring.waiting), 1))


def _methods_of(factory: Any) -> set[str]:
    """What a class says can be called; for other factories the process has to be asked."""
    if not isinstance(factory, type):
        return set()
    return {name for name in dir(factory) if callable(getattr(factory, name, None))}


def main(records: int, answers: int, memory: int, max_bytes: int) -> None:
    """What the writer's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for training, which then closes us or just ends
    os.nice(NICENESS)
    with os.fdopen(records, "rb") as source:
        Site(answers, Shared(memory), Pool(max_bytes // 4)).work(source)


class Site:
    """The end in the writer's process: takes parcels out of shared memory and makes the calls."""

    def __init__(self, answers: int, shared: Shared, pool: Pool) -> None:
        self._answers = answers
        self._shared = shared
        self._pool = pool
        self._taken = 0
        self._failures = Failures()
        self._doer: Doer | None = None
        self._no_writer = Failure("", "", "")

    def work(self, source: Any) -> None:
        """Until training closes us, or is gone: then what waited is done and the writer closed all the same."""
        while len(record := source.read(RECORD.size)) == RECORD.size:
            kind, begin, arrays_bytes, rest_bytes = RECORD.unpack(record)
            lease, rest = self._taken_out(begin, arrays_bytes, rest_bytes)
            self._do(kind, Unpacker(rest, lease.buffer))
            self._pool.take_back(lease)
            if kind == CLOSE:
                return
        self._end("close")

    def _taken_out(self, begin: int, arrays_bytes: int, rest_bytes: int) -> tuple[Lease, bytes]:
        """Copy a parcel to memory of our own: a writer may keep its arrays, and the shared memory is soon needed."""
        parcel = self._shared.bytes_at(begin, arrays_bytes + rest_bytes)
        lease = self._pool.lend(arrays_bytes)
        lease.buffer[:arrays_bytes] = parcel[:arrays_bytes]
        rest = parcel[arrays_bytes:].tobytes()
        self._taken += 1
        self._shared.taken[0] = self._taken
        return lease, rest

    def _do(self, kind: int, unpacker: Unpacker) -> None:
        if kind == BEGIN:
            self._begin(unpacker)
        elif kind == CALL:
            self._call(unpacker)
        elif kind == ASK:
            self._answer(self._attribute(unpacker.load()))
        else:
            self._end("flush" if kind == FLUSH else "close")
            self._answer(self._failures.take())

    def _begin(self, unpacker: Unpacker) -> None:
        name = unpacker.load()
        try:
            factory, args, kwargs = unpacker.load()
            self._doer = Doer(factory(*args, **kwargs), self._failures)
        except BaseException as error:  # noqa: BLE001 - told when training asks; it must not be alone until then
            self._failures.add(name, error)
            self._no_writer = self._failures.first[0]
        quicken()

    def _call(self, unpacker: Unpacker) -> None:
        name, at = unpacker.load()
        if self._doer is None:
            self._failures.extend([self._no_writer], 1)
            return
        try:
            args, kwargs = unpacker.load()
        except Exception as error:  # noqa: BLE001 - something that can't be imported here; the next call can do better
            self._failures.add(f"{name}(…)", error)
        else:
            self._doer.do(Call(name, args, kwargs, at))

    def _attribute(self, name: str) -> tuple[str, Any]:
        """An attribute as training can understand it."""
        if self._doer is None:
            return "error", f"{self._no_writer.call} failed: {self._no_writer.error}"
        try:
            value = getattr(self._doer.writer, name)
            if callable(value):
                return "method", None
            pickle.dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the asker's to see
            return "error", f"{name}: {type(error).__name__}: {error}"
        return "value", value

    def _end(self, name: str) -> None:
        if self._doer is not None:
            self._doer.do_if_there(name, time.time())

    def _answer(self, value: Any) -> None:
        data = pickle.dumps(value)
        with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(self._answers), "wb") as file:
            file.write(LENGTH.pack(len(data)) + data)
