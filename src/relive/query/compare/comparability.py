"""What keeps two runs from being ranked side by side: other data, other code, another environment; and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relive.hashing import digest
from relive.model import RunRecord
from relive.store.journal import to_text

DATA, CODE, ENVIRONMENT = "data", "code", "environment"
KEYS = {DATA: "data_version", CODE: "code_version", ENVIRONMENT: "environment"}  # what a group calls them
_SHOWN = 3
_DIGITS = 12


def data_of(record: RunRecord) -> str | None:
    return record.data_version


def code_of(record: RunRecord) -> str | None:
    """The tree if it is known: the same files under another HEAD are the same code."""
    return record.code.get("tree") or record.version or None


def environment_of(record: RunRecord) -> str | None:
    """One id of what can change results: interpreter, packages, devices. None when packages weren't recorded."""
    found = record.environment
    packages = found.get("packages")
    if not packages:
        return None
    facts = [found.get("python"), sorted(packages.items()), found.get("gpus") or []]
    return digest(to_text(facts).encode())[:16]


IDENTITY: dict[str, Callable[[RunRecord], str | None]] = {DATA: data_of, CODE: code_of, ENVIRONMENT: environment_of}
_UNKNOWN = {
    DATA: "no data was declared or seen, so it can't be told whether it is the same",
    CODE: "no code version was taken, so it can't be told whether the code is the same",
    ENVIRONMENT: "no packages were recorded, so it can't be told whether the environment is the same",
}


def why_apart(guard: str, record: RunRecord, reference: RunRecord) -> str | None:
    """Why a run can't stand beside another, or None if this guard lets it."""
    identity = IDENTITY[guard]
    if identity(record) == identity(reference):
        return None
    if identity(record) is None:
        return _UNKNOWN[guard]
    changes = CHANGES[guard](reference, record)
    shown = ", ".join(changes[:_SHOWN]) + (f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")
    return f"other {guard} than the first group: {shown}" if shown else f"other {guard} than the first group"


# --- what changed from one run to another, in words ---------------------------------------------------------------


def data_changes(old: RunRecord, new: RunRecord) -> list[str]:
    """Declared data by name, then files that were seen, by their content; folders and times don't count."""
    declared = [f"{name} {_step(was, now)}" for name, was, now in _pairs(_declared(old), _declared(new)) if was != now]
    before, after = _seen(old), _seen(new)
    gone = {path: found for found, path in before.items() if found not in after}
    come = {path: found for found, path in after.items() if found not in before}
    return declared + [f"{path} {_step(was, now)}" for path, was, now in _pairs(gone, come)]


def _declared(record: RunRecord) -> dict[str, str]:
    return {name: str(found.get("digest") or "") for name, found in record.data["declared"].items()}


def _seen(record: RunRecord) -> dict[str, str]:
    read = (found for found in record.data["read"] if found.get("role") == "data")
    return {str(found.get("digest")): _name(found.get("path")) for found in read}


def _name(path: Any) -> str:
    return str(path).rpartition("/")[2]


def code_changes(old: RunRecord, new: RunRecord) -> list[str]:
    return [f"version {_step(old.version, new.version)}"]


def environment_changes(old: RunRecord, new: RunRecord) -> list[str]:
    """Python, then packages, then devices."""
    was, now = old.environment, new.environment
    changes = (
        [f"Python {_step(was.get('python'), now.get('python'))}"] if was.get("python") != now.get("python") else []
    )
    packages = _pairs(was.get("packages") or {}, now.get("packages") or {})
    changes += [f"{name} {_step(before, after)}" for name, before, after in packages if before != after]
    devices = [", ".join(map(str, found.get("gpus") or [])) or "no GPU" for found in (was, now)]
    return changes + ([f"{devices[1]} instead of {devices[0]}"] if devices[0] != devices[1] else [])


CHANGES: dict[str, Callable[[RunRecord, RunRecord], list[str]]] = {
    DATA: data_changes,
    CODE: code_changes,
    ENVIRONMENT: environment_changes,
}


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]


def _step(old: Any, new: Any) -> str:
    if not old:
        return f"{_short(new)}, which was not there"
    return f"{_short(new)} instead of {_short(old)}" if new else f"is gone, it was {_short(old)}"


def _short(text: Any) -> str:
    return str(text)[:_DIGITS]
