"""Laws of offload: a pack leaves the home only once its copy is verified, and is fetched back when it is read."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.checkpoint.io import open_checkpoint
from relive.errors import Damaged, ReliveError, StorageUnavailable
from relive.store import Home, read_sealed, write_sealed
from relive.store.chunks import Chunks, Packs, list_kept_checkpoints
from relive.store.chunks.object_stores import FolderObjectStore
from relive.store.chunks.offload_notes import find_note, offloaded_packs
from relive.store.gc import Policy, check_home, collect_garbage, offload, offload_locations, pin, preview_garbage, unpin
from relive.store.gc.garbage_plan import MOVED_PACKS, OUTSIDE_PACKS, GarbageReport
from relive.store.gc.retention import LocalPack, plan_offload
from relive.store.journal import parse_run

Record = Callable[..., Any]
PROCESSES = Path(__file__).with_name("offload_processes.py")
HOT = 20_000  # numbers in what changes with each checkpoint
TIGHT = 1  # byte: no pack fits


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "spool")
    return f"{request.getfixturevalue('bucket').url}/{secrets.token_hex(4)}"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def tally(report: GarbageReport, reason: str) -> tuple[int, int]:
    return next((tally.count, tally.size_bytes) for tally in report.tallies if tally.reason == reason)


def packs_bytes(home: Home) -> int:
    packs = Packs(home.packs)
    return sum((packs.folder / name).stat().st_size for name in packs.names())


def stored_packs(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).rglob("*.pack"))


# --- moving -----------------------------------------------------------------------------------------------------------


def test_packs_beyond_the_budget_are_offloaded_and_fetched_back_when_read(
    store: Home, record: Record, shown: Any, spool: str
) -> None:
    run = record(checkpoints=4)
    before = {name: (store.packs / name).read_bytes() for name in Packs(store.packs).names()}
    report = collect_garbage(store, Policy(budget_bytes=TIGHT, spool=spool))

    assert (tally(report, MOVED_PACKS), report.failures) == ((4, sum(map(len, before.values()))), ())
    assert report.total_bytes == sum(map(len, before.values()))
    assert (Packs(store.packs).names(), offloaded_packs(store.packs)) == ([], set(before))
    assert shown(store) == {run.run: [0, 1, 2, 3]}, "all are listed, and each was read"
    assert {name: (store.packs / name).read_bytes() for name in Packs(store.packs).names()} == before


def test_only_as_many_packs_as_needed_are_offloaded_least_recently_used_first(
    store: Home, record: Record, folder: str
) -> None:
    old, new = record(seed=1, checkpoints=2), record(seed=2, checkpoints=2)
    names = Packs(store.packs).names()
    for age_s, name in enumerate(reversed(names)):
        os.utime(store.packs / name, (time.time() + 100 - age_s,) * 2)
    budget = packs_bytes(store) - (store.packs / names[0]).stat().st_size
    collect_garbage(store, Policy(budget_bytes=budget, spool=folder))
    assert Packs(store.packs).names() == names[1:]

    collect_garbage(store, Policy(budget_bytes=budget, spool=folder))
    assert Packs(store.packs).names() == names[1:], "what fits stays"
    outside = offload_locations(store, [row for run in (old, new) for row in manifests(store, run)])
    assert next(iter(outside.values())) == [folder]


def manifests(home: Home, run: Any) -> list[str]:
    return [row.manifest for row in list_kept_checkpoints(home.run_folder(run.run), parse_run(home, run.run))]


def test_reading_a_pack_counts_as_use(store: Home, record: Record, folder: str) -> None:
    run = record(checkpoints=3)
    first, *_ = Packs(store.packs).names()
    for name in Packs(store.packs).names():
        os.utime(store.packs / name, (1, 1))
    checkpoint = open_checkpoint(manifests(store, run)[0], Chunks(store.chunks), Packs(store.packs))
    checkpoint.restore({"hot": np.zeros(HOT)}, random=False)

    assert Packs(store.packs).last_used(first) > (time.time() - 60) * 1e6


def test_a_plan_takes_the_oldest_packs_that_may_leave_until_the_rest_fits() -> None:
    packs = [LocalPack("a", 10, 5), LocalPack("b", 10, 1, stays=True), LocalPack("c", 10, 2), LocalPack("d", 10, 3)]

    assert [pack.name for pack in plan_offload(packs, 40)] == []
    assert [pack.name for pack in plan_offload(packs, 39)] == ["c"]
    assert [pack.name for pack in plan_offload(packs, 20)] == ["c", "d"]
    assert [pack.name for pack in plan_offload(packs, 0)] == ["c", "d", "a"]


def test_an_invalid_spool_is_refused_before_anything_is_done() -> None:
    with pytest.raises(ReliveError, match="write s3://BUCKET/PREFIX"):
        Policy.from_settings("all", 0, "foo")
    assert Policy.from_settings("all", 0, "/mnt/spool").spool == "/mnt/spool"


def test_without_a_spool_checkpoints_are_dropped(store: Home, record: Record, shown: Any) -> None:
    record(checkpoints=4)
    collect_garbage(store, Policy(budget_bytes=TIGHT))

    assert list(shown(store).values()) == [[]]


def test_what_is_pinned_or_live_stays_in_the_home(store: Home, record: Record, folder: str) -> None:
    pinned, other = record(seed=1, checkpoints=2), record(seed=2, checkpoints=2)
    live = record(seed=3)
    live.checkpoint()
    assert pin(pinned.folder)
    assert not pin(pinned.folder)
    collect_garbage(store, Policy(budget_bytes=TIGHT, spool=folder))

    outside = offload_locations(store, [*manifests(store, pinned), *manifests(store, other), *manifests(store, live)])
    assert set(outside) <= set(manifests(store, other))
    assert outside
    assert unpin(pinned.folder)
    live.finish()
    collect_garbage(store, Policy(budget_bytes=TIGHT, spool=folder))
    assert Packs(store.packs).names() == []


def test_a_preview_reports_what_would_move_without_contacting_the_object_store(store: Home, record: Record) -> None:
    record(checkpoints=3)
    policy = Policy(budget_bytes=TIGHT, spool="s3://nowhere/at-all")
    report = preview_garbage(store, policy)

    assert tally(report, MOVED_PACKS) == (3, packs_bytes(store))
    assert len(Packs(store.packs).names()) == 3


def test_an_unavailable_object_store_loses_nothing(
    store: Home, record: Record, shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(checkpoints=3)
    (tmp_path / "spool").write_text("a file where the folder should be")
    report = collect_garbage(store, Policy(budget_bytes=TIGHT, spool=str(tmp_path / "spool")))

    assert len(report.failures) == 1
    assert "can't be used" in report.failures[0]
    assert (tally(report, MOVED_PACKS), offloaded_packs(store.packs)) == ((0, 0), set())
    assert shown(store) == {run.run: [0, 1, 2]}


def test_a_pack_that_arrives_changed_is_not_removed_here(
    store: Home, record: Record, shown: Any, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderObjectStore.put

    def flipped(self: FolderObjectStore, name: str, source: Path) -> None:
        real(self, name, source)
        path = Path(folder) / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    run = record(checkpoints=2)
    monkeypatch.setattr(FolderObjectStore, "put", flipped)
    report = collect_garbage(store, Policy(budget_bytes=TIGHT, spool=folder))

    assert f"in {folder} differs from" in report.failures[0]
    assert "what was sent; nothing was removed" in report.failures[0]
    assert len(Packs(store.packs).names()) == 2
    assert shown(store) == {run.run: [0, 1]}


def test_a_fetched_pack_is_offloaded_again_without_being_sent_again(
    store: Home, record: Record, shown: Any, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(budget_bytes=TIGHT, spool=folder)
    run = record(checkpoints=2)
    collect_garbage(store, policy)
    shown(store)
    monkeypatch.setattr(FolderObjectStore, "put", lambda *_: pytest.fail("it is there already"))

    assert tally(collect_garbage(store, policy), MOVED_PACKS)[0] == 2
    assert shown(store) == {run.run: [0, 1]}


def test_a_pack_that_a_new_run_needs_meanwhile_stays(
    store: Home, record: Record, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(seed=1, checkpoints=1)
    (pack,) = Packs(store.packs).names()
    real, begun = FolderObjectStore.put, []

    def meanwhile(self: FolderObjectStore, name: str, source: Path) -> None:
        real(self, name, source)
        if not begun:  # its frozen half is in the pack that is being sent
            begun.append(record(seed=2))
            begun[0].checkpoint()

    monkeypatch.setattr(FolderObjectStore, "put", meanwhile)
    collect_garbage(store, Policy(budget_bytes=TIGHT, spool=folder))

    assert pack in Packs(store.packs).names()
    begun[0].finish()


# --- fetching back ----------------------------------------------------------------------------------------------------


def record_and_offload(store: Home, record: Record, folder: str, checkpoints: int = 2) -> Any:
    run = record(checkpoints=checkpoints)
    collect_garbage(store, Policy(budget_bytes=TIGHT, spool=folder))
    assert Packs(store.packs).names() == []
    return run


def read_checkpoint(home: Home, manifest: str) -> Any:
    return open_checkpoint(manifest, Chunks(home.chunks), Packs(home.packs)).state("hot")


@pytest.mark.parametrize("damage", ["changed", "cut", "longer"])
def test_a_damaged_pack_is_never_accepted(store: Home, record: Record, folder: str, damage: str) -> None:
    run = record_and_offload(store, record, folder)
    for path in Path(folder).rglob("*.pack"):
        content = path.read_bytes()
        new = {"changed": content[:50] + b"?" + content[51:], "cut": content[:-9], "longer": content + b"?"}
        path.write_bytes(new[damage])

    with pytest.raises(Damaged, match="is damaged; restore an earlier checkpoint"):
        read_checkpoint(store, manifests(store, run)[0])
    assert Packs(store.packs).names() == []


def test_a_pack_that_is_gone_from_the_object_store_is_reported_as_damage(
    store: Home, record: Record, folder: str
) -> None:
    run = record_and_offload(store, record, folder)
    shutil.rmtree(folder)

    with pytest.raises(Damaged, match=r"is not in .* any more"):
        read_checkpoint(store, manifests(store, run)[0])


def test_an_unavailable_object_store_is_no_damage(store: Home, record: Record, folder: str) -> None:
    run = record_and_offload(store, record, folder)
    Path(folder).rename(folder + "-away")
    Path(folder).write_text("not mounted")

    with pytest.raises(StorageUnavailable, match="check that it exists") as raised:
        read_checkpoint(store, manifests(store, run)[0])
    assert not isinstance(raised.value, Damaged)


def test_a_home_that_cannot_be_written_is_reported(
    store: Home, record: Record, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record_and_offload(store, record, folder)

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(ReliveError, match=r"can't be brought back .*; check that there is space"):
        read_checkpoint(store, manifests(store, run)[0])


@pytest.mark.slow
def test_concurrent_readers_fetch_a_pack_once(store: Home, record: Record, folder: str) -> None:
    run = record_and_offload(store, record, folder)
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from gc_processes import shown
from pathlib import Path
from relive.store import Home
assert list(shown(Home(Path({str(store.path)!r}))).values()) == [[0, 1]]
"""
    readers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]

    assert [reader.wait(timeout=60) for reader in readers] == [0, 0, 0]
    assert len(Packs(store.packs).names()) == 2
    assert manifests(store, run)


