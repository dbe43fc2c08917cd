"""Lets other packages append a line to the current run, and look up that run and its home."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from relive.record.process import is_pool_worker, read_launch_context
from relive.record.run_start import PARENT_VARIABLE, open_driver
from relive.record.session import Driver, Place, current_place, session
from relive.settings import Settings
from relive.store import Home
from relive.store.journal import line_schema

MAX_PENDING = 1_000


def record_line(
    kind: type[line_schema.JournalLine], content: dict[str, Any], then: Callable[[str], None] | None = None
) -> None:
    """Appends a line to the journal of the current run.

    If no run is open yet, the line is appended once one opens, and `then` is called with the id of that run.
    """
    place = _find_place()
    if place is None:
        if len(session.pending) < MAX_PENDING:
            session.pending.append(lambda driver: _record_once_open(driver, kind, content, then))
    else:
        place.driver.note_line(kind, content, place)


def current_run() -> str:
    """Returns the id of the current run, or an empty string."""
    place = _find_place()
    return place.driver.run if place is not None else ""


def current_home() -> tuple[Home, Settings]:
    """Returns the home that the current run is recorded to, or would be, and the settings."""
    place, context = _find_place(), read_launch_context()
    path = place.driver.home_path if place is not None else None
    return Home(path) if path is not None else context.home, context.settings


def _find_place() -> Place | None:
    place = current_place.get()
    if place is not None:
        return place
    if session.driver is None and PARENT_VARIABLE in os.environ and is_pool_worker():
        return session.place(open_driver)  # a worker process writes to the run of its parent
    return session.driver.root if session.driver is not None else None


def _record_once_open(
    driver: Driver, kind: type[line_schema.JournalLine], content: dict[str, Any], then: Callable[[str], None] | None
) -> None:
    driver.note_line(kind, content, driver.root)
    if then is not None and driver.run:
        then(driver.run)
