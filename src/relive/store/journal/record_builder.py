"""The lines of a run's journals → its record of six fields."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from relive.model import KILLED, RUNNING, RunRecord
from relive.store.journal.heartbeat import SILENCE_S, last_contact
from relive.store.journal.line_reader import Line
from relive.store.journal.liveness import is_process_alive

STALE_S = 300  # a run on another machine that gave no sign for this long is taken for dead


def build_record(run: str, lines: list[Line], ranks: tuple[int, ...], folder: Path) -> RunRecord:
    """The record of a run from the lines of its canonical rank."""
    header: Line = next((line for line in lines if line["k"] == "run"), {})
    end: Line | None = next((line for line in reversed(lines) if line["k"] == "end"), None)
    started_us = int(header.get("wall_ns", 0)) // 1000
    entry = header.get("entry") or {}
    outcome = end["outcome"] if end else (RUNNING if _lives(header, folder) else KILLED)
    return RunRecord(
        run=run, name=header.get("name", ""), project=header.get("project", ""), started_us=started_us,
        ended_us=_ended_us(header, end, lines, outcome), outcome=outcome, error=end.get("error") if end else None,
        filename=_filename(entry), parent=header.get("parent"), world_size=header.get("world_size", 1), ranks=ranks,
        tags=_tags(header, lines), config=_config(header, lines), code=_code(entry, lines),
        data=_data(lines), environment=_environment(header, lines), artifacts=_artifacts(lines),
        warnings=tuple(line["message"] for line in lines if line["k"] == "warning"),
        process={key: header.get(key) for key in ("pid", "start", "host")},
    )  # fmt: skip


def is_live(lines: list[Line], folder: Path) -> bool:
    """Is the process that writes these lines still at it?"""
    header: Line = next((line for line in lines if line["k"] == "run"), {})
    return not any(line["k"] == "end" for line in lines) and _lives(header, folder)


def _lives(header: Line, folder: Path) -> bool:
    if not header:
        return False
    contact = last_contact(folder)
    if contact is not None:  # recorded elsewhere: a process of that number here would be another
        return contact > time.time() - SILENCE_S
    if header.get("host") == platform.node():
        return is_process_alive(header.get("pid"), header.get("start"))
    try:
        return os.stat(folder / f"{header.get('rank', 0)}.lines").st_mtime > time.time() - STALE_S
    except OSError:
        return False


def _ended_us(header: Line, end: Line | None, lines: list[Line], outcome: str) -> int | None:
    if outcome == RUNNING:
        return None
    last = end or (lines[-1] if lines else {})
    clock_to_wall_ns: int = header.get("wall_ns", 0) - header.get("clock_ns", 0)
    return (int(last.get("t", 0)) + clock_to_wall_ns) // 1000


def _filename(entry: dict[str, Any]) -> str:
    script = entry.get("script")
    if not script:
        return str(entry.get("module") or entry.get("kind") or "")
    root = entry.get("root") or ""
    return os.path.relpath(script, root) if root and script.startswith(root + os.sep) else os.path.basename(script)


def _tags(header: Line, lines: list[Line]) -> dict[str, Any]:
    """Those that it began with, and those it was given later."""
    later = {line["name"]: line["value"] for line in lines if line["k"] == "tag"}
    return {**(header.get("tags") or {}), **later}


def _config(header: Line, lines: list[Line]) -> dict[str, Any]:
    args = {
        line["name"]: {key: line.get(key) for key in ("value", "default", "origin")}
        for line in lines
        if line["k"] == "arg"
    }
    return {"args": args, "argv": header.get("argv", [])}


def _code(entry: dict[str, Any], lines: list[Line]) -> dict[str, Any]:
    taken = next((line for line in lines if line["k"] == "version"), {})
    kept = ("tree", "branch", "head", "user_branch", "dirty", "repository", "root", "large", "left_out")
    code = {key: taken[key] for key in kept if key in taken}
    told = {k: entry.get(k) for k in ("kind", "script", "module", "cwd", "instrumented")}
    return {"version": taken.get("id"), **code, **told}


def _data(lines: list[Line]) -> dict[str, Any]:
    kept = ("path", "kind", "digest", "size_bytes", "detail", "role")
    declared = {line["name"]: {k: line[k] for k in kept if k in line} for line in lines if line["k"] == "data"}
    read = [{k: line[k] for k in kept if k in line} for line in lines if line["k"] == "read"]
    version = next((line["id"] for line in reversed(lines) if line["k"] == "data_version"), None)
    return {"version": version, "declared": declared, "read": read}


def _environment(header: Line, lines: list[Line]) -> dict[str, Any]:
    packages: dict[str, str] = next((line["packages"] for line in lines if line["k"] == "packages"), {})
    return {**(header.get("environment") or {}), "packages": packages}


def _artifacts(lines: list[Line]) -> tuple[dict[str, Any], ...]:
    envelope = {"v", "seq", "t", "k", "loop", "i"}
    found = {
        line["name"]: {key: value for key, value in line.items() if key not in envelope}
        for line in lines
        if line["k"] == "artifact"
    }
    return tuple(found.values())
