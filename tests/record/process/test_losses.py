"""What was lost is recorded once it can be, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from relive.record.process import Losses


def test_a_count_that_could_not_be_written_is_recorded_later() -> None:
    losses, written = Losses(), []
    losses.note("values of loss", "the disk is full")

    def fail(*_: Any, **_fields: Any) -> None:
        raise OSError

    with pytest.raises(OSError):
        losses.record(fail)
    losses.record(lambda _kind, **fields: written.append((fields["what"], fields["count"])))
    losses.record(lambda _kind, **fields: written.append((fields["what"], fields["count"])))

    assert written == [("values of loss", 1)]
