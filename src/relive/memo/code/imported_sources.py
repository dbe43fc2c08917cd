"""The user's source files behind an import statement, found on disk whether or not they are loaded."""

from __future__ import annotations

import functools
import os
import sys

from relive.hashing import stable_hash
from relive.memo.code.code_hash import find_imports, source_hash
from relive.memo.code.code_ownership import is_own_file


def module_files(name: str) -> tuple[dict[str, str], str]:
    """Returns the hashes of the user's files that importing a module would load, by path, and one hash of them all.

    Ignores `sys.modules`, because a module imported inside a function is not loaded before the first call.
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
            own, imports = _hash_file(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            continue
        found[label] = own
        package = name if label.endswith("__init__.py") else name.rpartition(".")[0]
        for other, level in imports:
            _collect(absolute_name(other, level, package), found)


def absolute_name(name: str, level: int, package: str) -> str:
    """Resolves a relative import of `level` dots against a package."""
    if not level:
        return name
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, name] if name else base)


@functools.lru_cache(maxsize=512)
def _hash_file(path: str, _mtime_ns: int, _size: int, _inode: int) -> tuple[str, tuple[tuple[str, int], ...]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return source_hash(text), find_imports(text)


def _files_of(name: str) -> list[tuple[str, str]]:
    """Returns the user's own files among a module and its parent packages, as (label, path)."""
    parts = name.split(".")
    if not name or parts[0] in sys.stdlib_module_names or parts[0] == "relive":
        return []
    for folder in sys.path:
        root = os.path.join(folder or os.getcwd(), parts[0])
        if os.path.isfile(f"{root}.py") or os.path.isdir(root):
            return [pair for pair in _files_along(folder or os.getcwd(), parts) if is_own_file(pair[1])]
    return []


def _files_along(folder: str, parts: list[str]) -> list[tuple[str, str]]:
    found = []
    for count in range(1, len(parts) + 1):
        base = "/".join(parts[:count])
        labels = (f"{base}/__init__.py", f"{base}.py")
        found += [(label, path) for label in labels if os.path.isfile(path := os.path.join(folder, label))][:1]
    return found
