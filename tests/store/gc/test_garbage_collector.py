"""Laws of garbage collection: nothing that is named is ever removed, whatever runs or dies; all else is, in time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relive
from relive.errors import NotFound, ReliveError
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import Chunks, Packs
from relive.store.chunks.references import ReferenceScanner
from relive.store.gc import Policy, check_home, collect_garbage, garbage_collector, preview_garbage
from relive.store.gc.garbage_plan import (
    CHUNKS,
    LEFTOVERS,
    SPARSE_PACKS,
    UNNEEDED_PACKS,
    Claims,
    GarbageReport,
    group_ranks,
)

Record = Callable[..., Any]
PROCESSES = Path(__file__).with_name("gc_processes.py")
NO_GRACE_S = -60.0  # makes even the youngest chunk old enough


def age(home: Home) -> None:
    """Makes everything two hours old."""
    then = time.time() - 7200
    for path in home.path.rglob("*"):
        os.utime(path, (then, then))


def read_files(home: Home) -> dict[str, bytes]:
    """Returns every file but those of the index, which is derived."""
    found = (path for path in home.path.rglob("*") if path.is_file() and home.index not in path.parents)
    return {str(path.relative_to(home.path)): path.read_bytes() for path in found}


def tally(report: GarbageReport, reason: str) -> tuple[int, int]:
    return next((tally.count, tally.size_bytes) for tally in report.tallies if tally.reason == reason)


def damage(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= 0x55
    path.write_bytes(raw)


# --- what is named stays, the rest is removed -------------------------------------------------------------------------


def test_nothing_is_removed_from_a_home_whose_runs_name_everything(
    store: Home, record: Record, shown: Any, named_chunks: Any
) -> None:
    run = record()
    run.log("big", np.arange(5_000.0))
    run.log("long", "text " * 2_000)
    run.artifact(b"weights" * 1_000)
    run.artifact({"table": np.arange(2_000.0)})
    for _ in range(3):
        run.checkpoint()
    run.finish()
    age(store)
    before = read_files(store)
    report = collect_garbage(store, Policy())

    assert (report.total_bytes, report.doubts) == (0, ())
    assert {name: data for name, data in read_files(store).items() if not name.endswith("lock")} == {
        name: data for name, data in before.items() if not name.endswith("lock")
    }
    assert all(Chunks(store.chunks).get(name) for name in named_chunks(store))
    assert shown(store) == {run.run: [0, 1, 2]}


def test_what_only_a_removed_run_named_is_removed_and_what_another_shares_stays(
    store: Home, record: Record, shown: Any
) -> None:
    kept, removed = record(seed=1, checkpoints=2), record(seed=2)
    removed.log("big", np.arange(5_000.0))
    removed.checkpoint()
    removed.finish()
    shutil.rmtree(removed.folder)
    age(store)
    report = collect_garbage(store, Policy())

    assert tally(report, UNNEEDED_PACKS)[0] == 1
    assert tally(report, CHUNKS)[0] == 2, "the array and the manifest"
    assert shown(store) == {kept.run: [0, 1]}
    assert len(list(Chunks(store.chunks).names())) == 2
    assert collect_garbage(store, Policy()).total_bytes == 0


def test_a_chunk_that_an_artifact_names_inside_itself_stays(store: Home, record: Record) -> None:
    run = record()
    run.artifact({"table": np.arange(2_000.0)})
    run.finish()
    age(store)
    collect_garbage(store, Policy())

    assert len(list(Chunks(store.chunks).names())) == 2


def test_a_chunk_that_no_line_names_yet_stays_for_an_hour(store: Home, record: Record) -> None:
    record(checkpoints=1)
    name = Chunks(store.chunks).put(b"not named yet")
    collect_garbage(store, Policy())
    assert name in Chunks(store.chunks)

    os.utime(Chunks(store.chunks).path(name), (time.time() - 3000,) * 2)
    collect_garbage(store, Policy())
    assert name in Chunks(store.chunks)

    os.utime(Chunks(store.chunks).path(name), (time.time() - 4000,) * 2)
    collect_garbage(store, Policy())
    assert name not in Chunks(store.chunks)


def test_bytes_that_are_put_again_are_as_young_as_new_ones(store: Home, record: Record) -> None:
    record(checkpoints=1)
    chunks = Chunks(store.chunks)
    name = chunks.put(b"an orphan of long ago")
    os.utime(chunks.path(name), (1, 1))
    assert chunks.put(b"an orphan of long ago") == name
    collect_garbage(store, Policy())

    assert chunks.get(name) == b"an orphan of long ago"


def test_bytes_that_are_put_again_just_before_their_removal_stay(
    store: Home, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(checkpoints=1)
    chunks = Chunks(store.chunks)
    name = chunks.put(b"an orphan of long ago")
    os.utime(chunks.path(name), (1, 1))

    def put_again_first(*args: Any) -> int | None:
        chunks.put(b"an orphan of long ago")
        return remove(*args)

    remove = garbage_collector._remove_chunk
    monkeypatch.setattr(garbage_collector, "_remove_chunk", put_again_first)
    assert tally(collect_garbage(store, Policy()), CHUNKS) == (0, 0)

    assert name in chunks


def test_bytes_that_are_put_again_during_their_removal_are_stored_anew(store: Home) -> None:
    chunks = Chunks(store.chunks)
    name = chunks.put(b"an orphan of long ago")
    putting = threading.Thread(target=chunks.put, args=(b"an orphan of long ago",))
    with chunks.path(name).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a collection does
        putting.start()
        putting.join(0.1)
        assert putting.is_alive(), "it waits to see what becomes of the chunk"
        chunks.path(name).unlink()
    putting.join()

    assert chunks.get(name) == b"an orphan of long ago"


def test_what_claims_name_stays(store: Home, record: Record) -> None:
    run = record(checkpoints=4)
    name = Chunks(store.chunks).put(b"the result of a call")
    claims = Claims(pinned=lambda word: word == run.run, chunks=lambda: [name])
    collect_garbage(store, Policy(keep=1), grace_s=NO_GRACE_S, claims=claims)

    assert name in Chunks(store.chunks)
    assert len(kept_epochs(store, run)) == 4


def test_leftovers_are_removed_after_an_hour_and_other_hidden_files_stay(store: Home, record: Record) -> None:
    record(checkpoints=1)
    (store.index / "segments").mkdir(parents=True)
    left = [
        store.runs / ".0123456789ab/0.lines", store.chunks / "ab/.abcdef01.4711.139", store.packs / ".18a-4711-0.pack",
        store.packs / ".18b-4711-0.pack.partial", store.index / "segments/1.partial",
    ]  # fmt: skip
    others = [store.runs / ".DS_Store", store.chunks / "ab/.nfs0001", store.path / ".gitignore"]
    for path in (*left, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    collect_garbage(store, Policy())
    assert all(path.exists() for path in left)

    age(store)
    assert tally(collect_garbage(store, Policy()), LEFTOVERS)[0] == len(left)
    assert not any(path.exists() for path in left)
    assert not (store.runs / ".0123456789ab").exists()
    assert all(path.exists() for path in others)


def test_temporary_files_of_killed_writers_are_leftovers_in_every_folder(store: Home, record: Record) -> None:
    folders = [
        store.path, store.runs, record(checkpoints=1).folder, store.chunks / "ab", store.packs,
        store.index / "segments", store.path / "pins", store.path / "fits",
    ]  # fmt: skip
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    code = f"""
import os, signal
from contextlib import ExitStack
from pathlib import Path
from relive.store.durable_files import open_atomically
with ExitStack() as stack:
    for folder in {list(map(str, folders))}:
        stack.enter_context(open_atomically(Path(folder) / "some.file"))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    left = [path for folder in folders for path in folder.glob(".some.file.*")]
    assert len(left) == len(folders)
    collect_garbage(store, Policy())
    assert all(path.exists() for path in left)

    age(store)
    assert tally(collect_garbage(store, Policy()), LEFTOVERS)[0] == len(left)
    assert not any(path.exists() for path in left)


