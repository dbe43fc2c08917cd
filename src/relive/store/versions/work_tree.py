"""Reads the git status of a work tree and selects the files of a version, by size, name and budget."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from relive.store.versions.git import Git, text

_HASH_BUDGET_BYTES = 1_000_000_000  # the start of a run must not wait for reading more than this
_READ_BYTES = 4 << 20

_SECRET_NAME = (  # not compiled here: that would slow down the start of every run
    rb"\.env(\..*)?|.*\.(pem|key|p12|pfx)|id_(rsa|ed25519).*|.*credentials.*|secrets\..*"
    rb"|\.(netrc|pypirc|npmrc|htpasswd)"
)
# File name suffixes, as sets: compiling regular expressions would slow down the start of every run.
_CODE_SUFFIXES = frozenset(
    b"py pyi pyx pxd ipynb sh bash c h cc cpp cxx cu cuh hh hpp rs go java js ts jl r lua scala sql proto cmake mk m"
    b" mm".split()
)
_OUTPUT_SUFFIXES = frozenset(
    b"pt pth ckpt safetensors bin onnx tflite gguf h5 hdf5 npy npz pkl pickle joblib parquet feather arrow csv tsv"
    b" jsonl ndjson tfrecord tfrecords lmdb mdb db sqlite sqlite3 log out err png jpg jpeg gif webp bmp svg pdf mp3"
    b" mp4 wav flac zip gz bz2 xz zst tar tgz 7z".split()
)
_TEXT_SUFFIXES = frozenset(b"yaml yml toml json cfg ini conf txt md rst gin jsonnet lock j2 xml html".split())


class LargeFile(NamedTuple):
    """A file of which a version stores only the hash; `digest` is None if hashing would have delayed the run."""

    path: str
    size_bytes: int
    digest: str | None


class WorkTreeStatus(NamedTuple):
    """The git status of a work tree. Paths are bytes, since file names need not be valid text."""

    head: str | None = None
    branch: str | None = None
    changed: frozenset[bytes] = frozenset()  # tracked, and different from HEAD
    gone: frozenset[bytes] = frozenset()  # in HEAD, no longer in the work tree
    untracked: frozenset[bytes] = frozenset()
    hidden: frozenset[bytes] = frozenset()  # tracked, but flagged skip-worktree or assume-unchanged
    inside_home: frozenset[bytes] = frozenset()  # tracked files of the home, which the user committed


class Limits(NamedTuple):
    """Bounds on the files of a version."""

    large_bytes: int
    untracked_files: int
    untracked_bytes: int


class FileSelection(NamedTuple):
    """How a version differs from HEAD, and the files that it does not store."""

    keep: tuple[bytes, ...]  # to be added to the tree of HEAD
    gone: frozenset[bytes]  # to be removed from it first
    large: tuple[LargeFile, ...]
    left_out: int


class _ListedFile(NamedTuple):
    path: bytes
    kind: str  # small, large, closed (its folder can't be searched), or absent
    size_bytes: int = 0


class StatusQuery:
    """Two git commands that run in parallel and together give the status of a work tree."""

    def __init__(self, git: Git) -> None:
        self._cwd = git.cwd
        options = ("--untracked-files=all", "--no-renames", "--no-ahead-behind", "--ignore-submodules=none")
        self._status = git.start("status", "--porcelain=v2", "--branch", "-z", *options)
        self._tracked = git.start("ls-files", "-v", "-z")

    def __enter__(self) -> StatusQuery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.cancel()
        self._tracked.cancel()

    def result(self, home_prefix: bytes) -> WorkTreeStatus:
        """Returns how the work tree differs from HEAD, without the paths that start with `home_prefix`."""
        facts: dict[bytes, bytes] = {}
        paths: dict[str, set[bytes]] = {"changed": set(), "gone": set(), "untracked": set()}
        for entry in self._status.output().split(b"\0"):
            if entry.startswith(b"# "):
                name, _, value = entry[2:].partition(b" ")
                facts[name] = value
            elif entry:
                kind, path = _parse_status_entry(entry)
                paths[kind].add(path)
        seen = {kind: frozenset(p for p in found if not p.startswith(home_prefix)) for kind, found in paths.items()}
        head = None if facts[b"branch.oid"] == b"(initial)" else text(facts[b"branch.oid"])
        branch = None if facts[b"branch.head"] == b"(detached)" else text(facts[b"branch.head"])
        hidden, inside_home = _hidden_and_home_paths(self._tracked.output(), self._cwd, home_prefix)
        return WorkTreeStatus(head, branch, **seen, hidden=hidden, inside_home=inside_home)


def _parse_status_entry(entry: bytes) -> tuple[str, bytes]:
    if entry.startswith(b"? "):
        return "untracked", entry[2:]
    if entry.startswith(b"u "):
        return "changed", entry.split(b" ", 10)[10]
    fields = entry.split(b" ", 8)
    return "gone" if b"D" in fields[1] else "changed", fields[8]


def _hidden_and_home_paths(listing: bytes, top: Path, home_prefix: bytes) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Returns tracked paths that `git status` does not list: those whose edits are hidden, and those in the home."""
    entries = listing.split(b"\0")
    inside_home = {entry[2:] for entry in entries if entry.startswith(home_prefix, 2)}
    flagged = {entry[2:] for entry in entries if entry and entry[:1] not in b"HM"} - inside_home
    on_disk = {path for path in flagged if os.path.lexists(os.path.join(os.fsencode(top), path))}
    return frozenset(on_disk), frozenset(inside_home)


