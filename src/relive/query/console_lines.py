"""The console output of a run as JSON: the lines of one page, and how many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relive.store.console import ConsoleLine, read_console

Row = dict[str, Any]


def console_json(folder: Path, rank: int, *, offset: int, limit: int) -> Row:
    """Returns lines from `offset` on, of those that are kept; `total` counts these, `printed` all of the run."""
    found = read_console(folder, rank)
    return {
        "lines": [_line_json(line) for line in found.lines[offset : offset + limit]],
        "total": len(found.lines),
        "printed": found.total,
        "omitted": [{"from": first, "lines": count} for first, count in found.omitted],
        "truncated": bool(found.omitted or found.has_lost or found.damaged),
    }


def _line_json(line: ConsoleLine) -> Row:
    return {"n": line.number, "time": line.time_us / 1e6, "stream": line.stream, "text": line.text,
            **({"open": True} if line.is_open else {})}  # fmt: skip
