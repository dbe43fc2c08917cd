"""Notices what a replay reads outside of the project that is not shown to be what the run saw there."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relive.hindsight.workers.confinement import (
    OWN_FOLDERS,
    UNKNOWN_BEGINNING,
    WRITE_FLAGS,
    OpenMonitor,
    OpenRules,
    PrivateCopies,
    is_renewed,
    start_monitor,
)
from relive.record.provenance import FileTimes, InputFilter, file_times

_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_EVENTS = _LISTINGS | {"open", "os.mkdir", "os.rename", "sqlite3.connect"}
TICK_S = 0.02  # the times of files are those of the kernel's last tick


@dataclass(frozen=True, slots=True)
class OutsideRecord:
    """What the run recorded about files outside of its project, and when it ran (wall clock)."""

    began_s: float
    ended_s: float
    # By checkpoint, in the order in which they were taken: what had changed since the one before.
    changes: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)

    def at(self, manifest: str) -> dict[str, FileTimes]:
        """Returns the files that the run wrote, as they were when a checkpoint was taken."""
        found: dict[str, FileTimes] = {}
        for name, changed in self.changes.items():
            found |= {path: tuple(times) for path, times in changed.items()}
            if name == manifest:
                return found
        return {}

    def is_written(self, path: str) -> bool:
        return any(path in changed for changed in self.changes.values())


class Note(Protocol):
    """Gets how something was read and why it is in doubt, its path, whether the run wrote it, and for how long."""

    def __call__(self, text: str, path: str, is_of_the_run: bool, is_lasting: bool, /) -> None: ...


def _ignore(_text: str, _path: str, _is_of_the_run: bool, _is_lasting: bool, /) -> None:
    """Ignores what is read before the script runs."""


class OutsideReads:
    """Watches what the script reads outside of the project: through Python's audit events, `os.stat` and the kernel.

    Checkpoints don't hold these files. What is on the disk is what the run saw if it is older than the restored
    checkpoint, or than the run if nothing was restored, or if this process wrote it since.
    """

    def __init__(
        self, then: OutsideRecord, scope: InputFilter, inside: Sequence[str], copies: PrivateCopies,
        private: Sequence[tuple[str, str]] = (), missing: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`private`: folders that this process has for itself, each with the one that the run had in its place.

        `missing`: files of the project that this process has not, and that the run found in a state that is not known.
        """
        self._record = then
        self._scope = scope
        self._inside = tuple(os.path.realpath(path) + os.sep for path in inside)
        self._copies = copies
        self._note: Note = _ignore
        self._monitor: OpenMonitor | None = None
        self._seen: set[tuple[str, bool]] = set()  # opened by Python, and whether for writing
        self._private = private
        self._missing = frozenset(map(os.path.realpath, missing))
        self._then: dict[str, FileTimes] = {}
        self._limit_s = then.began_s - TICK_S
        self._is_restored = False
        self._own: set[str] = set()  # written by this process since the last restore
        self._doubted: dict[str, str] = {}  # written by this process, but not from a state that the run had
        self._busy = copies.busy
        self._restored_s = 0.0  # when that was, here

    def start_monitor(self, before_write: Callable[[str, int], None]) -> bool:
        """Has the kernel tell what is opened, if it can; this process must have one thread only."""
        self._monitor = start_monitor(
            OpenRules(
                self._outside, self._path_to_open, self._copies.is_left_alone, before_write, file_times,
                self._is_beyond_doubt,
            )
        )  # fmt: skip
        return self._monitor is not None

    def start(self, note: Note) -> None:
        self._note = note
        if self._monitor is not None:
            self._monitor.take()  # what was opened so far is relive's own doing
        sys.addaudithook(self._on_event)
        os.stat = self._watched_stat(os.stat)  # `os.path.exists` and `Path.stat` call it

    def restored(self, manifest: str, taken_s: float | None) -> None:
        """A checkpoint was restored: what this process wrote before is as old as the script's start."""
        self.take_opened()
        self._then = self._record.at(manifest)
        self._limit_s = (self._record.began_s if taken_s is None else taken_s) - TICK_S
        self._is_restored, self._restored_s = True, time.time() - TICK_S
        self._copies.forget_beginnings()
        before, self._own, self._doubted = self._own, set(), {}
        for path in before:
            is_open = self._copies.is_open(path)
            if not is_open and not self._path_of_run(path) and not self._why_in_doubt(path):
                self._copies.forget(path)  # what is on the disk is right
            else:
                self._doubted[path] = "which the script wrote before the checkpoint was taken"

    # --- what the script does -----------------------------------------------------------------------------------

    def take_opened(self) -> None:
        """Looks at what was opened since the last call by C libraries and child processes, which Python did not see."""
        if self._monitor is None or getattr(self._busy, "is_set", False):
            return
        opened = self._monitor.take()
        seen, self._seen = self._seen, set()
        if not opened:
            return
        self._busy.is_set = True
        try:
            for one in opened:
                if (one.path, bool(one.flags & WRITE_FLAGS)) not in seen:
                    self._opened(one.path, one.flags, one.times)
        finally:
            self._busy.is_set = False

    def _on_event(self, event: str, details: tuple[object, ...]) -> None:
        if event not in _EVENTS or getattr(self._busy, "is_set", False):
            return
        self._busy.is_set = True
        try:
            paths = [self._outside(one) for one in details[: 2 if event == "os.rename" else 1]]
            if event == "os.rename" and len(paths) == 2 and paths[1]:
                self._renamed(paths[0], paths[1])
            elif paths and (path := paths[0]):
                if event == "open" and isinstance(details[2], int):
                    self._seen.add((path, bool(details[2] & WRITE_FLAGS)))
                    self._opened(path, details[2])
                elif event == "sqlite3.connect":
                    self._read(path, "reads", is_lasting=True)  # what it reads later can't be seen
                    self._own.add(path)
                elif event == "os.mkdir":
                    self._own |= set() if os.path.lexists(path) else {path}
                else:
                    self._seen.add((path, False))
                    self._read(path, "lists the folder")
        finally:
            self._busy.is_set = False

    def _opened(self, path: str, flags: int, times: FileTimes | None = None) -> None:
        """A file is opened, or was when it had these times."""
        if not flags & WRITE_FLAGS:
            self._read(path, "reads", times)
            return
        if path in self._missing and not flags & os.O_TRUNC:
            self._read(path, "opens", times, is_lasting=True)
        if not flags & os.O_TRUNC and not self._is_own(path):
            known = self._copies.beginning_of(path)
            why = self._why_in_doubt(path, times)
            if known == UNKNOWN_BEGINNING or (known is None and why):
                self._doubted[path] = why or "whose beginning is not known"
        elif flags & os.O_TRUNC:
            self._doubted.pop(path, None)
        if flags & os.O_RDWR and not flags & os.O_TRUNC:
            self._read(path, "reads", times, is_lasting=True)  # what is read later through it can't be seen
        self._own.add(path)

    def _renamed(self, source: str, target: str) -> None:
        if not source or self._is_own(source):
            self._own.add(target)
            self._doubted.pop(target, None)
        if source in self._doubted:
            self._doubted[target] = self._doubted[source]

    def _watched_stat(self, original: Any) -> Any:
        def watched_stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if not getattr(self._busy, "is_set", False) and (found := self._outside(path)):
                self._busy.is_set = True
                try:
                    if not os.path.isdir(found):
                        self._read(found, "looks at")
                        path = self._copies.path_for(path, is_written=False, keeps_content=True)
                finally:
                    self._busy.is_set = False
            return original(path, *args, **kwargs)  # type: ignore[no-any-return]

        return watched_stat

    def _read(self, path: str, how: str, times: FileTimes | None = None, *, is_lasting: bool = False) -> None:
        if path in self._missing:
            now = file_times(path) if times is None else times
            if not now:
                what = os.path.basename(path)
                self._note(f"{how} {what}, which the run found in another state than it is in now", path, False, True)
            return
        why = self._doubted.get(path) or ("" if self._is_own(path) else self._why_in_doubt(path, times))
        if why:
            text = f"{how} {self._path_of_run(path) or path}, {why}"
            self._note(text, path, self._is_of_the_run(path), is_lasting)

    # --- asked by the monitor, in its process --------------------------------------------------------------------

    def _path_to_open(self, path: str, flags: int) -> str:
        is_written, is_emptied = bool(flags & WRITE_FLAGS), bool(flags & os.O_TRUNC)
        return str(self._copies.path_for(path, is_written=is_written, keeps_content=not is_emptied))

    def _is_beyond_doubt(self, path: str, times: FileTimes) -> bool:
        """Whether a file is what the run saw at any moment: older than the run, which did not write it."""
        is_older = bool(times) and max(times[1], times[2]) / 1e9 < self._record.began_s - TICK_S
        is_known = not self._record.is_written(path) and not self._path_of_run(path) and path not in self._missing
        return is_older and is_known

    # --- what is known of a file --------------------------------------------------------------------------------

    def _outside(self, path: object) -> str:
        """Returns the real path of a file that may be one of the user's outside of the project; empty if it isn't."""
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        full = os.path.abspath(os.fsdecode(path))
        if self._missing and (real := os.path.realpath(full)) in self._missing:
            return real
        full = self._copies.original_of(full) or full
        is_private = bool(self._path_of_run(full))
        if is_renewed(full) or not (is_private or self._scope.may_be_outside(full)):
            return ""
        real = os.path.realpath(full)
        if self._path_of_run(real):
            return real
        if (real + os.sep).startswith(self._inside):
            return ""
        return real if self._scope.may_be_outside(real) else ""

    def _path_of_run(self, path: str) -> str:
        """Returns where the run had a file that this process has in a folder of its own; empty for other files."""
        for own, theirs in self._private:
            relative = path.removeprefix(own + os.sep)
            if relative != path and relative.partition(os.sep)[0] not in OWN_FOLDERS:
                return os.path.join(theirs, relative)
        return ""

    def _is_own(self, path: str) -> bool:
        """Whether this process made a file, or a folder around it, since the last restore."""
        while path not in self._own:
            path, below = os.path.dirname(path), path
            if path == below:
                return False
        return path not in self._doubted

    def _why_in_doubt(self, path: str, times: FileTimes | None = None) -> str:
        """Says why a file or folder may be another one than the run saw at this moment; empty if it can't be.

        `times`: what it was like when it was opened; by default it is looked at now.
        """
        now = file_times(path) if times is None else times
        since = "the checkpoint was taken" if self._is_restored else "the run began"
        if of_the_run := self._path_of_run(path):
            is_new = not self._is_restored or (bool(now) and now[1] / 1e9 >= self._restored_s)
            is_old = not is_new and (now or self._then.get(of_the_run))
            return "which the script wrote before the checkpoint was taken" if is_old else ""
        if self._is_restored and path in self._then:
            then = self._then[path]
            if now == then:
                return ""
            return f"which has changed since {since}" if now else "which is gone"
        if not now or max(now[1], now[2]) / 1e9 < self._limit_s:
            return ""
        return f"which has changed since {since}"

    def _is_of_the_run(self, path: str) -> bool:
        """Whether the run wrote a file, as far as that is known: then a replay from the start writes it again."""
        if self._record.is_written(path) or self._path_of_run(path) or path in self._doubted:
            return True
        try:
            with_stat = os.lstat(path)
        except OSError:
            return False
        is_of_then = self._record.began_s <= with_stat.st_mtime <= self._record.ended_s
        return is_of_then and stat.S_ISREG(with_stat.st_mode)
