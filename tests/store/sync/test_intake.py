"""Laws of the intake: each byte of a journal is stored once, in order, and stays stored."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ReliveError
from relive.store import Home, JournalName
from relive.store.sync import (
    Intake,
    JournalRange,
    RangeConflict,
    RangeGap,
    StoreFull,
    intake,
    read_audit,
)
from relive.store.sync.journal_range import IntakePosition, trim_to_new
from relive.store.sync.redo_log import FrameHeader, RedoLog

RUN = "0123456789ab"
JOURNAL = JournalName(0)
SLOTS, LINES = random.Random(1).randbytes(24_000), b"".join(b'{"n":%d}\n' % n for n in range(1_000))


def make_range(slots: tuple[int, int], lines: tuple[int, int], run: str = RUN) -> JournalRange:
    return JournalRange(run, JOURNAL, slots[0], SLOTS[slice(*slots)], lines[0], LINES[slice(*lines)])


def files(home: Home, run: str = RUN) -> tuple[bytes, bytes]:
    folder = home.run_folder(run)
    return (folder / "0.slots").read_bytes(), (folder / "0.lines").read_bytes()


@given(st.lists(st.tuples(*[st.integers(0, 1_000)] * 4), max_size=30))
def test_any_ranges_in_any_order_store_a_prefix_and_nothing_else(cuts: list[tuple[int, int, int, int]]):
    slots, lines, stored = b"", b"", IntakePosition(0, 0)
    for a, b, c, d in cuts:
        try:
            new = trim_to_new(make_range((min(a, b), max(a, b)), (min(c, d), max(c, d))), stored)
        except RangeGap:
            continue
        assert min(a, b) <= stored.slots
        assert min(c, d) <= stored.lines
        slots, lines = slots + new.slots, lines + new.lines
        stored = IntakePosition(len(slots), len(lines))

        assert (slots, lines) == (SLOTS[: stored.slots], LINES[: stored.lines])


def test_repeated_and_overlapping_bytes_are_stored_once(tmp_path: Path):
    home = Home(tmp_path)
    with Intake(home) as receiving:
        for range_ in (
            make_range((0, 240), (0, 90)),
            make_range((0, 240), (0, 90)),
            make_range((48, 480), (18, 180)),
            make_range((0, 24), (0, 9)),
        ):
            answer = receiving.submit(range_).result(10)

        assert answer == IntakePosition(480, 180)
        assert files(home) == (SLOTS[:480], LINES[:180])


@pytest.mark.parametrize("file", ["0.slots", "0.lines"])
def test_different_bytes_in_an_overlap_are_refused_with_their_place_and_recorded(tmp_path: Path, file: str):
    home = Home(tmp_path)
    with Intake(home) as receiving:
        receiving.submit(make_range((0, 240), (0, 90))).result(10)
        other = bytearray(SLOTS[:480] if file == "0.slots" else LINES[:180])
        other[30] ^= 1
        slots, lines = (bytes(other), LINES[:180]) if file == "0.slots" else (SLOTS[:480], bytes(other))
        with pytest.raises(RangeConflict) as caught:
            receiving.submit(JournalRange(RUN, JOURNAL, 0, slots, 0, lines)).result(10)

        assert (caught.value.file, caught.value.at) == (file, 30)
        assert receiving.held(RUN, JOURNAL) == IntakePosition(240, 90)
    assert files(home) == (SLOTS[:240], LINES[:90])
    assert [(one["event"], one["file"], one["at"]) for one in read_audit(home.path)] == [("conflict", file, 30)]


def test_different_bytes_in_one_batch_are_refused_too(tmp_path: Path):
    with Intake(Home(tmp_path)) as receiving:
        sent = [make_range((0, 240), (0, 90)), JournalRange(RUN, JOURNAL, 0, bytes(480), 0, LINES[:90])]
        answers = [receiving.submit(one) for one in sent]

        assert answers[0].result(10) == IntakePosition(240, 90)
        with pytest.raises(RangeConflict):
            answers[1].result(10)


def test_a_slot_that_was_sent_empty_and_is_written_since_is_no_conflict(tmp_path: Path):
    home = Home(tmp_path)
    with Intake(home) as receiving:
        receiving.submit(JournalRange(RUN, JOURNAL, 0, SLOTS[:24] + bytes(24) + SLOTS[48:72], 0, b"")).result(10)

        assert receiving.submit(make_range((0, 96), (0, 0))).result(10) == IntakePosition(96, 0)
    assert files(home)[0] == SLOTS[:24] + bytes(24) + SLOTS[48:96]


def test_a_gap_is_refused_with_the_position_to_continue_from(tmp_path: Path):
    with Intake(Home(tmp_path)) as receiving:
        receiving.submit(make_range((0, 240), (0, 90))).result(10)
        with pytest.raises(RangeGap, match="slots 240 and lines 90") as refused:
            receiving.submit(make_range((480, 720), (90, 99))).result(10)

    assert refused.value.held == IntakePosition(240, 90)
    assert files(Home(tmp_path)) == (SLOTS[:240], LINES[:90])


def test_a_second_intake_on_the_same_home_is_refused(tmp_path: Path):
    with Intake(Home(tmp_path)), pytest.raises(ReliveError, match="stop it first"):
        Intake(Home(tmp_path))

    Intake(Home(tmp_path)).close()


def test_many_ranges_share_one_fsync(tmp_path: Path):
    with Intake(Home(tmp_path)) as receiving:
        waiting = [receiving.submit(make_range((0, 240), (0, 90), run=f"{n:012x}")) for n in range(200)]
        assert [one.result(30) for one in waiting] == [IntakePosition(240, 90)] * 200

        assert receiving.ranges == 200
        assert receiving.batches < 100


def test_the_redo_log_restores_what_a_power_cut_lost(tmp_path: Path):
    """What was acknowledged is in the log; the journals were not forced to disk, and may hold anything up to there."""
    home = Home(tmp_path / "a")
    receiving = Intake(home)
    receiving.submit(make_range((0, 2_400), (0, 900))).result(10)
    receiving.submit(make_range((2_400, 4_800), (900, 1_800))).result(10)
    shutil.copytree(home.path, tmp_path / "cut")  # as the disk is at this moment
    receiving.close()
    folder = Home(tmp_path / "cut").run_folder(RUN)
    (folder / "0.slots").write_bytes(
        SLOTS[:1_000] + bytes(4_000)
    )  # a torn page, and a tail that was never acknowledged
    (folder / "0.lines").unlink()

    Intake(Home(tmp_path / "cut")).close()

    assert files(Home(tmp_path / "cut")) == (SLOTS[:4_800], LINES[:1_800])
    assert (tmp_path / "cut" / "redo.log").stat().st_size == 0


def test_a_torn_frame_of_the_log_and_all_after_it_are_ignored(tmp_path: Path):
    log = RedoLog(tmp_path / "redo.log")
    bodies = [bytes([n]) * 50 for n in range(3)]
    log.append(
        (FrameHeader(RUN, "0", 50 * n, 50, 0), (body[:10], memoryview(body)[10:])) for n, body in enumerate(bodies)
    )
    log.close()
    whole = log.path.read_bytes()

    for size in range(0, len(whole) + 1, 7):
        log.path.write_bytes(whole[:size])
        again = RedoLog(log.path)
        assert [body for _, body in again.frames()] == bodies[: size * 3 // len(whole)]
        again.close()
    log.path.write_bytes(whole.replace(bodies[1], b"x" * 50))
    again = RedoLog(log.path)
    assert [body for _, body in again.frames()] == bodies[:1]
    again.close()


def test_a_removed_run_is_not_restored_in_part(tmp_path: Path):
    home = Home(tmp_path)
    receiving = Intake(home)
    receiving.submit(make_range((0, 2_400), (0, 900))).result(10)
    receiving._flush_journals()
    receiving.submit(make_range((2_400, 4_800), (900, 1_800))).result(10)
    log = (tmp_path / "redo.log").read_bytes()
    receiving.close()
    shutil.rmtree(home.run_folder(RUN))
    (tmp_path / "redo.log").write_bytes(log)

    Intake(home).close()

    assert not home.run_folder(RUN).exists()


def test_a_full_disk_stores_nothing_and_continues_when_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = Home(tmp_path)
    real = intake.os.pwrite
    room = [3_000]

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        if room[0] <= 0:
            raise OSError(28, "No space left on device")
        part = data[: room[0]]
        room[0] -= len(part)
        return real(fd, part, at)

    with Intake(home) as receiving:
        monkeypatch.setattr("os.pwrite", pwrite)
        receiving.submit(make_range((0, 480), (0, 90))).result(10)
        for _ in range(3):
            with pytest.raises(StoreFull, match="free some space"):
                receiving.submit(make_range((480, 24_000), (90, 900))).result(10)
        assert files(home) == (SLOTS[:480], LINES[:90])
        room[0] = 1 << 30
        receiving.submit(make_range((480, 24_000), (90, 900))).result(10)

    assert files(home) == (SLOTS, LINES[:900])
