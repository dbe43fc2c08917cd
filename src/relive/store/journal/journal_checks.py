"""Compares a journal with its checksums: which lines and slots are missing, or are not as they were written.

Journals of format 1 have no checksums, and the slots of a killed process after its last seal have none either.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from relive.store.journal import slot_kinds
from relive.store.journal.journal_file import ROOT, SLOT_BYTES
from relive.store.journal.line_reader import FIRST_WITH_SUMS, Lines
from relive.store.journal.line_schema import JournalLine, RunEnded, SlotsSealed, lines_of
from relive.store.journal.liveness import is_shipped
from relive.store.journal.slot_reader import Slots

_LISTED = 3  # numbers of lines in a message


class JournalDamage(NamedTuple):
    """What is wrong with a journal, and from which slot on its slots can't be trusted."""

    texts: tuple[str, ...] = ()
    first_slot: int | None = None


def find_damage(path: Path, read: Lines, slots: Slots) -> JournalDamage:
    """Returns the damage of a journal whose lines were read after its slots."""
    if not slots.has_file:
        gone = (f"{path.name}.slots is missing, and with it all numbers",) if read.lines else ()
        return JournalDamage(gone, 1 if gone else None)
    problems = tuple(f"{path.name}.slots: {problem}" for problem in slots.problems)
    if problems:
        return JournalDamage(problems, 1)
    missing = _missing_lines(path, read, slots)
    if not missing and (not read.lines or read.lines[0].v < FIRST_WITH_SUMS):
        return JournalDamage()
    seals = lines_of(SlotsSealed, read.lines)
    broken = [found for seal in seals if (found := _broken_slots(seal, slots.raw)) is not None]
    texts = [f"{path.name}.slots: {text}" for _, text in broken]
    first_slot = min((first for first, _ in broken), default=None)
    if missing:
        listed = ", ".join(map(str, missing[:_LISTED])) + (", …" if len(missing) > _LISTED else "")
        texts.append(f"{path.name}.lines: {len(missing)} lines are missing or not as they were written ({listed})")
    repeated = [seq for seq, count in Counter(line.seq for line in read.lines).items() if count > 1]
    if repeated:
        texts.append(f"{path.name}.lines: {len(repeated)} lines are there more than once")
    extra = _first_extra_slot(seals, slots)
    if extra is not None:
        texts.append(f"{path.name}.slots: slots from {extra} on were written after the end")
        first_slot = extra if first_slot is None else min(extra, first_slot)
    return JournalDamage(tuple(texts), first_slot)


def trusted_lines(lines: list[JournalLine], first_slot: int) -> list[JournalLine]:
    """Returns the lines that do not depend on slots from `first_slot` on; the loops of others are not known."""
    return [line for line in lines if line.seq < first_slot or line.loop == ROOT]


def _missing_lines(path: Path, read: Lines, slots: Slots) -> list[int]:
    """Returns the positions of lines whose slot is there: a line is written before its slot."""
    import numpy as np

    is_sealed_format = any(line.v >= FIRST_WITH_SUMS for line in read.lines)
    if not is_sealed_format and read.lines and not read.damaged:
        return []
    there = np.asarray([line.seq for line in read.lines] + sorted(read.skipped), np.int64)
    wanted = slots.seq[slots.kind == slot_kinds.LINE]
    missing: list[int] = np.setdiff1d(wanted, there).tolist()
    if is_shipped(path.parent) and not lines_of(RunEnded, read.lines):
        last = int(there.max()) if len(there) else 0
        missing = [seq for seq in missing if seq < last]  # the others have not arrived yet
    return missing


def _broken_slots(seal: SlotsSealed, raw: Any) -> tuple[int, str] | None:
    """Returns the first slot that can't be trusted, and why; None if the slots are as they were written."""
    from xxhash import xxh3_64_hexdigest

    end, there = seal.first + seal.count, len(raw) // SLOT_BYTES
    if there < end:
        return max(there, 1), f"slots {max(there, seal.first)}–{end - 1} are missing"
    if xxh3_64_hexdigest(raw[seal.first * SLOT_BYTES : end * SLOT_BYTES]) != seal.digest:
        return seal.first, f"slots {seal.first}–{end - 1} are not as they were written"
    return None


def _first_extra_slot(seals: list[SlotsSealed], slots: Slots) -> int | None:
    """Returns the first slot after those that were there when the journal was closed, if there is one."""
    if not any(seal.last for seal in seals):
        return None
    extra = slots.seq[slots.seq >= max(seal.first + seal.count for seal in seals)]
    return int(extra[0]) if len(extra) else None
