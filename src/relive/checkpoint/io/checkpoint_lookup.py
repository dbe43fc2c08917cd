"""Finds the checkpoint of a run at an iteration, and restores the first one that is intact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.checkpoint.io.checkpoint_reader import Checkpoint, open_checkpoint
from relive.errors import Damaged, NotFound
from relive.store import Home, describe_origin, is_trusted, refusal
from relive.store.catalog import Index, find_run
from relive.store.chunks import CheckpointRow, Chunks, Packs, list_kept_checkpoints, restore_candidates
from relive.store.journal import parse_run


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that a run's journal names; whether its bytes are intact is known when it is read."""

    where: str
    manifest: str
    home: Home
    refusal: str = ""  # why it must not run code; "" if it may
    origin: str = ""  # where it was fetched from; "" if it was recorded in this home

    def open(self) -> Checkpoint:
        return open_checkpoint(self.manifest, Chunks(self.home.chunks), open_packs(self.home), refusal=self.refusal)


def find_checkpoints(home: Home, run: str, at: Mapping[str, Any]) -> list[FoundCheckpoint]:
    """Returns the checkpoint of a run at an iteration, then the earlier ones; raises NotFound if there is none."""
    record = find_run(Index(home).runs(), run).record
    canonical = [journal for journal in parse_run(home, record.run) if not journal.journal.rank]
    rows = list_kept_checkpoints(home.run_folder(record.run), canonical)
    found = restore_candidates(rows, at)
    if not found:
        raise NotFound(_missing_message(record.run, at, rows))
    why = "" if is_trusted(home, record.run) else refusal(home, record.run, doing="restoring it")
    origin = describe_origin(home, record.run)
    return [FoundCheckpoint(row.where, row.manifest, home, why, origin) for row in found]


def restore_first_intact(
    found: Sequence[FoundCheckpoint], into: Mapping[str, Any], *, random: bool, only_first: bool
) -> tuple[Checkpoint, list[str]]:
    """Restores the first checkpoint that is intact; returns it, and what is wrong with those before it."""
    damaged: list[str] = []
    for candidate in found:
        try:
            checkpoint = candidate.open()
            checkpoint.restore(into, random=random)
        except Damaged as error:
            if only_first:
                earlier = ", ".join(one.where for one in found[1:6])
                remedy = f"try an earlier one: {earlier}" if earlier else "there is no earlier one"
                raise type(error)(f"the checkpoint at {candidate.where} can't be read: {error}; {remedy}") from error
            damaged.append(f"{candidate.where}: {error}")
        else:
            return checkpoint, damaged
    raise Damaged(f"no checkpoint of the run can be read ({damaged[0]}); run `relive doctor`")


def open_packs(home: Home) -> Packs:
    return Packs(home.packs)


def _missing_message(run: str, at: Mapping[str, Any], rows: Sequence[CheckpointRow]) -> str:
    iteration = ", ".join(f"{loop}={value}" for loop, value in at.items()) or "any iteration"
    if not rows:
        return f"run {run} has no checkpoints; train inside `with relive.checkpointing(model=…)`"
    existing = ", ".join(row.where for row in rows[-10:])
    return f"run {run} has no checkpoint at {iteration}; there are {existing}; name one of those"