def test_a_preview_reports_what_a_collection_does_and_changes_nothing(store: Home, record: Record) -> None:
    run = record(checkpoints=6)
    removed = record(seed=1, checkpoints=1)
    shutil.rmtree(removed.folder)
    age(store)
    before = read_files(store)
    preview = preview_garbage(store, Policy(keep=2))

    assert read_files(store) == before
    done = collect_garbage(store, Policy(keep=2))
    assert [(one.reason, one.count) for one in done.tallies] == [(one.reason, one.count) for one in preview.tallies]
    assert done.total_bytes == pytest.approx(preview.total_bytes, rel=0.01)
    assert len(kept_epochs(store, run)) == 2


def test_two_collections_at_once_are_refused(store: Home, record: Record) -> None:
    record(checkpoints=1)
    with (store.chunks / "gc.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ReliveError, match="let it finish"):
            collect_garbage(store, Policy())


# --- dropped checkpoints ----------------------------------------------------------------------------------------------


def kept_epochs(home: Home, run: Any) -> list[int]:
    index = Index(home)
    rows = index.checkpoints(index.runs()).get(run.run, [])
    index.close()
    return [row.at["epoch"] for row in rows]


def test_dropped_checkpoints_are_listed_nowhere_and_their_space_is_freed(
    store: Home, record: Record, shown: Any
) -> None:
    run = record(checkpoints=8)
    assert kept_epochs(store, run) == [*range(8)]
    before = sum(path.stat().st_size for path in store.packs.iterdir())
    collect_garbage(store, Policy(keep=2))
    left = kept_epochs(store, run)

    assert (len(left), left[-1]) == (2, 7)
    assert shown(store) == {run.run: left}
    assert sum(path.stat().st_size for path in store.packs.iterdir()) < before / 2  # two states, and that of the start
    assert relive.sql("select count(*) n from checkpoints", home=store.path)["n"].tolist() == [2]
    assert relive.restore(run.run, home=store.path, epoch=7).state("hot")
    gone = next(epoch for epoch in range(8) if epoch not in left)
    with pytest.raises(NotFound, match=f"no checkpoint at epoch={gone}; there are"):
        relive.restore(run.run, home=store.path, epoch=gone)
    assert [finding for finding in check_home(store, deep=True) if finding.damage] == []


def test_a_live_run_is_thinned_and_continues(store: Home, record: Record, shown: Any) -> None:
    run = record()
    for _ in range(5):
        run.checkpoint()
        collect_garbage(store, Policy(keep=2), grace_s=NO_GRACE_S)
    assert len(kept_epochs(store, run)) == 2

    run.checkpoint()
    run.finish()
    assert len(kept_epochs(store, run)) == 3
    assert shown(store)[run.run][-1] == 5


def test_a_pinned_run_keeps_all_of_its_checkpoints(store: Home, record: Record) -> None:
    pinned, other = record(checkpoints=4), record(seed=1, checkpoints=4)
    (pinned.folder / "pinned").touch()
    collect_garbage(store, Policy(keep=1, budget_bytes=1))

    assert len(kept_epochs(store, pinned)) == 4
    assert kept_epochs(store, other) == []


def test_a_budget_holds_on_disk(store: Home, record: Record, shown: Any) -> None:
    old, new = record(seed=1, checkpoints=6), record(seed=2, checkpoints=6)
    budget = 9 * 170_000
    collect_garbage(store, Policy(budget_bytes=budget))

    assert sum(path.stat().st_size for path in store.packs.iterdir()) <= budget
    assert len(kept_epochs(store, old)) < 6
    assert kept_epochs(store, new) == [*range(6)]
    assert shown(store) == {old.run: kept_epochs(store, old), new.run: kept_epochs(store, new)}


def test_of_two_checkpoints_with_one_state_either_can_be_dropped(store: Home, record: Record, shown: Any) -> None:
    run = record()
    first, second = run.checkpoint(), run.checkpoint(again=True)
    run.finish()
    collect_garbage(store, Policy(keep=1), grace_s=NO_GRACE_S)

    assert first == second
    assert shown(store) == {run.run: [1]}


def test_a_torn_tombstone_drops_nothing_and_does_not_swallow_the_next(store: Home, record: Record) -> None:
    run = record(checkpoints=4)
    stones = run.folder / "0.dropped"
    stones.write_bytes(b'{"v":1,"seq":5,"mani')
    assert len(kept_epochs(store, run)) == 4
    collect_garbage(store, Policy(keep=1))

    assert kept_epochs(store, run) == [3]
    assert len(stones.read_bytes().splitlines()) == 4


def test_a_tombstone_of_a_later_format_drops_nothing(store: Home, record: Record) -> None:
    run = record(checkpoints=1)
    collect_garbage(store, Policy(budget_bytes=1))
    assert kept_epochs(store, run) == []
    stones = run.folder / "0.dropped"
    stones.write_bytes(stones.read_bytes().replace(b'"v":1', b'"v":2'))

    assert kept_epochs(store, run) == [0]


def test_the_ranks_of_a_run_are_thinned_together(store: Home, record: Record) -> None:
    first = record()
    ranks = [first, record(seed=1, rank=1, run=first.run)]
    for _ in range(7):
        for rank in ranks:
            rank.checkpoint()
    for rank in ranks:
        rank.finish()
    collect_garbage(store, Policy(keep=3))

    index = Index(store)
    rows = index.checkpoints(index.runs())[first.run]
    index.close()
    assert [len(ranks) for ranks in group_ranks(rows)] == [2, 2, 2]
    assert rows[-1].at == {"epoch": 6}


def test_the_catalog_and_a_live_run_list_the_same_checkpoints(store: Home, record: Record) -> None:
    run = record()
    for _ in range(2):
        run.checkpoint()
    index = Index(store)
    live = index.checkpoints(index.runs())
    run.finish()
    stored = index.checkpoints(index.runs())
    index.close()

    assert live == stored
    assert [row.where for row in stored[run.run]] == ["epoch=0", "epoch=1"]


# --- sparse packs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def sparse(store: Home, record: Record) -> Any:
    """A run whose frozen numbers are in a pack of a removed run."""
    removed, run = record(seed=1, checkpoints=1), record(seed=2, checkpoints=2)
    shutil.rmtree(removed.folder)
    return run


def test_a_sparse_pack_is_copied_without_the_rest(store: Home, sparse: Any, shown: Any) -> None:
    before = sum(path.stat().st_size for path in store.packs.iterdir())
    report = collect_garbage(store, Policy())

    count, freed = tally(report, SPARSE_PACKS)
    assert count == 1
    assert freed > 150_000
    assert sum(path.stat().st_size for path in store.packs.iterdir()) == before - freed
    assert shown(store) == {sparse.run: [0, 1]}
    assert list(check_home(store, deep=True)) == []
    assert collect_garbage(store, Policy()).total_bytes == 0


def test_copied_pieces_are_restored_into_live_objects(store: Home, sparse: Any) -> None:
    collect_garbage(store, Policy())
    hot, frozen = np.zeros(20_000), np.zeros(5_000)
    checkpoint = relive.restore(sparse.run, home=store.path, epoch=0, into={"hot": hot, "frozen": frozen}, rng=False)

    for name, array in (("hot", hot), ("frozen", frozen)):
        assert array.all()
        (stored,) = checkpoint.state(name).values()
        assert np.array_equal(array, stored)


def test_copied_pieces_are_found_by_writers_and_removed_when_no_checkpoint_needs_them(
    store: Home, sparse: Any, record: Record, shown: Any
) -> None:
    collect_garbage(store, Policy())
    other = record(seed=3, checkpoints=1)
    shutil.rmtree(sparse.folder)
    report = collect_garbage(store, Policy())

    assert tally(report, UNNEEDED_PACKS)[0] == 2
    assert shown(store) == {other.run: [0]}
    shutil.rmtree(other.folder)
    collect_garbage(store, Policy())
    assert Packs(store.packs).names() == []


def test_a_pack_that_cannot_be_copied_stays(
    store: Home, sparse: Any, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Packs(store.packs).names()

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relive.store.gc.garbage_collector.copy_pieces", full)
    assert tally(collect_garbage(store, Policy()), SPARSE_PACKS) == (0, 0)

    assert Packs(store.packs).names() == before
    assert shown(store) == {sparse.run: [0, 1]}


def test_a_pack_that_is_needed_again_while_it_is_copied_stays(
    store: Home, sparse: Any, record: Record, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Any] = []

    def meanwhile(*args: Any) -> str:
        name = copy_pieces(*args)
        late.append(record(seed=1, checkpoints=1))  # finds all of its state in the pack that was just copied
        return name

    copy_pieces = garbage_collector.copy_pieces
    monkeypatch.setattr(garbage_collector, "copy_pieces", meanwhile)
    assert tally(collect_garbage(store, Policy()), SPARSE_PACKS) == (0, 0)

    assert shown(store) == {sparse.run: [0, 1], late[0].run: [0]}
    monkeypatch.undo()
    collect_garbage(store, Policy())
    assert shown(store) == {sparse.run: [0, 1], late[0].run: [0]}


# --- doubt ------------------------------------------------------------------------------------------------------------


def damaged_line(run: Any) -> None:
    damage(run.folder / "0.lines", 0)


def damaged_kind_of_a_checkpoint(run: Any) -> None:
    path = run.folder / "0.lines"
    path.write_bytes(
        path.read_bytes().replace(b'"checkpoint"', b'"chuckpoint"').replace(run.manifest.encode(), b"0" * 64)
    )


def damaged_name_of_a_chunk(run: Any) -> None:
    path = run.folder / "0.lines"
    path.write_bytes(path.read_bytes().replace(run.artifact_chunk.encode(), b"Q" + run.artifact_chunk[1:].encode()))


def pack_that_is_gone(run: Any) -> None:
    packs = Packs(run.home.packs)
    (packs.folder / max(piece.pack for piece in ReferenceScanner(run.home).manifest_pieces(run.manifest))).unlink()


def line_of_a_newer_format(run: Any) -> None:
    with (run.folder / "0.lines").open("ab") as file:
        file.write(b'{"v":9,"k":"wonder"}\n')


def lines_that_are_gone(run: Any) -> None:
    (run.folder / "0.lines").unlink()


def lines_that_cannot_be_read(run: Any) -> None:
    (run.folder / "0.lines").unlink()
    (run.folder / "0.lines").mkdir()


def manifest_that_is_gone(run: Any) -> None:
    run.chunks.path(run.manifest).unlink()


def manifest_that_is_damaged(run: Any) -> None:
    damage(run.chunks.path(run.manifest), 100)


def artifact_that_is_gone(run: Any) -> None:
    run.chunks.path(run.artifact_chunk).unlink()


@pytest.mark.parametrize(
    "harm",
    [
        damaged_line, damaged_kind_of_a_checkpoint, damaged_name_of_a_chunk, line_of_a_newer_format,
        lines_that_are_gone, lines_that_cannot_be_read, manifest_that_is_gone, manifest_that_is_damaged,
        artifact_that_is_gone, pack_that_is_gone,
    ],
    ids=lambda harm: harm.__name__,
)  # fmt: skip
def test_in_doubt_everything_stays_and_the_reason_is_reported(
    store: Home, record: Record, named_chunks: Any, harm: Callable[[Any], None]
) -> None:
    run, removed = record(), record(seed=1, checkpoints=3)
    run.manifest = run.checkpoint()
    run.artifact({"table": np.arange(2_000.0)})
    (run.artifact_chunk,) = named_chunks(store)
    run.finish()
    Chunks(store.chunks).put(b"an orphan")
    shutil.rmtree(removed.folder)
    harm(run)
    age(store)
    before = read_files(store)
    report = collect_garbage(store, Policy(keep=1, budget_bytes=1))

    assert {name: data for name, data in read_files(store).items() if not name.endswith("lock")} == {
        name: data for name, data in before.items() if not name.endswith("lock")
    }
    assert report.total_bytes == 0
    assert {doubt.run for doubt in report.doubts} == {run.run}
    assert report.doubts == preview_garbage(store, Policy()).doubts


def test_a_torn_tail_is_no_doubt(store: Home, record: Record, shown: Any) -> None:
    run, removed = record(checkpoints=1), record(seed=1, checkpoints=1)
    shutil.rmtree(removed.folder)
    with (run.folder / "0.lines").open("ab") as file:
        file.write(b'{"v":1,"k":"checkpoint","manif')
    report = collect_garbage(store, Policy())

    assert report.doubts == ()
    assert tally(report, UNNEEDED_PACKS)[0] == 1
    assert shown(store) == {run.run: [0]}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1 << 20))
