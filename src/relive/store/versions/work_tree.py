"""What git says about a work tree, and which of its files belong to a version: a question of size, names and budget."""

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

_HASHED_BYTES = 1_000_000_000  # a start must not wait for more than this much reading of large files
_READ_BYTES = 4 << 20

_SECRET = (  # compiled when it is needed, for a start waits for that
    rb"\.env(\..*)?|.*\.(pem|key|p12|pfx)|id_(rsa|ed25519).*|.*credentials.*|secrets\..*"
    rb"|\.(netrc|pypirc|npmrc|htpasswd)"
)
# Endings of names; sets, because a start waits for regular expressions to be compiled.
_CODE = frozenset(
    b"py pyi pyx pxd ipynb sh bash c h cc cpp cxx cu cuh hh hpp rs go java js ts jl r lua scala sql proto cmake mk m"
    b" mm".split()
)
_PRODUCT = frozenset(
    b"pt pth ckpt safetensors bin onnx tflite gguf h5 hdf5 npy npz pkl pickle joblib parquet feather arrow csv tsv"
    b" jsonl ndjson tfrecord tfrecords lmdb mdb db sqlite sqlite3 log out err png jpg jpeg gif webp bmp svg pdf mp3"
    b" mp4 wav flac zip gz bz2 xz zst tar tgz 7z".split()
)
_TEXT = frozenset(b"yaml yml toml json cfg ini conf txt md rst gin jsonnet lock j2 xml html".split())


class LargeFile(NamedTuple):
    """A file that is known by its hash only; `digest` is None when hashing it would have held up the start."""

    path: str
    size_bytes: int
    digest: str | None


class Look(NamedTuple):
    """What git says about a work tree. Paths are bytes, because the names of files are."""

    head: str | None = None
    branch: str | None = None
    changed: frozenset[bytes] = frozenset()  # tracked and not what HEAD holds
    gone: frozenset[bytes] = frozenset()  # in HEAD, no longer in the work tree
    untracked: frozenset[bytes] = frozenset()
    hidden: frozenset[bytes] = frozenset()  # tracked, but git was told not to look (skip-worktree, assume-unchanged)
    banned: frozenset[bytes] = frozenset()  # of the home, which someone committed


class Limits(NamedTuple):
    large_bytes: int
    untracked_files: int
    untracked_bytes: int


class Choice(NamedTuple):
    keep: tuple[bytes, ...]  # to be put into what HEAD holds, after
    gone: frozenset[bytes]  # these are taken out of it
    large: tuple[LargeFile, ...]
    left_out: int


class _ListedFile(NamedTuple):
    path: bytes
    kind: str  # small, large, closed (its folder can't be entered), or absent
    size_bytes: int = 0


class Looking:
    """Two questions to git, asked side by side: a start waits for the answers."""

    def __init__(self, git: Git) -> None:
        self._cwd = git.cwd
        options = ("--untracked-files=all", "--no-renames", "--no-ahead-behind", "--ignore-submodules=none")
        self._status = git.ask("status", "--porcelain=v2", "--branch", "-z", *options)
        self._tracked = git.ask("ls-files", "-v", "-z")

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.drop()
        self._tracked.drop()

    def result(self, fence: bytes) -> Look:
        """What is on disk besides HEAD, without the paths that start with `fence`."""
        facts: dict[bytes, bytes] = {}
        paths: dict[str, set[bytes]] = {"changed": set(), "gone": set(), "untracked": set()}
        for entry in self._status.answer().split(b"\0"):
            if entry.startswith(b"# "):
                name, _, value = entry[2:].partition(b" ")
                facts[name] = value
            elif entry:
                kind, path = _parse(entry)
                paths[kind].add(path)
        seen = {kind: frozenset(p for p in found if not p.startswith(fence)) for kind, found in paths.items()}
        head = None if facts[b"branch.oid"] == b"(initial)" else text(facts[b"branch.oid"])
        branch = None if facts[b"branch.head"] == b"(detached)" else text(facts[b"branch.head"])
        hidden, banned = _unlisted(self._tracked.answer(), self._cwd, fence)
        return Look(head, branch, **seen, hidden=hidden, banned=banned)


def _parse(entry: bytes) -> tuple[str, bytes]:
    if entry.startswith(b"? "):
        return "untracked", entry[2:]
    if entry.startswith(b"u "):
        return "changed", entry.split(b" ", 10)[10]
    fields = entry.split(b" ", 8)
    return "gone" if b"D" in fields[1] else "changed", fields[8]


