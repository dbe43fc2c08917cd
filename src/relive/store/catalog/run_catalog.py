"""What the catalog keeps of finished runs: records, last values, loops, checkpoints. Derived: it comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from relive.errors import ReliveError
from relive.store.catalog.catalog_tables import CatalogTables, Row
from relive.store.catalog.summaries import STORED, summarise
from relive.store.chunks import list_checkpoints, to_stored
from relive.store.home import REPLAYS, Home
from relive.store.journal import ParsedJournal, to_text

AT_A_TIME = 500  # values in one statement; databases take a bounded number
WHERE = ("run_id", "rank", "process")
SUMMARIES = (*WHERE, "name_id", "path_id", *STORED)
LOOPS = (
    *WHERE, *"loop name parent parent_iteration path around begun_us ended_us iterations".split()
)  # fmt: skip
CHECKPOINTS = (
    *WHERE, *"seq place name at iterations manifest size_bytes new_bytes time_us stall_s write_s".split()
)  # fmt: skip
_OF_A_RUN = (("runs", "id"), ("summaries", "run_id"), ("loops", "run_id"), ("checkpoints", "run_id"))
_POSTGRES = ("postgresql://", "postgres://")


def is_database(word: str) -> bool:
    """Is this the address of a database that can hold a catalog?"""
    return word.startswith(_POSTGRES)


def open_tables(home: Home) -> CatalogTables:
    """The database that the setting `catalog` names; without it, the home's own."""
    url = home.settings.catalog
    if not url:
        return _own_tables(home)
    if not is_database(url):
        raise ReliveError(
            "the setting `catalog` names no database that relive knows; write postgresql://USER@HOST/DATABASE, or"
            " unset it to use the home's own"
        )
    from relive.store.catalog.postgres_tables import PostgresTables

    try:
        return PostgresTables(url, home)
    except OSError:  # the home can't be written, so nothing that is new could be kept
        return _own_tables(home)


def _own_tables(home: Home) -> CatalogTables:
    from relive.store.catalog.sqlite_tables import SqliteTables

    return SqliteTables(home.index)


