"""How an artifact is read back: every piece against its name, the whole against its digest, inside one folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relive.errors import Damaged, NotFound
from relive.hashing import digest
from relive.store.chunks.chunk_store import PIECE_BYTES, Chunks
from relive.store.home import Home

FOLDER = "folder"
PATHS = ("file", FOLDER)  # kinds that were paths, and come back as such
Described = dict[str, Any]  # what a journal says of an artifact


def named_by(artifact: Described) -> list[str]:
    """The chunks that an artifact is made of."""
    return [name for part in _parts(artifact) for name in part["chunks"]]


def _parts(artifact: Described) -> list[Described]:
    return list(artifact["files"]) if artifact["kind"] == FOLDER else [artifact]


def missing_chunks(artifact: Described, chunks: Chunks) -> list[str]:
    return [name for name in named_by(artifact) if name not in chunks]


def check(artifact: Described) -> None:
    """Does the list of pieces give the digest that stands for the whole?"""
    for part in _parts(artifact):
        _agree(part, whole_digest(part["chunks"]))
    if artifact["kind"] == FOLDER:
        listing = "".join(f"{file['path']}\0{file['digest']}\0" for file in artifact["files"])
        _agree(artifact, digest(listing.encode()))


def whole_digest(pieces: Sequence[str]) -> str:
    """What stands for bytes that are stored in pieces: the name of the only one, or the digest of all names."""
    return pieces[0] if len(pieces) == 1 else digest("".join(pieces).encode())


def _agree(described: Described, found: str) -> None:
    if found != described["digest"]:
        name = described.get("name") or described.get("path")
        raise Damaged(f"artifact {name!r} is not what was recorded ({found[:12]}); restore the home from a backup")


def content(artifact: Described, chunks: Chunks) -> bytes:
    """The bytes of an artifact that is no folder, verified."""
    if artifact["kind"] == FOLDER:
        raise NotFound(f"artifact {artifact['name']!r} is a folder; write it to one instead of reading it")
    check(artifact)
    return b"".join(chunks.get(name) for name in artifact["chunks"])


def write_artifact(artifact: Described, chunks: Chunks, folder: Path) -> Path:
    """Put an artifact into a folder, verified before its name exists there; gives its path."""
    check(artifact)
    target = confined(folder, artifact["name"])
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".relive-", dir=target.parent))
    try:
        whole = made / "it"
        if artifact["kind"] == FOLDER:
            whole.mkdir()
        for part, path in _places(artifact, whole):
            _write(part, chunks, path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif artifact["kind"] == FOLDER:
            target.unlink(missing_ok=True)
        os.replace(whole, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _places(artifact: Described, whole: Path) -> Iterator[tuple[Described, Path]]:
    if artifact["kind"] != FOLDER:
        yield artifact, whole
        return
    for file in artifact["files"]:
        yield file, confined(whole, file["path"])


def _write(part: Described, chunks: Chunks, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for name in part["chunks"]:
            file.write(chunks.get(name))  # which compares the bytes with the name


def is_intact(artifact: Described, path: Path) -> bool:
    """Is what lies at a path this artifact, byte for byte?"""
    places = list(_places(artifact, path))
    if artifact["kind"] == FOLDER:
        there = {inside for inside in path.rglob("*") if not inside.is_dir()} if path.is_dir() else set()
        if there != {place for _, place in places}:
            return False
    return all(_pieces_of(place) == part["chunks"] for part, place in places)


def _pieces_of(path: Path) -> list[str] | None:
    try:
        with path.open("rb") as file:
            return [digest(piece) for piece in iter(lambda: file.read(PIECE_BYTES), b"")]
    except OSError:
        return None


def kept_copy(artifact: Described, home: Home, chunks: Chunks | None = None) -> Path:
    """A verified copy of an artifact inside the home; one that is there and intact serves again."""
    folder = home.registry / "copies" / artifact["digest"]
    path = confined(folder, artifact["name"])
    check(artifact)
    return path if is_intact(artifact, path) else write_artifact(artifact, chunks or Chunks(home.chunks), folder)


def confined(folder: Path, name: str) -> Path:
    """A path below the folder, whatever the name says."""
    parts = [_safe(part) for part in name.split("/") if part not in ("", ".", "..")]
    return folder.joinpath(*parts or ["artifact"])


def _safe(name: str) -> str:
    return name.replace("\\", "_").replace("\0", "_")
