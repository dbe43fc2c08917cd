"""Starts git queries before the recorder module is imported, so that both run in parallel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from relive.record.process import is_pool_worker, raised_by_signal_handler, read_launch_context
from relive.record.session import session
from relive.store.versions import GitPrefetch, start_git_prefetch


@contextlib.contextmanager
def prefetch_version() -> Iterator[None]:
    """Wraps the opening of a run: starts the git queries that recording the code version needs."""
    session.git_prefetch = _start_prefetch()
    try:
        yield
    finally:
        unused, session.git_prefetch = session.git_prefetch, None
        if unused is not None:
            with unused:  # leaving the context ends its processes
                pass


def _start_prefetch() -> GitPrefetch | None:
    try:
        context = read_launch_context()
        is_needed = context.settings.versions and not context.settings.off and context.launched.rank == 0
        return start_git_prefetch(Path(context.entry.root).resolve()) if is_needed and not is_pool_worker() else None
    except Exception as error:  # the user's training must go on; opening the run fails the same way, and warns
        if raised_by_signal_handler(error):
            raise
        return None
