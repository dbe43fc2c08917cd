"""The knobs: where each setting comes from (environment, relive.toml, pyproject.toml) and what it may be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from relive.errors import ReliveError

PREFIX = "RELIVE_"


class Settings(NamedTuple):
    """Every setting with its default; `docs/reference/settings.md` explains each."""

    home: str = ""  # where everything is stored; "" means `.relive` beside the project
    off: bool = False  # every call does nothing
    project: str = ""  # name of the project in tables; "" means the name of its folder
    sync_seconds: float = 1.0  # how often journals are forced to disk
    versions: bool = True  # take the code version when a run starts
    large_file_bytes: int = 5_000_000  # larger files are recorded by hash, not stored, in a version
    untracked_files: int = 5_000  # how many untracked files a version may hold; source code comes first
    untracked_bytes: int = 100_000_000  # how many bytes of them
    inputs: bool = True  # watch which files the run opens for reading
    fingerprint_bytes: int = 1 << 30  # larger data files are fingerprinted by samples
    variables: tuple[str, ...] = ()  # further environment variables to record
    overhead: float = 1 / 15  # the share of a training's time that its checkpoints may cost
    server: str = ""  # where runs are sent, like "http://host:5005"; "" keeps them here
    token: str = ""  # what the server asks for
    ship_seconds: float = 0.5  # how often new records are sent
    ship_wait_seconds: float = 5.0  # how long the end of a run may wait for the rest to be sent
    every: int = 0  # hands-free: a checkpoint every so many iterations; 0 is as often as the overhead allows
    self_check: str = "auto"  # hands-free: try a run out when it ended; "auto" if that is cheap, "always", "never"
    # Hands-free: what a script's values are taken from.
    sources: tuple[str, ...] = ("print", "logging", "tqdm", "tensorboard", "wandb", "mlflow", "frameworks", "config")
    warm_seconds: float = 300.0  # how long libraries stay loaded after a replay, for the next one; 0 is not at all
    keep: str = "all"  # how many checkpoints of a run `relive gc` leaves: "all", or a number
    memo_bytes: int = 0  # how many bytes of remembered results the home may hold; 0 is no bound
    budget_bytes: int = 0  # how many bytes of checkpoints `relive gc` leaves in the home; 0 is no bound
    spool: str = ""  # where checkpoints go that the budget has no room for, like "s3://bucket/prefix"; "" thins them
    catalog: str = (
        ""  # a PostgreSQL database for the catalog, like "postgresql://host/relive"; "" is a file in the home
    )


def load(root: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force for a project: defaults, then pyproject.toml, then relive.toml, then the environment."""
    found: dict[str, Any] = {}
    for path, table in ((root / "pyproject.toml", ("tool", "relive")), (root / "relive.toml", ())):
        found.update(_from_file(path, table))
    if found.get("home"):
        found["home"] = str(root / Path(found["home"]).expanduser())  # a file speaks of its own folder
    for name in Settings._fields:
        raw = environ.get(PREFIX + name.upper())
        if raw is not None:
            found[name] = _from_text(name, raw, PREFIX + name.upper())
    return Settings(**found)


def _from_file(path: Path, table: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = _content(path)
    except (OSError, ValueError) as error:
        if table:  # a broken pyproject.toml is somebody else's to report
            return {}
        raise ReliveError(f"{path} can't be read ({error}); mend or remove it") from error
    for key in table:
        content = content.get(key, {})
    unknown = sorted(set(content) - set(Settings._fields))
    if unknown:
        raise ReliveError(f"{path}: unknown setting {unknown[0]!r}; known are {', '.join(Settings._fields)}")
    return {name: _checked(name, value, str(path)) for name, value in content.items()}


def _content(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    import tomllib  # only where there is a file: a run waits for its settings

    return tomllib.loads(text)


def _checked(name: str, value: Any, place: str) -> Any:
    kind = type(Settings._field_defaults[name])
    if kind is tuple and isinstance(value, list):
        return tuple(str(item) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if name == "keep" and type(value) is int:
        return str(value)
    if type(value) is not kind:
        raise ReliveError(f"{place}: {name} = {value!r} is not of type {kind.__name__}; change it")
    return value


def _from_text(name: str, raw: str, place: str) -> Any:
    kind: Any = type(Settings._field_defaults[name])
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False,
                    "off": False, "": False}[raw.strip().lower()]  # fmt: skip
        if kind is tuple:
            return tuple(part.strip() for part in raw.split(",") if part.strip())
        return kind(raw)
    except (KeyError, ValueError) as error:
        raise ReliveError(f"{place}={raw!r} is not of type {kind.__name__}; change or unset it") from error
