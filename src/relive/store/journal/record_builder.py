"""Builds the record of a run, with its six fields, from the lines of its canonical rank."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from relive.model import KILLED, RUNNING, RunRecord
from relive.store.journal import line_schema
from relive.store.journal.line_schema import EntryPointFields, JournalLine, RunEnded, RunStarted, lines_of
from relive.store.journal.liveness import SILENCE_S, is_process_alive, last_contact

if TYPE_CHECKING:
    from relive.store.journal.journal_parser import ParsedJournal

STALE_S = 300  # a run on another machine that showed no sign of life for this long is taken for dead
# The lines that a record is built from; the last line, of whatever kind, tells when a killed run ended.
RECORD_KINDS = frozenset(
    "run child replay arg tag version data read data_version packages modules artifact warning lost end".split()
)
_CODE_FIELDS = ("tree", "branch", "head", "user_branch", "dirty", "repository", "root", "large", "left_out")
_ENTRY_FIELDS = ("kind", "script", "module", "cwd", "instrumented")
_DATA_FIELDS = ("path", "kind", "digest", "size_bytes", "detail", "role")


def build_record(run: str, lines: Sequence[JournalLine], ranks: tuple[int, ...], folder: Path) -> RunRecord:
    """Builds the record of a run from the lines of its canonical rank."""
    start, end = _find_start(lines), _find_end(lines)
    outcome = end.outcome if end else (RUNNING if _is_process_live(start, folder) else KILLED)
    entry = (start.entry if start else None) or EntryPointFields()
    return RunRecord(
        run=run, name=start.name if start else "", project=start.project if start else "",
        started_us=start.wall_ns // 1000 if start else 0, ended_us=_ended_us(start, end, lines, outcome),
        outcome=outcome, error=msgspec.to_builtins(end.error) if end else None, filename=_filename(entry),
        parent=start.parent if start else None, world_size=start.world_size if start else 1, ranks=ranks,
        tags=_tags(start, lines), config=_config(start, lines), code=_code(entry, lines),
        data=_data(lines), environment=_environment(start, lines), artifacts=_artifacts(lines),
        incomplete=describe_losses(lines),
        warnings=tuple(line.message for line in lines_of(line_schema.WarningGiven, lines)),
        process={key: getattr(start, key, None) for key in ("pid", "start", "host")},
    )  # fmt: skip


def complete_record(record: RunRecord, journals: Sequence[ParsedJournal]) -> RunRecord:
    """Adds what only the whole journals tell: what is damaged, and when a killed run ended."""
    damage = tuple(text for journal in journals for text in journal.damage)
    if damage:
        record = dataclasses.replace(record, incomplete=(*record.incomplete, *damage))
    if record.outcome != KILLED:
        return record
    # Its last line may be much older than its last record; what was replayed since is no part of its time.
    recorded = (journal for journal in journals if len(journal) and not journal.journal.replay)
    last = max((int(journal.time_us[-1]) for journal in recorded), default=0)
    return dataclasses.replace(record, ended_us=max(last, record.ended_us or 0))


def is_live(lines: Sequence[JournalLine], folder: Path) -> bool:
    """Whether the process that writes these lines is still running."""
    return _find_end(lines) is None and _is_process_live(_find_start(lines), folder)


def _find_start(lines: Sequence[JournalLine]) -> RunStarted | None:
    return next(iter(lines_of(RunStarted, lines)), None)


def _find_end(lines: Sequence[JournalLine]) -> RunEnded | None:
    return next(reversed(lines_of(RunEnded, lines)), None)


def _is_process_live(start: RunStarted | None, folder: Path) -> bool:
    if start is None:
        return False
    contact = last_contact(folder)
    if contact is not None:  # recorded elsewhere: a process with that pid here is another one
        return contact > time.time() - SILENCE_S
    if start.host == platform.node():
        return is_process_alive(start.pid, start.start)
    try:
        return os.stat(folder / f"{start.rank}.lines").st_mtime > time.time() - STALE_S
    except OSError:
        return False


def _ended_us(start: RunStarted | None, end: RunEnded | None, lines: Sequence[JournalLine], outcome: str) -> int | None:
    if outcome == RUNNING:
        return None
    last = end or (lines[-1] if lines else None)
    return ((last.t if last else 0) + (start.clock_to_wall_ns if start else 0)) // 1000


def _filename(entry: EntryPointFields) -> str:
    if not entry.script:
        return entry.module or entry.kind or ""
    if entry.root and entry.script.startswith(entry.root + os.sep):
        return os.path.relpath(entry.script, entry.root)
    return os.path.basename(entry.script)


def describe_losses(lines: Sequence[JournalLine]) -> tuple[str, ...]:
    """What the run could not record."""
    found = {(line.what, line.why): line for line in lines_of(line_schema.RecordsLost, lines)}
    return tuple(
        f"{line.count} {line.what} lost, {line.why} at {time.strftime('%H:%M:%S', time.localtime(line.wall_ns / 1e9))}"
        for line in found.values()
    )


def _tags(start: RunStarted | None, lines: Sequence[JournalLine]) -> dict[str, Any]:
    """The tags that the run began with, and those it was given later."""
    later = {line.name: line.value for line in lines_of(line_schema.Tag, lines)}
    return {**((start.tags if start else None) or {}), **later}


def _config(start: RunStarted | None, lines: Sequence[JournalLine]) -> dict[str, Any]:
    args = {
        line.name: {"value": line.value, "default": line.default, "origin": line.origin}
        for line in lines_of(line_schema.Arg, lines)
    }
    return {"args": args, "argv": start.argv if start else []}


def _code(entry: EntryPointFields, lines: Sequence[JournalLine]) -> dict[str, Any]:
    captured = next(iter(lines_of(line_schema.VersionCaptured, lines)), None)
    code = _present_fields(captured, _CODE_FIELDS)
    started = {name: getattr(entry, name) or None for name in _ENTRY_FIELDS}
    return {"version": captured.id if captured else None, **code, **started}


def _data(lines: Sequence[JournalLine]) -> dict[str, Any]:
    declared = lines_of(line_schema.DataDeclared, lines)
    read = lines_of(line_schema.InputRead, lines)
    versions = lines_of(line_schema.DataVersion, lines)
    return {
        "version": versions[-1].id if versions else None,
        "declared": {line.name: _present_fields(line, _DATA_FIELDS) for line in declared},
        "read": [_present_fields(line, _DATA_FIELDS) for line in read],
    }


def _environment(start: RunStarted | None, lines: Sequence[JournalLine]) -> dict[str, Any]:
    installed = lines_of(line_schema.PackagesInstalled, lines)
    packages = installed[0].packages if installed else {}
    found = (start.environment if start else None) or {}
    found = {**found, "variables": recorded_variables(start, lines)} if found else found
    return {**found, "packages": packages}


def recorded_variables(start: RunStarted | None, lines: Sequence[JournalLine]) -> dict[str, str]:
    """Returns the environment variables of a run that were recorded: when it began, or when code was imported."""
    found = dict(((start.environment if start else None) or {}).get("variables") or {})
    for line in lines_of(line_schema.ModulesImported, lines):
        found.update(line.variables or {})
    return found


def _artifacts(lines: Sequence[JournalLine]) -> tuple[dict[str, Any], ...]:
    kept = lines_of(line_schema.ArtifactKept, lines)
    own = line_schema.ArtifactKept.__struct_fields__[len(JournalLine.__struct_fields__) :]
    return tuple({line.name: _present_fields(line, own) for line in kept}.values())


def _present_fields(line: JournalLine | None, names: Sequence[str]) -> dict[str, Any]:
    """The fields that the line has on disk."""
    return {name: value for name in names if (value := getattr(line, name, UNSET)) is not UNSET}
