"""What is different now from what a run recorded: its data, its packages, its machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.model import RunRecord
from relive.record.provenance import runtime_environment
from relive.record.provenance.data_fingerprint import fingerprint

_TELLING = ("torch", "numpy", "scipy", "scikit-learn", "tensorflow", "jax", "transformers", "pandas")


def installed_packages() -> dict[str, str]:
    """Name → version of what is installed now, as runs record it."""
    return runtime_environment.packages()


def changes_since(record: RunRecord) -> list[str]:
    """What may make a script compute other values than it did in this run, most telling first."""
    return [*_changed_data(record), *_changed_packages(record), *_changed_python(record)]


def is_same_machine(record: RunRecord) -> bool:
    """Does this machine compute as the one of the run did? Another processor may round otherwise."""
    return record.environment.get("cpu") == runtime_environment.cpu() and list(
        record.environment.get("gpus") or ()
    ) == list(runtime_environment.gpus())


def _changed_data(record: RunRecord) -> list[str]:
    declared: list[dict[str, Any]] = list(record.data["declared"].values())
    read = [item for item in record.data["read"] if item.get("role") == "data"]
    return [why for item in [*declared, *read] if (why := _changed(item)) is not None]


def _changed(item: dict[str, Any]) -> str | None:
    path, digest = item.get("path"), item.get("digest")
    if not path or not digest:
        return None
    if not os.path.exists(path):
        return f"{path} is gone"
    try:
        now = fingerprint(Path(path)).digest
    except (OSError, ReliveError):
        return f"{path} can't be read any more"
    return None if now == digest else f"{path} has changed"


def _changed_packages(record: RunRecord) -> list[str]:
    then: dict[str, str] = record.environment.get("packages") or {}
    if not then:
        return []
    now = runtime_environment.packages()
    differing = [name for name in _TELLING if name in then and now.get(name) != then[name]]
    return [f"{name} was {then[name]} and is {now.get(name, 'not installed')}" for name in differing]


def _changed_python(record: RunRecord) -> list[str]:
    then, now = record.environment.get("python"), platform.python_version()
    return [f"Python was {then} and is {now}"] if then and then != now else []
