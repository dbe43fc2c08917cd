"""How a run ended: found out at exit from what the interpreter and `sys.exit` leave behind."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from relive.model import FAILED, FINISHED
from relive.record.process import loading

MAX_MESSAGE_CHARS = 2_000
Ending = tuple[str, dict[str, Any] | None]  # the outcome, and the error described


class ExitWatch:
    """Notes the code given to `sys.exit`; uncaught exceptions are found in `sys.last_value`, with no hook at all."""

    def __init__(self) -> None:
        self._before = _last_exception()
        self._main = _outermost_frame()
        self.code: Any = None
        self.was_called = False

    def install(self) -> None:
        _SYS_EXIT.tell(self)

    def remove(self) -> None:
        _SYS_EXIT.forget(self)

    def note(self, status: Any) -> None:
        if threading.current_thread() is threading.main_thread():  # in others it ends the thread only
            self.code, self.was_called = status, True

    def outcome(self) -> Ending:
        """What happened, for the line that ends the run."""
        worker = exit_of_worker()
        if worker is not None:
            return ended_by(worker)
        error = _last_exception()
        if error is not None and error is not self._before and not hasattr(sys, "ps1"):
            return ended_by(error)
        # A SystemExit that was caught is no end: the script went on, and came to its last line or raised another one.
        # What was logged since then tells nothing: `finally` blocks log, and so do threads, the user's and ours.
        if self.was_called and not _ended_by_itself(self._main):
            return ended_by(SystemExit(self.code))
        return FINISHED, None


class _SysExit:
    """The one wrapper around `sys.exit`, there as long as a run is open; runs of threads end in any order."""

    def __init__(self) -> None:
        self._watches: list[ExitWatch] = []
        self._original: Any = None  # what sys.exit was

    def tell(self, watch: ExitWatch) -> None:
        self._watches.append(watch)
        if self._original is None:
            self._original, sys.exit = sys.exit, self._exit

    def forget(self, watch: ExitWatch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
        if not self._watches and self._original is not None and sys.exit == self._exit:  # else it was wrapped after us
            sys.exit, self._original = self._original, None

    def _exit(self, status: Any = None, /) -> NoReturn:
        for watch in self._watches.copy():
            watch.note(status)
        if self._original is not None:
            self._original(status)
        raise SystemExit(status)  # somebody kept this function from the time when a run was open


_SYS_EXIT = _SysExit()


@contextlib.contextmanager
def interrupt_kept() -> Iterator[None]:
    """Around what we do at exit: Python still knows afterwards that a KeyboardInterrupt is why it ends.

    It forgets that whenever code is made from text, as modules with named tuples do when they are loaded, and then the
    process would end with another code than without us. Code from text that is left by the exception reminds it.
    """
    before = len(sys.modules), loading.times
    yield
    if (len(sys.modules), loading.times) != before and isinstance(_last_exception(), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def ended_by(error: BaseException) -> Ending:
    """What it means that this exception left the run. Not every one is a failure."""
    if isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
        return FINISHED, None
    return FAILED, describe(error)


def exit_of_worker() -> SystemExit | None:
    """How a forked worker of multiprocessing ended, if that is why we are called.

    Its exit functions are called when its exception is gone (from Python 3.13 on), by a function that knows the code.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_bootstrap":  # that one is left by then
        if frame.f_code.co_name == "_launch" and frame.f_globals.get("__name__", "").startswith("multiprocessing."):
            return SystemExit(frame.f_locals.get("code"))
        frame = frame.f_back
    return None


def _outermost_frame() -> FrameType | None:
    """Of the main thread: when that is left, Python ends."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _ended_by_itself(frame: FrameType | None) -> bool:
    """Did the frame return, or raise anew, rather than be left by what it had called? Its last instruction tells."""
    import opcode

    if frame is None:
        return False
    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    name = opcode.opname[operation]
    return name.startswith("RETURN_") or (name == "RAISE_VARARGS" and argument > 0)  # 0 is a bare `raise`


def _last_exception() -> BaseException | None:
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message and place of an exception; an exception whose str() fails is still described."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's __str__ may do anything
        message = "(its message can't be shown)"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else None
    clean = message[:MAX_MESSAGE_CHARS].encode("utf-8", "replace").decode()
    return {"type": type(error).__qualname__, "message": clean, "place": place}