# --- the doctor, and unneeded packs -----------------------------------------------------------------------------------


def test_the_doctor_does_not_miss_offloaded_packs_and_deep_reads_them_in_place(
    store: Home, record: Record, folder: str
) -> None:
    record_and_offload(store, record, folder)
    for deep in (False, True):
        assert [(f.run, f.damage) for f in check_home(store, deep=deep)] == [("home", False)]
    assert "2 packs" in next(iter(check_home(store))).text
    assert Packs(store.packs).names() == [], "nothing is fetched back"

    for path in Path(folder).rglob("*.pack"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert {f.damage for f in check_home(store, deep=True) if f.run != "home"} == {True}


def test_packs_that_no_checkpoint_needs_are_removed_from_the_object_store(
    store: Home, record: Record, shown: Any, folder: str
) -> None:
    gone, kept = record(seed=1, checkpoints=2), record(seed=2, checkpoints=1)
    policy = Policy(budget_bytes=TIGHT, spool=folder)
    collect_garbage(store, policy)
    shutil.rmtree(gone.folder)
    preview = tally(preview_garbage(store, policy), OUTSIDE_PACKS)
    report = collect_garbage(store, policy)

    assert tally(report, OUTSIDE_PACKS) == preview
    assert preview[0] == 1, "the first pack has the frozen half that the other run shares"
    assert len(stored_packs(folder)) == len(offloaded_packs(store.packs)) == 2
    assert shown(store) == {kept.run: [0]}
    assert report.total_bytes == 0, "nothing was freed in the home"


def test_a_removal_that_failed_in_the_object_store_is_repeated_the_next_time(
    store: Home, record: Record, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record_and_offload(store, record, folder)
    shutil.rmtree(run.folder)
    with monkeypatch.context() as patch:
        patch.setattr(
            FolderObjectStore, "remove", lambda *_: (_ for _ in ()).throw(StorageUnavailable("away; come back"))
        )
        assert collect_garbage(store, Policy()).failures == ("away; come back",)
    assert len(stored_packs(folder)) == 2

    assert tally(collect_garbage(store, Policy()), OUTSIDE_PACKS)[0] == 2
    assert stored_packs(folder) == []
    assert offload.list_retired(store.packs) == []


def test_a_copy_of_a_home_removes_nothing_that_the_original_sent(
    store: Home, record: Record, shown: Any, folder: str, tmp_path: Path
) -> None:
    run = record_and_offload(store, record, folder)
    copy = Home(Path(shutil.copytree(store.path, tmp_path / "copy")))
    shutil.rmtree(copy.run_folder(run.run))
    collect_garbage(copy, Policy())

    assert len(stored_packs(folder)) == 2
    assert shown(store) == {run.run: [0, 1]}


def test_without_the_setting_offloaded_checkpoints_are_still_found_and_not_thinned(
    store: Home, record: Record, shown: Any, folder: str
) -> None:
    away = record_and_offload(store, record, folder, checkpoints=3)
    here = record(seed=5, checkpoints=6)
    budget = packs_bytes(store) // 2
    collect_garbage(store, Policy(budget_bytes=budget))
    kept = shown(store)

    assert kept[away.run] == [0, 1, 2], "they take up no space here"
    assert 0 < len(kept[here.run]) < 6


def test_the_partial_file_of_a_killed_reader_is_ignored(store: Home, record: Record, folder: str) -> None:
    run = record_and_offload(store, record, folder)
    for pack in offloaded_packs(store.packs):
        (store.packs / f".{pack}.partial").write_bytes(b"half of something else" * 10_000)

    assert len(read_checkpoint(store, manifests(store, run)[0])) == 1
    assert not list(store.packs.glob(f".{Packs(store.packs).names()[0]}*"))


def test_a_note_of_a_newer_relive_is_refused(store: Home, record: Record, folder: str) -> None:
    run = record_and_offload(store, record, folder)
    for path in store.packs.glob("*.spooled"):
        write_sealed(path, read_sealed(path).replace(b'"v":1', b'"v":2'))

    with pytest.raises(Damaged, match="newer relive"):
        read_checkpoint(store, manifests(store, run)[0])


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_offload_killed_at_any_point_loses_nothing(store: Home, record: Record, tmp_path: Path) -> None:
    for seed in (1, 2):
        record(seed=seed, checkpoints=2)
    done = subprocess.run(
        [sys.executable, PROCESSES, str(store.path), str(tmp_path / "kills")],
        capture_output=True,
        text=True,
        timeout=500,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


@pytest.mark.long
def test_a_collection_killed_while_it_sends_to_a_bucket_loses_nothing(
    store: Home, record: Record, shown: Any, bucket: Any
) -> None:
    run = record(checkpoints=4)
    url = f"{bucket.url}/{secrets.token_hex(4)}"
    code = f"""
from pathlib import Path
from relive.store import Home
from relive.store.gc import Policy, collect_garbage
collect_garbage(Home(Path({str(store.path)!r})), Policy(budget_bytes=1, spool={url!r}))
"""
    gc = subprocess.Popen([sys.executable, "-c", code])
    while not offloaded_packs(store.packs) and gc.poll() is None:
        time.sleep(0.001)
    gc.send_signal(signal.SIGKILL)
    gc.wait()

    assert shown(store) == {run.run: [0, 1, 2, 3]}
    assert collect_garbage(store, Policy(budget_bytes=TIGHT, spool=url)).failures == ()
    assert Packs(store.packs).names() == []
    assert {find_note(store.packs, pack).url for pack in offloaded_packs(store.packs)} == {url}
    assert shown(store) == {run.run: [0, 1, 2, 3]}