class Catalog:
    """The tables of a home, and every question to them."""

    def __init__(self, home: Home) -> None:
        self.tables = open_tables(home)

    # --- runs ---------------------------------------------------------------------------------------------------

    def known(self) -> dict[str, tuple[int, int]]:
        """run → (id, folder_ns) of every run in the catalog."""
        return {run: (number, ns) for number, run, ns in self.tables.rows("select id, run, folder_ns from runs")}

    def runs(self) -> list[Row]:
        """(id, run, record as JSON, segment) of every run."""
        return self.tables.rows("select id, run, record, segment from runs")

    def add_run(self, run: str, *, started_us: int, folder_ns: int, record: str) -> int:
        columns = ("run", "started_us", "folder_ns", "record")
        return self.tables.add_one("runs", columns, (run, started_us, folder_ns, record))

    def add_details(self, number: int, journals: Sequence[ParsedJournal]) -> None:
        """What the journals of a run come to (inside a transaction)."""
        found = [summary for journal in journals for summary in summarise(journal)]
        names = self.name_ids(summary.name for summary in found)
        paths = self.path_ids(to_text(summary.path) for summary in found)
        # Of two that share a key the later one counts.
        summaries: dict[Row, Row] = {}
        for one in found:
            key = (number, one.rank, one.process, names[one.name])
            summaries[key] = (*key, paths[to_text(one.path)], *one.stored())
        loops: dict[Row, Row] = {}
        checkpoints: dict[Row, Row] = {}
        for journal in journals:
            where = (number, journal.journal.rank, journal.journal.process)
            loops |= {(*where, row.loop): (*where, *loop_row(row)) for row in journal.loops.values()}
            checkpoints |= {(*where, row.seq): (number, *to_stored(row)) for row in list_checkpoints(journal)}
        self.tables.add("summaries", SUMMARIES, summaries.values())
        self.tables.add("loops", LOOPS, loops.values())
        self.tables.add("checkpoints", CHECKPOINTS, checkpoints.values())

    def forget(self, run_ids: Collection[int]) -> None:
        """Drop runs that are no longer in the home (inside a transaction)."""
        for some in _portions(run_ids):
            for table, column in _OF_A_RUN:
                self.tables.change(f"delete from {table} where {column} in ({_marks(some)})", some)

    # --- what was logged ----------------------------------------------------------------------------------------

    def summaries(
        self, names: Collection[str] | None, *, all_ranks: bool, runs: Collection[int] | None = None
    ) -> list[Row]:
        """(run id, name, path, rank, process, …STORED); for each rank the run's own first, then the latest replay."""
        wanted = "" if names is None else f" and n.name in ({_marks(names)})"
        wanted += "" if runs is None else f" and s.run_id in ({_marks(runs)})"
        return self.tables.rows(
            f"select s.run_id, n.name, p.path, s.rank, s.process, {', '.join('s.' + column for column in STORED)}"
            " from summaries s join names n on n.id = s.name_id join paths p on p.id = s.path_id"
            f" where (s.process = 0 or s.process >= ?){'' if all_ranks else ' and s.rank = 0'}{wanted}"
            " order by s.rank, s.process > 0, s.process desc",
            (REPLAYS, *(names or ()), *(runs or ())),
        )

    def loops(self) -> list[Row]:
        """Every entry into a loop, in the order of LOOPS."""
        return self.tables.rows(f"select {', '.join(LOOPS)} from loops order by run_id, rank, process, loop")

    def checkpoints(self) -> list[Row]:
        """Every checkpoint, in the order of CHECKPOINTS."""
        return self.tables.rows(f"select {', '.join(CHECKPOINTS)} from checkpoints order by run_id, rank, process, seq")

    def names(self) -> list[Row]:
        """(id, name) of everything that was ever logged."""
        return self.tables.rows("select id, name from names")

    def paths(self) -> list[Row]:
        """(id, JSON list of loop names)."""
        return self.tables.rows("select id, path from paths")

    def name_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Numbers for names, new ones given where needed (inside a transaction)."""
        return self._numbers("names", "name", names)

    def path_ids(self, paths: Iterable[str]) -> dict[str, int]:
        return self._numbers("paths", "path", paths)

    def _numbers(self, table: str, column: str, texts: Iterable[str]) -> dict[str, int]:
        wanted = list(dict.fromkeys(texts))
        found = self._numbered(table, column, wanted)
        new = [text for text in wanted if text not in found]
        if new:
            self.tables.add(table, (column,), [(text,) for text in new])
            found |= self._numbered(table, column, new)
        return found

    def _numbered(self, table: str, column: str, texts: Collection[str]) -> dict[str, int]:
        return {
            text: number
            for some in _portions(texts)
            for number, text in self.tables.rows(
                f"select id, {column} from {table} where {column} in ({_marks(some)})", some
            )
        }

    # --- segments -----------------------------------------------------------------------------------------------

    def pending(self) -> list[Row]:
        """(id, run) of the runs whose points are in no segment yet."""
        return self.tables.rows("select id, run from runs where segment is null order by id")

    def files(self) -> list[str]:
        return [file for (file,) in self.tables.rows("select file from segments order by id")]

    def segments(self) -> list[Row]:
        """(id, file, rows), the smallest first."""
        return self.tables.rows("select id, file, rows from segments order by rows")

    def add_segment(self, file: str, rows: int, *, runs: Collection[int]) -> None:
        """Note which runs a new segment holds; without a file, that they have no points (inside a transaction)."""
        segment = self.tables.add_one("segments", ("file", "rows"), (file, rows)) if file else 0
        for some in _portions(runs):
            self.tables.change(f"update runs set segment = ? where id in ({_marks(some)})", (segment, *some))

    def replace_segments(self, old: Sequence[Row], file: str) -> None:
        """One segment stands for several, which were read from `segments`."""
        with self.tables.transaction():
            new = self.tables.add_one("segments", ("file", "rows"), (file, sum(row[2] for row in old)))
            for number, _, _ in old:
                self.tables.change("update runs set segment = ? where segment = ?", (new, number))
                self.tables.change("delete from segments where id = ?", (number,))

    def close(self) -> None:
        self.tables.close()


def loop_row(row: Any) -> Row:
    """The columns of LOOPS after those of WHERE."""
    return (
        row.loop, row.name, row.parent, row.parent_iteration, to_text(row.path), to_text(row.dims), row.begun_us,
        row.ended_us, row.iterations,
    )  # fmt: skip


def _portions(values: Collection[Any]) -> Iterable[Sequence[Any]]:
    listed = list(values)
    return (listed[at : at + AT_A_TIME] for at in range(0, len(listed), AT_A_TIME))


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))
