"""Gives a replay copies of its own of older files outside of the project that its script opens for writing."""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

_WRITING = frozenset("wax+")


class PrivateCopies:
    """Maps files to copies in a folder: for `open`, `os.rename` and `os.replace`, and for reading what was written.

    `is_older` says which files are to be left as they are. Files that a library opens in C are not mapped.
    """

    def __init__(self, folder: str, is_older: Callable[[str], bool]) -> None:
        self._folder = folder
        self._is_older = is_older
        self._copies: dict[str, str] = {}  # by real path

    def start(self) -> None:
        self._replace(self._mapped_open(builtins.open), builtins, io)
        self._replace(self._mapped_rename(os.rename), os)
        self._replace(self._mapped_rename(os.replace), os)

    def _replace(self, mapped: Any, *modules: Any) -> None:
        """Replaces a function, also in the module that defines it: there a restore finds what variables refer to."""
        for module in (*modules, sys.modules[mapped.__module__]):
            setattr(module, mapped.__name__, mapped)

    def path_for(self, file: Any, *, is_written: bool, keeps_content: bool) -> Any:
        """Returns the path to open instead of a file: that of its copy, or its own."""
        if not isinstance(file, str | bytes | os.PathLike):
            return file
        real = os.path.realpath(os.fsdecode(file))
        if real not in self._copies and is_written and self._is_older(real):
            os.makedirs(self._folder, exist_ok=True)
            copy = os.path.join(self._folder, f"{len(self._copies)}-{os.path.basename(real)}")
            if keeps_content:
                shutil.copyfile(real, copy)
            self._copies[real] = copy
        return self._copies.get(real, file)

    def _mapped_open(self, original: Any) -> Any:
        @functools.wraps(original)
        def mapped(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            is_written = not _WRITING.isdisjoint(mode)
            keeps_content = is_written and "w" not in mode
            return original(
                self.path_for(file, is_written=is_written, keeps_content=keeps_content), mode, *args, **kwargs
            )

        return mapped

    def _mapped_rename(self, original: Any) -> Any:
        @functools.wraps(original)
        def mapped(source: Any, target: Any, **kwargs: Any) -> None:
            found = self.path_for(source, is_written=False, keeps_content=True)
            original(found, self.path_for(target, is_written=True, keeps_content=False), **kwargs)

        return mapped
