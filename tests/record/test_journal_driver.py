"""Every driver answers every call of the protocol, and recording and replaying don't inherit from each other."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.hindsight.workers.replayer import Replayer
from relive.hindsight.workers.wire import Job
from relive.record.journal_driver import JournalDriver
from relive.record.loops import LoopDriver
from relive.record.off import EndedDriver, Off
from relive.record.recorder import Recorder
from relive.record.session import Driver, OpeningDriver, RunNotes
from relive.store import Home, JournalName
from relive.store.chunks import Chunks
from relive.store.journal import Journal, decode_value, line_schema, parse_journal

RUN = "a-run"
SILENT = (Off, EndedDriver, OpeningDriver)


def members(*protocols: type) -> set[str]:
    named = {name for protocol in protocols for name in (*vars(protocol), *inspect.get_annotations(protocol))}
    return {name for name in named if not name.startswith("_")}


CALLS = members(Driver, RunNotes)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    home = Home(tmp_path / "home")
    home.create()
    (tmp_path / "recorder").mkdir()
    made = Recorder(RUN, Journal(tmp_path / "recorder" / JournalName(0).stem), Chunks(home.chunks))
    made.journal.line(line_schema.RunStarted, run=RUN, wall_ns=1_000_000_000, clock_ns=0)
    yield made
    made.journal.close()


@pytest.fixture
def replayer(tmp_path: Path) -> Iterator[Replayer]:
    home, folder = Home(tmp_path / "home"), tmp_path / "replayer"
    home.create()
    folder.mkdir()
    job = Job(
        run=RUN, home=str(home.path), folder=str(folder), script="t.py", module=None, cwd=".", argv=[], search=[],
        protected=[], writable=[], args={}, loops=[], visits=[], skips={}, ends={}, stop=False, last_loop=0, mains=[],
    )  # fmt: skip
    made = Replayer(job)
    yield made
    made.finish()


def lacks(driver: object, names: set[str]) -> list[str]:
    """The members of the protocol that a driver lacks, or takes other parameters for."""
    return sorted(name for name in names if not hasattr(driver, name) or not _is_called_alike(driver, name))


def _is_called_alike(driver: object, name: str) -> bool:
    asked = inspect.getattr_static(Driver, name, None)
    if name == "log" or not inspect.isfunction(asked):  # `log` is a closure, and positional
        return not callable(asked) or callable(getattr(driver, name))
    wanted = [(p.name, p.kind) for p in inspect.signature(asked).parameters.values()][1:]
    return wanted == [(p.name, p.kind) for p in inspect.signature(getattr(driver, name)).parameters.values()]


def test_the_protocol_has_calls_to_check() -> None:
    assert {"log", "loop", "run", "home_path", "note_line", "tag", "every"} <= CALLS
    assert lacks(object(), CALLS) == sorted(CALLS)


@pytest.mark.parametrize("kind", SILENT)
def test_a_driver_that_records_nothing_answers_every_call(kind: type) -> None:
    assert lacks(kind(), CALLS) == []


def test_recorder_and_replayer_answer_every_call(recorder: Recorder, replayer: Replayer) -> None:
    assert lacks(recorder, CALLS | members(LoopDriver)) == []
    assert lacks(replayer, CALLS | members(LoopDriver)) == []


def test_recording_and_replaying_are_two_drivers_on_one_base() -> None:
    assert issubclass(Recorder, JournalDriver)
    assert issubclass(Replayer, JournalDriver)
    assert not issubclass(Recorder, Replayer)
    assert not issubclass(Replayer, Recorder)


@pytest.mark.parametrize("name", ["provenance", "checks_kwargs", "begin_block", "finish_blocks", "stopped", "source"])
def test_a_replayer_has_nothing_that_only_recording_needs(name: str, recorder: Recorder, replayer: Replayer) -> None:
    assert hasattr(recorder, name)
    assert not hasattr(replayer, name)


@pytest.mark.parametrize("kind", SILENT)
def test_without_a_run_there_is_no_id_and_no_home_and_notes_are_dropped(kind: type[Off]) -> None:
    driver = kind()
    driver.tag("team", "vision")
    driver.note_line(line_schema.WarningGiven, {"slug": "s", "message": "m"}, driver.root)
    driver.settle_data()

    assert (driver.run, driver.home_path) == ("", None)


@pytest.mark.parametrize("made", ["recorder", "replayer"])
def test_recorder_and_replayer_know_their_run_and_write_notes(
    made: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    driver: JournalDriver = request.getfixturevalue(made)
    driver.tag("team", "vision")
    driver.note_line(line_schema.WarningGiven, {"slug": "s", "message": "m"}, driver.root)
    driver.settle_data()

    assert (driver.run, driver.home_path) == (RUN, tmp_path / "home")
    parsed = parse_journal(tmp_path / made / JournalName(0).stem, JournalName(0))
    lines: dict[type, Any] = {type(line): line for line in parsed.lines}
    assert decode_value(lines[line_schema.Tag].value, driver.chunks.get) == "vision"
    assert lines[line_schema.WarningGiven].message == "m"


def test_log_is_the_closure_of_the_journal_itself(recorder: Recorder) -> None:
    assert "log" in vars(recorder)
    assert not any("log" in vars(kind) for kind in Recorder.__mro__)
    assert vars(recorder)["log"].__module__ == Journal.__module__
