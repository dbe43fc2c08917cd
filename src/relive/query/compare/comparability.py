"""Whether two runs may be ranked together: identities of data, code and environment, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relive.hashing import digest
from relive.model import RunRecord
from relive.store.journal import to_json

DATA, CODE, ENVIRONMENT = "data", "code", "environment"
# The keys of the identities in a group of a board.
GROUP_KEYS = {DATA: "data_version", CODE: "code_version", ENVIRONMENT: "environment"}
_MAX_CHANGES = 3
_MAX_CHARS = 12


def data_identity(record: RunRecord) -> str | None:
    return record.data_version


def code_identity(record: RunRecord) -> str | None:
    """The git tree if it is known, since the same files under another HEAD are the same code; else the version."""
    return record.code.get("tree") or record.version or None


def environment_identity(record: RunRecord) -> str | None:
    """A hash of what can change results: interpreter, packages, devices. None if packages weren't recorded."""
    found = record.environment
    packages = found.get("packages")
    if not packages:
        return None
    facts = [found.get("python"), sorted(packages.items()), found.get("gpus") or []]
    return digest(to_json(facts).encode())[:16]


IDENTITY: dict[str, Callable[[RunRecord], str | None]] = {
    DATA: data_identity,
    CODE: code_identity,
    ENVIRONMENT: environment_identity,
}
_UNKNOWN_REASONS = {
    DATA: "no data was declared or observed, so it is unknown whether it is the same",
    CODE: "no code version was taken, so it is unknown whether the code is the same",
    ENVIRONMENT: "no packages were recorded, so it is unknown whether the environment is the same",
}


def difference_reason(guard: str, record: RunRecord, reference: RunRecord) -> str | None:
    """Returns why a guard separates a run from the reference run, or None if it does not."""
    identity = IDENTITY[guard]
    if identity(record) == identity(reference):
        return None
    if identity(record) is None:
        return _UNKNOWN_REASONS[guard]
    changes = CHANGES[guard](reference, record)
    shown = ", ".join(changes[:_MAX_CHANGES]) + (
        f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
    )
    return f"other {guard} than the first group: {shown}" if shown else f"other {guard} than the first group"


# --- descriptions of changes --------------------------------------------------------------------------------------


def data_changes(old: RunRecord, new: RunRecord) -> list[str]:
    """Describes changed data: declared data by name, then observed files by content; folders and times don't count."""
    declared = [
        f"{name} {_describe_change(was, now)}"
        for name, was, now in _paired_values(_declared_digests(old), _declared_digests(new))
        if was != now
    ]
    before, after = _observed_files(old), _observed_files(new)
    removed = {path: found for found, path in before.items() if found not in after}
    added = {path: found for found, path in after.items() if found not in before}
    return declared + [f"{path} {_describe_change(was, now)}" for path, was, now in _paired_values(removed, added)]


def _declared_digests(record: RunRecord) -> dict[str, str]:
    return {name: str(found.get("digest") or "") for name, found in record.data["declared"].items()}


def _observed_files(record: RunRecord) -> dict[str, str]:
    """Returns the base names of the data files that a run read, by content digest."""
    read = (found for found in record.data["read"] if found.get("role") == "data")
    return {str(found.get("digest")): _basename(found.get("path")) for found in read}


def _basename(path: Any) -> str:
    return str(path).rpartition("/")[2]


def code_changes(old: RunRecord, new: RunRecord) -> list[str]:
    return [f"version {_describe_change(old.version, new.version)}"]


def environment_changes(old: RunRecord, new: RunRecord) -> list[str]:
    """Describes changes of the Python version, then of packages, then of devices."""
    was, now = old.environment, new.environment
    changes = (
        [f"Python {_describe_change(was.get('python'), now.get('python'))}"]
        if was.get("python") != now.get("python")
        else []
    )
    packages = _paired_values(was.get("packages") or {}, now.get("packages") or {})
    changes += [f"{name} {_describe_change(before, after)}" for name, before, after in packages if before != after]
    devices = [", ".join(map(str, found.get("gpus") or [])) or "no GPU" for found in (was, now)]
    return changes + ([f"{devices[1]} instead of {devices[0]}"] if devices[0] != devices[1] else [])


CHANGES: dict[str, Callable[[RunRecord, RunRecord], list[str]]] = {
    DATA: data_changes,
    CODE: code_changes,
    ENVIRONMENT: environment_changes,
}


def _paired_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]


def _describe_change(old: Any, new: Any) -> str:
    if not old:
        return f"{_abbreviate(new)} was added"
    return f"{_abbreviate(new)} instead of {_abbreviate(old)}" if new else f"was removed, it was {_abbreviate(old)}"


def _abbreviate(text: Any) -> str:
    return str(text)[:_MAX_CHARS]
