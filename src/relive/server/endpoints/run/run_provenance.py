"""Questions about what a run was started with: config, data, environment, and the commands that repeat it."""

from __future__ import annotations

import shlex
from typing import Any

from relive.model import SHORT_ID_DIGITS, RunRecord
from relive.query import MAX_CELL_CHARS, cell_chars, cut_cell, page_of
from relive.query.compare import data_changes
from relive.server.endpoints.run.run_lookup import find_record
from relive.server.endpoints.run.wire_values import differing, wire_value
from relive.store.catalog import Index

_HARDWARE = ("hostname", "platform", "cpu", "cpus", "cpus_usable", "memory_bytes", "gpus")
_PROCESS = ("python", "implementation", "executable", "user", "cwd")


def describe_config(index: Index, run: str, against: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns args and the command line of a run; with `against`, also the args that differ from another run's."""
    record = find_record(index, run)
    args = record.config["args"]
    chars = cell_chars(limit, 2)
    found: dict[str, Any] = {
        "args": {
            name: {"value": _cut(arg["value"], chars), "default": _cut(arg["default"], chars), "origin": arg["origin"]}
            for name, arg in page_of(args, offset, limit).items()
        },
        "total": len(args),
        "argv": _cut_all(record.config["argv"], limit),
        "tags": _cut_all(record.tags, limit),
    }
    if against:
        other = find_record(index, against)
        found |= _page_of_changes(other, differing(_plain_args(record), _plain_args(other)), offset, limit)
    return found


def _page_of_changes(other: RunRecord, changed: list[dict[str, Any]], offset: int, limit: int) -> dict[str, Any]:
    """Returns a page of what differs from another run."""
    chars = cell_chars(limit, 2)
    rows = [
        {"name": row["name"], "here": cut_cell(row["here"], chars)[0], "there": cut_cell(row["there"], chars)[0]}
        for row in changed[offset : offset + limit]
    ]
    return {"against": other.run, "changed": rows, "changed_total": len(changed)}


def _cut(form: Any, chars: int) -> Any:
    return cut_cell(wire_value(form), chars)[0]


def _cut_all(items: Any, limit: int) -> Any:
    """Returns the first items of a list or a mapping, each cut to the length of a cell."""
    chars, shown = cell_chars(limit, 1), page_of(items, 0, limit)
    if isinstance(shown, dict):
        return {name: _cut(item, chars) for name, item in shown.items()}
    return [_cut(item, chars) for item in shown]


def _plain_args(record: RunRecord) -> dict[str, Any]:
    return {name: wire_value(arg["value"]) for name, arg in record.config["args"].items()}


def describe_data(index: Index, run: str, against: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns declared data and the files that a run was seen reading; with `against`, what differs."""
    record = find_record(index, run)
    read = record.data["read"]
    found: dict[str, Any] = {
        "version": record.data_version,
        "declared": [{"name": name, **wire_value(facts)} for name, facts in record.data["declared"].items()][:limit],
        "observed": [wire_value(facts) for facts in read[offset : offset + limit]],
        "total": len(read),
    }
    if against:
        other = find_record(index, against)
        found["against"] = {
            "run": other.run, "version": other.data_version, "same": record.data_version == other.data_version,
            "differences": data_changes(other, record)[:limit],
            "declared": differing(_digests(record), _digests(other))[:limit],
        }  # fmt: skip
    return found


def _digests(record: RunRecord) -> dict[str, Any]:
    return {name: facts.get("digest") for name, facts in record.data["declared"].items()}


def describe_run_environment(index: Index, run: str, against: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns interpreter, packages, machine, command and variables of a run; with `against`, what differs."""
    record = find_record(index, run)
    env = record.environment
    packages = dict(sorted((env.get("packages") or {}).items()))
    found: dict[str, Any] = {
        **{key: _cut(env.get(key), MAX_CELL_CHARS) for key in _PROCESS},
        "hardware": {key: _cut(env.get(key), MAX_CELL_CHARS) for key in _HARDWARE},
        "packages": {name: _cut(version, MAX_CELL_CHARS) for name, version in page_of(packages, offset, limit).items()},
        "total": len(packages),
        "command": _cut_all(env.get("command") or [], limit),
        "variables": _cut_all(env.get("variables") or {}, limit),
    }
    if against:
        other = find_record(index, against)
        changed = differing(_flat_environment(record), _flat_environment(other))
        found |= _page_of_changes(other, changed, offset, limit)
    return found


def _flat_environment(record: RunRecord) -> dict[str, Any]:
    env = record.environment
    flat = {key: wire_value(env.get(key)) for key in ("python", "implementation", "executable", *_HARDWARE)}
    packages = {f"packages.{name}": version for name, version in (env.get("packages") or {}).items()}
    variables = {f"variables.{name}": text for name, text in (env.get("variables") or {}).items()}
    return flat | packages | variables


def describe_commands(index: Index, run: str) -> dict[str, Any]:
    """Returns the commands that repeat a run, ask it for another value, and restore its state."""
    record = find_record(index, run)
    short = record.run[:SHORT_ID_DIGITS]
    begin = [f"relive checkout {short} repeated", "cd repeated"] if record.version else []
    return {
        "reproduce": [*begin, _start_command(record)],
        "replay": f"relive replay NAME --run {short}",
        "restore": f'relive.restore("{short}", into=dict(…))',
        "show": f"relive show {short}",
        "diff": f"relive diff {short} OTHER",
    }


def _start_command(record: RunRecord) -> str:
    """Returns the command that started a run, as one would type it in its project; secrets in it are `***`."""
    words = [str(word) for word in record.environment.get("command") or ["python", *record.config["argv"]]]
    script = record.code.get("script")
    shown = [record.filename if word == script else word for word in words[1:]]
    if shown and shown[0].rpartition("/")[2] == "relive":
        return shlex.join(["relive", *shown[1:]])
    return shlex.join(["python", *shown])
