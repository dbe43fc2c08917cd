"""The settings: names, types and defaults, read from pyproject.toml, relive.toml and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from relive.errors import ReliveError

PREFIX = "RELIVE_"


class Settings(NamedTuple):
    """Every setting with its default; `docs/reference/settings.md` explains each."""

    home: str = ""  # where everything is stored; "" means `.relive` in the project
    off: bool = False  # makes every call a no-op
    project: str = ""  # name of the project in tables; "" means the name of its folder
    sync_seconds: float = 1.0  # how often journals are synced to disk
    versions: bool = True  # record the code version when a run starts
    large_file_bytes: int = 5_000_000  # larger files are recorded by hash in a version, not stored
    untracked_files: int = 5_000  # how many untracked files a version may hold; source code comes first
    untracked_bytes: int = 100_000_000  # how many bytes of untracked files a version may hold
    inputs: bool = True  # record which files the run opens for reading
    fingerprint_bytes: int = 1 << 30  # larger data files are fingerprinted by samples
    variables: tuple[str, ...] = ()  # additional environment variables to record
    console: bool = True  # record what the run prints
    console_bytes: int = 4_000_000  # how much of it is kept: the beginning and the end
    secret_patterns: tuple[str, ...] = ()  # regular expressions of further texts that must not be recorded
    overhead: float = 1 / 15  # the fraction of training time that checkpoints may cost
    server: str = ""  # where runs are sent, like "http://host:5005"; "" keeps them here
    token: str = ""  # the token for the server
    ship_seconds: float = 0.5  # how often new records are sent
    ship_wait_seconds: float = 5.0  # how long the end of a run waits for the rest to be sent
    every: int = 0  # hands-free: checkpoint every N iterations; 0 means as often as the overhead allows
    self_check: str = "auto"  # hands-free: test-replay a run when it ends: "auto" (if cheap), "always", "never"
    # Hands-free: the sources of a script's values.
    sources: tuple[str, ...] = ("print", "logging", "tqdm", "tensorboard", "wandb", "mlflow", "frameworks", "config")
    warm_seconds: float = 300.0  # how long libraries stay loaded after a replay for the next one; 0: not at all
    keep: str = "all"  # how many checkpoints of a run `relive gc` keeps: "all", or a number
    memo_bytes: int = 0  # how many bytes of memoized results the home may hold; 0: unlimited
    budget_bytes: int = 0  # how many bytes of checkpoints `relive gc` keeps in the home; 0: unlimited
    spool: str = ""  # where checkpoints beyond the budget are moved, like "s3://bucket/prefix"; "" removes them
    catalog: str = ""  # a PostgreSQL database for the catalog, like "postgresql://host/relive"; "": a file in the home


def load(root: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Returns the settings of a project: the environment overrides relive.toml, which overrides pyproject.toml."""
    found: dict[str, Any] = {}
    for path, table in ((root / "pyproject.toml", ("tool", "relive")), (root / "relive.toml", ())):
        found.update(_read_settings_file(path, table))
    if found.get("home"):
        found["home"] = str(root / Path(found["home"]).expanduser())  # relative to the folder of the file
    for name in Settings._fields:
        raw = environ.get(PREFIX + name.upper())
        if raw is not None:
            found[name] = _parse_variable(name, raw, PREFIX + name.upper())
    return Settings(**found)


def _read_settings_file(path: Path, table: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = _read_toml(path)
    except (OSError, ValueError) as error:
        if table:  # other tools report a broken pyproject.toml
            return {}
        raise ReliveError(f"{path} can't be read ({error}); fix or remove it") from error
    for key in table:
        content = content.get(key, {})
    unknown = sorted(set(content) - set(Settings._fields))
    if unknown:
        raise ReliveError(f"{path}: unknown setting {unknown[0]!r}; known are {', '.join(Settings._fields)}")
    return {name: _validate(name, value, str(path)) for name, value in content.items()}


def _read_toml(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    import tomllib  # imported only if there is a file, since every run start loads the settings

    return tomllib.loads(text)


def _validate(name: str, value: Any, place: str) -> Any:
    kind = type(Settings._field_defaults[name])
    if kind is tuple and isinstance(value, list):
        return _checked_list(name, tuple(str(item) for item in value), place)
    if kind is float and type(value) is int:
        return float(value)
    if name == "keep" and type(value) is int:
        return str(value)
    if type(value) is not kind:
        raise ReliveError(f"{place}: {name} = {value!r} is not of type {kind.__name__}; change it")
    return value


def _checked_list(name: str, items: tuple[str, ...], place: str) -> tuple[str, ...]:
    if name == "secret_patterns":
        for item in items:
            try:
                re.compile(item)
            except re.error as error:
                raise ReliveError(f"{place}: {item!r} is no regular expression ({error}); correct it") from error
    return items


def _parse_variable(name: str, raw: str, place: str) -> Any:
    kind: Any = type(Settings._field_defaults[name])
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False,
                    "off": False, "": False}[raw.strip().lower()]  # fmt: skip
        if kind is tuple:
            return _checked_list(name, tuple(part.strip() for part in raw.split(",") if part.strip()), place)
        return kind(raw)
    except (KeyError, ValueError) as error:
        raise ReliveError(f"{place}={raw!r} is not of type {kind.__name__}; change or unset it") from error
