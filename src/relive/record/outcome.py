"""How a run ended: found out at exit from what the interpreter and `sys.exit` leave behind."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from relive.model import FAILED, FINISHED

MAX_MESSAGE_CHARS = 2_000
Ending = tuple[str, dict[str, Any] | None]  # the outcome, and the error described


class ExitWatch:
    """Notes the code given to `sys.exit`; uncaught exceptions are found in `sys.last_value`, with no hook at all."""

    def __init__(self) -> None:
        self._before = _last_exception()
        self._original = sys.exit
        self._main = _outermost_frame()
        self.code: Any = None
        self.called_at: int | None = None  # how much was written when sys.exit was called
        self.written: Callable[[], int] = lambda: 0

    def install(self) -> None:
        sys.exit = self._exit

    def remove(self) -> None:
        self.written = lambda: 0
        if sys.exit == self._exit:  # somebody may have wrapped it after us
            sys.exit = self._original

    def _exit(self, status: Any = None, /) -> NoReturn:
        self.code, self.called_at = status, self.written()
        self._original(status)

    def outcome(self) -> Ending:
        """What happened, for the line that ends the run."""
        error = _last_exception()
        if error is not None and error is not self._before and not hasattr(sys, "ps1"):
            return ended_by(error)
        # A SystemExit that was caught is no end: the script went on and wrote more, or came to its last line.
        if self.called_at == self.written() and not _returned(self._main):
            return ended_by(SystemExit(self.code))
        return FINISHED, None


def ended_by(error: BaseException) -> Ending:
    """What it means that this exception left the run. Not every one is a failure."""
    if isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
        return FINISHED, None
    return FAILED, describe(error)


def _outermost_frame() -> FrameType | None:
    """Of the main thread: when that is left, Python ends."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _returned(frame: FrameType | None) -> bool:
    """Did the frame come to its end, rather than be left by an exception? Its last instruction tells."""
    import opcode

    return frame is not None and opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


def _last_exception() -> BaseException | None:
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message and place of an exception; an exception whose str() fails is still described."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's __str__ may do anything
        message = "(its message can't be shown)"
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    clean = message[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
    return {"type": type(error).__qualname__, "message": clean, "place": place}
