"""The model registry: numbered versions, aliases that point to them, and the history of both, one ledger per model."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from relive.errors import NotFound, ReliveError
from relive.store.chunks import artifact_chunks
from relive.store.home import Home
from relive.store.journal import plain_value
from relive.store.ledger import HEAD_SUFFIX, Line, append_lines, read_all_lines

LATEST = "latest"  # reserved alias of the newest version
SUFFIX = ".lines"
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALIAS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_SET, _ROLLBACK = "set", "rollback"


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of a model: the record of its run at the time of promotion."""

    model: str
    version: int
    time_us: int
    by: str
    run: str
    artifact: dict[str, Any] | None  # name, kind, digest, size_bytes, and the chunks
    args: dict[str, Any]
    code: dict[str, Any]  # version, tree, head, branch, repository, script
    data_version: str | None
    metrics: dict[str, Any]
    environment: dict[str, Any]
    note: str = ""
    missing: tuple[str, ...] = ()  # what the record lacked when the run was promoted with force
    is_retired: bool = False

    @property
    def reference(self) -> str:
        """The text that names this version: `model@3`."""
        return f"{self.model}@{self.version}"

    def require_artifact(self) -> dict[str, Any]:
        """Returns the artifact; raises `NotFound` when the version has none."""
        if self.artifact is None:
            raise NotFound(f"{self.reference} was promoted by force and has no artifact; promote a run that kept one")
        return self.artifact


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its versions, oldest first, and its aliases."""

    name: str
    versions: tuple[ModelVersion, ...]
    aliases: dict[str, int]  # alias → version
    stacks: dict[str, tuple[int, ...]]  # alias → the versions it pointed to, without those rolled back
    events: tuple[Line, ...]

    def aliases_of(self, version: int) -> list[str]:
        """Returns the aliases that point to a version."""
        return [alias for alias, number in self.aliases.items() if number == version]


class Registry:
    """The registry of a home. Any number of processes may promote at once."""

    def __init__(self, home: Home, by: str | None = None) -> None:
        self._folder = home.registry
        self._by = by  # who makes changes; None means the user of this process

    def models(self) -> list[Model]:
        """Returns every model, in order of name."""
        ledgers = ((name, read_all_lines(self._folder / (name + SUFFIX))) for name in self._names())
        return [_build_model(name, lines) for name, lines in ledgers if lines]

    def model(self, name: str) -> Model:
        """Returns a model; raises `NotFound` when there is none of that name."""
        _check_model_name(name)
        lines = read_all_lines(self._folder / (name + SUFFIX))
        if not lines:
            known = ", ".join(self._names()) or "none yet; promote a run with `relive promote RUN MODEL`"
            raise NotFound(f"no model {name!r} here; there are {known}")
        return _build_model(name, lines)

    def find(self, reference: str) -> ModelVersion:
        """Returns the version that `model`, `model@alias` or `model@3` names."""
        name, word = split_reference(reference)
        model = self.model(name)
        if word.isdecimal():
            return _find_version(model, int(word))
        if word == LATEST:
            active = [version for version in model.versions if not version.is_retired]
            if not active:
                raise NotFound(f"model {name!r} has no version left; promote a run to it")
            return active[-1]
        if word not in model.aliases:
            known = ", ".join(model.aliases) or "none"
            raise NotFound(f"model {name!r} has no alias {word!r}; its aliases are {known}")
        return _find_version(model, model.aliases[word])

    def add(self, name: str, facts: dict[str, Any], aliases: Iterable[str] = ()) -> ModelVersion:
        """Adds a version and points the aliases to it; the same artifact of the same run stays the same version."""
        _check_model_name(name)
        self._check_case(name)
        wanted_aliases = list(aliases)
        for alias in wanted_aliases:
            _check_alias(alias)

        def make_lines(existing: list[Line]) -> list[Line]:
            model = _build_model(name, existing)
            same = next((version for version in model.versions if _is_same(version, facts)), None)
            number = same.version if same else len(model.versions) + 1
            added = [] if same else [self._line("version", version=number, **facts)]
            moving = (alias for alias in wanted_aliases if model.aliases.get(alias) != number)
            return added + [self._alias_line(model, alias, number, _SET) for alias in moving]

        added = self._add(name, make_lines)
        numbers = [line["version"] for line in added]
        model = self.model(name)
        return _find_version(model, numbers[0]) if numbers else next(v for v in model.versions if _is_same(v, facts))

    def point(self, name: str, alias: str, version: int) -> ModelVersion:
        """Points an alias to a version."""
        _check_alias(alias)

        def make_lines(existing: list[Line]) -> list[Line]:
            model = _build_model(name, existing)
            if _find_version(model, version).is_retired:
                raise ReliveError(f"{name}@{version} was retired; point {alias} to another version")
            return [self._alias_line(model, alias, version, _SET)] if model.aliases.get(alias) != version else []

        self._add_to_existing(name, make_lines)
        return self.find(f"{name}@{version}")

    def roll_back(self, name: str, alias: str) -> ModelVersion:
        """Points an alias to the version it pointed to before; each further call goes back one more."""

        def make_lines(existing: list[Line]) -> list[Line]:
            model = _build_model(name, existing)
            stack = [number for number in model.stacks.get(alias, ()) if not _find_version(model, number).is_retired]
            if len(stack) < 2:
                raise ReliveError(f"{name}@{alias} pointed to no other version before; choose one with `relive alias`")
            return [self._alias_line(model, alias, stack[-2], _ROLLBACK)]

        (line,) = self._add_to_existing(name, make_lines)
        return self.find(f"{name}@{line['version']}")

    def retire(self, name: str, version: int) -> ModelVersion:
        """Retires a version: its run and its artifact may be removed. Its number is never used again."""

        def make_lines(existing: list[Line]) -> list[Line]:
            model = _build_model(name, existing)
            found = _find_version(model, version)
            if aliases := model.aliases_of(version):
                listed = " and ".join(aliases)
                raise ReliveError(f"{found.reference} is {listed}; point {listed} to another version first")
            return [] if found.is_retired else [self._line("retired", version=version)]

        self._add_to_existing(name, make_lines)
        return _find_version(self.model(name), version)

    # --- what must stay -------------------------------------------------------------------------------------------

    def active_versions(self) -> list[ModelVersion]:
        """Returns the versions that are not retired: their runs and artifacts must stay."""
        return [version for model in self.models() for version in model.versions if not version.is_retired]

    def promoted_runs(self) -> dict[str, list[str]]:
        """Returns the runs of active versions, with the references of these versions."""
        references: dict[str, list[str]] = {}
        for version in self.active_versions():
            references.setdefault(version.run, []).append(version.reference)
        return references

    def promoted_chunks(self) -> set[str]:
        """Returns the chunks of the artifacts of active versions."""
        artifacts = (version.artifact for version in self.active_versions() if version.artifact is not None)
        return {name for artifact in artifacts for name in artifact_chunks(artifact)}

    # --- ledgers ---------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            # Of a ledger that is missing the head is left, and reading it is then an error.
            files = (os.path.splitext(name) for name in os.listdir(self._folder))
            found = {name for name, suffix in files if suffix in (SUFFIX, HEAD_SUFFIX)}
            return sorted(name for name in found if _MODEL_NAME.fullmatch(name))
        return []

    def _check_case(self, name: str) -> None:
        """Refuses a name that differs from another only in case: some file systems don't tell `Net` from `net`."""
        for known in self._names():
            if known != name and known.lower() == name.lower():
                raise ReliveError(
                    f"there is a model {known!r} already; use that name, or one that differs in more than case"
                )

    def _add_to_existing(self, name: str, make_lines: Callable[[list[Line]], list[Line]]) -> list[Line]:
        self.model(name)  # raises an error that lists the known models
        return self._add(name, make_lines)

    def _line(self, kind: str, **facts: Any) -> Line:
        return {"k": kind, "t": time.time_ns(), "by": self._by or _user_at_host(), **facts}

    def _alias_line(self, model: Model, alias: str, version: int, how: str) -> Line:
        return self._line("alias", alias=alias, version=version, before=model.aliases.get(alias), how=how)

    def _add(self, name: str, make_lines: Callable[[list[Line]], list[Line]]) -> list[Line]:
        return append_lines(self._folder / (name + SUFFIX), make_lines)


