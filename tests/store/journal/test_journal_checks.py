"""Laws of checksums: whatever is changed in a journal, no value that was not logged is read without a mark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.store import JournalName
from relive.store.journal import ROOT, Journal, line_schema, parse_journal, read_lines
from relive.store.journal.journal_file import HOLE_NS, SEAL_SLOTS, SLOT_BYTES


def write_journal(folder: Path, steps: int = 40) -> Journal:
    journal = Journal(folder / "0")
    journal.line(line_schema.RunStarted, run="r", wall_ns=time.time_ns(), clock_ns=time.monotonic_ns())
    for epoch_start in (0, steps // 2):
        loop = journal.begin_loop("epoch", ROOT, 0)
        journal.append_loop_range(loop, 10 + epoch_start, 2)
        for step in range(steps // 2):
            journal.append_float("loss", float(step), loop, step)
            if step % 7 == 0:
                journal.line(
                    line_schema.ValueLogged, loop, step, name=journal.name_id("note"), value=f"step {step} <&> ü"
                )
        journal.end_loop(loop, steps // 2)
    journal.line(line_schema.RunEnded, outcome="finished")
    return journal


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """Everything that the journal says, value by value."""
    parsed = parse_journal(folder / "0", JournalName())
    texts = parsed.text if parsed.text is not None else [None] * len(parsed)
    return [
        (parsed.names[name], parsed.paths[path], tuple(dims), value.hex(), text, kind)
        for name, path, dims, value, text, kind in zip(
            parsed.name.tolist(), parsed.path.tolist(), parsed.dims.tolist(), parsed.value.tolist(), texts,
            parsed.kind.tolist(), strict=True,
        )
    ]  # fmt: skip


def damage(folder: Path) -> tuple[str, ...]:
    return parse_journal(folder / "0", JournalName()).damage


def test_a_journal_as_it_was_written_has_no_damage(tmp_path: Path) -> None:
    write_journal(tmp_path).close()

    assert damage(tmp_path) == ()
    assert len(rows(tmp_path)) == 46


DAMAGES = ["flip", "overwrite", "cut", "append", "swap", "delete", "repeat"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["0.slots", "0.lines"]), st.sampled_from(DAMAGES), st.floats(0, 1), st.binary(min_size=1))
def test_no_damage_gives_a_wrong_value_without_a_mark(tmp_path_factory, file, kind, where, data) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write_journal(folder).close()
    whole, raw = rows(folder), (folder / file).read_bytes()
    at = min(int(where * len(raw)), len(raw) - 1)
    changed = {
        "flip": raw[:at] + bytes([raw[at] ^ (data[0] or 1)]) + raw[at + 1 :],
        "overwrite": (raw[:at] + data + raw[at + len(data) :])[: len(raw)],
        "cut": raw[:at],
        "append": raw + data * SLOT_BYTES,
        "swap": raw[at:] + raw[:at],
        "repeat": raw[:at] + raw[at // 2 : at] + raw[at:],
        "delete": None,
    }[kind]
    if changed is None:
        os.unlink(folder / file)
    else:
        (folder / file).write_bytes(changed)

    found = rows(folder)
    assert found == whole or damage(folder)
    assert set(found) <= set(whole)  # what is left of it did happen


@pytest.mark.parametrize("field", ["loss", "epoch", "run"])
def test_a_line_that_was_changed_to_another_valid_one_is_not_read(tmp_path: Path, field: str) -> None:
    write_journal(tmp_path).close()
    path = tmp_path / "0.lines"
    path.write_bytes(path.read_bytes().replace(f'"{field}"'.encode(), f'"{field[::-1]}"'.encode(), 1))

    assert field[::-1] not in parse_journal(tmp_path / "0", JournalName()).names
    assert "1 lines are missing or not as they were written" in damage(tmp_path)[0]


def test_a_killed_process_has_seals_up_to_its_last_sync(tmp_path: Path) -> None:
    journal = write_journal(tmp_path, steps=2 * SEAL_SLOTS)
    journal.sync()
    journal.append_float("loss", 7.0, ROOT, 0)
    journal.abandon()  # no seal for the last value
    assert damage(tmp_path) == ()
    raw = bytearray((tmp_path / "0.slots").read_bytes())
    raw[100 * SLOT_BYTES + 9] ^= 1
    (tmp_path / "0.slots").write_bytes(raw)

    assert damage(tmp_path)


def test_a_slot_that_is_written_late_breaks_no_seal(tmp_path: Path, monkeypatch) -> None:
    journal = write_journal(tmp_path)
    late = journal._next()  # a thread has reserved it
    for step in range(SEAL_SLOTS):
        journal.append_float("loss", float(step), ROOT, 0)
    journal.sync()
    sealed = {line.first: line.count for line in line_schema.lines_of(line_schema.SlotsSealed, _lines(tmp_path))}
    assert sealed == {1: late - 1}

    monkeypatch.setattr("relive.store.journal.journal_file.HOLE_NS", 0)
    journal.seal(journal.written())
    journal._write_slot(late, _pack_float(), ROOT, 0, 5.0, tag=1 << 24 | journal.name_id("loss"))
    journal.close()

    assert HOLE_NS > 0
    assert damage(tmp_path) == ()
    assert 5.0 in parse_journal(tmp_path / "0", JournalName()).value.tolist()


def test_slots_that_are_reserved_before_the_file_has_grown_get_no_seal_yet(tmp_path: Path) -> None:
    journal = write_journal(tmp_path)
    room = (tmp_path / "0.slots").stat().st_size // SLOT_BYTES
    while journal.written() < room:
        journal.append_float("loss", 1.0, ROOT, 0)
    late = [journal._next() for _ in range(3)]  # threads that are about to make the file grow
    journal.sync()
    for sequence in late:
        journal._write_slot(sequence, _pack_float(), ROOT, 0, 5.0, tag=1 << 24 | journal.name_id("loss"))
    journal.close()
    journal.sync()

    assert damage(tmp_path) == ()
    assert parse_journal(tmp_path / "0", JournalName()).value.tolist().count(5.0) == 3 + 2


def test_journals_without_checksums_are_read_as_before(tmp_path: Path) -> None:
    write_journal(tmp_path).close()
    expected = rows(tmp_path)
    kept = [row for row in (tmp_path / "0.lines").read_bytes().splitlines() if b'"seal"' not in row]
    old = [row.replace(b'"v":2', b'"v":1')[:-18] + b"}" for row in kept]
    (tmp_path / "0.lines").write_bytes(b"\n".join(old) + b"\n")

    assert rows(tmp_path) == expected
    assert damage(tmp_path) == ()


def _lines(folder: Path) -> list[line_schema.JournalLine]:
    return read_lines(folder / "0").lines


def _pack_float() -> Any:
    from relive.store.journal import journal_file

    return journal_file._pack_float
