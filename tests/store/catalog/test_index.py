"""Laws of the index: it is derived from the journals, incremental, and safe to use from many processes."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.model import FINISHED, KILLED, RUNNING
from relive.store import Home, JournalName
from relive.store.catalog import Index, parquet_segments
from relive.store.catalog.summaries import summarise
from relive.store.journal import ROOT, Journal, line_schema, parse_run, process_start_stamp, slot_kinds
from relive.store.journal.journal_file import _pack_float


class Store:
    """A home with runs written directly into journals."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.create()

    def begin(self, rank: int = 0, run: str | None = None, **header: Any) -> tuple[str, Journal]:
        run = run or self.home.new_run()
        journal = Journal(self.home.run_folder(run) / JournalName(rank).stem)
        me = {"pid": os.getpid(), "start": process_start_stamp(os.getpid()), "host": os.uname().nodename}
        times = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns()}
        journal.line(line_schema.RunStarted, **{"run": run, "rank": rank, "project": "p", **me, **times, **header})
        return run, journal

    def write(self, values: dict[str, list[float]], **header: Any) -> str:
        run, journal = self.begin(**header)
        log(journal, values)
        end(journal)
        return run


def log(journal: Journal, values: dict[str, list[float]]) -> None:
    loop = journal.begin_loop("step", ROOT, 0)
    for name, series in values.items():
        for step, value in enumerate(series):
            journal.append_float(name, value, loop, step)
    journal.end_loop(loop, 1)


