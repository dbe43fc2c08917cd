"""Starts the git queries that taking a version needs, in parallel, so that a run waits only for the slowest."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from relive.store.versions import version_refs
from relive.store.versions.git import Git
from relive.store.versions.work_tree import StatusQuery

LOCATE_REPOSITORY = ("--show-toplevel", "--git-common-dir")  # arguments of `git rev-parse`


class GitPrefetch:
    """Running git queries about a folder that seems to be the top of a work tree. Leaving the context cancels them."""

    def __init__(self, root: Path) -> None:
        git = Git(root)
        with ExitStack() as started:  # if one can't be started, the others are cancelled
            self.root = root
            self.repository = git.start("rev-parse", *LOCATE_REPOSITORY, "HEAD", "HEAD^{tree}")
            started.callback(self.repository.cancel)
            self.status = started.enter_context(StatusQuery(git))
            self.tips = git.start("for-each-ref", f"--format={version_refs.REF_FORMAT}", *version_refs.REF_PREFIXES)
            started.callback(self.tips.cancel)
            self._started = started.pop_all()

    def __enter__(self) -> GitPrefetch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._started.close()


def start_git_prefetch(root: Path) -> GitPrefetch | None:
    """Starts the queries if the folder is most likely the top of a work tree; otherwise returns None."""
    return GitPrefetch(root) if (root / ".git").exists() else None
