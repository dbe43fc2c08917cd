"""Answers queries about all runs of a home from the catalog, updated on demand, and the journals of live runs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from relive.model import SHORT_ID_DIGITS, RunRecord
from relive.store.catalog import parquet_segments
from relive.store.catalog.live_summaries import LiveSummaries
from relive.store.catalog.point_columns import combine_journals, to_points
from relive.store.catalog.points import Points
from relive.store.catalog.replay_overlay import LATEST, ReplayChoice, has_happened, replay_header
from relive.store.catalog.row_seals import IndexDamaged, refuse, report_rebuild
from relive.store.catalog.run_catalog import Catalog, RunDetailRows, RunRow, loop_row
from relive.store.catalog.run_entries import RunEntry, RunReader, bypass_index, decode_record, encode_record
from relive.store.catalog.summaries import Summary, read_summary
from relive.store.home import REPLAY_OFFSET, Home
from relive.store.journal import complete_record, from_json, parse_run, to_json

if TYPE_CHECKING:
    from relive.store.chunks import CheckpointRow
    from relive.store.journal import ParsedJournal

T = TypeVar("T")
FEW_RUNS = 1000  # up to this many runs are selected by id; for more, all rows are read
SEGMENT_ROWS = 4_000_000  # a segment is written when this many rows are gathered, which bounds memory


@dataclass(frozen=True, slots=True)
class StoredPoints:
    """The files of all segments, and the meaning of the ids in them."""

    files: list[str]
    runs: list[tuple[int, str]]
    names: list[tuple[int, str]]
    paths: list[tuple[int, tuple[str, ...]]]


class Index:
    """The index of a home. Any number of processes may use it while runs are being recorded.

    With `updates_catalog=False` it never writes; runs that the catalog lacks are read from their journals.
    """

    def __init__(self, home: Home, *, updates_catalog: bool = True, segment_rows: int = SEGMENT_ROWS) -> None:
        self.home = home
        self.catalog = Catalog(home)
        self._updates_catalog = updates_catalog and self.catalog.tables.writable
        self._live_summaries = LiveSummaries(home)
        self._reader = RunReader(home)
        self._segment_rows = segment_rows
        self.segments = self.catalog.tables.segments
        self.set_aside: dict[str, str] = {}  # runs that can't be read, with the reason
        self._reported: set[str] = set()  # incomplete runs

    # --- runs ---------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunEntry]:
        """Returns every run, oldest first."""
        return self._rebuilding_if_damaged(self._runs)

    def newest(self, limit: int) -> tuple[int, list[RunEntry]]:
        """Returns how many runs there are, and the last ones that began (all if `limit` is 0), oldest first."""
        return self._rebuilding_if_damaged(lambda: self._newest(limit))

    def _runs(self) -> list[RunEntry]:
        return self._newest(0)[1]

    def _newest(self, limit: int) -> tuple[int, list[RunEntry]]:
        rows, live = self._update_catalog()
        newer = {entry.record.run for entry in live}  # the catalog's rows about them are outdated
        rows = [row for row in rows if row.run not in newer]
        total = len(rows) + len(live)
        if limit:  # decoding a record takes longer than reading it
            rows = sorted(rows, key=lambda row: (row.started_us, row.run))[-limit:]
        stored = None if self._updates_catalog else self.catalog.stored_runs()
        entries = [
            RunEntry(decode_record(row.record), row.id)
            if stored is None or row.id in stored
            else bypass_index(self.home, RunEntry(decode_record(row.record)))
            for row in rows
        ]
        every = [*entries, *live]
        for entry in every:
            self._report_incomplete(entry.record)
        followed = {entry.record.run for entry in every if entry.live}
        self._live_summaries.keep_only(followed)
        self._reader.keep_only(followed | self.set_aside.keys())
        return total, sorted(every, key=lambda entry: (entry.record.started_us, entry.record.run))[-limit:]

    def _update_catalog(self) -> tuple[list[RunRow], list[RunEntry]]:
        """Updates the catalog from the journals; returns its runs, and those that are live or may not be stored."""
        rows = self.catalog.runs()
        known = {row.run: (row.id, row.folder_ns) for row in rows}
        present = _folder_mtimes_ns(self.home)
        changed = [run for run, ns in present.items() if run not in known or known[run][1] != ns]
        gone = [number for run, (number, _) in known.items() if run not in present]
        if not changed and not gone:
            return rows, []
        entries = {run: self._read_or_set_aside(run) for run in changed}
        # A run that counted as dead may have sent a heartbeat since.
        gone += [known[run][0] for run, entry in entries.items() if run in known and entry is not None and entry.live]
        ended = {run: entry for run, entry in entries.items() if entry is not None and not entry.live}
        if self._updates_catalog:
            self.catalog.tables.run_exclusively(lambda: self._store_ended_runs(ended, present, gone))
            return self.catalog.runs(), [entry for entry in entries.values() if entry is not None and entry.live]
        # This process doesn't store anything, so runs that the catalog lacks are read from their journals.
        return rows, [bypass_index(self.home, entry) for entry in entries.values() if entry is not None]

    # --- damage ---------------------------------------------------------------------------------------------------

    def _rebuilding_if_damaged(self, work: Callable[[], T]) -> T:
        """Calls `work`; if the index turns out to be damaged, clears it and calls `work` again, which fills it."""
        try:
            return work()
        except IndexDamaged as damage:
            report_rebuild(damage)
            self.catalog.tables.clear()
        return work()

    def _answer(self, entries: Sequence[RunEntry], work: Callable[[Sequence[RunEntry]], T]) -> T:
        """Calls `work` with runs whose numbers are those of the catalog as it is now."""
        return self._rebuilding_if_damaged(lambda: work(self._renumber(entries)))

    def _renumber(self, entries: Sequence[RunEntry]) -> Sequence[RunEntry]:
        """Returns the runs with their numbers in the catalog, which change when it is rebuilt or a replay is merged."""
        numbers = [entry.number for entry in entries if entry.number is not None]
        if not numbers or self.catalog.has_runs(numbers):
            return entries
        current = {entry.record.run: entry for entry in self._runs()}
        return [
            current.get(entry.record.run) or bypass_index(self.home, dataclasses.replace(entry, number=None))
            if entry.number is not None
            else entry
            for entry in entries
        ]

    def _read_or_set_aside(self, run: str) -> RunEntry | None:
        with self._setting_aside(run):
            return self._reader.read(run)
        return None

    @contextlib.contextmanager
    def _setting_aside(self, run: str) -> Iterator[None]:
        """Whatever the journals of one run hold, all other runs are stored and answered; nobody misses it unaware."""
        try:
            yield
        except OSError:
            raise  # the system failed, not the content: an answer without this run would be wrong
        except Exception as error:  # noqa: BLE001 - see above; the reason is reported, once
            reason = f"{type(error).__name__}: {error}"
            if self.set_aside.get(run) != reason and sys.stderr is not None:
                message = f"run {run[:SHORT_ID_DIGITS]} can't be read and is left out ({reason}); see `relive doctor`"
                print(message, file=sys.stderr)
            self.set_aside[run] = reason

    def _report_incomplete(self, record: RunRecord) -> None:
        """Whatever is missing from a run, nobody who asks misses it unaware."""
        if record.incomplete and record.run not in self._reported and sys.stderr is not None:
            self._reported.add(record.run)
            more = f" (and {len(record.incomplete) - 1} more)" if len(record.incomplete) > 1 else ""
            message = f"run {record.run[:SHORT_ID_DIGITS]} is incomplete: {record.incomplete[0]}{more}"
            print(f"{message}; see `relive doctor`", file=sys.stderr)

    def _live_journals(self, entry: RunEntry, *, all_ranks: bool = True) -> list[ParsedJournal]:
        with self._setting_aside(entry.record.run):
            return entry.journals(all_ranks=all_ranks)
        return []

    def _summarize_live(self, entry: RunEntry, names: Collection[str] | None, *, all_ranks: bool) -> list[Summary]:
        with self._setting_aside(entry.record.run):
            return self._live_summaries.summaries(entry.record.run, names, all_ranks=all_ranks)
        return []

    def _store_ended_runs(self, ended: dict[str, RunEntry], present: dict[str, int], gone: list[int]) -> None:
        known = self.catalog.known_runs()  # another process may have been faster
        fresh = {run: e for run, e in ended.items() if run not in known or known[run][1] != present[run]}
        stored, numbers = self.catalog.stored_runs(), set()
        with self.catalog.tables.transaction():
            self.catalog.delete_runs([*gone, *(known[run][0] for run in fresh if run in known)])
            # In the order of their start, so that the order of points on disk is that of tables.
            for run, entry in sorted(fresh.items(), key=lambda item: item[1].record.started_us):
                prepared: tuple[str, RunDetailRows] | None = None
                with self._setting_aside(run):
                    parsed = parse_run(self.home, run)  # one at a time, which bounds memory
                    record = encode_record(complete_record(entry.record, parsed))
                    prepared = record, RunDetailRows.of(parsed)
                if prepared is not None:
                    record, details = prepared
                    started_us, folder_ns = entry.record.started_us, present[run]
                    numbers.add(
                        self.catalog.add_run(
                            run, started_us=started_us, folder_ns=folder_ns, record=record, details=details
                        )
                    )
            if stored & numbers:
                refuse("a number was given to two runs")

    # --- summaries --------------------------------------------------------------------------------------------

    def summaries(
        self, entries: Sequence[RunEntry], names: Collection[str] | None = None, *, all_ranks: bool = False
    ) -> dict[str, list[Summary]]:
        """Returns run → summaries of its names, on its canonical rank or on each of its ranks."""
        return self._answer(entries, lambda current: self._summaries(current, names, all_ranks=all_ranks))

    def _summaries(
        self, entries: Sequence[RunEntry], names: Collection[str] | None, *, all_ranks: bool
    ) -> dict[str, list[Summary]]:
        numbers = [entry.number for entry in entries if entry.number is not None]
        few = numbers if 0 < len(numbers) <= FEW_RUNS else None
        rows = self.catalog.summaries(names, all_ranks=all_ranks, runs=few) if numbers else []
        # A name's recorded values take precedence, then the latest replay with the best verdict: in this order.
        found: dict[int, dict[tuple[str, int], Summary]] = {}
        runs = {entry.number: entry.record.run for entry in entries}
        counts = cache(lambda number, process: self._has_happened(runs.get(number), process))
        for number, name, path, rank, process, *columns in rows:
            of_run = found.setdefault(number, {})
            if (name, rank) not in of_run and counts(number, process):
                of_run[name, rank] = read_summary(name, path, rank, process, columns)
        return {
            entry.record.run: list(found.get(entry.number, {}).values())
            if entry.number is not None
            else self._summarize_live(entry, names, all_ranks=all_ranks)
            for entry in entries
        }

    def _has_happened(self, run: str | None, process: int) -> bool:
        """Whether the values of a journal happened, rather than being what the run would have logged later."""
        is_replay = run is not None and process >= REPLAY_OFFSET
        return not is_replay or has_happened(replay_header(self.home, str(run), process - REPLAY_OFFSET))

    def names(self, entries: Sequence[RunEntry], *, all_ranks: bool = True) -> list[str]:
        """Returns every name that was logged, in alphabetical order."""
        found = set(self._rebuilding_if_damaged(self.catalog.names).values())
        for entry in (entry for entry in entries if entry.live):
            with self._setting_aside(entry.record.run):
                found |= self._live_summaries.names(entry.record.run)
        return sorted(found)

    # --- points -------------------------------------------------------------------------------------------------

    def points(
        self, entries: Sequence[RunEntry], names: Collection[str] | None = None, *, all_ranks: bool = False,
        replays: str = LATEST, contradicted: bool = False,
    ) -> Points:  # fmt: skip
        """Returns the logged values of some runs, in the order of `entries`; of all names, or of some.

        `contradicted`: whether replayed values are included that the record contradicts.
        """
        choice = ReplayChoice(replays, contradicted=contradicted)
        return self._answer(entries, lambda current: self._points(current, names, choice, all_ranks=all_ranks))

    def _points(
        self, entries: Sequence[RunEntry], names: Collection[str] | None, choice: ReplayChoice, *, all_ranks: bool
    ) -> Points:
        numbers = [entry.number for entry in entries if entry.number is not None]
        files = self._write_segments() if numbers else []
        known = {name: number for number, name in self.catalog.names().items()}
        wanted = None if names is None else [known[name] for name in names if name in known]
        stored = parquet_segments.read_segments(
            self.segments, files, runs=numbers, names=wanted, rank=None if all_ranks else 0
        )
        live = [
            (journal, position)
            for position, entry in enumerate(entries)
            for journal in self._live_journals(entry, all_ranks=all_ranks)
        ]
        paths = {number: tuple(from_json(path)) for number, path in self.catalog.paths().items()}
        return to_points(
            entries, stored, {n: name for name, n in known.items()}, paths, live, names, choice, self.has_happened
        )

    def has_happened(self, run: str, replay: int) -> bool:
        """Whether the values of a replay happened in the run."""
        return has_happened(replay_header(self.home, run, replay))

    def stored(self, entries: Sequence[RunEntry]) -> StoredPoints:
        """Returns what a query engine needs to read the segments itself."""
        return self._answer(entries, self._stored)

    def _stored(self, entries: Sequence[RunEntry]) -> StoredPoints:
        files = [str(self.segments / file) for file in self._write_segments()]
        runs = [(entry.number, entry.record.run) for entry in entries if entry.number is not None]
        paths = [(number, tuple(from_json(path))) for number, path in self.catalog.paths().items()]
        return StoredPoints(files, runs, list(self.catalog.names().items()), paths)

    def loops(self, entries: Sequence[RunEntry]) -> list[tuple[Any, ...]]:
        """Returns every execution of a loop: run, rank, process, and the other columns of the table `loops`."""
        return self._answer(entries, self._loops)

    def _loops(self, entries: Sequence[RunEntry]) -> list[tuple[Any, ...]]:
        by_number = {entry.number: entry.record.run for entry in entries if entry.number is not None}
        few = by_number.keys() if len(by_number) <= FEW_RUNS else None
        stored = [(by_number[row[0]], *row[1:]) for row in self.catalog.loops(few) if row[0] in by_number]
        live = [
            (entry.record.run, journal.journal.rank, journal.journal.process, *loop_row(row))
            for entry in entries
            for journal in self._live_journals(entry)
            for row in journal.loops.values()
        ]
        return stored + live

    def checkpoints(self, entries: Sequence[RunEntry]) -> dict[str, list[CheckpointRow]]:
        """Returns run → checkpoints that still exist, ordered by journal and time; without runs that have none."""
        return self._answer(entries, self._checkpoints)

    def _checkpoints(self, entries: Sequence[RunEntry]) -> dict[str, list[CheckpointRow]]:
        from relive.store.chunks import checkpoint_from_columns, list_checkpoints, without_dropped

        by_number = {entry.number: entry.record.run for entry in entries if entry.number is not None}
        found: dict[str, list[CheckpointRow]] = {}
        for number, *columns in self.catalog.checkpoints():
            if number in by_number:
                found.setdefault(by_number[number], []).append(checkpoint_from_columns(columns))
        for entry in entries:
            if taken := [row for journal in self._live_journals(entry) for row in list_checkpoints(journal)]:
                found[entry.record.run] = taken
        # Tombstones are read each time: they may be newer than the catalog.
        return {run: without_dropped(self.home.run_folder(run), taken) for run, taken in found.items()}

    def _write_segments(self) -> list[str]:
        """Writes the points of finished runs that are in no segment yet; returns the files of all segments."""
        if self._updates_catalog and self.catalog.runs_without_segment():
            self.catalog.tables.run_exclusively(self._write_pending)
        return [row.file for row in self.catalog.verify_segments()]

    def _write_pending(self) -> None:
        gathered: list[tuple[int, ParsedJournal]] = []
        pending = self.catalog.runs_without_segment()
        for position, (number, run) in enumerate(pending):
            with self._setting_aside(run):
                gathered += [(number, journal) for journal in parse_run(self.home, run)]
            rows = sum(len(journal) for _, journal in gathered)
            if rows >= self._segment_rows or position == len(pending) - 1:
                self._write_segment(gathered)
                gathered = []
        self._merge_segments()

    def _write_segment(self, gathered: list[tuple[int, ParsedJournal]]) -> None:
        with self.catalog.tables.transaction():
            names = self.catalog.name_ids(name for _, journal in gathered for name in journal.names)
            paths = self.catalog.path_ids(to_json(path) for _, journal in gathered for path in journal.paths)
            columns = combine_journals(gathered, names, {tuple(from_json(text)): n for text, n in paths.items()})
            rows = len(columns["run"])
            file = parquet_segments.write_segment(self.segments, columns) if rows else None
            self.catalog.add_segment(file, rows, runs={number for number, _ in gathered})

    def _merge_segments(self) -> None:
        small = [row for row in self.catalog.verify_segments() if row.rows < self._segment_rows]
        if len(small) < parquet_segments.MERGE_FROM:
            return
        keep = [number for number, _ in self.catalog.known_runs().values()]
        merged = parquet_segments.merge_segments(self.segments, [row.file for row in small], keep)
        self.catalog.replace_segments(small, merged, runs=keep)
        parquet_segments.delete_unused(self.segments, [row.file for row in self.catalog.segments()])

    def refresh(self) -> None:
        """Updates catalog and segments now, so that the next query needn't."""
        self._rebuilding_if_damaged(self._refresh)

    def _refresh(self) -> None:
        self._update_catalog()
        self._write_segments()

    def rebuild(self) -> None:
        """Deletes the index and rebuilds it from the journals."""
        self.catalog.tables.clear()
        self.refresh()

    def close(self) -> None:
        self.catalog.close()


def _folder_mtimes_ns(home: Home) -> dict[str, int]:
    """Returns run → when its folder changed last; without runs that go away meanwhile."""
    wanted = set(home.run_ids())
    found: dict[str, int] = {}
    try:
        with os.scandir(home.runs) as folders:
            for folder in folders:
                if folder.name in wanted:
                    with contextlib.suppress(OSError):
                        found[folder.name] = folder.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    return found
