"""Side-by-side values of several runs, the differences between two, and the code versions that runs used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relive.model import RunRecord, Verdict
from relive.query.compare.comparability import CHANGES, DATA, ENVIRONMENT, IDENTITY
from relive.store.catalog import Index, RunEntry, Summary, find_run
from relive.store.journal import finite_or_none, plain_value, plain_value_from_json
from relive.store.versions import version_checkout

_RUN_FIELDS = ("run", "name", "outcome", "filename", "version", "data_version", "took_s", "started_us")


def compare_runs(index: Index, runs: Sequence[str]) -> dict[str, Any]:
    """Returns the args and metrics of some runs side by side: for each name one value per run, in the order given."""
    entries = _find_runs(index, runs)
    records = [entry.record for entry in entries]
    found = index.summaries(entries)
    return {
        "runs": [{field: getattr(record, field) for field in _RUN_FIELDS} for record in records],
        "args": _side_by_side([_plain_args(record) for record in records]),
        "metrics": _side_by_side([{s.name: _summary_values(s) for s in found[record.run]} for record in records]),
        "same": {guard: len({identity(record) for record in records}) == 1 for guard, identity in IDENTITY.items()},
    }  # fmt: skip


def diff_runs(index: Index, old: str, new: str) -> dict[str, Any]:
    """Returns the differences between two runs: code as a unified diff, args, data, environment, metrics."""
    entries = _find_runs(index, [old, new])
    first, second = (entry.record for entry in entries)
    sides = compare_runs(index, [first.run, second.run])
    has_code = first.version and second.version
    return {
        "runs": sides["runs"],
        "code": version_checkout.diff(index.home, first.code, second.code) if has_code else None,
        "args": [row for row in sides["args"] if row["differs"]],
        "data": CHANGES[DATA](first, second),
        "environment": CHANGES[ENVIRONMENT](first, second),
        "metrics": [row for row in sides["metrics"] if row["differs"]],
    }


def list_code_versions(index: Index) -> list[dict[str, Any]]:
    """Returns every code version that a run of this home used, newest first, with its runs, newest first."""
    found: dict[str, list[RunRecord]] = {}
    for entry in index.runs():
        if entry.record.version:
            found.setdefault(entry.record.version, []).append(entry.record)
    return [_version_row(version, records[::-1]) for version, records in reversed(found.items())]


def _version_row(version: str, records: Sequence[RunRecord]) -> dict[str, Any]:
    code, first = records[0].code, records[-1]
    return {
        "version": version, "tree": code.get("tree"), "head": code.get("head"), "dirty": code.get("dirty"),
        "branch": code.get("branch"), "repository": code.get("repository"), "first_us": first.started_us,
        "last_us": records[0].started_us, "scripts": sorted({record.filename for record in records}),
        "runs": [
            {"run": record.run, "name": record.name, "outcome": record.outcome, "started_us": record.started_us}
            for record in records
        ],
    }  # fmt: skip


def _find_runs(index: Index, runs: Sequence[str]) -> list[RunEntry]:
    entries = index.runs()
    return [find_run(entries, word) for word in runs]


def _plain_args(record: RunRecord) -> dict[str, Any]:
    return {name: plain_value(arg["value"]) for name, arg in record.config["args"].items()}


def _summary_values(summary: Summary) -> dict[str, Any]:
    last = finite_or_none(summary.last) if summary.last_text is None else plain_value_from_json(summary.last_text)
    low, high = finite_or_none(summary.lowest), finite_or_none(summary.highest)
    verdict = {"verdict": Verdict(summary.verdict).word} if summary.verdict else {}
    return {"last": last, "min": low, "max": high, "count": summary.count, **verdict}


def _side_by_side(columns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each name in any of the columns; missing values are None."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, [column.get(name) for column in columns]) for name in names]
    return [
        {"name": name, "values": values, "differs": any(value != values[0] for value in values)}
        for name, values in rows
    ]
