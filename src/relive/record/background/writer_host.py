"""The process of a background writer: reads calls from shared memory and executes them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from typing import Any

from relive.record.background.deferred_calls import CallExecutor, CallFailures, DeferredCall
from relive.record.background.fast_tensorboard import patch_tensorboard
from relive.record.background.ring_buffer import MessageUnpickler, SharedBuffer
from relive.record.background.writer_process import BEGIN, CALL, CLOSE, FLUSH, GET, RECORD, SIZE

NICENESS = 19


def main(records: int, replies: int, memory: int) -> None:
    """Executes calls until CLOSE. If the training process is gone, executes what was sent and closes the writer."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the training process, which then closes this one or exits
    _lower_priority()
    host, shared, received = WriterHost(replies), SharedBuffer(memory), 0
    with os.fdopen(records, "rb") as source:
        while len(record := source.read(RECORD.size)) == RECORD.size:
            kind, begin, size_bytes = RECORD.unpack(record)
            unpickler = MessageUnpickler(shared.bytes_at(begin, size_bytes))
            received += 1
            shared.received[0] = received
            host.handle(kind, unpickler)
            if kind == CLOSE:
                return
    host.end("close")


def _lower_priority() -> None:
    """Lets the training run first on every core: its threads wait for each other, so each pause slows all of them."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class WriterHost:
    """Holds the writer and handles the messages of the training process."""

    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._failures = CallFailures()
        self._executor: CallExecutor | None = None

    def handle(self, kind: int, unpickler: MessageUnpickler) -> None:
        if kind == BEGIN:
            self._begin(unpickler)
        elif kind == CALL:
            self._call(unpickler)
        elif kind == GET:
            self._reply(self._attribute(unpickler.load()))
        else:
            self.end("flush" if kind == FLUSH else "close")
            self._reply(self._failures.take())

    def end(self, name: str) -> None:
        """Flushes or closes the writer."""
        if self._executor is not None:
            self._executor.execute_if_defined(name)

    def _begin(self, unpickler: MessageUnpickler) -> None:
        name = unpickler.load()
        try:
            factory, args, kwargs = unpickler.load()
            self._executor = CallExecutor(factory(*args, **kwargs), self._failures)
        except BaseException as error:  # noqa: BLE001 - reported by flush and close; the training goes on until then
            self._failures.add(name, error)
        patch_tensorboard()

    def _call(self, unpickler: MessageUnpickler) -> None:
        name, at = unpickler.load()
        if self._executor is None:
            self._failures.extend([], 1)
            return
        try:
            args, kwargs = unpickler.load()
        except Exception as error:  # noqa: BLE001 - e.g. a class that can't be imported here; later calls may work
            self._failures.add(f"{name}(…)", error)
        else:
            self._executor.execute(DeferredCall(name, args, kwargs, at))

    def _attribute(self, name: str) -> tuple[str, Any]:
        """Returns (kind, value) of an attribute of the writer, ready to be pickled."""
        if self._executor is None:  # flush and close report that there is no writer; until then training goes on
            return "method", None
        try:
            value = getattr(self._executor.writer, name)
            if callable(value):
                return "method", None
            pickle.dumps(value)
        except Exception as error:  # noqa: BLE001 - raised again in the training process
            return "error", f"{name}: {type(error).__name__}: {error}"
        return "value", value

    def _reply(self, value: Any) -> None:
        data = pickle.dumps(value)
        with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(self._replies), "wb") as file:
            file.write(SIZE.pack(len(data)) + data)
