"""The call of a sweep that is being made in this thread or process."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class RecordedCall(Protocol):
    """A call that opens a run of its own, once."""

    def open_run(self) -> None: ...


call_here: ContextVar[RecordedCall | None] = ContextVar("call_here", default=None)


def open_run_of_call() -> None:
    """Opens the run of the current call, if a pool makes one here and it has none yet."""
    call = call_here.get()
    if call is not None:
        call.open_run()