def path_prefix_of_home(home: Path, top: Path) -> bytes:
    """Returns the prefix of all paths inside the home; `/`, which no path starts with, if it is elsewhere."""
    inside = home != top and home.is_relative_to(top)
    return os.fsencode(home.relative_to(top)) + b"/" if inside else b"/"


def select_files(status: WorkTreeStatus, top: Path, limits: Limits) -> FileSelection:
    """Selects the files that a version stores and those that it lists by hash; counts the files it leaves out."""
    base = os.fsencode(top) + b"/"
    files = [path for path in status.untracked if not path.endswith(b"/")]  # a trailing slash: a nested repository
    not_secret = [path for path in files if not _is_secret(path)]
    tracked = [_stat_file(base, path, limits) for path in sorted(status.changed | status.hidden)]
    untracked = [_stat_file(base, path, limits) for path in sorted(not_secret, key=_priority)]
    keep = [file.path for file in tracked if file.kind == "small" and _is_readable(base, file)]
    gone = {file.path for file in tracked} - set(keep)
    keep += _select_within_budget(
        base, (file for file in untracked if file.kind == "small" and not _is_run_output(file.path)), limits
    )
    large = _hash_large_files(
        base, [file for file in tracked + untracked if file.kind == "large"][: limits.untracked_files]
    )
    present = len(files) - len(not_secret) + sum(file.kind != "absent" for file in tracked + untracked)
    return FileSelection(tuple(keep), status.gone | status.inside_home | gone, large, present - len(keep) - len(large))


def _is_secret(path: bytes) -> bool:
    return re.fullmatch(_SECRET_NAME, path.rpartition(b"/")[2], re.IGNORECASE | re.DOTALL) is not None


def _is_run_output(path: bytes) -> bool:
    """Whether an untracked file is data that runs write or read: weights, arrays, tables, logs, pictures.

    If such files were stored, each run that saves its model would create a new version.
    """
    name = path.rpartition(b"/")[2]
    return name.rpartition(b".")[2].lower() in _OUTPUT_SUFFIXES or b".tfevents." in name


def _priority(path: bytes) -> tuple[int, int, bytes]:
    """Sort key: code before text before data, then shallow before deep, so that data can't crowd out `train.py`."""
    suffix = path.rpartition(b".")[2].lower()
    kind = 0 if suffix in _CODE_SUFFIXES else 1 if suffix in _TEXT_SUFFIXES else 2
    return kind, path.count(b"/"), path


def _stat_file(base: bytes, path: bytes, limits: Limits) -> _ListedFile:
    try:
        facts = os.lstat(base + path)
    except PermissionError:
        return _ListedFile(path, "closed")
    except OSError:
        return _ListedFile(path, "absent")
    if stat.S_ISREG(facts.st_mode):
        return _ListedFile(path, "large" if facts.st_size > limits.large_bytes else "small", facts.st_size)
    # Git lists a folder only if it is a submodule, of which it stores just the commit id.
    return _ListedFile(path, "small" if stat.S_ISLNK(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else "absent")


def _is_readable(base: bytes, file: _ListedFile) -> bool:
    return os.access(base + file.path, os.R_OK, follow_symlinks=False)


def _select_within_budget(base: bytes, files: Iterable[_ListedFile], limits: Limits) -> list[bytes]:
    selected: list[bytes] = []
    left_bytes = limits.untracked_bytes
    for file in files:
        if len(selected) < limits.untracked_files and file.size_bytes <= left_bytes and _is_readable(base, file):
            selected.append(file.path)
            left_bytes -= file.size_bytes
    return selected


def _hash_large_files(base: bytes, files: list[_ListedFile]) -> tuple[LargeFile, ...]:
    hashed: list[LargeFile] = []
    left_bytes = _HASH_BUDGET_BYTES
    for file in sorted(files, key=lambda file: file.size_bytes):
        left_bytes -= file.size_bytes
        with suppress(OSError):  # deleted meanwhile, or not readable
            digest = _hash_file(base + file.path) if left_bytes >= 0 else None
            name = file.path.decode("utf-8", "backslashreplace")  # records must be valid text
            hashed.append(LargeFile(name, file.size_bytes, digest))
    return tuple(sorted(hashed, key=lambda file: file.path))


def _hash_file(path: bytes) -> str:
    """Hashes a file by reading, not mapping it: truncating a mapped file would kill the run with a bus error."""
    from blake3 import blake3

    hasher = blake3(max_threads=blake3.AUTO)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()
