"""Detects the files that the script opens for reading, through Python's audit events."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Literal

MAX_FILES = 10_000
MAX_LOOKED_AT = 1_000  # files outside of the project whose times a checkpoint records
APPENDED = "appended"  # the role of what a file had before the run appended to it

_EVENTS = frozenset({"open", "os.rename"})
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM_FOLDERS = "/proc /sys /dev /etc /usr /lib /lib64 /bin /sbin /run /var/lib /System /Library".split()
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".pyd", ".dylib", ".dll")
_CONFIG = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env")
_CONFIG_JSON_BYTES = 64 << 10
_look_at = os.stat  # a replay puts another function there


FileTimes = tuple[int, ...]  # size, time of the content, time of the file, inode; nothing if there is no file


def file_times(path: str) -> FileTimes:
    """Returns what shows that a file has changed; nothing if there is no such file."""
    try:
        found = _look_at(path)
    except (OSError, ValueError):
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def input_role(path: str, size_bytes: int) -> Literal["data", "config"]:
    """Classifies an input file. Configuration is recorded, but only data counts for the data version."""
    name = path.lower()
    small_json = name.endswith(".json") and size_bytes <= _CONFIG_JSON_BYTES
    return "config" if small_json or name.endswith(_CONFIG) else "data"


class InputWatch:
    """Reports each file that this process opens for reading, once.

    `on_new` is called with the path on the thread that opens the file, so it may only enqueue.
    In a forked child the watch continues with the files known so far, but without `on_new` until one is set.
    """

    def __init__(self, *, root: str, home: str, on_new: Callable[[str], None] | None = None) -> None:
        self.on_new = on_new
        self.on_appended: Callable[[str, int], None] | None = None  # gets the size that the file had
        self.truncated = False
        self._filter = InputFilter(root, home)
        self._may_be_input = self._filter.may_be_input
        self._seen: dict[str, None] = {}
        self._written: set[str] = set()
        self._outside: dict[str, FileTimes] = {}  # written outside of the project, with what was recorded of it
        self._lock = threading.Lock()

    def start(self) -> None:
        _HOOK.set_watch(self)

    def stop(self) -> None:
        if _HOOK.watch is self:
            _HOOK.watch = None

    def seen(self) -> list[str]:
        return list(self._seen)

    def renew(self) -> None:
        """In a forked child: replaces the lock, which may be held, and drops `on_new`, whose queue is the parent's."""
        self._lock = threading.Lock()
        self.on_new = self.on_appended = None

    def opened(self, path: object, mode: object, flags: object) -> None:
        is_writing = isinstance(flags, int) and flags & _WRITING
        if self.truncated or isinstance(path, int) or (path in self._seen and not is_writing):
            return
        full_path = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]  # the hook ignores a TypeError
        if isinstance(flags, int) and is_writing:
            if len(self._written) < MAX_FILES and full_path not in self._written:
                self._note_former_content(full_path, flags)
                self._add_written(full_path)
        elif full_path not in self._seen and full_path not in self._written and self._is_input(full_path):
            self._add(full_path)

    def _note_former_content(self, path: str, flags: int) -> None:
        """Reports a file that is written without being emptied first: what it had before is an input."""
        if flags & os.O_TRUNC or self.on_appended is None or not os.path.exists(path) or not self._is_input(path):
            return
        size_bytes = os.stat(path).st_size
        if size_bytes:
            self.on_appended(path, size_bytes)

    def renamed(self, source: object, target: object) -> None:
        """Marks the target as written by the run if the source was: a temporary file that gets its final name."""
        if self._written and os.path.abspath(os.fsdecode(source)) in self._written:  # type: ignore[arg-type]
            self._add_written(os.path.abspath(os.fsdecode(target)))  # type: ignore[arg-type]

    def _add_written(self, path: str) -> None:
        self._written.add(path)
        if self._filter.may_be_outside(path):
            self._outside.setdefault(os.path.realpath(path), ())

    def outside_files(self) -> dict[str, FileTimes]:
        """Returns the files outside of the project that the run writes, as far as they changed since the last call.

        Each with its size, times and inode; nothing for one that is gone.
        """
        changed = {}
        for path in list(self._outside)[-MAX_LOOKED_AT:]:
            now = file_times(path)
            if now != self._outside[path]:
                changed[path] = self._outside[path] = now
        return changed

    def _is_input(self, path: str) -> bool:
        return self._may_be_input(path) and stat.S_ISREG(os.stat(path).st_mode)

    def _add(self, path: str) -> None:
        with self._lock:
            if path in self._seen:
                return
            if len(self._seen) >= MAX_FILES:
                self.truncated = True
                return
            self._seen[path] = None
        if self.on_new is not None:
            self.on_new(path)


