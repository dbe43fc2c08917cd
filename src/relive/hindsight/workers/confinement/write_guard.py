"""Write protection inside Python: a replay writes to its own folder, never to the project or the recorded runs."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Sequence

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that change a file or folder, and which of their arguments are the paths.
_PATH_ARGUMENTS = {
    "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "os.rename": (0, 1), "os.link": (1,), "os.symlink": (1,),
    "os.truncate": (0,), "os.chmod": (0,), "os.utime": (0,), "shutil.rmtree": (0,), "shutil.move": (0, 1),
    "sqlite3.connect": (0,),
}  # fmt: skip


class WriteGuard:
    """Checks every write of this process, through Python's audit events.

    An input that is linked into the replay's folder is replaced by a copy before it is written to.
    """

    def __init__(self, protected: Sequence[str], writable: Sequence[str]) -> None:
        self._protected = tuple(_with_separator(os.path.realpath(path)) for path in protected)
        self._writable = tuple(_with_separator(os.path.realpath(path)) for path in writable)
        self._busy = threading.local()  # per thread: other threads are still checked meanwhile

    def start(self) -> None:
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, details: tuple[object, ...]) -> None:
        if getattr(self._busy, "is_set", False):
            return
        if event == "open":
            path, _, flags = details
            if isinstance(flags, int) and flags & _WRITE_FLAGS and isinstance(path, str | bytes | os.PathLike):
                self._check(os.fsdecode(path), keeps_content=not flags & os.O_TRUNC)
        elif event in _PATH_ARGUMENTS:
            for at in _PATH_ARGUMENTS[event]:
                if at < len(details) and isinstance(details[at], str | bytes | os.PathLike):
                    self._check(os.fsdecode(details[at]), keeps_content=True)  # type: ignore[arg-type]

    def _check(self, path: str, *, keeps_content: bool) -> None:
        self._busy.is_set = True  # the check itself must not be checked
        try:
            if os.path.islink(path) and self._lies_in(os.path.dirname(os.path.abspath(path)), self._writable):
                self._replace_link(path, keeps_content=keeps_content)
            real = os.path.realpath(path)
            if self._lies_in(real, self._protected) and not self._lies_in(real, self._writable):
                raise PermissionError(
                    f"a replay may not write to {path}, which belongs to the project; "
                    "let the script write below its working folder"
                )
        finally:
            self._busy.is_set = False

    def _replace_link(self, path: str, *, keeps_content: bool) -> None:
        target = os.path.realpath(path)
        os.unlink(path)
        if keeps_content and os.path.isfile(target):
            shutil.copyfile(target, path)

    def _lies_in(self, path: str, folders: tuple[str, ...]) -> bool:
        return _with_separator(os.path.realpath(path)).startswith(folders)


def _with_separator(path: str) -> str:
    return path.rstrip(os.sep) + os.sep
