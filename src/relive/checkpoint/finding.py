"""Which checkpoint a user means by a run and an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relive.checkpoint.restoring import Checkpoint
from relive.errors import NotFound
from relive.store import CheckpointRow, Chunks, Home, Index, Packs, choose, find_run, kept_checkpoints, parse_run


def find_checkpoint(home: Path, run: str, at: Mapping[str, Any]) -> Checkpoint:
    """Open the checkpoint of a run at an iteration; says which there are when that one is not."""
    place = Home(home)
    record = find_run(Index(place).runs(), run).record
    canonical = [journal for journal in parse_run(place, record.run) if not journal.journal.rank]
    rows = kept_checkpoints(place.run_folder(record.run), canonical)
    chosen = choose(rows, at)
    if chosen is None:
        raise NotFound(_missing(record.run, at, rows))
    return Checkpoint(chosen.manifest, Chunks(place.chunks), packs_of(place))


def packs_of(home: Home) -> Packs:
    return Packs(home.packs)


def _missing(run: str, at: Mapping[str, Any], rows: Sequence[CheckpointRow]) -> str:
    wanted = ", ".join(f"{loop}={value}" for loop, value in at.items()) or "any iteration"
    if not rows:
        return f"run {run} has no checkpoints; train inside `with relive.checkpointing(model=…)`"
    there = ", ".join(row.where for row in rows[-10:])
    return f"run {run} has no checkpoint at {wanted}; there are {there}"
