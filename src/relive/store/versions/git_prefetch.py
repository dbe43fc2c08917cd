"""What is asked of git before a version is taken, all at once: a start waits for the slowest answer, not for each."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from relive.store.versions import version_refs
from relive.store.versions.git import Git
from relive.store.versions.work_tree import Looking

REPOSITORY = ("--show-toplevel", "--git-common-dir")  # what `rev-parse` is asked for


class GitPrefetch:
    """The questions about a folder that seems to be the top of a work tree. Leave it to drop what wasn't answered."""

    def __init__(self, root: Path) -> None:
        git = Git(root)
        with ExitStack() as started:  # if one can't be asked, none is
            self.root = root
            self.repository = git.ask("rev-parse", *REPOSITORY, "HEAD", "HEAD^{tree}")
            started.callback(self.repository.drop)
            self.look = started.enter_context(Looking(git))
            self.tips = git.ask("for-each-ref", f"--format={version_refs.FORMAT}", *version_refs.FOLDERS)
            started.callback(self.tips.drop)
            self._started = started.pop_all()

    def __enter__(self) -> GitPrefetch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._started.close()


def start_git_prefetch(root: Path) -> GitPrefetch | None:
    """Ask about a folder, if there is little doubt that it is the top of a work tree."""
    return GitPrefetch(root) if (root / ".git").exists() else None
