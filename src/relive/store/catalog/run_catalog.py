"""Every query to the catalog of finished runs: their records and details, and segments. Each row read is verified."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.errors import ReliveError
from relive.store.catalog.catalog_tables import DATABASE_FILE, CatalogTables, Row, key_number
from relive.store.catalog.parquet_segments import SegmentFile, verify_segment
from relive.store.catalog.row_seals import IndexDamaged, refuse, seal_row, seal_rows, unique, verify_rows
from relive.store.catalog.summaries import STORED, Summary, summarise
from relive.store.home import REPLAY_OFFSET, Home
from relive.store.journal import to_json

if TYPE_CHECKING:
    from relive.store.journal import ParsedJournal

BATCH_SIZE = 500  # values per statement; databases limit their number
RUNS = ("id", "run", "started_us", "folder_ns", "record", "details")
SEGMENTS = ("id", "file", "rows", "runs", "size_bytes", "digest")
JOURNAL_KEY = ("run_id", "rank", "process")
SUMMARIES = (*JOURNAL_KEY, "name_id", "path_id", *STORED)
LOOPS = (
    *JOURNAL_KEY, *"loop name parent parent_iteration path around begun_us ended_us iterations".split()
)  # fmt: skip
CHECKPOINTS = (
    *JOURNAL_KEY, *"seq place name at iterations manifest size_bytes new_bytes time_us stall_s write_s".split()
)  # fmt: skip
_TABLES_OF_A_RUN = (("runs", "id"), ("summaries", "run_id"), ("loops", "run_id"), ("checkpoints", "run_id"))
_POSTGRES_PREFIXES = ("postgresql://", "postgres://")


def is_database_url(word: str) -> bool:
    """Whether this is the URL of a database that can hold a catalog."""
    return word.startswith(_POSTGRES_PREFIXES)


def open_tables(home: Home) -> CatalogTables:
    """Opens the database that the setting `catalog` names, or the SQLite file of the home."""
    url = home.settings.catalog
    if not url:
        return _sqlite_tables(home)
    if not is_database_url(url):
        raise ReliveError(
            "the setting `catalog` names no database that relive knows; write postgresql://USER@HOST/DATABASE, or"
            " unset it to use the SQLite file of the home"
        )
    from relive.store.catalog.postgres_tables import PostgresTables

    try:
        return PostgresTables(url, home)
    except OSError:  # the home can't be written, so nothing new could be stored
        return _sqlite_tables(home)


def _sqlite_tables(home: Home) -> CatalogTables:
    from relive.store.catalog.sqlite_tables import SqliteTables

    return SqliteTables(home.index)


def find_index_damage(home: Home) -> Iterator[str]:
    """Yields what of the index is not what was written; repairs nothing."""
    if not home.settings.catalog:
        from relive.store.catalog.sqlite_tables import check_file

        if not (home.index / DATABASE_FILE).exists():
            return
        try:
            check_file(home.index / DATABASE_FILE)
        except IndexDamaged as damage:
            yield damage.what
            return
    with contextlib.closing(Catalog(home)) as catalog:
        reads = (catalog.runs, catalog.loops, catalog.checkpoints, lambda: catalog.summaries(None, all_ranks=True))
        for read in (*reads, catalog.verify_segments):
            try:
                read()
            except IndexDamaged as damage:
                yield damage.what


class RunRow(NamedTuple):
    """A row of the table `runs`."""

    id: int
    run: str
    started_us: int
    folder_ns: int
    record: str
    details: int


class SegmentRow(NamedTuple):
    """A row of the table `segments`."""

    id: int
    file: str
    rows: int
    runs: bytes
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class RunDetailRows:
    """The rows about one run besides its record, without the run's id; computed before anything is written."""

    summaries: list[Summary]
    loops: list[Row]
    checkpoints: list[Row]
    names: list[str]  # of all values, also those that no summary counts

    @classmethod
    def of(cls, journals: Sequence[ParsedJournal]) -> RunDetailRows:
        from relive.store.chunks import checkpoint_to_columns, list_checkpoints

        # Of two rows with the same key the later one is stored.
        summaries: dict[Row, Summary] = {}
        loops: dict[Row, Row] = {}
        checkpoints: dict[Row, Row] = {}
        for journal in journals:
            where = (journal.journal.rank, journal.journal.process)
            summaries |= {(one.rank, one.process, one.name): one for one in summarise(journal)}
            loops |= {(*where, row.loop): (*where, *loop_row(row)) for row in journal.loops.values()}
            checkpoints |= {(*where, row.seq): checkpoint_to_columns(row) for row in list_checkpoints(journal)}
        for summary in summaries.values():
            to_json(summary.path), summary.to_row()  # whatever can't be encoded fails here
        names = list(dict.fromkeys(name for journal in journals for name in journal.names))
        return cls(list(summaries.values()), list(loops.values()), list(checkpoints.values()), names)