def _build_model(name: str, lines: list[Line]) -> Model:
    """Builds a model from the lines of its ledger."""
    versions: dict[int, ModelVersion] = {}
    retired = {line["version"] for line in lines if line["k"] == "retired"}
    stacks: dict[str, list[int]] = {}
    for line in lines:
        if line["k"] == "version":
            versions[line["version"]] = _parse_version(name, line, retired)
        elif line["k"] == "alias":
            stack = stacks.setdefault(line["alias"], [])
            if line["how"] == _ROLLBACK:
                while stack and stack[-1] != line["version"]:
                    stack.pop()
            if not stack or stack[-1] != line["version"]:
                stack.append(line["version"])
    return Model(
        name,
        tuple(versions[number] for number in sorted(versions)),
        {alias: stack[-1] for alias, stack in sorted(stacks.items())},
        {alias: tuple(stack) for alias, stack in stacks.items()},
        tuple(lines),
    )


def _parse_version(name: str, line: Line, retired: set[int]) -> ModelVersion:
    fields = ("version", "by", "run", "artifact", "args", "code", "data_version", "metrics", "environment")
    return ModelVersion(
        model=name, time_us=line["t"] // 1000, note=line.get("note", ""), missing=tuple(line.get("missing", ())),
        is_retired=line["version"] in retired, **{key: line[key] for key in fields},
    )  # fmt: skip


