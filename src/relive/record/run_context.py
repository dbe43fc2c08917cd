"""`with relive.run()`: opens a run, makes it current, and closes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from relive.record.off import Off
from relive.record.provenance import RunBeginning
from relive.record.run_start import OpenRun, open_explicit_run
from relive.record.session import Driver, current_place, session


@contextlib.contextmanager
def explicit_run(
    name: str, tags: dict[str, Any], beginning: RunBeginning | None = None
) -> Iterator[str | None]:  # fmt: skip
    """Records the block as a run of its own; yields its id, or None when nothing is recorded."""
    outside = current_place.get()
    opened: OpenRun | None = None

    def open_driver() -> Driver:
        nonlocal opened
        opened = session.open_replayed_run() if session.open_replayed_run else open_explicit_run(name, tags, beginning)
        return opened.recorder if opened is not None else Off()

    driver = session.open(open_driver, explicitly=True)
    current_place.set(driver.root)
    failure: BaseException | None = None
    try:
        yield opened.run if opened is not None else None
    except BaseException as error:
        failure = error
        raise
    finally:
        if opened is not None:
            opened.close(failure)
        session.leave(driver)
        current_place.set(outside)
