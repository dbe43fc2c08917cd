"""A live journal is sent only as far as it will not change any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.store.journal import ROOT, Journal, line_schema
from relive.store.journal.journal_file import SLOT_BYTES
from relive.store.sync import journal_tail
from relive.store.sync.journal_tail import JournalTail


def read_tail(path: Path, **options: bool) -> tuple[bytes, bytes]:
    """Reads the whole tail, range by range."""
    tail, slots, lines = JournalTail(path), b"", b""
    while True:
        piece = tail.read(len(slots), len(lines), **options)
        slots, lines = slots + piece.slots, lines + piece.lines
        if not piece.more:
            return slots, lines


def read_files(path: Path) -> tuple[bytes, bytes]:
    return path.with_name("0.slots").read_bytes(), path.with_name("0.lines").read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    return tmp_path / "runs" / "r" / "0"


def test_all_that_is_written_is_sent_and_the_unused_tail_is_not(path: Path):
    journal = Journal(path)
    for n in range(100_000):
        journal.append_float("loss", float(n), ROOT, 0)
    slots, lines = read_tail(path)

    assert len(slots) == journal.written() * SLOT_BYTES < path.with_name("0.slots").stat().st_size
    journal.close()
    seal = read_files(path)[1][len(lines) :]
    assert read_tail(path, final=True) == read_files(path) == (slots, lines + seal)
    assert seal.count(b"\n") == 1


def test_slots_after_a_reserved_one_wait(path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = Journal(path)
    journal.append_float("a", 1.0, ROOT, 0)
    slow = journal._next()  # reserved by a thread that has not written it yet
    journal.append_float("a", 2.0, ROOT, 0)

    assert len(read_tail(path)[0]) == slow * SLOT_BYTES
    assert len(read_tail(path, final=True)[0]) == (slow + 2) * SLOT_BYTES

    tail = JournalTail(path)
    assert len(tail.read(0, 0).slots) == slow * SLOT_BYTES
    monkeypatch.setattr(journal_tail, "ABANDONED_S", 0.0)  # as if the thread was interrupted and will never write it
    assert len(tail.read(0, 0).slots) == (slow + 2) * SLOT_BYTES


def test_a_half_written_slot_is_not_sent(path: Path):
    journal = Journal(path)
    journal.append_float("a", 1.0, ROOT, 0)
    at = journal._next() * SLOT_BYTES
    journal._buffer[at : at + 20] = b"x" * 20  # the kind is the last byte to be stored

    assert len(read_tail(path)[0]) == at


def test_long_lines_are_sent_completely_and_torn_ones_not_at_all(path: Path):
    journal = Journal(path)
    journal.line(line_schema.WarningGiven, message="x" * 3_000_000)
    journal.line(line_schema.WarningGiven, message="")
    with path.with_name("0.lines").open("ab") as file:
        file.write(b'{"torn')
        file.flush()

        slots, lines = read_tail(path)

    assert lines == path.with_name("0.lines").read_bytes().removesuffix(b'{"torn')
    assert len(slots) == journal.written() * SLOT_BYTES


def test_lines_are_sent_before_the_slots_that_need_them(path: Path):
    journal = Journal(path)
    for n in range(30_000):
        journal.append_float(f"name {n}", 1.0, ROOT, 0)
    tail = JournalTail(path)
    first = tail.read(0, 0)

    assert first.more
    assert first.slots == b""
    assert first.lines
