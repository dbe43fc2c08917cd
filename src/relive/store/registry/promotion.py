"""Promotes a run to a version of a model, and checks that its record is complete."""

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
from relive.store.journal import from_json
from relive.store.registry.model_registry import ModelVersion, Registry
from relive.store.versions import has_version

_CODE_FIELDS = ("version", "tree", "head", "branch", "user_branch", "dirty", "repository", "script", "module")


@dataclass(frozen=True, slots=True)
class Promotion:
    """A request to promote a run: the model, which of its artifacts, and the aliases to point to the new version."""

    run: str
    model: str
    artifact: str | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    force: bool = False


def promote(index: Index, promotion: Promotion, *, by: str | None = None) -> ModelVersion:
    """Makes a run, as it is now, the next version of a model. Refuses an incomplete record unless forced.

    `by` is who promotes; None means the user of this process.
    """
    entry = find_run(index.runs(), promotion.run)
    record = entry.record
    artifact = _find_artifact(record, promotion.artifact)
    summaries = index.summaries([entry])[record.run]
    missing = tuple(_list_missing(index.home, record, artifact, summaries))
    if missing and not promotion.force:
        problem = f"run {record.run[:8]} can't become {promotion.model}: {'; '.join(missing)}"
        raise Incomplete(f"{problem}; fix that and run again, or promote it anyway with --force", missing)
    facts = {
        "run": record.run, "artifact": artifact, "metrics": _summarize_metrics(summaries), "note": promotion.note,
        "args": {name: arg["value"] for name, arg in record.config["args"].items()},
        "code": {key: record.code[key] for key in _CODE_FIELDS if key in record.code},
        "data_version": record.data_version, "environment": record.environment, "missing": list(missing),
    }  # fmt: skip
    return Registry(index.home, by).add(promotion.model, facts, promotion.aliases)


def _find_artifact(record: RunRecord, name: str | None) -> dict[str, Any] | None:
    names = [artifact["name"] for artifact in record.artifacts]
    if name is None and len(names) > 1:
        raise NotFound(f"run {record.run[:8]} has {len(names)} artifacts ({', '.join(names)}); choose with --artifact")
    if name is not None and name not in names:
        listed = ", ".join(names) or "none"
        raise NotFound(f"run {record.run[:8]} has no artifact {name!r}; it has {listed}")
    return next((artifact for artifact in record.artifacts if name in (None, artifact["name"])), None)


def _list_missing(
    home: Home, record: RunRecord, artifact: dict[str, Any] | None, summaries: Iterable[Summary]
) -> list[str]:
    """Returns the reasons why the record of a run is incomplete, as text."""
    reasons = [
        _outcome_problem(record),
        _code_problem(home, record),
        None if record.data_version else "no data was declared or seen (relive.data)",
        None if record.environment.get("packages") else "its packages were not recorded",
        None if any(True for _ in summaries) else "it logged no values (relive.log)",
        _artifact_problem(home, artifact),
    ]
    return [reason for reason in reasons if reason]


def _outcome_problem(record: RunRecord) -> str | None:
    if record.outcome == FINISHED:
        return None
    if record.outcome == RUNNING:
        return "it is still running"
    reason = f" ({record.error['type']})" if record.outcome == FAILED and record.error else ""
    return f"it {'' if record.outcome == FAILED else 'was '}{record.outcome}{reason}"


def _code_problem(home: Home, record: RunRecord) -> str | None:
    if not record.version:
        return "no code version was taken"
    is_here = record.process.get("host") == socket.gethostname()  # the repository of another host can't be checked
    if is_here and not has_version(home, record.code):
        return f"its code version {record.version[:12]} can't be read any more"
    return None


def _artifact_problem(home: Home, artifact: dict[str, Any] | None) -> str | None:
    if artifact is None:
        return "it kept no artifact (relive.artifact)"
    lost = missing_chunks(artifact, Chunks(home.chunks))
    return f"{len(lost)} pieces of artifact {artifact['name']!r} are not in the home" if lost else None


def _summarize_metrics(summaries: Iterable[Summary]) -> dict[str, Any]:
    return {
        summary.name: {
            "last": summary.last if summary.last_text is None else from_json(summary.last_text),
            "min": summary.lowest, "max": summary.highest, "count": summary.count,
        }
        for summary in summaries
    }  # fmt: skip
