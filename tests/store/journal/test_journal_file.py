"""Laws of the journal: every record whose call returned is there, in order, whatever happens to the process."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import ReliveError
from relive.store import JournalName
from relive.store.journal import ROOT, Journal, JournalClosed, journal_parser, line_schema, read_lines, slot_kinds
from relive.store.journal.journal_file import SLOT_BYTES
from relive.store.journal.journal_parser import ParsedJournal, parse_journal
from relive.store.journal.slot_reader import read_slots, wall_times_us


def begin_journal(folder: Path, **how: int) -> Journal:
    journal = Journal(folder / "0", **how)
    journal.line(line_schema.RunStarted, run="r", wall_ns=time.time_ns(), clock_ns=time.monotonic_ns())
    return journal


def parse(folder: Path) -> ParsedJournal:
    return parse_journal(folder / "0", JournalName())


def test_floats_come_back_bit_for_bit_in_order(tmp_path: Path) -> None:
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]
    journal = begin_journal(tmp_path)
    for value in values:
        journal.append_float("x", value, ROOT, 0)
    journal.close()

    assert [struct.pack("d", v) for v in parse(tmp_path).value] == [struct.pack("d", v) for v in values]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "ç"]), st.integers(-(2**63), 2**63 - 1)), max_size=50))
def test_integers_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = begin_journal(folder)
    for name, value in rows:
        journal.append_int(name, value, ROOT, 0)
    journal.close()

    back = parse(folder)
    assert [(back.names[n], int(v)) for n, v in zip(back.name, back.exact, strict=True)] == rows


def test_the_journal_grows_on_demand_and_is_truncated_when_closed(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    for step in range(50_000):
        journal.append_float("loss", float(step), ROOT, 0)
    journal.close()

    back = parse(tmp_path)
    assert back.value.tolist() == [float(step) for step in range(50_000)]
    assert (tmp_path / "0.slots").stat().st_size <= 24 * 50_000 + 1000


def test_a_float_takes_at_most_thirty_bytes(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    loop = journal.begin_loop("step", ROOT, 0)
    for step in range(10_000):
        journal.append_float("loss", 0.5, loop, step)
    journal.end_loop(loop, 10_000)
    journal.close()

    stored = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert stored / 10_000 <= 30


def test_enclosing_loops_become_columns(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    epochs = journal.begin_loop("epoch", ROOT, 0)
    journal.append_loop_range(epochs, 5, 2)
    for epoch in range(3):
        steps = journal.begin_loop("step", epochs, epoch)
        journal.append_float("loss", 1.0, steps, 7)
        journal.end_loop(steps, 8)
        journal.append_float("acc", 2.0, epochs, epoch)
    journal.end_loop(epochs, 3)
    journal.close()

    back = parse(tmp_path)
    rows = [(back.paths[p], tuple(d[: len(back.paths[p])])) for p, d in zip(back.path, back.dims.tolist(), strict=True)]
    assert rows == [
        (("epoch", "step"), (5, 7)), (("epoch",), (5,)),
        (("epoch", "step"), (7, 7)), (("epoch",), (7,)),
        (("epoch", "step"), (9, 7)), (("epoch",), (9,)),
    ]  # fmt: skip
    assert [(row.name, row.iterations, row.ended_us is not None) for row in back.loops.values()] == [
        ("epoch", 3, True), ("step", 8, True), ("step", 8, True), ("step", 8, True),
    ]  # fmt: skip


def test_a_live_journal_can_be_read_at_any_time(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    for step in range(10):
        journal.append_float("loss", float(step), ROOT, 0)

        assert len(parse(tmp_path)) == step + 1
    journal.close()


def test_what_is_written_while_a_journal_is_read_is_read_whole_or_later(tmp_path: Path, monkeypatch) -> None:
    journal = begin_journal(tmp_path)
    journal.append_float("x", 1.0, ROOT, 0)

    def read_slots_early(*asked: Any) -> Any:
        slots = read_slots(*asked)
        loop = journal.begin_loop("epoch", ROOT, 0)
        journal.line(line_schema.ValueLogged, loop, 0, name=journal.name_id("y"), value="text")
        return slots

    with monkeypatch.context() as patch:
        patch.setattr(journal_parser, "read_slots", read_slots_early)
        early = parse(tmp_path)
    later = parse(tmp_path)
    journal.close()

    assert (early.names, early.value.tolist(), early.damage) == (["x"], [1.0], ())
    assert (later.names, later.paths[later.path[1]], later.damage) == (["x", "y"], ("epoch",), ())


def test_a_torn_line_is_ignored_and_counted(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    journal.append_float("loss", 1.0, ROOT, 0)
    journal.close()
    with (tmp_path / "0.lines").open("ab") as file:
        file.write(b'{"v":1,"seq":99,"k":"lo')

    assert read_lines(tmp_path / "0").torn_bytes == 23
    assert parse(tmp_path).value.tolist() == [1.0]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_truncated_file_keeps_the_records_before_the_cut(tmp_path: Path, cut: int) -> None:
    journal = begin_journal(tmp_path)
    for step in range(100):
        journal.append_float("loss", float(step), ROOT, 0)
    journal.close()
    path = tmp_path / "0.slots"
    os.truncate(path, path.stat().st_size - cut)

    lost = -(-cut // SLOT_BYTES)
    assert parse(tmp_path).value.tolist() == [float(step) for step in range(100 - lost)]
    assert parse(tmp_path).damage


@pytest.mark.parametrize("word", [0, 2])
def test_a_half_written_slot_is_ignored(tmp_path: Path, word: int) -> None:
    journal = begin_journal(tmp_path)
    for step in range(3):
        journal.append_float("loss", float(step), ROOT, 0)
    journal.close(is_lasting=False)  # as after a kill, there is no seal
    raw = bytearray((tmp_path / "0.slots").read_bytes())
    middle = len(raw) - 2 * SLOT_BYTES + 8 * word
    raw[middle : middle + 8] = bytes(8)
    (tmp_path / "0.slots").write_bytes(raw)

    assert parse(tmp_path).value.tolist() == [0.0, 2.0]


def test_threads_lose_nothing_and_keep_their_own_order(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    start = threading.Barrier(8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(number: int) -> None:
        start.wait()
        for step in range(5_000):
            journal.append_int(f"t{number % 3}", number * 100_000 + step, ROOT, 0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    journal.close()

    exact = parse(tmp_path).exact
    assert len(exact) == 40_000
    for number in range(8):
        own = exact[exact // 100_000 == number] % 100_000
        assert own.tolist() == list(range(5_000))


def test_a_signal_handler_may_log_while_the_program_logs(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    handled = []

    def handler(_number: int, _frame: object) -> None:
        handled.append(1)
        journal.append_float(f"signal {len(handled) % 50}", float(len(handled)), ROOT, 0)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-4)
    try:
        for step in range(60_000):
            journal.append_float(f"loss {step % 1000}", float(step), ROOT, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    journal.close()

    assert handled
    assert len(parse(tmp_path)) == 60_000 + len(handled)


def test_logging_to_a_closed_journal_raises(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    journal.close()

    with pytest.raises(JournalClosed):
        journal.append_float("late", 1.0, ROOT, 0)
    with pytest.raises(JournalClosed):
        journal.append_int("late", 1, ROOT, 0)


@pytest.mark.long
def test_closing_while_threads_log_does_not_crash(tmp_path: Path) -> None:
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        journal = begin_journal(folder)

        def work(journal: Journal = journal) -> None:
            try:
                while True:
                    journal.append_float("x", 1.0, ROOT, 0)
            except JournalClosed:
                pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        journal.close()
        for thread in threads:
            thread.join()

        assert len(parse(folder)) > 0


def test_a_full_disk_is_an_error_and_never_a_bus_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _start: int, _length: int) -> None:
        raise OSError(28, "No space left on device")

    journal = begin_journal(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)

    def fill() -> None:
        for _ in range(100_000):
            journal.append_float("x", 1.0, ROOT, 0)

    with pytest.raises(OSError, match="No space"):
        fill()

    assert len(parse(tmp_path)) > 2_000


def test_only_the_name_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    journal.append_float("x", 1.0, ROOT, 0)
    journal._name_ids = itertools.count((1 << 24) - 1)
    journal.append_float("the last", 2.0, ROOT, 0)

    with pytest.raises(ReliveError, match="room for 16,777,216 names"):
        journal.append_float("one more", 3.0, ROOT, 0)

    journal.append_float("x", 4.0, ROOT, 0)
    journal.close()
    back = parse(tmp_path)
    logged = [(back.names[n], float(v)) for n, v in zip(back.name, back.value, strict=True)]
    assert logged == [("x", 1.0), ("the last", 2.0), ("x", 4.0)]


def _refuse(*_: object) -> None:
    raise OSError("it can't be truncated")


@pytest.mark.parametrize(("truncate", "damaged"), [(os.ftruncate, 0), (_refuse, 1)])
def test_the_end_is_readable_after_a_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truncate: Any, damaged: int
) -> None:
    journal = begin_journal(tmp_path)
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", truncate)
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(OSError, match="only part of a line"):
            journal.line(line_schema.ValueLogged, name=1, value="half of this is lost")
    journal.close()

    journal.last_line(line_schema.RunEnded, outcome="finished")

    found = read_lines(tmp_path / "0")
    assert isinstance(found.lines[-1], line_schema.RunEnded)
    assert (found.lines[-1].outcome, found.damaged) == ("finished", damaged)


def test_times_are_right_across_the_wrap_of_the_short_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [123_456 << 30]
    monkeypatch.setattr("relive.store.journal.journal_file._now", lambda: clock[0])
    journal = Journal(tmp_path / "0")
    wall = 1_700_000_000 * 10**9
    journal.line(line_schema.RunStarted, run="r", wall_ns=wall, clock_ns=clock[0])
    expected = []
    for step in range(400):  # 400 × 7 minutes: the 32-bit clock wraps many times
        clock[0] += 7 * 60 * 10**9
        journal.append_float("x", 1.0, ROOT, 0)
        expected.append(wall // 1000 + (step + 1) * 7 * 60 * 10**6)
        journal.sync()
    journal.close()

    assert max(abs(parse(tmp_path).time_us - expected)) <= 2


def test_times_never_run_backwards_when_the_wall_clock_jumps(tmp_path: Path) -> None:
    journal = begin_journal(tmp_path)
    for _ in range(1000):
        journal.append_float("x", 1.0, ROOT, 0)
    journal.close()
    slots = read_slots(tmp_path / "0")

    times = wall_times_us(slots, 10**18, int(slots.bits[slots.kind == slot_kinds.TICK][0]))
    assert (times[1:] >= times[:-1]).all()


def _count_until_killed(folder: Path, acknowledged: mmap.mmap) -> None:
    journal = begin_journal(folder)
    loop = journal.begin_loop("step", ROOT, 0)
    step = 0
    while True:
        journal.append_float("loss", float(step), loop, step)
        if step % 5 == 0:
            journal.line(line_schema.ValueLogged, loop, step, name=journal.name_id("text"), value=f"step {step}")
        step += 1
        acknowledged[:8] = step.to_bytes(8, "little")  # one move of 8 bytes; pack_into would clear them first


@pytest.mark.long
def test_nothing_that_returned_is_lost_to_sigkill(tmp_path: Path) -> None:
    generator = random.Random(7)
    for attempt in range(60):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        acknowledged = mmap.mmap(-1, 8)
        child = os.fork()
        if child == 0:
            _count_until_killed(folder, acknowledged)
        while not acknowledged[0] and not acknowledged[1]:
            time.sleep(0.0005)
        time.sleep(generator.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        (returned,) = struct.unpack_from("<Q", acknowledged, 0)

        back = parse(folder)
        losses = back.value[back.name == back.names.index("loss")].tolist()
        texts = [text for text in back.text if text is not None] if back.text is not None else []
        assert losses[:returned] == [float(step) for step in range(returned)]
        assert len(losses) <= returned + 1
        assert texts[: -(-returned // 5)] == [f'"step {step}"' for step in range(0, returned, 5)]
