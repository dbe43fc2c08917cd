"""Write protection by the Linux kernel (Landlock), for all libraries and child processes of a replay."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # of Landlock; the same on every architecture
_NO_NEW_PRIVILEGES = 38
_PATH_BENEATH = 1
_VERSION = 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE
_FOLDER_RIGHTS = _FILE_RIGHTS | _REFER | sum(1 << bit for bit in range(4, 13))  # creating and removing of every kind
_FIRST_WITH_TRUNCATE = 3  # older kernels allow truncation: then only the Python write guard protects files
_MAX_BESIDE = 5_000  # folders with more entries than this beside a protected one are not listed


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict_writes(protected: Sequence[str], writable: Sequence[str]) -> bool:
    """Denies this process and its children writes below `protected`, except `writable`; False if it can't.

    Landlock takes a list of what is allowed: everything that is neither a protected folder nor one of its parents.
    """
    if not sys.platform.startswith("linux") or sys.byteorder != "little":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_CREATE_RULESET, None, 0, _VERSION) < _FIRST_WITH_TRUNCATE:
        return False
    allowed = paths_beside([os.path.realpath(path) for path in protected])
    if allowed is None:
        return False
    rules = _Ruleset(_FOLDER_RIGHTS)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        for path in [*allowed, *writable]:
            _allow(libc, ruleset, path)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def paths_beside(protected: Sequence[str]) -> list[str] | None:
    """Lists all paths that are neither protected nor a parent of a protected one; None when they are too many."""
    parents = {parent for path in protected for parent in Path(path).parents}
    inside = {Path(path) for path in protected}
    found: list[str] = []
    for folder in parents:
        if inside & {folder, *folder.parents}:
            continue
        names = list(_entries(folder))
        if len(names) > _MAX_BESIDE:
            return None
        found += [str(path) for path in names if path not in parents and path not in inside]
    return found


def _entries(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if not entry.is_symlink())
    except OSError:
        return


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # gone, or not accessible: then it can't be written anyway
    try:
        rights = _FOLDER_RIGHTS if os.path.isdir(path) else _FILE_RIGHTS
        rule = _PathRule(rights, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
