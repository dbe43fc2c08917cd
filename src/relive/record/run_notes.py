"""How other parts put a line into the run they are called in, and which run and home that is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from relive.record.process import is_pool_worker, read_launch_context
from relive.record.recorder import Recorder
from relive.record.run_start import PARENT_VARIABLE, open_driver
from relive.record.session import Driver, Place, here, session
from relive.settings import Settings
from relive.store import Home

MOST_WAITING = 1_000


def note(kind: str, content: dict[str, Any], then: Callable[[str], None] | None = None) -> None:
    """Write a line to the journal of the run around the caller.

    A script may call before its first verb: then the line waits for the run to be opened, and `then` is told its id.
    """
    place = _place()
    if place is None:
        if len(session.waiting) < MOST_WAITING:
            session.waiting.append(lambda driver: _note_late(driver, kind, content, then))
    elif isinstance(place.driver, Recorder):
        place.driver.note_line(kind, content, place)


def run_here() -> str:
    """The id of the run around the caller, or nothing."""
    place = _place()
    return place.driver.run if place is not None and isinstance(place.driver, Recorder) else ""


def home_here() -> tuple[Home, Settings]:
    """The home that the caller's run is recorded to, or would be."""
    place, around = _place(), read_launch_context()
    is_recorded = place is not None and isinstance(place.driver, Recorder)
    return Home(place.driver.chunks.folder.parent) if is_recorded else around.home, around.settings  # type: ignore[union-attr]


def _place() -> Place | None:
    place = here.get()
    if place is not None:
        return place
    if session.driver is None and PARENT_VARIABLE in os.environ and is_pool_worker():
        return session.place(open_driver)  # a worker of a run writes to that run
    return session.driver.root if session.driver is not None else None


def _note_late(driver: Driver, kind: str, content: dict[str, Any], then: Callable[[str], None] | None) -> None:
    if isinstance(driver, Recorder):
        driver.note_line(kind, content, driver.root)
        if then is not None:
            then(driver.run)
