"""Questions to git that are asked before the recorder is loaded, so that both happen at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from relive.record.process import is_pool_worker, is_users, read_launch_context
from relive.record.session import session
from relive.store.versions import GitPrefetch, start_git_prefetch


@contextlib.contextmanager
def asking_git() -> Iterator[None]:
    """Around the opening of a run: what it will want to know of git is being found out meanwhile."""
    session.asked_git = _ask()
    try:
        yield
    finally:
        asking, session.asked_git = session.asked_git, None
        if asking is not None:
            with asking:  # nobody wanted to know
                pass


def _ask() -> GitPrefetch | None:
    try:
        around = read_launch_context()
        wanted = around.settings.versions and not around.settings.off and around.launched.rank == 0
        return start_git_prefetch(Path(around.entry.root).resolve()) if wanted and not is_pool_worker() else None
    except Exception as error:  # the user's training must go on; opening the run meets the same again, and tells
        if is_users(error):
            raise
        return None
