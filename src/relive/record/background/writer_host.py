"""What the process of a background writer does: takes calls out of shared memory, and makes them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from typing import Any

from relive.record.background.deferred_calls import DeferredCall, Doer, Failures
from relive.record.background.fast_tensorboard import quicken
from relive.record.background.ring_buffer import SharedBuffer, Unpacker
from relive.record.background.writer_process import ASK, BEGIN, CALL, CLOSE, FLUSH, RECORD, SIZE

NICENESS = 19


def main(records: int, answers: int, memory: int) -> None:
    """Until training closes us or is gone: then what waits is done and the writer closed all the same."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for training, which then closes us or just ends
    _give_way()
    site, shared, taken = Site(answers), SharedBuffer(memory), 0
    with os.fdopen(records, "rb") as source:
        while len(record := source.read(RECORD.size)) == RECORD.size:
            kind, begin, size_bytes = RECORD.unpack(record)
            unpacker = Unpacker(shared.bytes_at(begin, size_bytes))
            taken += 1
            shared.taken[0] = taken
            site.do(kind, unpacker)
            if kind == CLOSE:
                return
    site.end("close")


def _give_way() -> None:
    """Training comes first wherever it wants to run: threads of it that wait for each other feel every pause."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Site:
    """Where the writer is."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._failures = Failures()
        self._doer: Doer | None = None

    def do(self, kind: int, unpacker: Unpacker) -> None:
        if kind == BEGIN:
            self._begin(unpacker)
        elif kind == CALL:
            self._call(unpacker)
        elif kind == ASK:
            self._answer(self._attribute(unpacker.load()))
        else:
            self.end("flush" if kind == FLUSH else "close")
            self._answer(self._failures.take())

    def end(self, name: str) -> None:
        if self._doer is not None:
            self._doer.do_if_there(name)

    def _begin(self, unpacker: Unpacker) -> None:
        name = unpacker.load()
        try:
            factory, args, kwargs = unpacker.load()
            self._doer = Doer(factory(*args, **kwargs), self._failures)
        except BaseException as error:  # noqa: BLE001 - told when training asks; it must not be alone until then
            self._failures.add(name, error)
        quicken()

    def _call(self, unpacker: Unpacker) -> None:
        name, at = unpacker.load()
        if self._doer is None:
            self._failures.extend([], 1)
            return
        try:
            args, kwargs = unpacker.load()
        except Exception as error:  # noqa: BLE001 - something that can't be imported here; the next call can do better
            self._failures.add(f"{name}(…)", error)
        else:
            self._doer.do(DeferredCall(name, args, kwargs, at))

    def _attribute(self, name: str) -> tuple[str, Any]:
        """An attribute as training can understand it."""
        if self._doer is None:  # that there is no writer is told by flush and close; until then training goes on
            return "method", None
        try:
            value = getattr(self._doer.writer, name)
            if callable(value):
                return "method", None
            pickle.dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the asker's to see
            return "error", f"{name}: {type(error).__name__}: {error}"
        return "value", value

    def _answer(self, value: Any) -> None:
        data = pickle.dumps(value)
        with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(self._answers), "wb") as file:
            file.write(SIZE.pack(len(data)) + data)
