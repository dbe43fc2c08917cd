"""Write protection inside Python: a replay writes to its own folder, and changes nothing that was there before it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from relive.hindsight.workers.confinement.open_monitor import WRITE_FLAGS
from relive.hindsight.workers.confinement.private_copies import PrivateCopies

# Audit events that change a file or folder, and which of their arguments are the paths.
_PATH_ARGUMENTS = {
    "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "os.rename": (0, 1), "os.link": (1,), "os.symlink": (1,),
    "os.truncate": (0,), "os.chmod": (0,), "os.utime": (0,), "shutil.rmtree": (0,), "shutil.move": (0, 1),
    "sqlite3.connect": (0,),
}  # fmt: skip


# Places outside of the project whose files nobody misses: libraries keep and renew them as they like.
_RENEWED_PLACES = re.compile(
    r"/(\.cache|__pycache__|site-packages|dist-packages|torchinductor_[^/]*)/|\.lock$|^/(dev|proc|sys)/"
)


TICK_S = 0.02


def is_renewed(path: str) -> bool:
    """Whether a file is one that libraries or the system renew at any time."""
    return _RENEWED_PLACES.search(path) is not None


class WriteGuard:
    """Checks every write of this process, through Python's audit events.

    An input that is linked into the replay's folder is replaced by a copy before it is written to. Outside of the
    project new files may be made; those that are older than the replay are what the run, or somebody else, has made.
    """

    def __init__(
        self, protected: Sequence[str], writable: Sequence[str], *, begun_s: float | None = None, copies: str = "",
        beginnings: Mapping[str, int] = {},
    ) -> None:  # fmt: skip
        """`copies`: a writable folder for copies of files that are to be left as they are.

        `beginnings`: the lengths of files when the run began to append to them.
        """
        # The times of files are those of the kernel's last tick, so a file may seem older than this moment.
        self._begun_s = time.time() - TICK_S if begun_s is None else begun_s
        self.copies = PrivateCopies(copies, self._is_left_alone, beginnings) if copies else None
        self._checks_torch = False
        self._protected = tuple(_with_separator(os.path.realpath(path)) for path in protected)
        self._writable = tuple(_with_separator(os.path.realpath(path)) for path in writable)
        self.is_monitored = False  # the kernel gives copies for files that are opened, and to be left as they are
        self._busy = threading.local()  # per thread: other threads are still checked meanwhile

    def start(self) -> None:
        if self.copies is not None:
            self.copies.start()
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, details: tuple[object, ...]) -> None:
        if getattr(self._busy, "is_set", False):
            return
        if event == "open":
            path, _, flags = details
            if isinstance(flags, int) and flags & WRITE_FLAGS and isinstance(path, str | bytes | os.PathLike):
                self._check(os.fsdecode(path), keeps_content=not flags & os.O_TRUNC, may_only_read=self.is_monitored)
        elif event == "import" and not self._checks_torch:
            self._check_torch_writes()
        elif event == "os.mkdir" and isinstance(details[0], str | bytes) and os.path.islink(details[0]):
            return  # it fails: `os.makedirs` asks for folders that are there
        elif event in _PATH_ARGUMENTS:
            for at in _PATH_ARGUMENTS[event]:
                if at < len(details) and isinstance(details[at], str | bytes | os.PathLike):
                    path = os.fsdecode(details[at])  # type: ignore[arg-type]
                    self._check(path, keeps_content=True, may_only_read=event == "sqlite3.connect")

    def _check_torch_writes(self) -> None:
        """Checks `torch.save`, which opens files in C++, as soon as torch is loaded."""
        found: Any = getattr(sys.modules.get("torch.serialization"), "_open_zipfile_writer_file", None)
        if found is None:
            return
        self._checks_torch = True
        begin = found.__init__

        def checked(writer: Any, name: Any) -> None:
            if self.copies is not None:
                name = self.copies.path_for(name, is_written=True, keeps_content=False)
            sys.audit("open", os.fsdecode(name), "wb", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # as Python's own `open`
            begin(writer, name)

        found.__init__ = checked

    def before_write(self, path: str, flags: int) -> None:
        """Replaces a link in the replay's folder that is about to be written through."""
        if self._lies_in(os.path.dirname(os.path.abspath(path)), self._writable):
            self._replace_link(path, keeps_content=not flags & os.O_TRUNC)

    def _check(self, path: str, *, keeps_content: bool, may_only_read: bool = False) -> None:
        self._busy.is_set = True  # the check itself must not be checked
        try:
            if os.path.islink(path):
                self.before_write(path, 0 if keeps_content else os.O_TRUNC)
            real = os.path.realpath(path)
            if self._lies_in(real, self._protected) and not self._lies_in(real, self._writable):
                raise PermissionError(
                    f"a replay may not write to {path}, which belongs to the project; "
                    "let the script write below its working folder"
                )
            if not may_only_read and self._is_left_alone(real):
                raise PermissionError(
                    f"a replay may not change {path}, which was there before it; "
                    "let the script write below its working folder"
                )
        finally:
            self._busy.is_set = False

    def _is_left_alone(self, real: str) -> bool:
        """Whether a file outside of the project is older than the replay, and not one that is renewed at any time."""
        if self._lies_in(real, self._writable) or self._lies_in(real, self._protected):
            return False
        try:
            found = os.lstat(real)  # not `os.stat`, which is watched
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_mtime < self._begun_s and not is_renewed(real)

    def _replace_link(self, path: str, *, keeps_content: bool) -> None:
        target = os.path.realpath(path)
        os.unlink(path)
        if keeps_content and os.path.isfile(target):
            shutil.copyfile(target, path)

    def _lies_in(self, path: str, folders: tuple[str, ...]) -> bool:
        return _with_separator(os.path.realpath(path)).startswith(folders)


def _with_separator(path: str) -> str:
    return path.rstrip(os.sep) + os.sep