class InputFilter:
    """Decides which paths can be inputs: no files of the system, Python, libraries or relive, no hidden files."""

    def __init__(self, root: str, home: str) -> None:
        self._root = _as_prefix(root)
        self._user = _as_prefix(os.path.expanduser("~"))
        self._ours = _as_prefix(home)
        python = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
        system = {_as_prefix(path) for path in (*_SYSTEM_FOLDERS, *python, *map(os.path.realpath, python))} - {os.sep}
        self._system = tuple(system)
        # A project may be inside such a folder, e.g. /usr/src/app: then only system folders inside the project count.
        self._system_in_project = tuple(folder for folder in system if not self._root.startswith(folder))

    def may_be_outside(self, path: str) -> bool:
        """Whether a path can be one of the user's files outside of the project, and outside of relive's home."""
        return not path.startswith((self._root, self._ours)) and self.may_be_input(path)

    def may_be_input(self, path: str) -> bool:
        if path.endswith(_CODE) or path.startswith(self._ours) or any(part in path for part in _LIBRARY_FOLDERS):
            return False
        in_project = path.startswith(self._root)
        if path.startswith(self._system_in_project if in_project else self._system):
            return False
        if in_project:  # hidden folders are caches, but a hidden file such as .env may be configuration
            return "/." not in path[len(self._root) - 1 : path.rfind(os.sep) + 1]
        return not path.startswith(self._user) or "/." not in path[len(self._user) - 1 :]


def _as_prefix(path: str) -> str:
    return os.path.abspath(path).rstrip(os.sep) + os.sep


class _ThreadState(threading.local):
    is_ignored = False  # opens on this thread are not reported


class _AuditHook:
    """The only audit hook of the process. Audit hooks can't be removed, so it refers to a watch, or to none."""

    def __init__(self) -> None:
        self.watch: InputWatch | None = None
        self._is_set = False

    def set_watch(self, watch: InputWatch) -> None:
        self.watch = watch
        if not self._is_set:
            self._is_set = True
            os.register_at_fork(after_in_child=self._after_fork)
            sys.addaudithook(_make_audit_hook(self, _THREAD, _EVENTS))

    def _after_fork(self) -> None:
        if self.watch is not None:
            self.watch.renew()


def _make_audit_hook(
    hook: _AuditHook, thread: _ThreadState, events: frozenset[str]
) -> Callable[[str, tuple[object, ...]], None]:
    """Returns the audit hook. It uses its closure only: module globals are gone while Python exits."""

    def on_event(event: str, args: tuple[object, ...]) -> None:
        if event not in events or hook.watch is None or thread.is_ignored:
            return
        thread.is_ignored = True  # our own opens must not trigger the hook again
        try:
            if event == "open":
                hook.watch.opened(*args)
            else:
                hook.watch.renamed(*args[:2])
        except Exception:  # noqa: BLE001 - an exception here would make the user's `open` fail
            return
        finally:
            thread.is_ignored = False

    return on_event


_THREAD = _ThreadState()
_HOOK = _AuditHook()


@contextlib.contextmanager
def ignore_reads() -> Iterator[None]:
    """Excludes files opened on this thread from the inputs of the run: for relive's own reads."""
    before = _THREAD.is_ignored
    _THREAD.is_ignored = True
    try:
        yield
    finally:
        _THREAD.is_ignored = before
