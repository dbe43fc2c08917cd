"""Executes the calls of a writer in a separate process, whose interpreter can't slow training down."""

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
from relive.record.background.deferred_calls import METHOD, CallFailures, describe_call
from relive.record.background.ring_buffer import Message, RingAllocator, SharedBuffer

RECORD = struct.Struct("<BQQ")  # kind, offset of its message in shared memory, and size
SIZE = struct.Struct("<Q")  # of a reply
BEGIN, CALL, GET, FLUSH, CLOSE = range(5)
PIPE_BYTES = 1 << 20
POLL_S = 0.001
# Threads of numeric libraries would compete with those of the training, and spin while they wait for each other.
ENVIRONMENT = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")} | {"RELIVE_OFF": "1"}
REMEDY = "pass a writer instance instead of its class, and a thread of this process executes its calls"


class WriterProcess:
    """The side of the training process: copies calls into shared memory and sends a short record of each."""

    def __init__(self, factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any], max_bytes: int) -> None:
        self._name = describe_call(getattr(factory, "__qualname__", repr(factory)), args, kwargs)
        self._methods = _callable_names(factory)
        self._failures = CallFailures()
        self._is_lost = False
        self._order = threading.Lock()
        self._ring = RingAllocator(max_bytes)
        try:
            message = Message(self._name, (factory, args, kwargs))
        except Exception as error:
            text = f"{self._name} can't be created in a separate process ({error}); {REMEDY}"
            raise ReliveError(text) from error
        self._shared = SharedBuffer()
        self._shared.reserve(max_bytes)
        self._start()
        self._post(BEGIN, message)

    def _start(self) -> None:
        child_records, self._records = os.pipe()
        replies, child_replies = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # a larger pipe lets more records wait
            fcntl.fcntl(self._records, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # A fresh interpreter, not multiprocessing: that would import the user's script again.
        path = [str(entry) for entry in sys.path]
        code = f"import sys; sys.path[:] = {path}; from relive.record.background.writer_host import main; main"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{code}({child_records}, {child_replies}, {self._shared.file})"],
            stdin=subprocess.DEVNULL, pass_fds=(child_records, child_replies, self._shared.file),
            env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
        os.close(child_records)
        os.close(child_replies)
        self._replies = os.fdopen(replies, "rb")

    def attribute(self, name: str) -> Any:
        if name in self._methods:
            return METHOD
        kind, value = self._request(GET, Message(name)) or ("lost", None)
        if kind == "lost":
            raise ReliveError(f"{name} of {self._name} can't be read: its process is gone; {REMEDY}")
        if kind == "error":
            raise AttributeError(value)
        if kind == "method":
            self._methods.add(name)
        return METHOD if kind == "method" else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            message = Message((name, time.time()), (args, kwargs))
            with self._order:
                self._post(CALL, message)
        except Exception as error:  # noqa: BLE001 - arguments that can't be pickled; the user's training must go on
            self._failures.add(describe_call(name, args, kwargs), error)

    def flush(self) -> None:
        self._failures.extend(*(self._request(FLUSH, Message()) or ([], 0)))
        self._failures.raise_any()

    def close(self) -> None:
        self._failures.extend(*(self._request(CLOSE, Message()) or ([], 0)))
        self._release()
        self._process.wait()
        self._failures.raise_any()

    def abandon(self) -> None:
        self._release()
        self._process.returncode = 0  # not a child of this process; keeps Popen from waiting for it

    def _release(self) -> None:
        self._is_lost = True
        self._replies.close()
        self._shared.close()
        with contextlib.suppress(OSError):
            os.close(self._records)

    def _request(self, kind: int, message: Message) -> Any:
        """Returns the reply of the process, which comes after all earlier calls; None if the process is gone."""
        with self._order:
            self._post(kind, message)
            size = self._replies.read(SIZE.size) if not self._is_lost else b""
            if len(size) == SIZE.size:
                return pickle.loads(self._replies.read(*SIZE.unpack(size)))
            self._handle_loss()
            return None

    def _post(self, kind: int, message: Message) -> None:
        """Copies a message into shared memory and sends its record. Waits while there is no space."""
        begin = self._allocate(message.size_bytes)
        if begin is None:
            self._failures.extend([(f"{self._name}: its process is gone", "")], 1)
            return
        self._shared.reserve(begin + message.size_bytes)  # grows the memory for a message larger than the ring
        message.write(self._shared.bytes_at(begin, message.size_bytes))
        try:
            os.write(self._records, RECORD.pack(kind, begin, message.size_bytes))
        except BrokenPipeError:
            self._handle_loss()

    def _allocate(self, size_bytes: int) -> int | None:
        while not self._is_lost:
            self._ring.free(int(self._shared.received[0]))
            begin = self._ring.allocate(size_bytes)
            if begin is not None:
                return begin
            if self._process.poll() is not None:
                self._handle_loss()
            time.sleep(POLL_S)
        return None

    def _handle_loss(self) -> None:
        """Reports that the process is gone, and with it the calls that were waiting."""
        if self._is_lost:
            return
        self._is_lost = True
        self._ring.free(int(self._shared.received[0]))
        status = self._process.wait()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        count = max(len(self._ring.waiting), 1)
        text = f"{self._name}: its process {self._process.pid} was {how}, and waiting calls are lost; {REMEDY}"
        self._failures.extend([(text, "")], count)


def _callable_names(factory: Any) -> set[str]:
    """Returns the callable attributes of a class; for any other factory the process has to be asked."""
    if not isinstance(factory, type):
        return set()
    return {name for name in dir(factory) if callable(getattr(factory, name, None))}
