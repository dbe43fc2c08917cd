"""Which source files of the project the process has imported: only their code can run, and so matters to a replay."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})


class ImportedModules:
    """Reads `sys.modules`, and returns the files below a folder that are new since the last time.

    The script itself is left out: its module has no file any more when the process ends.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._libraries = os.path.dirname(os.__file__)
        self._known: dict[str, str] = {}  # the file of each module
        self._noted: set[str] = set()
        self._size = 0

    def new_files(self, *, is_last: bool = False) -> list[str]:
        """Returns the paths of new files, relative to the folder; looks only if the number of modules has changed.

        `is_last`: looks in any case, since a module may have taken the place of another.
        """
        if len(sys.modules) == self._size and not is_last:
            return []
        modules = list(sys.modules.items())
        self._size = len(modules)
        paths = {name: path for name, module in modules if name != "__main__" and (path := _file_of(module))}
        new = {path for name, path in paths.items() if self._known.get(name) != path}
        self._known = paths
        inside = {relative for path in new if (relative := self._relative(path)) is not None} - self._noted
        self._noted |= inside
        return sorted(inside)

    def _relative(self, path: str) -> str | None:
        if path.startswith(self._libraries + os.sep) or _LIBRARY_FOLDERS & {*path.split(os.sep)}:
            return None
        real = os.path.realpath(path)
        return PurePath(os.path.relpath(real, self._root)).as_posix() if real.startswith(self._root + os.sep) else None


def _file_of(module: object) -> str | None:
    """The source file of a module. A module that loads itself when it is first used must not notice."""
    try:
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:  # whatever a library put there
        return None
    return path if isinstance(path, str) else None
