"""Laws of the wire: what one side sends, the other receives, in whatever pieces it arrives."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from relive.hindsight.plan.segments import Skip, Visit
from relive.hindsight.workers.wire import (
    ForkserverMessage,
    ForkserverStart,
    Job,
    LineDecoder,
    WorkerReport,
    encode_line,
)

MESSAGES = [ForkserverMessage(loaded_s=1.5), ForkserverMessage(7, "job é"), ForkserverMessage(7, code=-9)]


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_messages_are_decoded_from_pieces_of_any_size(size: int) -> None:
    data = b"".join(encode_line(message) for message in MESSAGES)
    decoder = LineDecoder(ForkserverMessage)

    received = [message for at in range(0, len(data), size) for message in decoder.feed(data[at : at + size])]

    assert received == MESSAGES


def test_the_command_line_of_a_fork_server_is_read_back() -> None:
    start = ForkserverStart("relive-x", 2.5, 100.25, ("numpy", "torch"))

    assert ForkserverStart.from_argument(start.to_argument()) == start


def test_a_job_is_read_back_with_its_visits(tmp_path: Path) -> None:
    job = Job(
        run="a", home="", folder=str(tmp_path), script="train.py", module=None, cwd="", argv=["--lr", "1"], search=[],
        protected=[], writable=[], args={"lr": 0.1}, loops=[(2, "epoch", 1, 0)],
        visits=[Visit(2, 3, 1.0, restore="m", warm=True)], skips={4: Skip("n", unmutes=True)}, ends={2: "e"},
        stop=True, last_loop=4, mains=[2],
    )  # fmt: skip

    assert Job.read(job.write()) == job


def test_a_report_that_was_not_written_completely_is_none(tmp_path: Path) -> None:
    absent = WorkerReport.read(tmp_path)
    WorkerReport(ok=True, notes=["n"]).write(tmp_path)
    written = WorkerReport.read(tmp_path)
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(written)[:-5])

    assert absent is None
    assert written is not None
    assert (written.ok, written.notes) == (True, ["n"])
    assert WorkerReport.read(tmp_path) is None