def _unlisted(listing: bytes, top: Path, fence: bytes) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Tracked paths that `status` is silent about: those whose edits are hidden, and those of the home."""
    entries = listing.split(b"\0")
    banned = {entry[2:] for entry in entries if entry.startswith(fence, 2)}
    flagged = {entry[2:] for entry in entries if entry and entry[:1] not in b"HM"} - banned
    on_disk = {path for path in flagged if os.path.lexists(os.path.join(os.fsencode(top), path))}
    return frozenset(on_disk), frozenset(banned)


def fence_of(home: Path, top: Path) -> bytes:
    """The start of all paths inside the home; no path starts with a lone slash."""
    inside = home != top and home.is_relative_to(top)
    return os.fsencode(home.relative_to(top)) + b"/" if inside else b"/"


def choose(look: Look, top: Path, limits: Limits) -> Choice:
    """What of it a version stores, what it lists by hash, and how many files it does without."""
    base = os.fsencode(top) + b"/"
    loose = [path for path in look.untracked if not path.endswith(b"/")]  # a slash: a repository of its own
    harmless = [path for path in loose if not _is_secret(path)]
    tracked = [_file(base, path, limits) for path in sorted(look.changed | look.hidden)]
    untracked = [_file(base, path, limits) for path in sorted(harmless, key=_rank)]
    keep = [file.path for file in tracked if file.kind == "small" and _is_readable(base, file)]
    gone = {file.path for file in tracked} - set(keep)
    keep += _afford(base, (file for file in untracked if file.kind == "small" and not _is_product(file.path)), limits)
    large = _hash_large(base, [file for file in tracked + untracked if file.kind == "large"][: limits.untracked_files])
    present = len(loose) - len(harmless) + sum(file.kind != "absent" for file in tracked + untracked)
    return Choice(tuple(keep), look.gone | look.banned | gone, large, present - len(keep) - len(large))


def _is_secret(path: bytes) -> bool:
    return re.fullmatch(_SECRET, path.rpartition(b"/")[2], re.IGNORECASE | re.DOTALL) is not None


def _is_product(path: bytes) -> bool:
    """Weights, arrays, tables, logs and pictures that nobody put under version control: made by runs, or read by them.

    They are no code, and if they counted, each run that saves its model would be a new version of the program.
    """
    name = path.rpartition(b"/")[2]
    return name.rpartition(b".")[2].lower() in _PRODUCT or b".tfevents." in name


def _rank(path: bytes) -> tuple[int, int, bytes]:
    """Code before text before data, then shallow before deep: ten thousand labels mustn't crowd out `train.py`."""
    suffix = path.rpartition(b".")[2].lower()
    kind = 0 if suffix in _CODE else 1 if suffix in _TEXT else 2
    return kind, path.count(b"/"), path


def _file(base: bytes, path: bytes, limits: Limits) -> _ListedFile:
    try:
        facts = os.lstat(base + path)
    except PermissionError:
        return _ListedFile(path, "closed")
    except OSError:
        return _ListedFile(path, "absent")
    if stat.S_ISREG(facts.st_mode):
        return _ListedFile(path, "large" if facts.st_size > limits.large_bytes else "small", facts.st_size)
    # Git lists a folder only if it is a submodule, whose commit is as small as a link.
    return _ListedFile(path, "small" if stat.S_ISLNK(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else "absent")


def _is_readable(base: bytes, file: _ListedFile) -> bool:
    return os.access(base + file.path, os.R_OK, follow_symlinks=False)


def _afford(base: bytes, files: Iterable[_ListedFile], limits: Limits) -> list[bytes]:
    kept: list[bytes] = []
    left_bytes = limits.untracked_bytes
    for file in files:
        if len(kept) < limits.untracked_files and file.size_bytes <= left_bytes and _is_readable(base, file):
            kept.append(file.path)
            left_bytes -= file.size_bytes
    return kept


def _hash_large(base: bytes, files: list[_ListedFile]) -> tuple[LargeFile, ...]:
    hashed: list[LargeFile] = []
    left_bytes = _HASHED_BYTES
    for file in sorted(files, key=lambda file: file.size_bytes):
        left_bytes -= file.size_bytes
        with suppress(OSError):  # gone since we looked, or closed to us
            digest = _digest(base + file.path) if left_bytes >= 0 else None
            name = file.path.decode("utf-8", "backslashreplace")  # it goes into records, which are proper text
            hashed.append(LargeFile(name, file.size_bytes, digest))
    return tuple(sorted(hashed, key=lambda file: file.path))


def _digest(path: bytes) -> str:
    """Read, not mapped: a mapped file that another process cuts short would kill the training with a bus error."""
    from blake3 import blake3

    hasher = blake3(max_threads=blake3.AUTO)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()
