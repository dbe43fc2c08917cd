"""What a run leaves behind: files, folders and objects as chunks, with name, size and hash; and objects back again."""

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
from relive.store.journal import decode_value, encode_value, from_text, to_text

if TYPE_CHECKING:
    from relive.store import Home
    from relive.store.sync import ServerClient

SAFE = ("bytes", "json", "torch")  # kinds that are read without running code


def describe_artifact(source: Any, name: str | None, chunks: Chunks) -> dict[str, Any] | None:
    """Store an artifact; gives what the journal says of it, or None when the file isn't there."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return _folder(path, name or path.name, chunks)
        return _file(path, name or path.name, chunks) if path.is_file() else None
    return _object(source, name or type(source).__name__, chunks)


def _file(path: Path, name: str, chunks: Chunks) -> dict[str, Any]:
    pieces, size = chunks.put_file(path)
    return {"name": name, "kind": "file", "path": str(path.resolve()), **_sized(pieces, size)}


def _folder(path: Path, name: str, chunks: Chunks) -> dict[str, Any]:
    files = []
    for inside in sorted(p for p in path.rglob("*") if p.is_file()):
        pieces, size = chunks.put_file(inside)
        files.append({"path": inside.relative_to(path).as_posix(), **_sized(pieces, size)})
    listing = "".join(f"{file['path']}\0{file['digest']}\0" for file in files)
    return {
        "name": name, "kind": "folder", "path": str(path.resolve()), "files": files,
        "size_bytes": sum(file["size_bytes"] for file in files), "digest": digest(listing.encode()),
    }  # fmt: skip


def _object(value: Any, name: str, chunks: Chunks) -> dict[str, Any]:
    kind, data = _bytes_of(value, chunks)
    pieces = [chunks.put(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]
    return {"name": name, "kind": kind, **_sized(pieces, len(data))}


def _bytes_of(value: Any, chunks: Chunks) -> tuple[str, bytes]:
    """Bytes as they are, plain values and arrays as JSON; models the torch way; the rest pickled, and marked so."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(value, torch.nn.Module) or _holds_tensors(value, torch)):
        buffer = io.BytesIO()
        torch.save(value.state_dict() if isinstance(value, torch.nn.Module) else value, buffer)
        return "torch", buffer.getvalue()
    text = to_text(encode_value(value, chunks.put))
    if '"$repr"' not in text:
        return "json", text.encode()
    return "pickle", pickle.dumps(value)


def _holds_tensors(value: Any, torch: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(item, torch.Tensor | dict) for item in value.values())


def _sized(pieces: list[str], size: int) -> dict[str, Any]:
    return {"size_bytes": size, "digest": artifact_files.whole_digest(pieces), "chunks": pieces}


def read_object(artifact: dict[str, Any], chunks: Chunks, *, allow_pickle: bool) -> Any:
    """An artifact that was an object, as that object, verified. Only pickles can run code, and only if allowed."""
    kind, data = artifact["kind"], artifact_files.content(artifact, chunks)
    if kind == "bytes":
        return data
    if kind == "json":
        return decode_value(from_text(data), chunks.get)
    if kind == "torch":
        import torch

        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not allow_pickle)
    if not allow_pickle:
        remedy = "load it with allow_pickle=True if you trust whoever made it"
        raise ReliveError(f"artifact {artifact['name']!r} is a pickle, which runs code when it is loaded; {remedy}")
    return pickle.loads(data)


def load_from(remote: ServerClient, reference: str, home: Home, *, allow_pickle: bool) -> Any:
    """A model of a server, verified. What could run code is given as the path of a copy in the home, and not loaded."""
    from relive.store.sync import RemoteChunks, RemoteRegistry

    if allow_pickle:
        remedy = "leave allow_pickle out, and load the path that you get if you trust whoever made it"
        raise ReliveError(f"what comes from {remote.url} is never unpickled; {remedy}")
    artifact = RemoteRegistry(remote).find(reference).kept()
    chunks = RemoteChunks(remote, Chunks(home.chunks))
    if artifact["kind"] in SAFE:
        with contextlib.suppress(pickle.UnpicklingError):  # torch loads nothing but weights
            return read_object(artifact, chunks, allow_pickle=False)
    home.create()
    return artifact_files.kept_copy(artifact, home, chunks)
