"""One run as the index hands it out: found by a word, read from its journals, encoded as the record of the catalog."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from relive.errors import Damaged, NotFound
from relive.model import RUNNING, RunRecord
from relive.store.home import Home, JournalName, list_journals
from relive.store.journal import (
    RECORD_KINDS,
    LineFollower,
    RunJournals,
    build_record,
    has_line_slots,
    is_live,
    read_lines,
)

if TYPE_CHECKING:
    from relive.store.journal import ParsedJournal

MAX_RECORD_BYTES = 16 << 20  # of lines that describe one run, without those of values


@dataclass(frozen=True, slots=True, eq=False)
class RunEntry:
    """A run of the index: in the catalog (then it has a number), or read from its journals (then it has those)."""

    record: RunRecord
    number: int | None = None
    live: Sequence[ParsedJournal] = ()  # its journals, parsed on first access

    def journals(self, *, all_ranks: bool) -> list[ParsedJournal]:
        """Returns the journals of the canonical rank, or of all ranks; does not parse the others."""
        if isinstance(self.live, RunJournals):
            return [self.live.parsed(name) for name in self.live.paths if all_ranks or not name.rank]
        return [journal for journal in self.live if all_ranks or not journal.journal.rank]


def find_run(entries: Sequence[RunEntry], word: str) -> RunEntry:
    """Returns the run that a word names: by the beginning of its id, by its name, or `last`."""
    if not entries:
        raise NotFound("there are no runs yet; record one with `python train.py`")
    if word == "last":
        return entries[-1]
    found = [entry for entry in entries if word and entry.record.run.startswith(word)]
    found = found or [entry for entry in entries if word and entry.record.name == word]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"no run {word!r} here; `relive runs` lists them")
    listed = ", ".join(entry.record.run for entry in found[:5])
    raise NotFound(f"{word!r} could be {len(found)} runs ({listed}); give more of the id")


class RunReader:
    """Reads runs from their journals, and reads of those that it knows only what was appended since."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._followers: dict[str, LineFollower] = {}

    def read(self, run: str) -> RunEntry | None:
        """Reads a run, with its points if it is live; None if it has no journal yet."""
        folder = self._home.run_folder(run)
        journals = list(list_journals(folder))
        if not journals:
            return None
        path = journals[0][1]
        ranks = tuple(name.rank for name, _ in journals if not name.process)
        lines = self._follower(run, path).lines()
        if not lines:
            if has_line_slots(path):
                raise Damaged(f"{path.name}.lines is missing or empty; copy it back from a backup")
            return None  # it is just beginning, or died then
        record = build_record(run, lines, ranks, folder)
        if record.outcome != RUNNING and not _is_another_rank_live(folder, journals):
            return RunEntry(record)
        return RunEntry(record, live=RunJournals(dict(journals)))

    def _follower(self, run: str, path: Path) -> LineFollower:
        if run not in self._followers:
            self._followers[run] = LineFollower(path, RECORD_KINDS, MAX_RECORD_BYTES)
        return self._followers[run]

    def keep_only(self, runs: Collection[str]) -> None:
        """Forgets all runs except these."""
        for run in self._followers.keys() - set(runs):
            del self._followers[run]


def read_run(home: Home, run: str) -> RunEntry | None:
    """Reads a run from its journals, with its points if it is live; None if it has no journal yet."""
    return RunReader(home).read(run)


def bypass_index(home: Home, entry: RunEntry) -> RunEntry:
    """Returns the run with its journals instead of its id in the catalog: reading one is faster than indexing all."""
    return (
        entry
        if entry.live
        else RunEntry(entry.record, live=RunJournals(dict(list_journals(home.run_folder(entry.record.run)))))
    )


def _is_another_rank_live(folder: Path, journals: list[tuple[JournalName, Path]]) -> bool:
    return any(is_live(read_lines(path).lines, folder) for name, path in journals[1:] if not name.process)


def encode_record(record: RunRecord) -> str:
    return msgspec.json.encode(record).decode()


_record_decoder = msgspec.json.Decoder(RunRecord)


def decode_record(text: str) -> RunRecord:
    return _record_decoder.decode(text)
