"""Which files an import executes, by the names of modules."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import PurePosixPath


class ModuleFiles:  # compared by identity: there is one for each set of files
    """Finds the files that an import executes; a project may have its modules below any folder."""

    def __init__(self, files: Collection[str]) -> None:
        self._by_name = {_module_name(file): file for file in sorted(files)}
        self._by_ending: dict[str, list[str]] = {}
        for module, file in self._by_name.items():
            parts = module.split(".")
            for start in range(len(parts)):
                self._by_ending.setdefault(".".join(parts[start:]), []).append(file)

    def imported_by(self, name: str) -> Iterator[str]:
        """Yields the files of the module of this name, below whatever folder, and of the packages above it."""
        yield from self._by_ending.get(name, ())
        parts = name.split(".")
        above = [".".join(parts[:end]) for end in range(1, len(parts))]
        yield from (self._by_name[package] for package in above if package in self._by_name)


@lru_cache(maxsize=64)
def module_files(files: frozenset[str]) -> ModuleFiles:
    return ModuleFiles(files)


def _module_name(file: str) -> str:
    parts = PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)
