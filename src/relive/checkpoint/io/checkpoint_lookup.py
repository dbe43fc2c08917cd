"""Which checkpoint a user means by a run and an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.checkpoint.io.checkpoint_reader import Checkpoint
from relive.errors import Damaged, NotFound
from relive.store import Home
from relive.store.catalog import Index, find_run
from relive.store.chunks import CheckpointRow, Chunks, Packs, candidates, kept_checkpoints
from relive.store.journal import parse_run


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that a run's journal names; whether its bytes are whole shows when it is read."""

    where: str
    manifest: str
    home: Home

    def open(self) -> Checkpoint:
        return Checkpoint(self.manifest, Chunks(self.home.chunks), packs_of(self.home))


def find_checkpoints(home: Home, run: str, at: Mapping[str, Any]) -> list[FoundCheckpoint]:
    """The checkpoint of a run at an iteration, and then the earlier ones; says which there are when there is none."""
    record = find_run(Index(home).runs(), run).record
    canonical = [journal for journal in parse_run(home, record.run) if not journal.journal.rank]
    rows = kept_checkpoints(home.run_folder(record.run), canonical)
    found = candidates(rows, at)
    if not found:
        raise NotFound(_missing(record.run, at, rows))
    return [FoundCheckpoint(row.where, row.manifest, home) for row in found]


def restore_first_whole(
    found: Sequence[FoundCheckpoint], into: Mapping[str, Any], *, random: bool, only_first: bool
) -> tuple[Checkpoint, list[str]]:
    """Restore the first checkpoint that is whole; tells what is wrong with those before it."""
    damaged: list[str] = []
    for one in found:
        try:
            checkpoint = one.open()
            checkpoint.restore(into, random=random)
        except Damaged as error:
            if only_first:
                others = (
                    f"whole may be {', '.join(f.where for f in found[1:6])}" if found[1:] else "there is no earlier"
                )
                raise type(error)(f"the checkpoint at {one.where} can't be read: {error}; {others}") from error
            damaged.append(f"{one.where}: {error}")
        else:
            return checkpoint, damaged
    raise Damaged(f"no checkpoint of the run can be read ({damaged[0]}); run `relive doctor`")


def packs_of(home: Home) -> Packs:
    return Packs(home.packs)


def _missing(run: str, at: Mapping[str, Any], rows: Sequence[CheckpointRow]) -> str:
    wanted = ", ".join(f"{loop}={value}" for loop, value in at.items()) or "any iteration"
    if not rows:
        return f"run {run} has no checkpoints; train inside `with relive.checkpointing(model=…)`"
    there = ", ".join(row.where for row in rows[-10:])
    return f"run {run} has no checkpoint at {wanted}; there are {there}"
