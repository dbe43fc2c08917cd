"""What a run must have to stand for a model, and how it becomes a version of one."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relive.errors import Incomplete, NotFound
from relive.model import FAILED, FINISHED, RUNNING, RunRecord
from relive.store.catalog import Index, Summary, find_run
from relive.store.chunks import Chunks, missing_chunks
from relive.store.home import Home
from relive.store.journal import from_text
from relive.store.registry.model_registry import ModelVersion, Registry
from relive.store.versions import has_version

_CODE = ("version", "tree", "head", "branch", "user_branch", "dirty", "repository", "script", "module")


@dataclass(frozen=True, slots=True)
class Promotion:
    """What to promote: a run under a name; which of its artifacts; which aliases come to point to it."""

    run: str
    model: str
    artifact: str | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    force: bool = False


def promote(index: Index, asked: Promotion) -> ModelVersion:
    """Bind a run, as it is now, to the next version of a model. An incomplete record is refused, or noted by force."""
    entry = find_run(index.runs(), asked.run)
    record = entry.record
    artifact = _chosen(record, asked.artifact)
    metrics = index.summaries([entry])[record.run]
    missing = tuple(what_is_missing(index.home, record, artifact, metrics))
    if missing and not asked.force:
        why = f"run {record.run[:8]} can't become {asked.model}: {'; '.join(missing)}"
        raise Incomplete(f"{why}; mend that and run again, or note it with --force", missing)
    facts = {
        "run": record.run, "artifact": artifact, "metrics": _metrics(metrics), "note": asked.note,
        "args": {name: arg["value"] for name, arg in record.config["args"].items()},
        "code": {key: record.code[key] for key in _CODE if key in record.code},
        "data_version": record.data_version, "environment": record.environment, "missing": list(missing),
    }  # fmt: skip
    return Registry(index.home).add(asked.model, facts, asked.aliases)


def _chosen(record: RunRecord, name: str | None) -> dict[str, Any] | None:
    names = [artifact["name"] for artifact in record.artifacts]
    if name is None and len(names) > 1:
        raise NotFound(f"run {record.run[:8]} has {len(names)} artifacts ({', '.join(names)}); choose with --artifact")
    if name is not None and name not in names:
        listed = ", ".join(names) or "none"
        raise NotFound(f"run {record.run[:8]} has no artifact {name!r}; it has {listed}")
    return next((artifact for artifact in record.artifacts if name in (None, artifact["name"])), None)


def what_is_missing(
    home: Home, record: RunRecord, artifact: dict[str, Any] | None, metrics: Iterable[Summary]
) -> list[str]:
    """What keeps the record of a run from being complete, in words."""
    found = [
        _outcome(record),
        _code(home, record),
        None if record.data_version else "no data was declared or seen (relive.data)",
        None if record.environment.get("packages") else "its packages were not recorded",
        None if any(True for _ in metrics) else "it logged no values (relive.log)",
        _artifact(home, artifact),
    ]
    return [one for one in found if one]


def _outcome(record: RunRecord) -> str | None:
    if record.outcome == FINISHED:
        return None
    if record.outcome == RUNNING:
        return "it is still running"
    reason = f" ({record.error['type']})" if record.outcome == FAILED and record.error else ""
    return f"it {'failed' if record.outcome == FAILED else 'was killed'}{reason}"


def _code(home: Home, record: RunRecord) -> str | None:
    if not record.version:
        return "no code version was taken"
    is_here = record.process.get("host") == socket.gethostname()  # elsewhere the repository can't be looked at
    if is_here and not has_version(home, record.code):
        return f"its code version {record.version[:12]} can't be read any more"
    return None


def _artifact(home: Home, artifact: dict[str, Any] | None) -> str | None:
    if artifact is None:
        return "it kept no artifact (relive.artifact)"
    lost = missing_chunks(artifact, Chunks(home.chunks))
    return f"{len(lost)} pieces of artifact {artifact['name']!r} are not in the home" if lost else None


def _metrics(summaries: Iterable[Summary]) -> dict[str, Any]:
    return {
        one.name: {
            "last": one.last if one.last_text is None else from_text(one.last_text),
            "min": one.lowest, "max": one.highest, "count": one.count,
        }
        for one in summaries
    }  # fmt: skip
