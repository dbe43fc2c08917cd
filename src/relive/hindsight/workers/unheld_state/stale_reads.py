"""Notices that a resumed replay reads a file outside of the project that the run changed later."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence

from relive.hindsight.workers.confinement import is_renewed

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND


class StaleReads:
    """Watches the files that the script reads, through Python's audit events.

    Checkpoints hold the files of the working folder only. `restored_s` returns when the restored checkpoint was taken,
    None before a restore; a file that was changed between then and `ended_s`, the end of the run, had another content.
    """

    def __init__(
        self,
        inside: Sequence[str],
        restored_s: Callable[[], float | None],
        ended_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._inside = tuple(os.path.realpath(path) + os.sep for path in inside)
        self._restored_s = restored_s
        self._ended_s = ended_s
        self._report = report

    def start(self) -> None:
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, details: tuple[object, ...]) -> None:
        since_s = self._restored_s() if event == "open" else None
        if since_s is None:
            return
        path, _, flags = details
        if isinstance(path, str | bytes) and isinstance(flags, int) and not flags & _WRITE_FLAGS:
            self._check(os.fsdecode(path), since_s)

    def _check(self, path: str, since_s: float) -> None:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return
        is_later = stat.S_ISREG(found.st_mode) and since_s < found.st_mtime <= self._ended_s
        real = os.path.realpath(path)
        if is_later and not is_renewed(real) and not (real + os.sep).startswith(self._inside):
            self._report(f"it reads {path}, which the run changed after the checkpoint was taken")