def _is_same(version: ModelVersion, facts: dict[str, Any]) -> bool:
    old, new = ((artifact or {}).get("digest") for artifact in (version.artifact, facts["artifact"]))
    return not version.is_retired and version.run == facts["run"] and old == new


def _find_version(model: Model, number: int) -> ModelVersion:
    found = next((version for version in model.versions if version.version == number), None)
    if found is None:
        raise NotFound(f"model {model.name!r} has no version {number}; it has 1 to {len(model.versions)}")
    return found


def _user_at_host() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"{os.getuid()}@{platform.node()}"


def split_reference(reference: str) -> tuple[str, str]:
    """Splits `model@word` into its two parts; without a word, the newest version is meant."""
    name, _, word = reference.partition("@")
    return name, word or LATEST


def _check_model_name(name: str) -> None:
    if not _MODEL_NAME.fullmatch(name):
        raise ReliveError(f"{name!r} can't name a model; use letters, digits, dots, dashes and underscores, up to 100")


def _check_alias(alias: str) -> None:
    if not _ALIAS_NAME.fullmatch(alias) or alias == LATEST:
        raise ReliveError(
            f"{alias!r} can't be an alias; begin with a letter, and leave {LATEST!r} to the newest version"
        )


def model_to_json(model: Model) -> dict[str, Any]:
    """Returns a model as plain JSON values, newest version first."""
    return {
        "name": model.name,
        "aliases": model.aliases,
        "versions": [version_to_json(version, model) for version in reversed(model.versions)],
    }


def version_to_json(version: ModelVersion, model: Model) -> dict[str, Any]:
    """Returns a version as plain JSON values; the pieces of the artifact are left out."""
    artifact = {key: value for key, value in (version.artifact or {}).items() if key not in ("chunks", "files")}
    fields = {**asdict(version), "artifact": artifact or None, "aliases": model.aliases_of(version.version)}
    return {**fields, "args": plain_value(version.args), "metrics": plain_value(version.metrics)}


def history_to_json(model: Model) -> list[dict[str, Any]]:
    """Returns the history of a model, oldest first: promotions, moved aliases and retired versions."""
    keys = ("alias", "version", "before", "how", "run", "note", "missing")
    return [
        {"event": line["k"], "time_us": line["t"] // 1000, "by": line["by"], **{k: line[k] for k in keys if k in line}}
        for line in model.events
    ]
