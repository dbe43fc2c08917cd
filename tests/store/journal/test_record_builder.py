"""What only the whole journals tell of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.model import KILLED
from relive.store import JournalName
from relive.store.journal import build_record, complete_record


@dataclass
class Parsed:
    """A parsed journal, as far as it is looked at."""

    journal: JournalName
    time_us: list[int]
    damage: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.time_us)


def test_a_killed_run_ended_with_its_last_record_and_not_with_its_last_replay(tmp_path: Path) -> None:
    record = build_record("0123456789ab", [], (0,), tmp_path)
    journals: list[Any] = [Parsed(JournalName(), [5, 7]), Parsed(JournalName.parse("0-r2"), [900])]

    assert record.outcome == KILLED
    assert complete_record(record, journals).ended_us == 7