def test_wherever_a_manifest_is_damaged_no_pack_that_it_needs_is_removed(
    store: Home, record: Record, shown: Any, at: int
) -> None:
    shutil.rmtree(store.path, ignore_errors=True)
    run, removed = record(), record(seed=1, checkpoints=1)
    manifest = run.checkpoint()
    run.finish()
    shutil.rmtree(removed.folder)
    damage(run.chunks.path(manifest), at)
    before = Packs(store.packs).names()

    if collect_garbage(store, Policy(), grace_s=NO_GRACE_S).doubts:
        assert Packs(store.packs).names() == before
    else:  # only the encoding of the chunk was damaged, not its content
        assert shown(store) == {run.run: [0]}


@pytest.mark.parametrize("at", [-1, -12, -20, -40])
def test_a_pack_with_a_damaged_footer_stays_since_copied_pieces_are_found_only_by_it(
    store: Home, sparse: Any, at: int
) -> None:
    collect_garbage(store, Policy())
    copy = max(Packs(store.packs).names())
    damage(store.packs / copy, at)
    report = collect_garbage(store, Policy())

    assert (store.packs / copy).exists()
    assert {doubt.run for doubt in report.doubts} == {sparse.run}
    assert [finding.damage for finding in check_home(store)] == [True, True]