def end(journal: Journal) -> None:
    journal.line(line_schema.RunEnded, outcome=FINISHED, error=None)
    journal.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A home with its catalog in either database, also for the processes that a test starts."""
    if request.param == "postgres":
        monkeypatch.setenv("RELIVE_CATALOG", request.getfixturevalue("postgres").url())
    return Store(tmp_path / "home")


def rows(index: Index, names: list[str] | None = None) -> list[tuple[Any, ...]]:
    entries = index.runs()
    points = index.points(entries, names)
    columns = (points.run, points.name, points.path, points.value)
    listed = [column.tolist() for column in columns]
    found = zip(*listed, points.dims.tolist(), strict=True)
    return [(points.runs[r], points.names[n], points.paths[p], v, tuple(d)) for r, n, p, v, d in found]


def test_every_value_of_every_run_is_there_in_order(store: Store) -> None:
    first = store.write({"loss": [1.0, 2.0], "acc": [5.0]})
    second = store.write({"loss": [3.0]})

    assert rows(Index(store.home)) == [
        (first, "loss", ("step",), 1.0, (0,)),
        (first, "loss", ("step",), 2.0, (1,)),
        (first, "acc", ("step",), 5.0, (0,)),
        (second, "loss", ("step",), 3.0, (0,)),
    ]
    assert [row[3] for row in rows(Index(store.home), ["acc"])] == [5.0]


def test_new_runs_are_added_without_rewriting_the_rest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write({"loss": [1.0]})
    rows(Index(store.home))
    written: list[str] = []
    real = parquet_segments.write_segment
    monkeypatch.setattr(
        parquet_segments, "write_segment", lambda folder, columns: written.append("w") or real(folder, columns)
    )

    second = store.write({"loss": [2.0]})
    index = Index(store.home)

    assert [row[3] for row in rows(index)] == [1.0, 2.0]
    assert written == ["w"]
    assert index.runs()[1].record.run == second


def test_a_rebuilt_index_equals_the_old_one(store: Store) -> None:
    for number in range(5):
        store.write({"loss": [float(number)], "acc": [0.5 * number]})
    index = Index(store.home)
    before = (rows(index), index.summaries(index.runs()), index.loops(index.runs()), index.names(index.runs()))

    index.rebuild()

    again = (rows(index), index.summaries(index.runs()), index.loops(index.runs()), index.names(index.runs()))
    assert again == before


def test_the_newest_runs_are_the_last_of_all(store: Store) -> None:
    early, live = store.begin(wall_ns=1_000_000)  # it still runs, and began before all others
    for at in (5, 3, 8):
        store.write({"loss": [1.0]}, wall_ns=at * 1_000_000_000)
    index = Index(store.home)
    every = [entry.record.run for entry in index.runs()]

    assert every[0] == early
    for limit in range(6):
        total, newest = index.newest(limit)
        assert (total, [entry.record.run for entry in newest]) == (4, every[-limit:])
    live.close()


def test_a_live_run_is_listed_with_the_values_logged_so_far(store: Store) -> None:
    run, journal = store.begin()
    loop = journal.begin_loop("step", ROOT, 0)
    index = Index(store.home)
    for step in range(3):
        journal.append_float("loss", float(step), loop, step)

        assert [row[3] for row in rows(index)] == [float(s) for s in range(step + 1)]
        assert [(e.record.run, e.record.outcome) for e in index.runs()] == [(run, RUNNING)]
    end(journal)

    assert [e.record.outcome for e in index.runs()] == [FINISHED]
    assert len(rows(index)) == 3


@pytest.mark.parametrize("header", [{"pid": 2**22 + 5}, {"start": "another boot:1"}])
def test_a_run_whose_process_is_gone_was_killed(store: Store, header: dict[str, Any]) -> None:
    _, journal = store.begin(**header)
    log(journal, {"loss": [1.0]})

    index = Index(store.home)
    assert [e.record.outcome for e in index.runs()] == [KILLED]
    assert len(rows(index)) == 1
    journal.close()


def test_a_run_on_another_machine_is_alive_while_it_sends_heartbeats(store: Store) -> None:
    run, journal = store.begin(host="elsewhere")
    assert [e.record.outcome for e in Index(store.home).runs()] == [RUNNING]

    os.utime(store.home.run_folder(run) / "0.lines", (0, 0))
    assert [e.record.outcome for e in Index(store.home).runs()] == [KILLED]
    journal.close()


def test_a_removed_run_is_gone_from_everything(store: Store) -> None:
    keep = store.write({"loss": [1.0]})
    gone = store.write({"loss": [2.0]})
    index = Index(store.home)
    rows(index)
    for file in store.home.run_folder(gone).iterdir():
        file.unlink()
    store.home.run_folder(gone).rmdir()

    assert [row[0] for row in rows(index)] == [keep]
    assert list(index.summaries(index.runs())) == [keep]
    assert {row[0] for row in index.loops(index.runs())} == {keep}


def test_a_journal_that_joins_a_finished_run_is_noticed(store: Store) -> None:
    run = store.write({"loss": [1.0]})
    index = Index(store.home)
    rows(index)
    _, other = store.begin(rank=1, run=run)
    log(other, {"loss": [9.0]})
    end(other)

    entries = index.runs()
    assert entries[0].record.ranks == (0, 1)
    assert index.points(entries, None, all_ranks=True).value.tolist() == [1.0, 9.0]
    assert index.points(entries, None).value.tolist() == [1.0]


def test_many_segments_are_merged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_segments, "MERGE_FROM", 4)
    monkeypatch.setattr(parquet_segments, "GRACE_S", -1)
    index = Index(store.home)
    for number in range(6):
        store.write({"loss": [float(number)]})
        rows(index)

    assert [row[3] for row in rows(index)] == [float(number) for number in range(6)]
    assert 0 < len(list(index.segments.glob("*.parquet"))) < 4


def test_nan_infinities_texts_and_missing_items_survive_being_indexed(store: Store) -> None:
    _, journal = store.begin()
    folds = journal.begin_loop("fold", ROOT, 0)
    journal.line(line_schema.LoopItem, folds, 0, item="first")
    for value in (float("nan"), float("inf"), -0.0):
        journal.append_float("loss", value, folds, 0)
    journal.line(line_schema.ValueLogged, ROOT, 0, name=journal.name_id("note"), value="text")
    journal.append_int("none", 0, ROOT, 0, slot_kinds.NONE)
    live = Index(store.home).points(Index(store.home).runs(), None)
    end(journal)
    index = Index(store.home)
    stored = index.points(index.runs(), None)

    assert index.runs()[0].number is not None
    assert stored.value.tobytes() == live.value.tobytes()
    assert stored.text.tolist() == live.text.tolist() == [None, None, None, '"text"', None]
    assert stored.items.tolist() == live.items.tolist() == ['{"fold":"first"}'] * 3 + [None, None]


def answers(index: Index) -> Any:
    entries = index.runs()
    return [
        rows(index), [entry.record for entry in entries], index.summaries(entries), index.summaries(entries, ["loss"]),
        index.loops(entries), index.checkpoints(entries), index.names(entries),
    ]  # fmt: skip


DAMAGES = {
    "a record": "update runs set record = replace(record, 'finished', 'failed')",
    "an id of a run": "update runs set run = '7c1f0b5e9a21' where id = (select min(id) from runs)",
    "a summary": "update summaries set last = 17.0",
    "the rank of a summary": "update summaries set rank = 3 where run_id = (select max(id) from runs)",
    "the process of a summary": "update summaries set process = 4711 where run_id = (select max(id) from runs)",
    "the name of a summary": "update summaries set name_id = 3 - name_id where run_id = (select max(id) from runs)",
    "the run of a summary": "update summaries set run_id = 77 where run_id = (select max(id) from runs)",
    "a name": "update names set name = 'lass' where name = 'loss'",
    "two names": "update names set id = case id when 1 then 900 else 901 end; update names set id = 902 - id",
    "a path": """update paths set path = '["stop"]' where path = '["step"]'""",
    "the iterations of a loop": "update loops set iterations = 77",
    "the rows of a segment": "update segments set rows = 77",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
def test_a_changed_row_of_the_catalog_never_changes_an_answer(
    store: Store, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for values in ({"loss": [3.0, 1.0, 2.0], "acc": [0.5, 0.25]}, {"loss": [9.0, 8.0]}):
        store.write(values)
    whole = answers(Index(store.home))
    with contextlib.closing(Index(store.home)) as index:
        for part in statement.split(";"):
            index.catalog.tables.execute(part)

    damaged = Index(store.home)
    assert answers(damaged) == whole
    assert "index is damaged" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    assert answers(Index(store.home)) == whole
    assert not capsys.readouterr().err


@pytest.mark.parametrize("table", ["summaries", "loops", "names"])
def test_a_catalog_that_lacks_rows_is_rebuilt(tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "home")
    store.write({"loss": [3.0, 1.0, 2.0]})
    whole = answers(Index(store.home))
    with contextlib.closing(Index(store.home)) as index:
        index.catalog.tables.execute(f"delete from {table}")

    assert answers(Index(store.home)) == whole
    assert "lacks rows" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_segment_is_never_read(store: Store, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    store.write({"loss": [3.0, 1.0, 2.0]})
    whole = answers(Index(store.home))
    (path,) = next(iter(store.home.index.glob("segments*"))).glob("*.parquet")
    raw = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        raw[len(raw) // 3] ^= 1
        path.write_bytes(raw[:-1] if damage == "truncated" else raw)

    assert answers(Index(store.home)) == whole
    assert path.name in capsys.readouterr().err


def test_runs_that_were_listed_before_a_rebuild_are_found_after_it(store: Store) -> None:
    store.write({"loss": [3.0, 1.0]})
    store.write({"loss": [9.0]})
    index = Index(store.home)
    entries, whole = index.runs(), answers(index)
    Index(store.home).rebuild()

    assert index.summaries(entries) == whole[2]
    assert index.points(entries).value.tolist() == [3.0, 1.0, 9.0]
    assert len(index.loops(entries)) == 2
    assert [number for number, _ in index.stored(entries).runs] == [entry.number for entry in index.runs()]


@pytest.mark.parametrize("damage", [b"not a database", b"", b"SQLite format 3\x00 and nonsense" * 50])
def test_a_damaged_catalog_is_rebuilt(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path / "home")
    store.write({"loss": [1.0]})
    index = Index(store.home)
    rows(index)
    index.close()
    (store.home.index / "catalog.sqlite").write_bytes(damage)

    assert [row[3] for row in rows(Index(store.home))] == [1.0]


def test_a_home_that_cannot_be_written_can_be_read(store: Store) -> None:
    store.write({"loss": [1.0]})
    store.home.index.write_text("a file where the index should be")

    index = Index(store.home)
    assert [row[3] for row in rows(index)] == [1.0]
    assert index.summaries(index.runs())[index.runs()[0].record.run][0].last == 1.0
    assert len(index.loops(index.runs())) == 1


def test_summaries_hold_last_lowest_highest_and_count(store: Store) -> None:
    run = store.write({"loss": [3.0, float("nan"), 1.0, 2.0], "bad": [float("nan")]})

    index = Index(store.home)
    loss, bad = index.summaries(index.runs())[run]
    assert (loss.count, loss.last, loss.lowest, loss.highest, loss.path) == (4, 2.0, 1.0, 3.0, ("step",))
    assert (bad.count, bad.last, bad.last_text, bad.lowest) == (1, None, '{"$float":"nan"}', None)


def test_an_empty_home_and_a_run_without_a_journal_are_no_error(store: Store) -> None:
    store.home.new_run()

    index = Index(store.home)
    assert index.runs() == []
    assert len(index.points([], None)) == 0


READER = """
import sys
from pathlib import Path
from relive.store import Home
from relive.store.catalog.index import Index
for _ in range(8):
    index = Index(Home(Path(sys.argv[1])))
    entries = index.runs()
    points = index.points(entries, ["loss"])
    counts = {}
    for position in points.run.tolist():
        counts[position] = counts.get(position, 0) + 1
    assert all(count == 50 for count in counts.values()), counts
    index.close()
