"""The source of modules that code imports when it runs, read from their files whether or not they are loaded yet."""

from __future__ import annotations

import functools
import os
import sys

from relive.hashing import stable_hash
from relive.memo.code.code_hash import imports_of, text_hash
from relive.memo.code.code_ownership import is_own_file


def module_files(name: str) -> tuple[dict[str, str], str]:
    """The user's own files that importing a module would load, as `package/module.py`, with one hash for all.

    Never by what happens to be loaded: a module that the function imports is not there before its first call.
    """
    found: dict[str, str] = {}
    _collect(name, found)
    return found, stable_hash(found) if found else ""


def _collect(name: str, found: dict[str, str]) -> None:
    for label, path in _files_of(name):
        if label in found:
            continue
        try:
            facts = os.stat(path)
            own, imports = _read(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            continue
        found[label] = own
        package = name if label.endswith("__init__.py") else name.rpartition(".")[0]
        for other, level in imports:
            _collect(_absolute(other, level, package), found)


def _absolute(name: str, level: int, package: str) -> str:
    if not level:
        return name
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, name] if name else base)


@functools.lru_cache(maxsize=512)
def _read(path: str, _mtime_ns: int, _size: int, _inode: int) -> tuple[str, tuple[tuple[str, int], ...]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return text_hash(text), imports_of(text)


def _files_of(name: str) -> list[tuple[str, str]]:
    """The file of a module and those of the packages around it, as far as they are the user's own."""
    parts = name.split(".")
    if not name or parts[0] in sys.stdlib_module_names or parts[0] == "relive":
        return []
    for folder in sys.path:
        root = os.path.join(folder or os.getcwd(), parts[0])
        if os.path.isfile(f"{root}.py") or os.path.isdir(root):
            return [pair for pair in _within(folder or os.getcwd(), parts) if is_own_file(pair[1])]
    return []


def _within(folder: str, parts: list[str]) -> list[tuple[str, str]]:
    found = []
    for count in range(1, len(parts) + 1):
        base = "/".join(parts[:count])
        labels = (f"{base}/__init__.py", f"{base}.py")
        found += [(label, path) for label in labels if os.path.isfile(path := os.path.join(folder, label))][:1]
    return found
