"""Compares the current data, packages and machine with those that a run recorded."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.model import RunRecord
from relive.record.provenance import runtime_environment
from relive.record.provenance.data_fingerprint import beginning_digest, fingerprint
from relive.record.provenance.input_watch import APPENDED

_NUMERIC_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "tensorflow", "jax", "transformers", "pandas")


def changes_since(record: RunRecord) -> list[str]:
    """Lists changes that may make a script compute other values than in this run, most likely causes first."""
    return [*_changed_data(record), *_changed_packages(record), *_changed_python(record)]


def is_same_machine(record: RunRecord) -> bool:
    """Whether this machine has the CPU and GPUs of the run; other processors may round differently."""
    return record.environment.get("cpu") == runtime_environment.cpu_name() and list(
        record.environment.get("gpus") or ()
    ) == list(runtime_environment.gpu_names())


def _changed_data(record: RunRecord) -> list[str]:
    declared: list[dict[str, Any]] = list(record.data["declared"].values())
    read = [item for item in record.data["read"] if item.get("role") == "data"]
    return [change for item in [*declared, *read] if (change := _describe_change(item)) is not None]


def changed_inputs(record: RunRecord, tree: Path) -> list[str]:
    """Lists files whose content is not the one that the run read, as a replay sees them whose project is at `tree`."""
    root = record.code.get("root") or os.sep
    items = [*record.data["declared"].values(), *record.data["read"]]
    found = []
    for item in items:
        path = item.get("path") or ""
        is_inside = path.startswith(root.rstrip(os.sep) + os.sep)
        if item.get("role") == APPENDED:  # of files outside, the replay has copies of today's
            if is_inside and beginning_digest(path, int(item.get("size_bytes") or 0)) != item.get("digest"):
                found.append(f"{path} has changed")
            continue
        seen = str(tree / os.path.relpath(path, root)) if is_inside else path
        if path and not _is_older(path, record.started_us / 1e6) and (change := _describe_change(item, seen)):
            found.append(change)
    return list(dict.fromkeys(found))


def is_as_recorded(record: RunRecord, path: str) -> bool:
    """Whether the content of a file outside of the project is the one that the run was seen reading."""
    items = [*record.data["declared"].values(), *record.data["read"]]
    for item in items:
        known = item.get("path") or ""
        is_input = item.get("role") in (None, "data", "config") and item.get("digest")
        if is_input and (path == os.path.realpath(known) or path.startswith(os.path.realpath(known) + os.sep)):
            return _describe_change(item) is None
    return False


def is_beginning_as_recorded(item: dict[str, Any]) -> bool:
    """Whether a file that the run appended to begins with what it had before."""
    return beginning_digest(item["path"], int(item.get("size_bytes") or 0)) == item.get("digest")


def _is_older(path: str, moment_s: float) -> bool:
    try:
        return os.stat(path).st_mtime < moment_s
    except OSError:
        return False


def _describe_change(item: dict[str, Any], seen: str | None = None) -> str | None:
    path, digest = item.get("path"), item.get("digest")
    if not path or not digest:
        return None
    seen = seen or path
    if not os.path.exists(seen):
        return f"{path} is gone"
    try:
        now = fingerprint(Path(seen)).digest
    except (OSError, ReliveError):
        return f"{path} can't be read any more"
    return None if now == digest else f"{path} has changed"


def _changed_packages(record: RunRecord) -> list[str]:
    then: dict[str, str] = record.environment.get("packages") or {}
    if not then:
        return []
    now = runtime_environment.installed_packages()
    differing = [name for name in _NUMERIC_PACKAGES if name in then and now.get(name) != then[name]]
    return [f"{name} was {then[name]} and is {now.get(name, 'not installed')}" for name in differing]


def _changed_python(record: RunRecord) -> list[str]:
    then, now = record.environment.get("python"), platform.python_version()
    return [f"Python was {then} and is {now}"] if then and then != now else []
