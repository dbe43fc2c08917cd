"""The contract of catalog databases, checked for SQLite and PostgreSQL."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.settings import Settings
from relive.store import Home
from relive.store.catalog.parquet_segments import SegmentFile
from relive.store.catalog.row_seals import IndexDamaged
from relive.store.catalog.run_catalog import Catalog, RunDetailRows
from relive.store.catalog.summaries import Summary

BACKENDS = ["sqlite", "postgres"]
HOLDER = """
import sys, time
from pathlib import Path
from relive.store import Home
from relive.store.catalog.run_catalog import Catalog

def work():
    Path(sys.argv[2]).touch()
    time.sleep(float(sys.argv[3]))
    Path(sys.argv[2]).with_suffix(".left").write_text(str(time.monotonic()))

Catalog(Home(Path(sys.argv[1]))).tables.run_exclusively(work)
"""
OpenCatalog = Callable[..., Catalog]


@pytest.fixture(params=BACKENDS)
def open_catalog(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenCatalog:
    """Opens the catalog of a home in one backend; processes that the test starts use the same backend."""
    url = request.getfixturevalue("postgres").url() if request.param == "postgres" else ""
    monkeypatch.setenv("RELIVE_CATALOG", url)

    def opened(name: str = "home") -> Catalog:
        home = Home(tmp_path / name, Settings(catalog=url))
        home.create()
        return Catalog(home)

    return opened


def add_runs(catalog: Catalog, *runs: str) -> list[int]:
    with catalog.tables.transaction():
        return [catalog.add_run(run, started_us=1, folder_ns=2, record="{}") for run in runs]


def test_every_connection_sees_new_rows_and_ids_are_never_reused(open_catalog: OpenCatalog) -> None:
    one, other = open_catalog(), open_catalog()
    first, second = add_runs(one, "a", "b")
    assert other.known_runs() == {"a": (first, 2), "b": (second, 2)}

    with one.tables.transaction():
        one.delete_runs([first, second])
    assert other.known_runs() == {}
    assert add_runs(other, "c")[0] > second


def test_a_transaction_that_fails_changes_nothing(open_catalog: OpenCatalog) -> None:
    catalog = open_catalog()

    def fail() -> None:
        with catalog.tables.transaction():
            catalog.add_run("a", started_us=1, folder_ns=2, record="{}")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert catalog.known_runs() == {}
    assert add_runs(catalog, "b")


def test_any_name_gets_one_id(open_catalog: OpenCatalog) -> None:
    names = ["loss", "Loss", "", " ", "a\x00b", "\x01", "\x01\x02", "ümlaut", "💡", "x" * 50_000, "a'b", "%s ? $1"]
    names += [f"n{number}" for number in range(1_200)]
    catalog = open_catalog()
    with catalog.tables.transaction():
        ids = catalog.name_ids(names)

    assert set(ids) == set(names)
    assert len(set(ids.values())) == len(names)
    with catalog.tables.transaction():
        assert open_catalog().name_ids(reversed(names)) == ids
    assert {name: number for number, name in catalog.names().items()} == ids


def test_numbers_texts_and_bytes_come_back_unchanged(open_catalog: OpenCatalog) -> None:
    columns = "run_id rank process name_id path_id count last last_text lowest highest last_us last_at tail seal"
    columns = columns.split()
    rows = [
        (1, 0, 0, number, 1, 2**40, value, None, -math.inf, math.inf, 2**62, '{"a":"\\u0000"}', bytes(range(256)), 1)
        for number, value in enumerate([0.1, 5e-324, 1.7976931348623157e308, None, math.inf])
    ]
    catalog = open_catalog()
    catalog.tables.insert_many("summaries", columns, rows)

    found = catalog.tables.query(f"select {', '.join(columns)} from summaries order by name_id")
    assert [tuple(map(repr, row)) for row in found] == [tuple(map(repr, row)) for row in rows]


def test_segments_are_listed_merged_and_assigned_to_their_runs(open_catalog: OpenCatalog) -> None:
    catalog = open_catalog()
    numbers = add_runs(catalog, "a", "b", "c")
    assert catalog.runs_without_segment() == [(numbers[0], "a"), (numbers[1], "b"), (numbers[2], "c")]
    one, two, both = (SegmentFile(name, 7, "0f") for name in ("one.parquet", "two.parquet", "both.parquet"))
    with catalog.tables.transaction():
        catalog.add_segment(one, 10, runs=numbers[:1])
        catalog.add_segment(two, 5, runs=numbers[1:2])
        catalog.add_segment(None, 0, runs=numbers[2:])
    assert catalog.runs_without_segment() == []
    assert [row.file for row in catalog.segments()] == ["one.parquet", "two.parquet", ""]

    catalog.replace_segments(catalog.segments()[:2], both, runs=numbers[:1])
    assert [(row.file, row.rows) for row in catalog.segments()] == [("", 0), ("both.parquet", 15)]
    assert catalog.runs_without_segment() == [(numbers[1], "b")]


DETAILS = RunDetailRows(
    [Summary("loss", 3, -0.0, None, float("nan"), math.inf, 2**60, ("epoch",), tail=bytes(range(256)))],
    [(0, 0, 2, "epoch", 1, 0, '["epoch"]', "[]", 5, None, 3)],
    [(0, 0, 7, "iteration", "epoch", "{}", 1, "ab" * 32, 10, 5, 6, 0, 2)],
    ["loss"],
)
READS: dict[str, Callable[[Catalog], object]] = {
    "runs": Catalog.runs, "names": Catalog.names, "paths": Catalog.paths, "loops": Catalog.loops,
    "checkpoints": Catalog.checkpoints, "segments": Catalog.segments,
    "summaries": lambda catalog: catalog.summaries(None, all_ranks=True),
}  # fmt: skip
CHANGES = {
    "runs": ("id", "run", "started_us", "folder_ns", "record", "details", "seal"), "names": ("id", "name", "seal"),
    "paths": ("id", "path", "seal"), "segments": ("id", "file", "rows", "runs", "size_bytes", "digest", "seal"),
    "summaries": ("run_id", "name_id", "path_id", "count", "last", "last_text", "lowest", "highest", "last_us",
                  "last_at", "lowest_at", "tail", "verdict", "seal"),
    "loops": ("run_id", "loop", "name", "path", "around", "ended_us", "iterations", "seal"),
    "checkpoints": ("run_id", "seq", "place", "at", "manifest", "size_bytes", "stall_s", "write_s", "seal"),
}  # fmt: skip
TEXTS = set("run record name path file digest last_text last_at lowest_at around place at manifest".split())


def read_changed(catalog: Catalog, table: str, column: str) -> None:
    value = "x" if column in TEXTS else b"12345678" if column in ("runs", "tail") else 77
    with catalog.tables.transaction():
        catalog.tables.execute(f"update {table} set {column} = ?", (value,))
        READS[table](catalog)


@pytest.mark.parametrize("table", CHANGES)
def test_a_row_that_is_not_what_was_written_is_refused(open_catalog: OpenCatalog, table: str) -> None:
    catalog = open_catalog()
    with catalog.tables.transaction():
        number = catalog.add_run("a", started_us=1, folder_ns=2**61, record='{"a":1}', details=DETAILS)
        catalog.add_segment(SegmentFile("one.parquet", 7, "0f"), 10, runs=[number])
    whole = READS[table](catalog)
    assert whole

    for column in CHANGES[table]:
        if (table, column) == ("runs", "id") and hasattr(catalog.tables, "schema"):
            continue  # PostgreSQL lets nobody change it
        with pytest.raises(IndexDamaged, match="rebuilt from the journals"):
            read_changed(catalog, table, column)
    assert READS[table](catalog) == whole


def test_a_cleared_catalog_is_empty_and_usable(open_catalog: OpenCatalog) -> None:
    catalog = open_catalog()
    add_runs(catalog, "a")
    catalog.tables.segments.mkdir(exist_ok=True)
    (catalog.tables.segments / "x.parquet").touch()
    catalog.tables.clear()

    assert catalog.known_runs() == open_catalog().known_runs() == {}
    assert not list(catalog.tables.segments.glob("*"))
    assert add_runs(catalog, "b")


def test_two_homes_share_neither_rows_nor_segments(open_catalog: OpenCatalog) -> None:
    one, other = open_catalog("one"), open_catalog("other")
    add_runs(one, "a")
    add_runs(other, "b")

    assert (set(one.known_runs()), set(other.known_runs())) == ({"a"}, {"b"})
    assert one.tables.segments != other.tables.segments
    one.tables.clear()
    assert set(other.known_runs()) == {"b"}


def hold_lock(tmp_path: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Starts a process that holds the catalog's lock for a while; returns once it has the lock."""
    mark = tmp_path / "held"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "home"), str(mark), str(seconds)]
    )
    while not mark.exists():
        assert process.poll() is None
    return process


@pytest.mark.long
def test_only_one_process_at_a_time_updates_a_catalog(open_catalog: OpenCatalog, tmp_path: Path) -> None:
    catalog = open_catalog()
    holder = hold_lock(tmp_path, 0.3)

    assert catalog.known_runs() == {}, "readers don't wait"
    assert catalog.tables.run_exclusively((tmp_path / "held.left").exists)
    assert holder.wait(timeout=30) == 0


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_lock_behind(open_catalog: OpenCatalog, tmp_path: Path) -> None:
    catalog = open_catalog()
    holder = hold_lock(tmp_path, 600)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()

    assert catalog.tables.run_exclusively(lambda: "mine") == "mine"
    assert not (tmp_path / "held.left").exists()
