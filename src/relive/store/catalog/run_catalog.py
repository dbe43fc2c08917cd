"""Every query to the catalog of finished runs: records, summaries, loops, checkpoints and segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import ReliveError
from relive.store.catalog.catalog_tables import CatalogTables, Row
from relive.store.catalog.summaries import STORED, Summary, summarise
from relive.store.chunks import checkpoint_to_columns, list_checkpoints
from relive.store.home import REPLAY_OFFSET, Home
from relive.store.journal import ParsedJournal, to_json

BATCH_SIZE = 500  # values per statement; databases limit their number
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


@dataclass(frozen=True, slots=True)
class RunDetailRows:
    """The rows about one run besides its record, without the run's id; computed before anything is written."""

    summaries: list[Summary]
    loops: list[Row]
    checkpoints: list[Row]
    names: list[str]  # of all values, also those that no summary counts

    @classmethod
    def of(cls, journals: Sequence[ParsedJournal]) -> RunDetailRows:
        summaries = [summary for journal in journals for summary in summarise(journal)]
        for summary in summaries:
            to_json(summary.path), summary.to_row()  # whatever can't be encoded fails here
        loops: dict[Row, Row] = {}
        checkpoints: dict[Row, Row] = {}
        for journal in journals:
            where = (journal.journal.rank, journal.journal.process)
            loops |= {(*where, row.loop): (*where, *loop_row(row)) for row in journal.loops.values()}
            checkpoints |= {(*where, row.seq): checkpoint_to_columns(row) for row in list_checkpoints(journal)}
        names = list(dict.fromkeys(name for journal in journals for name in journal.names))
        return cls(summaries, list(loops.values()), list(checkpoints.values()), names)


class Catalog:
    """The tables of a home, and every query to them."""

    def __init__(self, home: Home) -> None:
        self.tables = open_tables(home)

    # --- runs ---------------------------------------------------------------------------------------------------

    def known_runs(self) -> dict[str, tuple[int, int]]:
        """Returns run → (id, folder_ns) for every run in the catalog."""
        return {run: (number, ns) for number, run, ns in self.tables.query("select id, run, folder_ns from runs")}

    def runs(self) -> list[Row]:
        """Returns (id, run, record as JSON, segment) of every run."""
        return self.tables.query("select id, run, record, segment from runs")

    def add_run(self, run: str, *, started_us: int, folder_ns: int, record: str) -> int:
        """Inserts a run; returns its id (inside a transaction)."""
        columns = ("run", "started_us", "folder_ns", "record")
        return self.tables.insert("runs", columns, (run, started_us, folder_ns, record))

    def add_details(self, number: int, details: RunDetailRows) -> None:
        """Inserts the summaries, loops and checkpoints of a run (inside a transaction)."""
        names = self.name_ids(details.names)
        paths = self.path_ids(to_json(summary.path) for summary in details.summaries)
        # Of two rows with the same key the later one is stored.
        summaries: dict[Row, Row] = {}
        for one in details.summaries:
            key = (number, one.rank, one.process, names[one.name])
            summaries[key] = (*key, paths[to_json(one.path)], *one.to_row())
        self.tables.insert_many("summaries", SUMMARIES, summaries.values())
        self.tables.insert_many("loops", LOOPS, [(number, *row) for row in details.loops])
        self.tables.insert_many("checkpoints", CHECKPOINTS, [(number, *row) for row in details.checkpoints])

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
        conditions = "" if names is None else f" and n.name in ({_placeholders(names)})"
        conditions += "" if runs is None else f" and s.run_id in ({_placeholders(runs)})"
        return self.tables.query(
            f"select s.run_id, n.name, p.path, s.rank, s.process, {', '.join('s.' + column for column in STORED)}"
            " from summaries s join names n on n.id = s.name_id join paths p on p.id = s.path_id"
            f" where (s.process = 0 or s.process >= ?){'' if all_ranks else ' and s.rank = 0'}{conditions}"
            " order by s.rank, s.process > 0, s.verdict, s.process desc",
            (REPLAY_OFFSET, *(names or ()), *(runs or ())),
        )

    def loops(self) -> list[Row]:
        """Returns every execution of a loop, with the columns LOOPS."""
        return self.tables.query(f"select {', '.join(LOOPS)} from loops order by run_id, rank, process, loop")

    def checkpoints(self) -> list[Row]:
        """Returns every checkpoint, with the columns CHECKPOINTS."""
        return self.tables.query(
            f"select {', '.join(CHECKPOINTS)} from checkpoints order by run_id, rank, process, seq"
        )

    def names(self) -> list[Row]:
        """Returns (id, name) of every name that was ever logged."""
        return self.tables.query("select id, name from names")

    def paths(self) -> list[Row]:
        """Returns (id, JSON list of loop names) of every loop path."""
        return self.tables.query("select id, path from paths")

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
            self.tables.insert_many(table, (column,), [(text,) for text in new])
            found |= self._find_ids(table, column, new)
        return found

    def _find_ids(self, table: str, column: str, texts: Collection[str]) -> dict[str, int]:
        return {
            text: number
            for batch in _batches(texts)
            for number, text in self.tables.query(
                f"select id, {column} from {table} where {column} in ({_placeholders(batch)})", batch
            )
        }

    # --- segments -----------------------------------------------------------------------------------------------

    def runs_without_segment(self) -> list[Row]:
        """Returns (id, run) of the runs whose points are in no segment yet."""
        return self.tables.query("select id, run from runs where segment is null order by id")

    def segment_files(self) -> list[str]:
        return [file for (file,) in self.tables.query("select file from segments order by id")]

    def segments(self) -> list[Row]:
        """Returns (id, file, rows) of every segment, smallest first."""
        return self.tables.query("select id, file, rows from segments order by rows")

    def add_segment(self, file: str, rows: int, *, runs: Collection[int]) -> None:
        """Adds the segment with the points of `runs`; no file if they have none (inside a transaction)."""
        segment = self.tables.insert("segments", ("file", "rows"), (file, rows)) if file else 0
        for batch in _batches(runs):
            self.tables.execute(f"update runs set segment = ? where id in ({_placeholders(batch)})", (segment, *batch))

    def replace_segments(self, old: Sequence[Row], file: str) -> None:
        """Replaces several segments, given as rows of `segments`, by one."""
        with self.tables.transaction():
            new = self.tables.insert("segments", ("file", "rows"), (file, sum(row[2] for row in old)))
            for number, _, _ in old:
                self.tables.execute("update runs set segment = ? where segment = ?", (new, number))
                self.tables.execute("delete from segments where id = ?", (number,))

    def close(self) -> None:
        self.tables.close()


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
