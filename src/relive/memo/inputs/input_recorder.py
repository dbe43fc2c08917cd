"""Records the files and folders that a computation reads, through Python's audit events and `os.stat`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from relive.memo.inputs.observed_input import (
    FILE,
    LISTING,
    STATUS,
    FileStamp,
    ObservedInput,
    file_stamp,
    observe,
    read_input,
)

MAX_INPUTS = 20_000

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REPLACING = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
_CHANGED_FIRST = frozenset("os.remove os.rmdir os.mkdir os.truncate".split())
_CHANGED_SECOND = frozenset("os.rename os.link os.symlink".split())
_OUTSIDE = {
    **dict.fromkeys("socket.connect socket.getaddrinfo urllib.Request http.client.connect".split(), "uses the network"),
    **dict.fromkeys("subprocess.Popen os.system os.exec os.posix_spawn".split(), "starts another program"),
    **dict.fromkeys("os.fork os.forkpty".split(), "starts processes"),
}
_SYSTEM_FOLDERS = "/proc /sys /dev /etc /usr /lib /lib64 /bin /sbin /run /var/lib /System /Library".split()
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".pyd", ".dylib", ".dll")


class _HookState(threading.local):
    is_ignored = False


_THREAD = _HookState()
_active: list[InputRecorder] = []


class InputRecorder:
    """What a computation reads while it is entered, on any thread."""

    def __init__(self, home: str = "") -> None:
        self.outside: dict[str, None] = {}  # what it reads that can't be checked later
        self.too_many = False
        self._home = os.path.abspath(home) + os.sep if home else "\0"
        self._files: dict[str, FileStamp | None] = {}  # with their stamps when they were opened
        self._facts: dict[tuple[str, str], Any] = {}
        self._adopted: dict[tuple[str, str], ObservedInput] = {}
        self._written: set[str] = set()

    def __enter__(self) -> InputRecorder:
        _install_hook()
        with _SWITCH.lock:
            _active.append(self)
            if os.stat is not _WATCHED_STAT:
                os.stat = _WATCHED_STAT
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _SWITCH.lock:
            _active.remove(self)
            if not _active and os.stat is _WATCHED_STAT:
                os.stat = _STAT

    # --- events ------------------------------------------------------------------------------------------------------

    def opened(self, path: Any, flags: Any) -> None:
        name = _name_of(path)
        if name is None or not self._counts(name):
            return
        if isinstance(flags, int) and flags & _WRITING:
            if flags & os.O_RDWR and not flags & _REPLACING & ~os.O_WRONLY and name not in self._files:
                self._files[name] = file_stamp(name)  # it is read, and then changed in place
            self._written.add(os.path.abspath(name))
        elif name not in self._files and not self._is_made_here(name):
            self._files[name] = file_stamp(name)
            self._check_count()

    def listed(self, path: Any) -> None:
        self._note_fact(LISTING, path if path is not None else ".")

    def asked(self, path: Any) -> None:
        self._note_fact(STATUS, path)

    def _note_fact(self, kind: str, path: Any) -> None:
        name = _name_of(path)
        is_new = name is not None and (kind, name) not in self._facts
        if name is not None and is_new and self._counts(name) and not self._is_made_here(name):
            self._facts[kind, name] = read_input(kind, name)
            self._check_count()

    def changed(self, path: Any) -> None:
        name = _name_of(path)
        if name is not None:
            self._written.add(os.path.abspath(name))

    def adopt(self, inputs: Sequence[ObservedInput]) -> None:
        """Adds the inputs of a remembered call that was reused meanwhile."""
        self._adopted |= {(one.kind, one.name): one for one in inputs}

    def _check_count(self) -> None:
        self.too_many = self.too_many or len(self._files) + len(self._facts) > MAX_INPUTS

    def _counts(self, name: str) -> bool:
        path = os.path.abspath(name)
        return not self.too_many and not (
            path.endswith(_CODE) or path.startswith((self._home, *_system_folders())) or "-packages/" in path
        )

    def _is_made_here(self, name: str) -> bool:
        """Whether the computation itself has written a path, or a folder above it."""
        path = os.path.abspath(name)
        while self._written and path not in self._written and len(path) > 1:
            path = os.path.dirname(path)
        return path in self._written

    # --- afterwards --------------------------------------------------------------------------------------------------

    def changed_inputs(self) -> list[str]:
        """Returns the files that were read and have changed since: the computation did it, or another process."""
        return [name for name, stamp in self._files.items() if file_stamp(name) != stamp]

    def inputs(self) -> list[ObservedInput]:
        """Returns what was read, with its content. Files that the computation wrote first are no inputs."""
        _THREAD.is_ignored, before = True, _THREAD.is_ignored
        try:
            found = {(FILE, name): observe(FILE, name) for name in self._files}
        finally:
            _THREAD.is_ignored = before
        for (kind, name), value in self._facts.items():
            if (FILE, name) not in found and not self._is_made_here(name):
                found[kind, name] = ObservedInput(kind, name, value)
        return list((self._adopted | found).values())


def is_recording() -> bool:
    return bool(_active)


def adopt_inputs(inputs: Sequence[ObservedInput]) -> None:
    """Adds the inputs of a reused call to those of the computations that use it."""
    for recorder in tuple(_active):
        recorder.adopt(inputs)


def _name_of(path: Any) -> str | None:
    if isinstance(path, int) or path is None:
        return None
    try:
        return os.fsdecode(path)
    except TypeError:
        return None


_folders: list[tuple[str, ...]] = []


def _system_folders() -> tuple[str, ...]:
    if not _folders:
        python = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
        paths = {os.path.abspath(one).rstrip(os.sep) + os.sep for one in (*_SYSTEM_FOLDERS, *python)}
        _folders.append(tuple(paths - {os.sep}))
    return _folders[0]


# --- hooks -----------------------------------------------------------------------------------------------------------


def _on_event(
    event: str, args: tuple[Any, ...], active: list[InputRecorder] = _active, thread: _HookState = _THREAD
) -> None:
    """The audit hook. It uses its defaults only: module globals are gone while Python exits."""
    if not active or thread.is_ignored:
        return
    thread.is_ignored = True  # our own reads must not trigger the hook again
    try:
        for recorder in active:
            _tell(recorder, event, args)
    except Exception:  # noqa: BLE001 - an exception here would make the user's `open` fail
        return
    finally:
        thread.is_ignored = False


def _tell(recorder: InputRecorder, event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        recorder.opened(args[0], args[2])
    elif event in ("os.listdir", "os.scandir"):
        if not sys._getframe(2).f_code.co_filename.startswith("<frozen importlib"):
            recorder.listed(args[0] if args else None)
    elif event == "sqlite3.connect":
        recorder.opened(args[0], 0)
    elif event in _CHANGED_FIRST:
        recorder.changed(args[0])
    elif event in _CHANGED_SECOND:
        recorder.changed(args[1])
        if event == "os.rename":
            recorder.changed(args[0])
    elif event in _OUTSIDE:
        recorder.outside[_OUTSIDE[event]] = None


def _watched(stat: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    """Returns `os.stat` that tells recorders what is asked: there is no audit event for it."""

    def watched_stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if _active and not _THREAD.is_ignored:
            _THREAD.is_ignored = True
            try:
                with contextlib.suppress(Exception):  # the user's call must go on
                    for recorder in _active:
                        recorder.asked(path)
            finally:
                _THREAD.is_ignored = False
        return stat(path, *args, **kwargs)

    watched_stat.__name__ = watched_stat.__qualname__ = "stat"
    watched_stat.__module__ = "os"
    return watched_stat


class _Switch:
    """Guards the replacement of `os.stat`."""

    def __init__(self) -> None:
        self.reset_lock()

    def reset_lock(self) -> None:
        """Replaces the lock; a forked child needs this because the thread that held it does not exist there."""
        self.lock = threading.Lock()


_STAT = os.stat
_WATCHED_STAT = _watched(_STAT)
_SWITCH = _Switch()
os.register_at_fork(after_in_child=_SWITCH.reset_lock)
_installed: list[bool] = []


def _install_hook() -> None:
    """Installs the audit hook with the first computation; it can't be removed."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_on_event)