# --- the doctor -------------------------------------------------------------------------------------------------------


def test_the_doctor_reports_a_missing_pack_and_deep_finds_a_damaged_piece(store: Home, record: Record) -> None:
    run = record(checkpoints=3)
    _, second, third = Packs(store.packs).names()
    (store.packs / second).unlink()
    damage(store.packs / third, 1000)

    shallow, deep = (
        [(finding.run, finding.text) for finding in check_home(store, deep=deep) if finding.damage]
        for deep in (False, True)
    )
    assert shallow == [(run.run, f"checkpoint at epoch=1: pack {second} is gone; restore an earlier checkpoint")]
    assert [text.split(":")[0] for _, text in deep] == ["checkpoint at epoch=1", "checkpoint at epoch=2"]


def test_the_doctor_reports_a_truncated_pack(store: Home, record: Record) -> None:
    record(checkpoints=1)
    (name,) = Packs(store.packs).names()
    os.truncate(store.packs / name, 1000)

    assert ["ends early" in finding.text for finding in check_home(store) if finding.damage] == [True]


def test_the_doctor_reports_orphans_and_how_to_remove_them(store: Home, record: Record) -> None:
    record(checkpoints=1)
    removed = record(seed=1, checkpoints=1)
    shutil.rmtree(removed.folder)
    orphan_bytes = preview_garbage(store, Policy()).total_bytes

    (finding,) = check_home(store)
    assert (finding.text, finding.damage) == (f"orphans: {orphan_bytes} bytes; `relive gc` removes them", False)


