"""The registry of a server as if it were that of a home; nothing that it says is trusted before it is checked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from relive.errors import Damaged, ReliveError
from relive.hashing import digest
from relive.store.chunks import Chunks
from relive.store.registry import Model, ModelVersion, Promotion, split_reference
from relive.store.sync.server_client import ServerClient, ServerUnreachable, with_remedy

CHUNK_BYTES = 4 << 30
_MODELS = "/api/registry"
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0)]


class _ArtifactFile(msgspec.Struct):
    path: str
    size_bytes: Count
    digest: Hash
    chunks: list[Hash]


class _Artifact(msgspec.Struct):
    """What names places on this disk later, so its hashes must look like hashes."""

    name: str
    kind: str
    size_bytes: Count
    digest: Hash
    chunks: list[Hash] = []
    files: list[_ArtifactFile] = []


class RemoteRegistry:
    """The models of a server's store."""

    def __init__(self, remote: ServerClient) -> None:
        self._remote = remote

    def models(self) -> list[Model]:
        with with_remedy():
            return [_model(told) for told in self._remote.get(_MODELS)["models"]]

    def model(self, name: str) -> Model:
        with with_remedy():
            return _model(self._remote.get(f"{_MODELS}/{quote(name, safe='')}"))

    def find(self, reference: str) -> ModelVersion:
        """The version meant by `model`, `model@alias` or `model@3`, with the pieces of its artifact."""
        name, word = split_reference(reference)
        with with_remedy():
            told = self._remote.get(f"{_MODELS}/{quote(name, safe='')}/versions/{quote(word, safe='')}")
        return _version({**told, "artifact": _artifact(told.get("artifact"), self._remote.url)})

    def promote(self, asked: Promotion) -> ModelVersion:
        facts = {key: value for key, value in asdict(asked).items() if key != "model"}
        return self._change("POST", _path(asked.model), facts)

    def point(self, name: str, alias: str, version: int) -> ModelVersion:
        return self._change("PUT", f"{_path(name)}/aliases/{alias}", {"version": version})

    def roll_back(self, name: str, alias: str) -> ModelVersion:
        return self._change("POST", f"{_path(name)}/aliases/{alias}/rollback")

    def retire(self, name: str, version: int) -> ModelVersion:
        return self._change("POST", f"{_path(name)}/versions/{version}/retire")

    def _change(self, method: str, path: str, facts: dict[str, Any] | None = None) -> ModelVersion:
        with with_remedy():
            return _version(self._remote.send(method, path, facts))


class RemoteChunks(Chunks):
    """Chunks that are here, and else those of a server, compared with their names."""

    def __init__(self, remote: ServerClient, near: Chunks) -> None:
        super().__init__(near.folder)
        self._remote = remote

    def get(self, name: str) -> bytes:
        if name in self:
            return super().get(name)
        with with_remedy():
            data = self._remote.content(f"/api/chunks/{name}", CHUNK_BYTES)
        if digest(data) != name:
            raise Damaged(f"{self._remote.url} gave other bytes than those of chunk {name[:12]}; ask who runs it")
        return data


def _path(name: str) -> str:
    if "/" in name:
        raise ReliveError(f"{name!r} can't name a model; use letters, digits, dots, dashes and underscores")
    return f"{_MODELS}/{name}"


def _model(told: dict[str, Any]) -> Model:
    events = tuple({**one, "k": one["event"], "t": one["time_us"] * 1000} for one in told.get("history", ()))
    versions = tuple(_version(one) for one in reversed(told["versions"]))
    return Model(told["name"], versions, told["aliases"], {}, events)


def _version(told: dict[str, Any]) -> ModelVersion:
    try:
        return msgspec.convert(told, ModelVersion)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(f"the server described a version in a way that is not understood ({error})") from error


def _artifact(told: Any, url: str) -> dict[str, Any] | None:
    try:
        return None if told is None else msgspec.to_builtins(msgspec.convert(told, _Artifact))
    except msgspec.ValidationError as error:
        raise Damaged(f"{url} described an artifact in a way that can't be ({error}); ask who runs it") from error
