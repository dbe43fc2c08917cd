"""Gives a replay copies of its own of older files outside of the project that its script opens for writing.

Which copy a file has is a link in the folder of the copies: the script's process and its monitor both follow it.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from xxhash import xxh3_128_hexdigest

OWN_FOLDERS = frozenset({"tree", "cwd", "journals", "copies"})  # of a segment, in its folder
UNKNOWN_BEGINNING = -1  # a file had another beginning than it has now
_WRITING = frozenset("wax+")
_ORIGINAL = ".original"  # the link beside a copy to the file that it stands for


class PrivateCopies:
    """Maps files to copies in a folder: for `open`, `os.rename` and `os.replace`, and for reading what was written.

    `is_older` says which files are to be left as they are. For files that a library opens in C, the monitor of opened
    files asks for the path.
    """

    def __init__(self, folder: str, is_older: Callable[[str], bool], beginnings: Mapping[str, int] = {}) -> None:
        """`beginnings`: how long files were that the run appended to, when it began to."""
        self._folder = folder
        self._is_older = is_older
        self._beginnings = dict(beginnings)
        self._links = os.path.join(folder, "links")
        self._made = 0
        self.busy = threading.local()  # `is_set` while what this thread does to files is not the script's doing

    def start(self) -> None:
        self._replace(self._mapped_open(builtins.open), builtins, io)
        self._replace(self._mapped_rename(os.rename), os)
        self._replace(self._mapped_rename(os.replace), os)
        with contextlib.suppress(ImportError):  # some builds of Python lack it
            import sqlite3

            sqlite3.connect = sqlite3.dbapi2.connect = self._mapped_connect(sqlite3.connect)

    def _replace(self, mapped: Any, *modules: Any) -> None:
        """Replaces a function, also in the module that defines it: there a restore finds what variables refer to."""
        for module in (*modules, sys.modules[mapped.__module__]):
            setattr(module, mapped.__name__, mapped)

    def path_for(self, file: Any, *, is_written: bool, keeps_content: bool) -> Any:
        """Returns the path to open instead of a file: that of its copy, or its own."""
        if not isinstance(file, str | bytes | os.PathLike):
            return file
        real = os.path.realpath(os.fsdecode(file))
        copy = self.copy_of(real)
        if not copy and is_written and self._is_older(real):
            was_busy, self.busy.is_set = getattr(self.busy, "is_set", False), True
            try:
                copy = self._copy(real, keeps_content=keeps_content)
                os.symlink(real, copy + _ORIGINAL)
                os.symlink(copy, self._link(real))
            finally:
                self.busy.is_set = was_busy
        return copy or file

    def copy_of(self, real: str) -> str:
        """Returns the copy of a file; empty if it has none."""
        try:
            return os.readlink(self._link(real))
        except OSError:
            return ""

    def is_left_alone(self, real: str) -> bool:
        """Whether a file must not be changed, and has no copy that could be."""
        return not self.copy_of(real) and self._is_older(real)

    def _link(self, real: str) -> str:
        return os.path.join(self._links, xxh3_128_hexdigest(os.fsencode(real)))

    def _copy(self, real: str, *, keeps_content: bool) -> str:
        os.makedirs(self._links, exist_ok=True)
        name = os.path.basename(real)
        copy = os.path.join(self._folder, f"{os.getpid()}-{self._made}-{name}")
        self._made += 1
        if keeps_content and (size_bytes := self._beginnings.get(real, UNKNOWN_BEGINNING)) != UNKNOWN_BEGINNING:
            with open(real, "rb") as source, open(copy, "wb") as target:
                target.write(source.read(size_bytes))
        elif keeps_content:
            shutil.copyfile(real, copy)
        return copy

    def original_of(self, path: str) -> str:
        """Returns the file that a copy stands for; empty for any other file."""
        if not path.startswith(self._folder + os.sep):
            return ""
        try:
            return os.readlink(path + _ORIGINAL)
        except OSError:
            return ""

    def beginning_of(self, real: str) -> int | None:
        """Returns how long a file was when the run began to append to it, if that is known."""
        return self._beginnings.get(real)

    def forget_beginnings(self) -> None:
        """The script is in the midst of the run now: what is appended to has more than its beginning."""
        self._beginnings.clear()

    def forget(self, real: str) -> None:
        """Has a file read as it is, rather than its copy."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._link(real))

    def is_open(self, real: str) -> bool:
        """Whether this process has a file, or its copy, open; True where the system does not tell."""
        path = self.copy_of(real) or real
        try:
            numbers = os.listdir("/proc/self/fd")
        except OSError:
            return True
        return any(_target_of(number) == path for number in numbers)

    def _mapped_open(self, original: Any) -> Any:
        @functools.wraps(original)
        def mapped(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            is_written = not _WRITING.isdisjoint(mode)
            keeps_content = is_written and "w" not in mode
            return original(
                self.path_for(file, is_written=is_written, keeps_content=keeps_content), mode, *args, **kwargs
            )

        return mapped

    def _mapped_connect(self, original: Any) -> Any:
        """SQLite compares the file that it has opened with the path: it must be given the path of the copy."""

        @functools.wraps(original)
        def mapped(database: Any, *args: Any, **kwargs: Any) -> Any:
            is_file = not isinstance(database, str) or not database.startswith((":memory:", "file:"))
            if database and is_file:
                database = self.path_for(database, is_written=True, keeps_content=True)
            return original(database, *args, **kwargs)

        return mapped

    def _mapped_rename(self, original: Any) -> Any:
        @functools.wraps(original)
        def mapped(source: Any, target: Any, **kwargs: Any) -> None:
            found = self.path_for(source, is_written=False, keeps_content=True)
            original(found, self.path_for(target, is_written=True, keeps_content=False), **kwargs)

        return mapped


def _target_of(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""  # closed meanwhile
