"""Named models: numbered versions, aliases that point to them, and all that ever happened to both, as lines."""

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
from relive.store.chunks import named_by
from relive.store.home import Home
from relive.store.journal import plain_value
from relive.store.ledger import Line, add_lines, read_all_lines

NEWEST = "latest"  # always means the newest version
SUFFIX = ".lines"
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_SET, _ROLLBACK = "set", "rollback"


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of a model: the run it came from, as that was when it was promoted."""

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
    missing: tuple[str, ...] = ()  # what its record lacked when it was promoted all the same
    is_retired: bool = False

    @property
    def reference(self) -> str:
        return f"{self.model}@{self.version}"

    def kept(self) -> dict[str, Any]:
        """Its artifact, or the reason why there is none."""
        if self.artifact is None:
            raise NotFound(f"{self.reference} was promoted by force and has no artifact; promote a run that kept one")
        return self.artifact


@dataclass(frozen=True, slots=True)
class Model:
    """A name with its versions, oldest first, and where its aliases point."""

    name: str
    versions: tuple[ModelVersion, ...]
    aliases: dict[str, int]
    stacks: dict[str, tuple[int, ...]]  # for each alias the versions it pointed to, without those rolled back
    events: tuple[Line, ...]

    def aliases_of(self, version: int) -> list[str]:
        return [alias for alias, number in self.aliases.items() if number == version]


class Registry:
    """The registry of a home. Any number of processes may promote at once."""

    def __init__(self, home: Home) -> None:
        self._folder = home.registry

    def models(self) -> list[Model]:
        """Every model, by name."""
        read = ((name, read_all_lines(self._folder / (name + SUFFIX))) for name in self._names())
        return [understand(name, lines) for name, lines in read if lines]

    def model(self, name: str) -> Model:
        _check_model(name)
        lines = read_all_lines(self._folder / (name + SUFFIX))
        if not lines:
            known = ", ".join(self._names()) or "none yet; promote a run with `relive promote RUN MODEL`"
            raise NotFound(f"no model {name!r} here; there are {known}")
        return understand(name, lines)

    def find(self, reference: str) -> ModelVersion:
        """The version meant by `model`, `model@alias` or `model@3`."""
        name, word = split_reference(reference)
        model = self.model(name)
        if word.isdecimal():
            return _numbered(model, int(word))
        if word == NEWEST:
            current = [one for one in model.versions if not one.is_retired]
            if not current:
                raise NotFound(f"model {name!r} has no version left; promote a run to it")
            return current[-1]
        if word not in model.aliases:
            known = ", ".join(model.aliases) or "none"
            raise NotFound(f"model {name!r} has no alias {word!r}; its aliases are {known}")
        return _numbered(model, model.aliases[word])

    def add(self, name: str, facts: dict[str, Any], aliases: Iterable[str] = ()) -> ModelVersion:
        """A new version, to which the aliases point from now on; the same artifact of the same run is the old one."""
        _check_model(name)
        self._check_case(name)
        wanted = [_checked_alias(alias) for alias in aliases]

        def make(known: list[Line]) -> list[Line]:
            model = understand(name, known)
            same = next((one for one in model.versions if _is_same(one, facts)), None)
            number = same.version if same else len(model.versions) + 1
            made = [] if same else [_line("version", version=number, **facts)]
            moving = (alias for alias in wanted if model.aliases.get(alias) != number)
            return made + [_alias_line(model, alias, number, _SET) for alias in moving]

        added = self._add(name, make)
        numbers = [line["version"] for line in added]
        model = self.model(name)
        return _numbered(model, numbers[0]) if numbers else next(v for v in model.versions if _is_same(v, facts))

    def point(self, name: str, alias: str, version: int) -> ModelVersion:
        """Let an alias point to a version."""
        _checked_alias(alias)

        def make(known: list[Line]) -> list[Line]:
            model = understand(name, known)
            if _numbered(model, version).is_retired:
                raise ReliveError(f"{name}@{version} was retired; point {alias} to another version")
            return [_alias_line(model, alias, version, _SET)] if model.aliases.get(alias) != version else []

        self._add_to(name, make)
        return self.find(f"{name}@{version}")

    def roll_back(self, name: str, alias: str) -> ModelVersion:
        """Let an alias point to what it pointed to before; once more goes back further."""

        def make(known: list[Line]) -> list[Line]:
            model = understand(name, known)
            stack = [number for number in model.stacks.get(alias, ()) if not _numbered(model, number).is_retired]
            if len(stack) < 2:
                raise ReliveError(f"{name}@{alias} pointed to no other version before; choose one with `relive alias`")
            return [_alias_line(model, alias, stack[-2], _ROLLBACK)]

        (line,) = self._add_to(name, make)
        return self.find(f"{name}@{line['version']}")

    def retire(self, name: str, version: int) -> ModelVersion:
        """Give a version up: its run and its artifact are no longer held. Its number is never given again."""

        def make(known: list[Line]) -> list[Line]:
            model = understand(name, known)
            found = _numbered(model, version)
            if aliases := model.aliases_of(version):
                listed = " and ".join(aliases)
                raise ReliveError(f"{found.reference} is {listed}; point {listed} to another version first")
            return [] if found.is_retired else [_line("retired", version=version)]

        self._add_to(name, make)
        return _numbered(self.model(name), version)

    # --- what it holds --------------------------------------------------------------------------------------------

    def held(self) -> list[ModelVersion]:
        """Versions that were not retired: their runs and artifacts must stay."""
        return [one for model in self.models() for one in model.versions if not one.is_retired]

    def held_runs(self) -> dict[str, list[str]]:
        """run → the versions that came from it."""
        found: dict[str, list[str]] = {}
        for one in self.held():
            found.setdefault(one.run, []).append(one.reference)
        return found

    def held_chunks(self) -> set[str]:
        return {name for one in self.held() if one.artifact is not None for name in named_by(one.artifact)}

    # --- inside ---------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            found = (name.removesuffix(SUFFIX) for name in os.listdir(self._folder) if name.endswith(SUFFIX))
            return sorted(name for name in found if _MODEL.fullmatch(name))
        return []

    def _check_case(self, name: str) -> None:
        """Some file systems don't tell `Net` from `net`."""
        for known in self._names():
            if known != name and known.lower() == name.lower():
                raise ReliveError(f"there is a model {known!r} already; use that name, or one that differs in more")

    def _add_to(self, name: str, make: Callable[[list[Line]], list[Line]]) -> list[Line]:
        self.model(name)  # which says what there is, if this one isn't
        return self._add(name, make)

    def _add(self, name: str, make: Callable[[list[Line]], list[Line]]) -> list[Line]:
        return add_lines(self._folder / (name + SUFFIX), make)


