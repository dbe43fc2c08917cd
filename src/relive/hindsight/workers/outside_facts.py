"""What the record of a run says about files outside of its project, for its workers and about what they read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relive.hindsight.plan import RankHistory
from relive.hindsight.workers.confinement import UNKNOWN_BEGINNING
from relive.hindsight.workers.wire import OutsideRead
from relive.hindsight.workers.workspace import script_began_s
from relive.model import RunRecord
from relive.record.provenance import APPENDED, is_as_recorded, is_beginning_as_recorded
from relive.store.journal import line_schema

MAX_NEW_BYTES = 16 << 20  # a longer file that the run appended to may have had a beginning that was not recorded


def outside_fields(record: RunRecord, rank: RankHistory, base: Path, scratch: Path | None) -> dict[str, Any]:
    """Returns the fields of a job that tell its worker about files outside of the project."""
    outside = {
        line.manifest: line.outside or {}
        for line in line_schema.lines_of(line_schema.CheckpointTaken, rank.recorded.lines)
    }
    private = {base: Path(record.code["root"]).parent}  # what a script reaches by `../`
    if scratch is not None:
        private[scratch] = Path(tempfile.gettempdir())
    return {
        "outside": outside, "beginnings": _beginnings(record, outside), "root": record.code["root"],
        "started_s": script_began_s(record, rank.recorded),
        "private": [(os.path.realpath(own), os.path.realpath(then)) for own, then in private.items()],
    }  # fmt: skip


def _beginnings(record: RunRecord, outside: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Returns how long files were when the run began to append to them, if their beginnings are still there."""
    written = {path for changed in outside.values() for path in changed}
    found = {path: 0 for path in written if _size_bytes(path) <= MAX_NEW_BYTES}
    for item in record.data["read"]:
        if item.get("role") == APPENDED:
            real = os.path.realpath(item["path"])
            found[real] = int(item.get("size_bytes") or 0) if is_beginning_as_recorded(item) else UNKNOWN_BEGINNING
    return found


def _size_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def doubtful_reads(record: RunRecord, reads: Sequence[OutsideRead]) -> list[OutsideRead]:
    """Returns those that the run wrote itself, or whose content is not the one that it was seen reading."""
    return [one for one in reads if one.is_of_the_run or not is_as_recorded(record, one.path)]
