"""Fingerprints of data by content: digests of files, folders, arrays, frames and datasets."""

from __future__ import annotations

import bisect
import os
import re
import stat
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from relive.errors import NotFound, Unstable
from relive.hashing import hasher, stable_hash
from relive.record.provenance.fingerprint_cache import FileState, FingerprintCache
from relive.record.provenance.input_watch import ignore_reads
from relive.record.provenance.runtime_environment import Json
from relive.record.provenance.secret_filter import SecretFilter, is_secret

__all__ = [
    "Fingerprint",
    "FingerprintCache",
    "beginning_digest",
    "data_version",
    "fingerprint",
    "fingerprint_file",
    "fingerprint_folder",
    "fingerprint_object",
]

Kind = Literal["file", "folder", "array", "frame", "tensor", "dataset", "url", "value", "opaque"]

FULL_BYTES = 1 << 30

_READ_BYTES = 1 << 20
_SAMPLES = 1024
_SAMPLE_BYTES = 64 << 10
_SIGNING_PARAMETERS = frozenset(
    "expires sig sv st se sp sr spr skoid sktid skt ske sks skv googleaccessid awsaccesskeyid".split()
)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*:\*\*\*@")
_IGNORED_NAMES = frozenset({".DS_Store", "__pycache__", ".git", ".ipynb_checkpoints", "Thumbs.db", "desktop.ini"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal digests mean equal data, unless the kind is opaque: then the content is unknown."""

    kind: Kind
    digest: str
    size_bytes: int | None = None
    detail: dict[str, Json] = field(default_factory=dict)


def beginning_digest(path: str, size_bytes: int) -> str | None:
    """Returns the digest of the first bytes of a file; None if it has not as many, or can't be read."""
    found, left = hasher(), size_bytes
    try:
        with ignore_reads(), open(path, "rb") as file:
            while left and (block := file.read(min(_READ_BYTES, left))):
                found.update(block)
                left -= len(block)
    except OSError:
        return None
    return None if left else found.hexdigest()


def fingerprint(
    obj: object, *, etag: str | None = None, cache: FingerprintCache | None = None, full_bytes: int = FULL_BYTES
) -> Fingerprint:
    """Returns the fingerprint of a path, an URL (with its ETag) or an object."""
    if isinstance(obj, bytes | bytearray) or not isinstance(obj, str | os.PathLike):
        return fingerprint_object(obj)
    name = os.fsdecode(obj)
    path = urllib.parse.unquote(name.removeprefix("file://")) if name.startswith("file://") else name
    if os.path.isdir(path):
        return fingerprint_folder(Path(path), cache, full_bytes=full_bytes)
    if os.path.isfile(path):
        return fingerprint_file(Path(path), cache, full_bytes=full_bytes)
    if "://" in path:
        return _fingerprint_url(path, etag)
    if os.path.exists(path):  # a pipe or a device: reading would consume its data or block
        return Fingerprint("opaque", stable_hash(["special", name]), None, {"remedy": "declare a file or an object"})
    raise NotFound(f"there is no file or folder {name!r}; give an existing path, an URL or the object itself")


def data_version(declared: Mapping[str, Fingerprint], seen: Iterable[Fingerprint]) -> str | None:
    """Returns one id for all data of a run, from names and contents but not locations; None if there is none."""
    named = {name: found.digest for name, found in declared.items()}
    others = {found.digest for found in seen} - set(named.values())
    return stable_hash([named, others])[:16] if named or others else None


# Files and folders


def fingerprint_file(path: Path, cache: FingerprintCache | None = None, *, full_bytes: int = FULL_BYTES) -> Fingerprint:
    """Returns the BLAKE3 digest of the content; above `full_bytes`, of 1024 blocks spread over the file."""
    with ignore_reads():
        digest, size = _file_digest(os.fspath(path), cache, full_bytes)
    return Fingerprint("file", digest, size, {"sampled": True} if size > full_bytes else {})


def fingerprint_folder(
    path: Path, cache: FingerprintCache | None = None, *, full_bytes: int = FULL_BYTES
) -> Fingerprint:
    """Digests names and contents of all files; a folder above `full_bytes` is sampled as if it were one file."""
    with ignore_reads():
        files = sorted(_walk_files(path))
        size = sum(file.size_bytes for file in files)
        sampled = size > full_bytes
        names = [file.name for file in files]
        contents = _hash_samples(files) if sampled else [_digest_or_none(file, cache, full_bytes) for file in files]
        digest = stable_hash(["folder", names, contents])
    detail: dict[str, Json] = {"files": len(files)}
    return Fingerprint("folder", digest, size, detail | ({"sampled": True} if sampled else {}))


@dataclass(frozen=True, slots=True, order=True)
class _DataFile:
    name: str  # relative to the folder, with slashes
    path: str
    size_bytes: int


def _walk_files(folder: str | Path, prefix: str = "", above: tuple[tuple[int, int], ...] = ()) -> Iterator[_DataFile]:
    """Yields the files of a folder recursively. Follows links, but never into a folder that it is inside of."""
    facts = os.stat(folder)
    here = (facts.st_dev, facts.st_ino)
    if here in above:
        return
    with os.scandir(folder) as items:
        for item in items:
            if item.name not in _IGNORED_NAMES:
                yield from _files_of_entry(item, prefix + item.name, (*above, here))


def _files_of_entry(item: os.DirEntry[str], name: str, above: tuple[tuple[int, int], ...]) -> Iterator[_DataFile]:
    try:
        facts = item.stat()
        if stat.S_ISDIR(facts.st_mode):
            yield from _walk_files(item.path, f"{name}/", above)
        elif stat.S_ISREG(facts.st_mode):
            yield _DataFile(name, item.path, facts.st_size)
    except OSError:  # a broken link, or a folder without permission: only its name counts
        yield _DataFile(name, item.path, 0)


def _digest_or_none(file: _DataFile, cache: FingerprintCache | None, full_bytes: int) -> str | None:
    try:
        return _file_digest(file.path, cache, full_bytes)[0]
    except OSError:
        return None


def _file_digest(path: str, cache: FingerprintCache | None, full_bytes: int) -> tuple[str, int]:
    with open(path, "rb", buffering=0) as file:
        before = FileState.of(path, file.fileno())
        sampled = before.size_bytes > full_bytes
        known = cache.get(before, sampled=sampled) if cache else None
        if known is not None:
            return known, before.size_bytes
        digest = (
            _hash_samples([_DataFile("", path, before.size_bytes)]) if sampled else _hash_file(file, before.size_bytes)
        )
        after = FileState.of(path, file.fileno())
    if cache and before == after:
        cache.put(after, digest, sampled=sampled)
    return digest, after.size_bytes


def _hash_file(file: Any, size_bytes: int) -> str:
    # Read, not memory-mapped: truncating a mapped file would kill the training with SIGBUS.
    hash_, block = hasher(), memoryview(bytearray(min(_READ_BYTES, size_bytes + 1)))
    while count := file.readinto(block):
        hash_.update(block[:count])
    return hash_.hexdigest()


def _hash_samples(files: list[_DataFile]) -> str:
    """Digests blocks spread evenly over the concatenated files."""
    from blake3 import blake3

    hash_ = blake3(derive_key_context="relive 2026 sampled content")  # can't collide with a full digest
    ends = list(accumulate(file.size_bytes for file in files))
    hash_.update(stable_hash([file.size_bytes for file in files]).encode())
    last = max(0, ends[-1] - _SAMPLE_BYTES)
    for offset in sorted({last * sample // (_SAMPLES - 1) for sample in range(_SAMPLES)}):
        at = bisect.bisect_right(ends, offset)
        hash_.update(_read_block(files[at].path, offset - ends[at] + files[at].size_bytes))
    return hash_.hexdigest()


def _read_block(path: str, offset: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(_SAMPLE_BYTES)
    except OSError:
        return b""


def _fingerprint_url(url: str, etag: str | None) -> Fingerprint:
    """Returns the fingerprint of an URL, whose content only the ETag identifies."""
    plain = SecretFilter().word(_strip_signature(url))
    place = _CREDENTIALS.sub("<redacted>@", plain)  # the data is the same for every user
    if etag is None:
        remedy = "pass etag= (an ETag, a checksum or a version) so that changes of the content are detected"
        return Fingerprint("opaque", stable_hash(["url", place]), None, {"url": plain, "remedy": remedy})
    return Fingerprint("url", stable_hash(["url", place, etag]), None, {"url": plain, "etag": etag})


def _strip_signature(url: str) -> str:
    """Removes the parameters that sign an URL: they are secret and expire."""
    parts = urllib.parse.urlsplit(url)
    kept = [part for part in parts.query.split("&") if not _is_signing_parameter(part.partition("=")[0].lower())]
    return parts._replace(query="&".join(kept)).geturl()


def _is_signing_parameter(parameter: str) -> bool:
    return parameter.startswith(("x-amz-", "x-goog-")) or parameter in _SIGNING_PARAMETERS or is_secret(parameter)


# Objects


def fingerprint_object(obj: object) -> Fingerprint:
    """Returns the fingerprint of data in memory. Never fails: without a stable hash it is opaque (type and length)."""
    kind = _kind_of(type(obj))
    detail = _describe(obj, kind)
    try:
        return Fingerprint(kind, stable_hash(obj, by_state=True), _size_bytes(obj), detail)
    except Unstable as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - no object may stop the training
        reason = f"{type(error).__name__}: {error}"
    detail["remedy"] = f"{reason}; or declare the file it was read from"
    return Fingerprint("opaque", stable_hash([detail["type"], detail.get("length")]), _size_bytes(obj), detail)


_KINDS: dict[str, Kind] = {
    "numpy:ndarray": "array", "torch:Tensor": "tensor", "torch:Dataset": "dataset", "torch:DataLoader": "dataset",
    "datasets:Dataset": "dataset", "pandas:DataFrame": "frame", "pandas:Series": "frame", "polars:DataFrame": "frame",
    "polars:Series": "frame",
}  # fmt: skip


def _kind_of(type_: type) -> Kind:
    for base in type_.__mro__:
        found = _KINDS.get(f"{str(base.__module__).partition('.')[0]}:{base.__qualname__}")
        if found is not None:
            return found
    return "value"


def _describe(obj: object, kind: Kind) -> dict[str, Json]:
    detail: dict[str, Json] = {"type": f"{type(obj).__module__}.{type(obj).__qualname__}"}
    length = _length(obj)
    if length is not None:
        detail["length"] = length
    if kind not in ("value", "opaque"):  # only for known libraries: elsewhere `shape` may be anything
        shape, dtype = _get_attribute(obj, "shape"), _get_attribute(obj, "dtype")
        columns = _get_attribute(obj, "columns") if kind == "frame" else _get_attribute(obj, "column_names")
        detail |= {"shape": [int(side) for side in shape]} if isinstance(shape, tuple) else {}
        detail |= {"dtype": str(dtype)} if dtype is not None else {}
        detail |= {"columns": [str(column) for column in columns[:100]]} if columns is not None else {}
    return detail


def _get_attribute(obj: object, name: str) -> Any:
    try:
        return getattr(obj, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None


def _length(obj: Any) -> int | None:
    try:
        return len(obj)
    except Exception:  # noqa: BLE001 - most objects have no length
        return None


def _size_bytes(obj: object) -> int | None:
    size = _get_attribute(obj, "nbytes")
    return size if isinstance(size, int) else None
