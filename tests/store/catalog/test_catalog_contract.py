"""What every database that holds a catalog must do, whether it is a SQLite file or a PostgreSQL server."""

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
from relive.store.catalog.run_catalog import Catalog

SIDES = ["sqlite", "postgres"]
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
Open = Callable[..., Catalog]


@pytest.fixture(params=SIDES)
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open the catalog of a home on one side of the seam; processes that the test starts are on the same side."""
    url = request.getfixturevalue("postgres").url() if request.param == "postgres" else ""
    monkeypatch.setenv("RELIVE_CATALOG", url)

    def open_catalog(name: str = "home") -> Catalog:
        home = Home(tmp_path / name, Settings(catalog=url))
        home.create()
        return Catalog(home)

    return open_catalog


def add_runs(catalog: Catalog, *runs: str) -> list[int]:
    with catalog.tables.transaction():
        return [catalog.add_run(run, started_us=1, folder_ns=2, record="{}") for run in runs]


def test_what_is_added_is_there_for_everybody_and_numbers_are_never_given_twice(opened: Open) -> None:
    one, other = opened(), opened()
    first, second = add_runs(one, "a", "b")
    assert other.known_runs() == {"a": (first, 2), "b": (second, 2)}

    with one.tables.transaction():
        one.delete_runs([first, second])
    assert other.known_runs() == {}
    assert add_runs(other, "c")[0] > second


def test_a_transaction_that_fails_changes_nothing(opened: Open) -> None:
    catalog = opened()

    def fail() -> None:
        with catalog.tables.transaction():
            catalog.add_run("a", started_us=1, folder_ns=2, record="{}")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert catalog.known_runs() == {}
    assert add_runs(catalog, "b")


def test_names_of_every_kind_have_one_number_each(opened: Open) -> None:
    names = ["loss", "Loss", "", " ", "a\x00b", "\x01", "\x01\x02", "ümlaut", "💡", "x" * 50_000, "a'b", "%s ? $1"]
    names += [f"n{number}" for number in range(1_200)]
    catalog = opened()
    with catalog.tables.transaction():
        given = catalog.name_ids(names)

    assert set(given) == set(names)
    assert len(set(given.values())) == len(names)
    with catalog.tables.transaction():
        assert opened().name_ids(reversed(names)) == given
    assert {name: number for number, name in catalog.names()} == given


def test_numbers_texts_and_bytes_come_back_as_they_were(opened: Open) -> None:
    columns = "run_id rank process name_id path_id count last last_text lowest highest last_us last_at tail".split()
    rows = [
        (1, 0, 0, number, 1, 2**40, value, None, -math.inf, math.inf, 2**62, '{"a":"\\u0000"}', bytes(range(256)))
        for number, value in enumerate([0.1, 5e-324, 1.7976931348623157e308, None, math.inf])
    ]
    catalog = opened()
    catalog.tables.insert_many("summaries", columns, rows)

    found = catalog.tables.query(f"select {', '.join(columns)} from summaries order by name_id")
    assert [tuple(map(repr, row)) for row in found] == [tuple(map(repr, row)) for row in rows]


def test_segments_are_listed_merged_and_told_of_their_runs(opened: Open) -> None:
    catalog = opened()
    numbers = add_runs(catalog, "a", "b", "c")
    assert catalog.runs_without_segment() == [(numbers[0], "a"), (numbers[1], "b"), (numbers[2], "c")]
    with catalog.tables.transaction():
        catalog.add_segment("one.parquet", 10, runs=numbers[:1])
        catalog.add_segment("two.parquet", 5, runs=numbers[1:2])
        catalog.add_segment("", 0, runs=numbers[2:])
    assert catalog.runs_without_segment() == []
    assert catalog.segment_files() == ["one.parquet", "two.parquet"]

    catalog.replace_segments(catalog.segments(), "both.parquet")
    assert [row[1:] for row in catalog.segments()] == [("both.parquet", 15)]
    assert len({segment for _, run, _, segment in catalog.runs() if run != "c"}) == 1


def test_clearing_leaves_nothing_and_the_catalog_goes_on(opened: Open) -> None:
    catalog = opened()
    add_runs(catalog, "a")
    catalog.tables.segments.mkdir(exist_ok=True)
    (catalog.tables.segments / "x.parquet").touch()
    catalog.tables.clear()

    assert catalog.known_runs() == opened().known_runs() == {}
    assert not list(catalog.tables.segments.glob("*"))
    assert add_runs(catalog, "b")


def test_two_homes_never_meet(opened: Open) -> None:
    one, other = opened("one"), opened("other")
    add_runs(one, "a")
    add_runs(other, "b")

    assert (set(one.known_runs()), set(other.known_runs())) == ({"a"}, {"b"})
    assert one.tables.segments != other.tables.segments
    one.tables.clear()
    assert set(other.known_runs()) == {"b"}


def hold(tmp_path: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Another process that has the catalog for itself for a while; it has it when this returns."""
    mark = tmp_path / "held"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "home"), str(mark), str(seconds)]
    )
    while not mark.exists():
        assert process.poll() is None
    return process


@pytest.mark.long
def test_only_one_process_at_a_time_brings_a_catalog_up_to_date(opened: Open, tmp_path: Path) -> None:
    catalog = opened()
    holder = hold(tmp_path, 0.3)

    assert catalog.known_runs() == {}, "who only reads doesn't wait"
    assert catalog.tables.run_exclusively((tmp_path / "held.left").exists)
    assert holder.wait(timeout=30) == 0


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_lock_behind(opened: Open, tmp_path: Path) -> None:
    catalog = opened()
    holder = hold(tmp_path, 600)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()

    assert catalog.tables.run_exclusively(lambda: "mine") == "mine"
    assert not (tmp_path / "held.left").exists()
