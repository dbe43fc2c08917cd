"""Which files the script opened for reading, overheard through Python's audit events."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Literal

MAX_FILES = 10_000

_EVENTS = frozenset({"open", "os.rename"})
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SYSTEM_FOLDERS = "/proc /sys /dev /etc /usr /lib /lib64 /bin /sbin /run /var/lib /System /Library".split()
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".pyd", ".dylib", ".dll")
_CONFIG = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".env")
_CONFIG_JSON_BYTES = 64 << 10


def role(path: str, size_bytes: int) -> Literal["data", "config"]:
    """Configuration is recorded, but only data enters the data version."""
    name = path.lower()
    small_json = name.endswith(".json") and size_bytes <= _CONFIG_JSON_BYTES
    return "config" if small_json or name.endswith(_CONFIG) else "data"


class InputWatch:
    """Notes each file that this process opens for reading, the first time that it does.

    `on_new` is called with the path on the thread that opens the file, so it may only enqueue.
    In a forked child the watch goes on, with what the parent knew, but has no `on_new` until it is given one.
    """

    def __init__(self, *, root: str, home: str, on_new: Callable[[str], None] | None = None) -> None:
        self.on_new = on_new
        self.truncated = False
        self._belongs = _Scope(root, home).may_be_input
        self._seen: dict[str, None] = {}
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        _HOOK.point_to(self)

    def stop(self) -> None:
        if _HOOK.watch is self:
            _HOOK.watch = None

    def seen(self) -> list[str]:
        return list(self._seen)

    def renew(self) -> None:
        """In a forked child: the lock may have been held, and the queue behind `on_new` is the parent's."""
        self._lock = threading.Lock()
        self.on_new = None

    def opened(self, path: object, mode: object, flags: object) -> None:
        if self.truncated or path in self._seen or isinstance(path, int):
            return
        place = os.path.abspath(os.fsdecode(path))  # type: ignore[arg-type]  # else a TypeError that the hook absorbs
        if isinstance(flags, int) and flags & _WRITING:
            if len(self._written) < MAX_FILES:
                self._written.add(place)
        elif place not in self._seen and place not in self._written and self._is_input(place):
            self._add(place)

    def renamed(self, source: object, target: object) -> None:
        """What was written under a temporary name is ours under its final one too."""
        if self._written and os.path.abspath(os.fsdecode(source)) in self._written:  # type: ignore[arg-type]
            self._written.add(os.path.abspath(os.fsdecode(target)))  # type: ignore[arg-type]

    def _is_input(self, path: str) -> bool:
        return self._belongs(path) and stat.S_ISREG(os.stat(path).st_mode)

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


class _Scope:
    """Which paths can be inputs: not the system's, Python's, our own or hidden ones."""

    def __init__(self, root: str, home: str) -> None:
        self._root = _folder(root)
        self._user = _folder(os.path.expanduser("~"))
        self._ours = _folder(home)
        python = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
        system = {_folder(path) for path in (*_SYSTEM_FOLDERS, *python, *map(os.path.realpath, python))} - {os.sep}
        self._system = tuple(system)
        # A project may itself lie below such a folder, say in /usr/src/app: then only what is deeper counts.
        self._system_in_project = tuple(folder for folder in system if not self._root.startswith(folder))

    def may_be_input(self, path: str) -> bool:
        if path.endswith(_CODE) or path.startswith(self._ours) or any(part in path for part in _LIBRARY_FOLDERS):
            return False
        in_project = path.startswith(self._root)
        if path.startswith(self._system_in_project if in_project else self._system):
            return False
        if in_project:  # hidden folders are caches, but a hidden file, say .env, may be the configuration
            return "/." not in path[len(self._root) - 1 : path.rfind(os.sep) + 1]
        return not path.startswith(self._user) or "/." not in path[len(self._user) - 1 :]


def _folder(path: str) -> str:
    return os.path.abspath(path).rstrip(os.sep) + os.sep


class _Thread(threading.local):
    is_quiet = False


class _Hook:
    """The one audit hook of the process. It can't be taken out again, so it points to a watch, or to none."""

    def __init__(self) -> None:
        self.watch: InputWatch | None = None
        self._is_set = False

    def point_to(self, watch: InputWatch) -> None:
        self.watch = watch
        if not self._is_set:
            self._is_set = True
            os.register_at_fork(after_in_child=self._after_fork)
            sys.addaudithook(_listener(self, _THREAD, _EVENTS))

    def _after_fork(self) -> None:
        if self.watch is not None:
            self.watch.renew()


def _listener(hook: _Hook, thread: _Thread, events: frozenset[str]) -> Callable[[str, tuple[object, ...]], None]:
    """What Python calls on each event. All it needs is in its closure: a module's names are gone when Python ends."""

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event not in events or hook.watch is None or thread.is_quiet:
            return
        thread.is_quiet = True  # what we do here must not be heard again
        try:
            if event == "open":
                hook.watch.opened(*args)
            else:
                hook.watch.renamed(*args[:2])
        except Exception:  # noqa: BLE001 - an exception here would make the user's `open` fail
            return
        finally:
            thread.is_quiet = False

    return hear


_THREAD = _Thread()
_HOOK = _Hook()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Open files on this thread without their counting as inputs of the run: for our own reading."""
    before = _THREAD.is_quiet
    _THREAD.is_quiet = True
    try:
        yield
    finally:
        _THREAD.is_quiet = before