def understand(name: str, lines: list[Line]) -> Model:
    """What the lines of a model come to."""
    versions: dict[int, ModelVersion] = {}
    retired = {line["version"] for line in lines if line["k"] == "retired"}
    stacks: dict[str, list[int]] = {}
    for line in lines:
        if line["k"] == "version":
            versions[line["version"]] = _version(name, line, retired)
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


def _version(name: str, line: Line, retired: set[int]) -> ModelVersion:
    plain = ("version", "by", "run", "artifact", "args", "code", "data_version", "metrics", "environment")
    return ModelVersion(
        model=name, time_us=line["t"] // 1000, note=line.get("note", ""), missing=tuple(line.get("missing", ())),
        is_retired=line["version"] in retired, **{key: line[key] for key in plain},
    )  # fmt: skip


def _is_same(one: ModelVersion, facts: dict[str, Any]) -> bool:
    digests = [(artifact or {}).get("digest") for artifact in (one.artifact, facts["artifact"])]
    return not one.is_retired and one.run == facts["run"] and digests[0] == digests[1]


def _numbered(model: Model, number: int) -> ModelVersion:
    found = next((one for one in model.versions if one.version == number), None)
    if found is None:
        raise NotFound(f"model {model.name!r} has no version {number}; it has 1 to {len(model.versions)}")
    return found


def _line(kind: str, **facts: Any) -> Line:
    return {"k": kind, "t": time.time_ns(), "by": _who(), **facts}


def _alias_line(model: Model, alias: str, version: int, how: str) -> Line:
    return _line("alias", alias=alias, version=version, before=model.aliases.get(alias), how=how)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"{os.getuid()}@{platform.node()}"


def split_reference(reference: str) -> tuple[str, str]:
    """`model@word` as its two parts; without a word the newest version is meant."""
    name, _, word = reference.partition("@")
    return name, word or NEWEST


def _check_model(name: str) -> None:
    if not _MODEL.fullmatch(name):
        raise ReliveError(f"{name!r} can't name a model; use letters, digits, dots, dashes and underscores, up to 100")


def _checked_alias(alias: str) -> str:
    if not _ALIAS.fullmatch(alias) or alias == NEWEST:
        raise ReliveError(
            f"{alias!r} can't be an alias; begin with a letter, and leave {NEWEST!r} to the newest version"
        )
    return alias


def told(model: Model) -> dict[str, Any]:
    """A model as plain JSON values, newest version first."""
    return {
        "name": model.name,
        "aliases": model.aliases,
        "versions": [version_told(one, model) for one in reversed(model.versions)],
    }


def version_told(one: ModelVersion, model: Model) -> dict[str, Any]:
    """A version as plain JSON values; the pieces of the artifact are left out."""
    artifact = {key: value for key, value in (one.artifact or {}).items() if key not in ("chunks", "files")}
    told = {**asdict(one), "artifact": artifact or None, "aliases": model.aliases_of(one.version)}
    return {**told, "args": plain_value(one.args), "metrics": plain_value(one.metrics)}


def history_told(model: Model) -> list[dict[str, Any]]:
    """What happened to a model, oldest first: promotions, aliases that moved, versions given up."""
    keys = ("alias", "version", "before", "how", "run", "note", "missing")
    return [
        {"event": line["k"], "time_us": line["t"] // 1000, "by": line["by"], **{k: line[k] for k in keys if k in line}}
        for line in model.events
    ]