# --- concurrency and kills --------------------------------------------------------------------------------------------


def start_process(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROCESSES), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_whatever_is_recorded_while_collections_run_is_never_lost(
    store: Home, record: Record, shown: Any, named_chunks: Any
) -> None:
    grace_s = 1.0
    store.create()
    other = start_process("repeatedly", store.path, grace_s)
    while not (store.path / "begun").exists() and other.poll() is None:
        time.sleep(0.01)
    until, seed, orphans = time.monotonic() + 3, 0, list[tuple[float, bytes]]()
    try:
        while time.monotonic() < until:
            run, twin, seed = record(seed), record(seed), seed + 1
            for iteration in range(6):
                run.checkpoint()
                twin.checkpoint()  # finds its pieces in packs of the other, which is thinned meanwhile
                run.log("fresh", np.arange(200.0) + seed * 10 + iteration)
                orphans.append((time.monotonic(), os.urandom(6_000)))
                run.chunks.put(orphans[-1][1])
                while orphans and time.monotonic() - orphans[0][0] > grace_s:  # just about to be collected
                    run.log("again", orphans.pop(0)[1])
            run.finish()
            twin.finish()
    finally:
        (store.path / "stop").touch()
        stdout, stderr = other.communicate(timeout=60)

    assert other.returncode == 0, stderr
    freed, dropped = map(int, stdout.split())
    assert freed > 0
    assert dropped > 0
    assert all(Chunks(store.chunks).get(name) for name in named_chunks(store))
    assert all(epochs[-1] == 5 for epochs in shown(store).values())
    assert seed > 1


@pytest.mark.long
def test_a_collection_killed_at_any_point_leaves_every_listed_checkpoint_readable(
    store: Home, sparse: Any, record: Record, tmp_path: Path
) -> None:
    record(seed=5, checkpoints=4)
    Chunks(store.chunks).put(b"an orphan")
    age(store)
    Index(store).runs()
    killing = start_process("killed", store.path, tmp_path / "copies")
    stdout, stderr = killing.communicate(timeout=120)

    assert killing.returncode == 0, stderr
    assert int(stdout) > 10