NO_DETAILS = RunDetailRows([], [], [], [])


class Catalog:
    """The tables of a home, and every query to them. A row that is not what was written raises `IndexDamaged`."""

    def __init__(self, home: Home) -> None:
        self.tables = open_tables(home)

    def _read(self, table: str, columns: Sequence[str], rest: str = "", values: Sequence[Any] = ()) -> list[Row]:
        """Returns rows of a table, verified; `columns` are all of its columns but the seal."""
        return verify_rows(table, self.tables.query(f"select {', '.join(columns)}, seal from {table} {rest}", values))

    def _insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self.tables.insert_many(table, (*columns, "seal"), seal_rows(table, columns, rows))

    def _next_id(self, table: str) -> int:
        return int(self.tables.query(f"select coalesce(max(id), 0) + 1 from {table}")[0][0])

    # --- runs ---------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunRow]:
        """Returns the record of every run."""
        rows = [RunRow(*row) for row in self._read("runs", RUNS)]
        unique("runs", ((row.id, row.run) for row in rows))
        return rows

    def known_runs(self) -> dict[str, tuple[int, int]]:
        """Returns run → (id, folder_ns) for every run in the catalog."""
        return {row.run: (row.id, row.folder_ns) for row in self.runs()}

    def has_runs(self, numbers: Collection[int]) -> bool:
        """Whether all of these runs are in the catalog; another process may have removed some or rebuilt it."""
        return set(numbers) <= {number for (number,) in self.tables.query("select id from runs")}

    def add_run(
        self, run: str, *, started_us: int, folder_ns: int, record: str, details: RunDetailRows = NO_DETAILS
    ) -> int:
        """Inserts a run with its summaries, loops and checkpoints; returns its id (inside a transaction)."""
        names = self.name_ids(details.names)
        paths = self.path_ids(to_json(summary.path) for summary in details.summaries)
        keys = sum(key_number(one.rank, one.process, names[one.name]) for one in details.summaries)
        columns = (run, started_us, folder_ns, record, keys + len(details.loops) + len(details.checkpoints))
        number = self.tables.insert("runs", (*RUNS[1:], "seal"), (*columns, 0))
        self.tables.execute("update runs set seal = ? where id = ?", (seal_row("runs", (number, *columns)), number))
        self._insert(
            "summaries", SUMMARIES,
            ((number, one.rank, one.process, names[one.name], paths[to_json(one.path)], *one.to_row())
             for one in details.summaries),
        )  # fmt: skip
        self._insert("loops", LOOPS, ((number, *row) for row in details.loops))
        self._insert("checkpoints", CHECKPOINTS, ((number, *row) for row in details.checkpoints))
        return number

    def delete_runs(self, run_ids: Collection[int]) -> None:
        """Deletes runs that are no longer in the home (inside a transaction)."""
        for batch in _batches(run_ids):
            for table, column in _TABLES_OF_A_RUN:
                self.tables.execute(f"delete from {table} where {column} in ({_placeholders(batch)})", batch)

    # --- records of runs ----------------------------------------------------------------------------------------

    def summaries(
        self, names: Collection[str] | None, *, all_ranks: bool, runs: Collection[int] | None = None
    ) -> list[Row]:
        """Returns (run id, name, path, rank, process, …STORED); per rank recorded rows, then replays, best first."""
        all_names, paths = self.names(), self.paths()
        wanted = None if names is None else [number for number, name in all_names.items() if name in names]
        conditions = "" if wanted is None else f" and name_id in ({_placeholders(wanted) or 'null'})"
        conditions += "" if runs is None else f" and run_id in ({_placeholders(runs)})"
        rows = self._read(
            "summaries", SUMMARIES,
            f"where (process = 0 or process >= ?){'' if all_ranks else ' and rank = 0'}{conditions}"
            " order by rank, process > 0, verdict, process desc",
            (REPLAY_OFFSET, *(wanted or ()), *(runs or ())),
        )  # fmt: skip
        try:
            return [(run, all_names[name], paths[path], rank, process, *columns)
                    for run, rank, process, name, path, *columns in rows]  # fmt: skip
        except KeyError:
            refuse("a name is missing")

    def loops(self, runs: Collection[int] | None = None) -> list[Row]:
        """Returns every execution of a loop, of all runs or of some, with the columns LOOPS."""
        only = "" if runs is None else f"where run_id in ({_placeholders(runs)}) "
        return self._read("loops", LOOPS, f"{only}order by run_id, rank, process, loop", tuple(runs or ()))

    def checkpoints(self) -> list[Row]:
        """Returns every checkpoint, with the columns CHECKPOINTS."""
        return self._read("checkpoints", CHECKPOINTS, "order by run_id, rank, process, seq")

    def names(self) -> Mapping[int, str]:
        """Returns id → name of every name that was ever logged."""
        return unique("names", ((number, name) for number, name in self._read("names", ("id", "name"))))

    def paths(self) -> Mapping[int, str]:
        """Returns id → JSON list of loop names of every loop path."""
        return unique("paths", ((number, path) for number, path in self._read("paths", ("id", "path"))))

    def name_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Returns the ids of names, creating those that are missing (inside a transaction)."""
        return self._get_or_create_ids("names", "name", names)

    def path_ids(self, paths: Iterable[str]) -> dict[str, int]:
        """Returns the ids of loop paths, creating those that are missing (inside a transaction)."""
        return self._get_or_create_ids("paths", "path", paths)

    def _get_or_create_ids(self, table: str, column: str, texts: Iterable[str]) -> dict[str, int]:
        distinct = list(dict.fromkeys(texts))
        found = self._find_ids(table, column, distinct)
        new = [text for text in distinct if text not in found]
        if new:
            added = dict(zip(new, range(self._next_id(table), 1 << 62), strict=False))
            self._insert(table, ("id", column), ((number, text) for text, number in added.items()))
            found |= added
        return found

    def _find_ids(self, table: str, column: str, texts: Collection[str]) -> dict[str, int]:
        return {
            text: number
            for batch in _batches(texts)
            for number, text in self._read(table, ("id", column), f"where {column} in ({_placeholders(batch)})", batch)
        }

    # --- segments -----------------------------------------------------------------------------------------------

    def runs_without_segment(self) -> list[tuple[int, str]]:
        """Returns (id, run) of the runs whose points are in no segment yet."""
        stored = self.stored_runs()
        return sorted((row.id, row.run) for row in self.runs() if row.id not in stored)

    def stored_runs(self) -> set[int]:
        """Returns the ids of all runs whose points are in a segment, also of runs that were deleted since."""
        return set().union(*(segment_runs(row) for row in self.segments()))

    def segments(self) -> list[SegmentRow]:
        """Returns every segment, oldest first."""
        return [SegmentRow(*row) for row in self._read("segments", SEGMENTS, "order by id")]

    def verify_segments(self) -> list[SegmentRow]:
        """Returns the segments that have a file. A process reads each file once to verify it."""
        rows = [row for row in self.segments() if row.file]
        for row in rows:
            verify_segment(self.tables.segments, SegmentFile(row.file, row.size_bytes, row.digest))
        return rows

    def add_segment(self, file: SegmentFile | None, rows: int, *, runs: Collection[int]) -> None:
        """Adds the segment with the points of `runs`; no file if they have none (inside a transaction)."""
        facts = (file.name, rows, _pack_runs(runs), file.size_bytes, file.digest) if file else (
            "", 0, _pack_runs(runs), 0, "")  # fmt: skip
        self._insert("segments", SEGMENTS, [(self._next_id("segments"), *facts)])

    def replace_segments(self, old: Sequence[SegmentRow], file: SegmentFile, *, runs: Collection[int]) -> None:
        """Replaces several segments by one, which holds the points of those of `runs` that they held."""
        held = set().union(*(segment_runs(row) for row in old))
        with self.tables.transaction():
            self.add_segment(file, sum(row.rows for row in old), runs=held.intersection(runs))
            for row in old:
                self.tables.execute("delete from segments where id = ?", (row.id,))

    def close(self) -> None:
        self.tables.close()


def segment_runs(row: SegmentRow) -> set[int]:
    """Returns the ids of the runs whose points a segment holds."""
    return {number for (number,) in struct.iter_unpack("<q", row.runs)}


def _pack_runs(runs: Collection[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in sorted(runs))


def loop_row(row: Any) -> Row:
    """Returns the columns LOOPS of a loop, without those of JOURNAL_KEY."""
    return (
        row.loop, row.name, row.parent, row.parent_iteration, to_json(row.path), to_json(row.dims), row.begun_us,
        row.ended_us, row.iterations,
    )  # fmt: skip


def _batches(values: Collection[Any]) -> Iterable[Sequence[Any]]:
    listed = list(values)
    return (listed[at : at + BATCH_SIZE] for at in range(0, len(listed), BATCH_SIZE))


def _placeholders(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))
