"""Reads artifacts back: verifies each piece against its name and the whole against its digest, inside one folder."""

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
PATH_KINDS = ("file", FOLDER)  # the kinds that were recorded from a path; they are loaded as a path, too
Artifact = dict[str, Any]  # the fields of an artifact's line in a journal


def artifact_chunks(artifact: Artifact) -> list[str]:
    """Returns the names of the chunks that an artifact consists of."""
    return [name for file in _files(artifact) for name in file["chunks"]]


def _files(artifact: Artifact) -> list[Artifact]:
    return list(artifact["files"]) if artifact["kind"] == FOLDER else [artifact]


def missing_chunks(artifact: Artifact, chunks: Chunks) -> list[str]:
    """Returns the chunks of an artifact that are not stored."""
    return [name for name in artifact_chunks(artifact) if name not in chunks]


def _verify_digests(artifact: Artifact) -> None:
    """Checks that the recorded digests follow from the lists of pieces; raises `Damaged` otherwise."""
    for file in _files(artifact):
        _compare_digest(file, combined_digest(file["chunks"]))
    if artifact["kind"] == FOLDER:
        listing = "".join(f"{file['path']}\0{file['digest']}\0" for file in artifact["files"])
        _compare_digest(artifact, digest(listing.encode()))


def combined_digest(pieces: Sequence[str]) -> str:
    """Returns the digest of bytes stored in pieces: the name of a single piece, or the hash of all names."""
    return pieces[0] if len(pieces) == 1 else digest("".join(pieces).encode())


def _compare_digest(recorded: Artifact, computed: str) -> None:
    if computed != recorded["digest"]:
        name = recorded.get("name") or recorded.get("path")
        raise Damaged(f"artifact {name!r} is not what was recorded ({computed[:12]}); restore the home from a backup")


def read_artifact(artifact: Artifact, chunks: Chunks) -> bytes:
    """Returns the verified bytes of an artifact that is not a folder."""
    if artifact["kind"] == FOLDER:
        raise NotFound(f"artifact {artifact['name']!r} is a folder; write it to one instead of reading it")
    _verify_digests(artifact)
    return b"".join(chunks.get(name) for name in artifact["chunks"])


def write_artifact(artifact: Artifact, chunks: Chunks, folder: Path) -> Path:
    """Writes an artifact into a folder and returns its path. The path appears only once all bytes are verified."""
    _verify_digests(artifact)
    target = path_inside(folder, artifact["name"])
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".relive-", dir=target.parent))
    try:
        staged = staging / "it"
        if artifact["kind"] == FOLDER:
            staged.mkdir()
        for file, path in _file_paths(artifact, staged):
            _write_file(file, chunks, path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif artifact["kind"] == FOLDER:
            target.unlink(missing_ok=True)
        os.replace(staged, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _file_paths(artifact: Artifact, root: Path) -> Iterator[tuple[Artifact, Path]]:
    """Yields each file of an artifact with its path, when the artifact itself is at `root`."""
    if artifact["kind"] != FOLDER:
        yield artifact, root
        return
    for file in artifact["files"]:
        yield file, path_inside(root, file["path"])


def _write_file(file: Artifact, chunks: Chunks, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as written:
        for name in file["chunks"]:
            written.write(chunks.get(name))  # verifies the bytes against the name


def is_intact(artifact: Artifact, path: Path) -> bool:
    """Whether the file or folder at a path equals this artifact, byte for byte."""
    expected = list(_file_paths(artifact, path))
    if artifact["kind"] == FOLDER:
        present = {inside for inside in path.rglob("*") if not inside.is_dir()} if path.is_dir() else set()
        if present != {file_path for _, file_path in expected}:
            return False
    return all(_hash_pieces(file_path) == file["chunks"] for file, file_path in expected)


def _hash_pieces(path: Path) -> list[str] | None:
    """Returns the digests of a file's pieces; None when it can't be read."""
    try:
        with path.open("rb") as file:
            return [digest(piece) for piece in iter(lambda: file.read(PIECE_BYTES), b"")]
    except OSError:
        return None


def verified_copy(artifact: Artifact, home: Home, chunks: Chunks | None = None) -> Path:
    """Returns the path of a verified copy inside the home; an intact copy from an earlier call is reused."""
    folder = home.registry / "copies" / artifact["digest"]
    path = path_inside(folder, artifact["name"])
    _verify_digests(artifact)
    return path if is_intact(artifact, path) else write_artifact(artifact, chunks or Chunks(home.chunks), folder)


def path_inside(folder: Path, name: str) -> Path:
    """Returns a path below the folder, even if the name is absolute or contains `..`."""
    parts = [_sanitize(part) for part in name.split("/") if part not in ("", ".", "..")]
    return folder.joinpath(*parts or ["artifact"])


def _sanitize(name: str) -> str:
    return name.replace("\\", "_").replace("\0", "_")
