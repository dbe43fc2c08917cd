"""The registry of a server behind the interface of a home's registry; its responses are validated before use."""

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
from relive.store.sync.server_client import ServerClient, ServerUnreachable, translate_server_errors

MAX_CHUNK_BYTES = 4 << 30
_MODELS_PATH = "/api/registry"
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0)]


class _ArtifactFile(msgspec.Struct):
    path: str
    size_bytes: Count
    digest: Hash
    chunks: list[Hash]


class _Artifact(msgspec.Struct):
    """The description of an artifact. Its hashes become paths on this disk, so their form is validated."""

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
        found: list[Model] = []
        with translate_server_errors():
            while True:
                answer = self._remote.get(_MODELS_PATH, **({"offset": len(found)} if found else {}))
                page = answer["models"]
                found += [
                    _parse_model(one) if len(one["versions"]) == one.get("total", len(one["versions"])) else
                    self.model(one["name"]) for one in page
                ]  # fmt: skip
                if not page or len(found) >= answer.get("total", 0):  # older servers send all at once
                    return found

    def model(self, name: str) -> Model:
        path = f"{_MODELS_PATH}/{quote(name, safe='')}"
        with translate_server_errors():
            answer = page = self._remote.get(path)
            every = max(answer.get("total", 0), answer.get("history_total", 0))  # older servers send all at once
            at = max(len(page["versions"]), len(page["history"]))
            while at < every and (page["versions"] or page["history"]):
                page = self._remote.get(path, offset=at)
                answer["versions"] += page["versions"]
                answer["history"] = page["history"] + answer["history"]
                at += max(len(page["versions"]), len(page["history"]))
            return _parse_model(answer)

    def find(self, reference: str) -> ModelVersion:
        """Returns the version that `model`, `model@alias` or `model@3` names, with the pieces of its artifact."""
        name, word = split_reference(reference)
        with translate_server_errors():
            fields = self._remote.get(f"{_MODELS_PATH}/{quote(name, safe='')}/versions/{quote(word, safe='')}")
        return _parse_version({**fields, "artifact": _parse_artifact(fields.get("artifact"), self._remote.url)})

    def promote(self, promotion: Promotion) -> ModelVersion:
        content = {key: value for key, value in asdict(promotion).items() if key != "model"}
        return self._change("POST", _model_path(promotion.model), content)

    def point(self, name: str, alias: str, version: int) -> ModelVersion:
        return self._change("PUT", f"{_model_path(name)}/aliases/{alias}", {"version": version})

    def roll_back(self, name: str, alias: str) -> ModelVersion:
        return self._change("POST", f"{_model_path(name)}/aliases/{alias}/rollback")

    def retire(self, name: str, version: int) -> ModelVersion:
        return self._change("POST", f"{_model_path(name)}/versions/{version}/retire")

    def _change(self, method: str, path: str, content: dict[str, Any] | None = None) -> ModelVersion:
        with translate_server_errors():
            return _parse_version(self._remote.send(method, path, content))


class RemoteChunks(Chunks):
    """Chunks of a server; those that are stored locally are read from there. All are verified against their names."""

    def __init__(self, remote: ServerClient, local: Chunks) -> None:
        super().__init__(local.folder)
        self._remote = remote

    def get(self, name: str) -> bytes:
        if name in self:
            return super().get(name)
        with translate_server_errors():
            data = self._remote.content(f"/api/chunks/{name}", MAX_CHUNK_BYTES)
        if digest(data) != name:
            raise Damaged(f"{self._remote.url} sent bytes that don't match chunk {name[:12]}; ask its administrator")
        return data


def _model_path(name: str) -> str:
    if "/" in name:
        raise ReliveError(f"{name!r} can't name a model; use letters, digits, dots, dashes and underscores")
    return f"{_MODELS_PATH}/{name}"


def _parse_model(fields: dict[str, Any]) -> Model:
    events = tuple({**one, "k": one["event"], "t": one["time_us"] * 1000} for one in fields.get("history", ()))
    versions = tuple(_parse_version(one) for one in reversed(fields["versions"]))
    return Model(fields["name"], versions, fields["aliases"], {}, events)


def _parse_version(fields: dict[str, Any]) -> ModelVersion:
    try:
        return msgspec.convert(fields, ModelVersion)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(
            f"the server sent an invalid model version ({error}); update relive on both sides"
        ) from error


def _parse_artifact(fields: Any, url: str) -> dict[str, Any] | None:
    try:
        return None if fields is None else msgspec.to_builtins(msgspec.convert(fields, _Artifact))
    except msgspec.ValidationError as error:
        raise Damaged(f"{url} sent an invalid artifact ({error}); ask its administrator") from error
