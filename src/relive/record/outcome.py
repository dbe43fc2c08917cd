"""How a run ended: found out at exit from what the interpreter and `sys.exit` leave behind."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from relive.model import FAILED, FINISHED

MAX_MESSAGE_CHARS = 2_000


class ExitWatch:
    """Notes the code given to `sys.exit`; uncaught exceptions are found in `sys.last_value`, with no hook at all."""

    def __init__(self) -> None:
        self._before = _last_exception()
        self._original = sys.exit
        self.code: Any = None
        self.called_at: int | None = None  # how much was written when sys.exit was called
        self.written: Callable[[], int] = lambda: 0

    def install(self) -> None:
        sys.exit = self._exit

    def remove(self) -> None:
        if sys.exit == self._exit:  # somebody may have wrapped it after us
            sys.exit = self._original

    def _exit(self, status: Any = None, /) -> NoReturn:
        self.code, self.called_at = status, self.written()
        self._original(status)

    def outcome(self) -> tuple[str, dict[str, Any] | None]:
        """What happened, for the line that ends the run."""
        error = _last_exception()
        if error is not None and error is not self._before and not hasattr(sys, "ps1"):
            return FAILED, describe(error)
        # A SystemExit that was caught is no end: the script went on and wrote more.
        if self.code not in (None, 0, False) and self.called_at == self.written():
            return FAILED, {"type": "SystemExit", "message": str(self.code)[:MAX_MESSAGE_CHARS], "place": None}
        return FINISHED, None


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
