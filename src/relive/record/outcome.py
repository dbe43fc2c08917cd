"""The outcome of a run, determined at exit from the interpreter's last exception and calls of `sys.exit`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from relive.model import FAILED, FINISHED, INTERRUPTED, PRUNED
from relive.record.process import import_lock

MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 20_000
Ending = tuple[str, dict[str, Any] | None]  # the outcome and a description of the error


class ExitWatch:
    """Remembers the status passed to `sys.exit`. Uncaught exceptions need no hook: `sys.last_value` holds them."""

    def __init__(self) -> None:
        self._before = _last_exception()
        self._main = _outermost_frame()
        self.code: Any = None
        self.was_called = False

    def install(self) -> None:
        _SYS_EXIT_HOOK.add(self)

    def remove(self) -> None:
        _SYS_EXIT_HOOK.remove(self)

    def note(self, status: Any) -> None:
        if threading.current_thread() is threading.main_thread():  # in others it ends the thread only
            self.code, self.was_called = status, True

    def outcome(self) -> Ending:
        """Returns the outcome for the last line of the run."""
        worker_exit = find_worker_exit()
        if worker_exit is not None:
            return outcome_of(worker_exit)
        error = _last_exception()
        if error is not None and error is not self._before and not hasattr(sys, "ps1"):
            return outcome_of(error)
        # A SystemExit that was caught did not end the script: it went on, and returned or raised another exception.
        # Values logged since then prove nothing: `finally` blocks log, and so do threads, the user's and ours.
        if _has_ended_by_itself(self._main):
            return outcome_of(SystemExit(_raised_code(self._main)))
        return outcome_of(SystemExit(self.code)) if self.was_called else (FINISHED, None)


class _SysExitHook:
    """The only wrapper of `sys.exit`, installed while any run is open. Runs of several threads end in any order."""

    def __init__(self) -> None:
        self._watches: list[ExitWatch] = []
        self._original: Any = None  # the unwrapped sys.exit

    def add(self, watch: ExitWatch) -> None:
        self._watches.append(watch)
        if self._original is None:
            self._original, sys.exit = sys.exit, self._exit

    def remove(self, watch: ExitWatch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
        if (
            not self._watches and self._original is not None and sys.exit == self._exit
        ):  # otherwise another library wrapped it later
            sys.exit, self._original = self._original, None

    def _exit(self, status: Any = None, /) -> NoReturn:
        for watch in self._watches.copy():
            watch.note(status)
        if self._original is not None:
            self._original(status)
        raise SystemExit(status)  # a caller kept a reference to this function after the last run was closed


_SYS_EXIT_HOOK = _SysExitHook()


@contextlib.contextmanager
def preserve_interrupt() -> Iterator[None]:
    """Wraps our work at exit, so that Python still exits by SIGINT after a KeyboardInterrupt.

    CPython clears its "unhandled interrupt" flag whenever source text is executed, as importing a module with named
    tuples does; the process would then exit with a different code than without relive. Executing text that raises
    KeyboardInterrupt sets the flag again.
    """
    before = len(sys.modules), import_lock.times
    yield
    if (len(sys.modules), import_lock.times) != before and isinstance(_last_exception(), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def outcome_of(error: BaseException) -> Ending:
    """Returns the outcome of a run that this exception ended. `sys.exit(0)` and a closed generator are no failures."""
    if isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
        return FINISHED, None
    described = describe_exception(error)
    if error.__traceback__ is not None:
        described["traceback"] = format_traceback(error)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED, described


def outcome_if_pruned(ending: Ending) -> Ending:
    """Returns the outcome of a run that a pruner stopped: it went on to its end, or an exception said so."""
    outcome, error = ending
    is_stopped = outcome == FINISHED or (error is not None and PRUNED in error["type"].lower())
    return (PRUNED, None) if is_stopped else ending


def find_worker_exit() -> SystemExit | None:
    """Returns the exit of a forked multiprocessing worker, if its exit functions are running now.

    From Python 3.13 on they run when the exception is gone already, called by a function whose local holds the code.
    """
    frame: FrameType | None = sys._getframe()
    while (
        frame is not None and frame.f_code.co_name != "_bootstrap"
    ):  # the frame that runs the worker; it has returned by then
        if frame.f_code.co_name == "_launch" and frame.f_globals.get("__name__", "").startswith("multiprocessing."):
            return SystemExit(frame.f_locals.get("code"))
        frame = frame.f_back
    return None


def _outermost_frame() -> FrameType | None:
    """Returns the outermost frame of the main thread; Python exits when it is left."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _has_ended_by_itself(frame: FrameType | None) -> bool:
    """Whether a frame has returned or raised, rather than propagated an exception; judged by its last instruction."""
    return frame is not None and (_is_at(frame, "RETURN_") or _is_at(frame, "RAISE_VARARGS"))


def _is_at(frame: FrameType, instruction: str) -> bool:
    import opcode

    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    is_bare_raise = opcode.opname[operation] == "RAISE_VARARGS" and not argument
    return opcode.opname[operation].startswith(instruction) and not is_bare_raise


def _raised_code(frame: FrameType | None) -> Any:
    """Returns the code of a `raise SystemExit(code)` with which a script ended, if it is a constant or a variable.

    Python keeps it nowhere: by now the exception is gone, but the script's frame still stands at the statement.
    """
    if frame is None or not _is_at(frame, "RAISE_VARARGS"):
        return None
    import ast
    import linecache

    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        statements = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.Raise)]
    except (SyntaxError, ValueError):
        return None
    for statement in statements:
        given = statement.exc
        if statement.lineno <= frame.f_lineno <= (statement.end_lineno or 0) and isinstance(given, ast.Call):
            code = given.args[0] if given.args else None
            if isinstance(code, ast.Name):
                return frame.f_globals.get(code.id)
            return code.value if isinstance(code, ast.Constant) else None
    return None


def _last_exception() -> BaseException | None:
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Returns type, message and source line of an exception, even if its str() fails."""
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


def format_traceback(error: BaseException) -> str:
    """Returns the traceback of an exception as Python prints it; of a long one, the beginning and the end."""
    import traceback

    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - the user's __str__ may do anything
        text = "".join(traceback.format_tb(error.__traceback__))
    if len(text) > MAX_TRACEBACK_CHARS:
        half = MAX_TRACEBACK_CHARS // 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()
