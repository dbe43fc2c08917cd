"""Stores artifacts as chunks: files, folders and objects with name, size and digest; loads objects again."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.hashing import digest
from relive.store.chunks import PIECE_BYTES, Chunks, artifact_files
from relive.store.journal import decode_value, encode_value, from_json, to_json

if TYPE_CHECKING:
    from relive.store import Home
    from relive.store.sync import ServerClient

SAFE_KINDS = ("bytes", "json", "torch")  # loading these kinds runs no code


def store_artifact(source: Any, name: str | None, chunks: Chunks) -> dict[str, Any] | None:
    """Stores an artifact; returns its journal fields, or None if the file doesn't exist."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return _store_folder(path, name or path.name, chunks)
        return _store_file(path, name or path.name, chunks) if path.is_file() else None
    return _store_object(source, name or type(source).__name__, chunks)


def _store_file(path: Path, name: str, chunks: Chunks) -> dict[str, Any]:
    pieces, size = chunks.put_file(path)
    return {"name": name, "kind": "file", "path": str(path.resolve()), **_content_fields(pieces, size)}


def _store_folder(path: Path, name: str, chunks: Chunks) -> dict[str, Any]:
    files = []
    for inside in sorted(p for p in path.rglob("*") if p.is_file()):
        pieces, size = chunks.put_file(inside)
        files.append({"path": inside.relative_to(path).as_posix(), **_content_fields(pieces, size)})
    listing = "".join(f"{file['path']}\0{file['digest']}\0" for file in files)
    return {
        "name": name, "kind": "folder", "path": str(path.resolve()), "files": files,
        "size_bytes": sum(file["size_bytes"] for file in files), "digest": digest(listing.encode()),
    }  # fmt: skip


def _store_object(value: Any, name: str, chunks: Chunks) -> dict[str, Any]:
    kind, data = _serialize(value, chunks)
    pieces = [chunks.put(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]
    return {"name": name, "kind": kind, **_content_fields(pieces, len(data))}


def _serialize(value: Any, chunks: Chunks) -> tuple[str, bytes]:
    """Returns kind and bytes: bytes unchanged, models by torch.save, plain values and arrays as JSON, else a pickle."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(value, torch.nn.Module) or _holds_tensors(value, torch)):
        buffer = io.BytesIO()
        torch.save(value.state_dict() if isinstance(value, torch.nn.Module) else value, buffer)
        return "torch", buffer.getvalue()
    text = to_json(encode_value(value, chunks.put))
    if '"$repr"' not in text:
        return "json", text.encode()
    return "pickle", pickle.dumps(value)


def _holds_tensors(value: Any, torch: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(item, torch.Tensor | dict) for item in value.values())


def _content_fields(pieces: list[str], size: int) -> dict[str, Any]:
    return {"size_bytes": size, "digest": artifact_files.combined_digest(pieces), "chunks": pieces}


def load_object(artifact: dict[str, Any], chunks: Chunks, *, allow_pickle: bool) -> Any:
    """Loads an artifact as the object that was stored, verified. Pickles can run code and have to be allowed."""
    kind, data = artifact["kind"], artifact_files.read_artifact(artifact, chunks)
    if kind == "bytes":
        return data
    if kind == "json":
        return decode_value(from_json(data), chunks.get)
    if kind == "torch":
        import torch

        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not allow_pickle)
    if not allow_pickle:
        remedy = "load it with allow_pickle=True if you trust its author"
        raise ReliveError(f"artifact {artifact['name']!r} is a pickle, which runs code when it is loaded; {remedy}")
    return pickle.loads(data)


def load_from_server(remote: ServerClient, reference: str, home: Home, *, allow_pickle: bool) -> Any:
    """Loads a model from a server, verified. If loading could run code, returns the path of a local copy instead."""
    from relive.store.sync import RemoteChunks, RemoteRegistry

    if allow_pickle:
        remedy = "leave allow_pickle out, and unpickle the returned path if you trust its author"
        raise ReliveError(f"artifacts from {remote.url} are never unpickled; {remedy}")
    artifact = RemoteRegistry(remote).find(reference).require_artifact()
    chunks = RemoteChunks(remote, Chunks(home.chunks))
    if artifact["kind"] in SAFE_KINDS:
        with contextlib.suppress(pickle.UnpicklingError):  # torch refuses everything but weights
            return load_object(artifact, chunks, allow_pickle=False)
    home.create()
    return artifact_files.verified_copy(artifact, home, chunks)