"""


@pytest.mark.long
def test_many_processes_write_and_read_at_once_without_lock_errors(store: Store) -> None:
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(store.home.path)], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    written = []
    while any(reader.poll() is None for reader in readers):
        written.append(store.write({"loss": list(np.arange(50.0))}))
        time.sleep(0.01)
    errors = [reader.communicate()[1] for reader in readers]

    assert errors == [""] * 4
    assert len(rows(Index(store.home))) == 50 * len(written)


def test_summaries_of_a_run_read_in_parts_equal_those_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("relive.store.catalog.live_summaries.PART_SLOTS", 7)
    store = Store(tmp_path)
    home, (run, journal) = store.home, store.begin()
    index, chance = Index(home), random.Random(4)
    loop = journal.begin_loop("epoch", ROOT, 0)
    for iteration in range(60):
        if iteration % 11 == 3:
            journal.append_loop_item(loop, iteration, iteration * 10)
        inner = journal.begin_loop("step", loop, iteration)
        for step in range(chance.randrange(4)):
            journal.append_float(f"n{chance.randrange(3)}", chance.choice([chance.random(), float("nan")]), inner, step)
            if chance.random() < 0.1:
                journal.line(line_schema.ValueLogged, inner, step, name=journal.name_id("n0"), value="a text")
        late = journal._next() if iteration == 30 else None
        if iteration % 5 == 0 or late:
            followed, whole = index.summaries(index.runs())[run], summarise(parse_run(home, run)[0])

            assert {one.name: one for one in followed} == {one.name: one for one in whole}
        if late:  # a slot that was reserved, and is written after others were read
            journal.append_float("n0", 1.0, ROOT, 0)
            index.summaries(index.runs())
            journal._write_slot(late, _pack_float, ROOT, 0, -5.0, tag=slot_kinds.FLOAT << 24 | journal.name_id("n0"))
    lowest = {summary.name: summary.lowest for summary in index.summaries(index.runs())[run]}
    index.close()
    assert lowest["n0"] == -5.0
