"""An input that a computation was seen reading: a file, a listing or a fact about a path, with its content then."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from relive.hashing import stable_hash
from relive.record.provenance import FingerprintCache, fingerprint_file, fingerprint_folder
from relive.store.journal import from_json, to_json

FILE, LISTING, STATUS = "file", "listing", "status"
# A file can change twice within one tick of its timestamps. As in git, younger files are compared by content.
_RACY_NS = 2_000_000_000
_MAX_DIGESTS = 20_000

FileStamp = tuple[int, int, int, int, int]  # size, times of change of content and inode, inode, device
_digests: dict[str, tuple[FileStamp, Any]] = {}


class ObservedInput(NamedTuple):
    """What was read, as the code named it, its content, and the stamp of the file that had this content."""

    kind: str
    name: str
    value: Any
    stamp: tuple[int, ...] | None = None

    def still_holds(self) -> bool:
        """Whether reading it now would give the same; the content is read only if the stamp differs."""
        if self.kind == FILE and self.stamp is not None and file_stamp(self.name) == tuple(self.stamp):
            return True
        return bool(read_input(self.kind, self.name) == self.value)

    def describe(self) -> str:
        return {FILE: self.name, LISTING: f"the listing of {self.name}", STATUS: f"the status of {self.name}"}[
            self.kind
        ]


def observe(kind: str, name: str) -> ObservedInput:
    """Returns an input with its content now."""
    before = file_stamp(name) if kind == FILE else None
    value = read_input(kind, name)
    is_steady = before is not None and not _is_racy(before) and file_stamp(name) == before
    return ObservedInput(kind, name, value, before if is_steady else None)


def read_input(kind: str, name: str) -> Any:
    """Returns the content of an input now, as JSON; None if there is nothing."""
    if kind == LISTING:
        try:
            return stable_hash(sorted(os.listdir(name)))[:32]
        except OSError:
            return None
    return _file_digest(name) if kind == FILE else _status(name)


def _status(name: str) -> Any:
    try:
        facts = os.stat(name)
    except (OSError, ValueError):
        return None
    return [facts.st_size] if stat.S_ISREG(facts.st_mode) else stat.S_IFMT(facts.st_mode)


def _file_digest(name: str) -> Any:
    path = os.path.abspath(name)
    stamp = file_stamp(path)
    known = _digests.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    found = content_of(Path(path), None)
    if stamp is not None and not _is_racy(stamp) and file_stamp(path) == stamp:
        if len(_digests) > _MAX_DIGESTS:
            _digests.clear()
        _digests[path] = stamp, found
    return found


def file_stamp(name: str) -> FileStamp | None:
    try:
        facts = os.stat(name)
    except (OSError, ValueError):
        return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev


def _is_racy(stamp: FileStamp) -> bool:
    return time.time_ns() - max(stamp[1], stamp[2]) < _RACY_NS


def content_of(path: Path, cache: FingerprintCache | None) -> object:
    """Returns a fingerprint of the file or folder at a path; None if it does not exist or is not a regular file."""
    try:
        if path.is_dir():
            found = fingerprint_folder(path, cache)
        elif path.is_file():
            found = fingerprint_file(path, cache)
        else:  # missing, or a pipe that reading would drain
            return None
    except OSError:
        return None
    if "sampled" in found.detail:  # too large to be read in full, so the times count too
        facts = path.stat()
        return [found.digest, facts.st_mtime_ns, facts.st_ctime_ns]
    return found.digest


def inputs_hash(key: str, inputs: Sequence[ObservedInput]) -> str:
    """Returns the key of an entry that was computed for a call with these inputs."""
    return stable_hash(["inputs", key, sorted([one.kind, one.name, to_json(one.value)] for one in inputs)])


def encode_inputs(inputs: Sequence[ObservedInput]) -> bytes:
    return to_json(sorted([list(one) for one in inputs], key=lambda one: one[:2])).encode()


def decode_inputs(data: bytes) -> list[ObservedInput]:
    return [ObservedInput(*one) for one in from_json(data.decode())]
