"""Takes, lists and reads versions: the user's code, stored as commits on a branch of our own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from relive.errors import VersionError
from relive.store.versions.git import EMAIL, Git, GitFailed, text
from relive.store.versions.git_prefetch import GitPrefetch, start_git_prefetch
from relive.store.versions.version_objects import VersionObjects
from relive.store.versions.version_refs import REF_FORMAT, Tip, read_tips, refs_for
from relive.store.versions.version_repository import VersionRepository, locate_repository
from relive.store.versions.work_tree import FileSelection, LargeFile, Limits, select_files

__all__ = ["HistoryEntry", "LargeFile", "Version", "history", "list_files", "materialise", "read_file", "take"]

_COMMIT_ATTEMPTS = 64  # a failed one means that another run moved our branch first

_FAILED_PATH = (  # not compiled here: that would slow down the start of every run
    rb"^fatal: (?:Unable to process path (.*)|(.*): clean filter '.*' failed|failed to encode '(.*)' from .*)\Z"
)


class Version(NamedTuple):
    """The stored state of a work tree; two versions have the same `tree` if and only if they store the same files."""

    id: str
    tree: str
    branch: str
    head: str | None
    user_branch: str | None
    dirty: bool
    repository: str
    root: str
    large: tuple[LargeFile, ...]
    left_out: int


class HistoryEntry(NamedTuple):
    """A version in the history; `time_s` is in seconds since the epoch."""

    id: str
    time_s: int
    subject: str


def take(
    root: Path,
    *,
    home: Path,
    large_bytes: int = 5_000_000,
    untracked_files: int = 5_000,
    untracked_bytes: int = 100_000_000,
    label: str = "",
    prefetch: GitPrefetch | None = None,
) -> Version:
    """Stores the code under `root` as it is on disk now; returns the existing version if the code is unchanged.

    `prefetch` are git queries that were started earlier, to run in the background.
    """
    limits = Limits(large_bytes, untracked_files, untracked_bytes)
    root = root.resolve()
    queries = prefetch if prefetch is not None and prefetch.root == root else start_git_prefetch(root)
    with prefetch or nullcontext(), queries or nullcontext(), _scratch_folder(home) as scratch:
        target = locate_repository(root, home.resolve(), scratch, queries)
        selection = select_files(target.status, target.top, limits)
        tree, dropped = _write_tree(target, selection)
        tip = _commit(target, tree, label)
        return Version(
            id=tip.id,
            tree=tree,
            branch=tip.ref,
            head=target.user.head,
            user_branch=target.user.branch,
            dirty=_is_dirty(target, tree),
            repository=str(target.repository),
            root=str(target.top),
            large=selection.large,
            left_out=selection.left_out + dropped,
        )


def materialise(version_id: str, *, repository: Path, into: Path) -> None:
    """Writes the files of a version to a new or empty folder; any number of calls may run in parallel."""
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise VersionError(f"{into} isn't empty; give a new folder for version {version_id[:12]}")
    import tempfile

    with VersionObjects(repository) as objects:
        objects.verify(version_id)
    with tempfile.TemporaryDirectory(prefix="relive-") as scratch:
        git = Git(into).with_paths(repository=repository, work_tree=into, index=Path(scratch) / "index")
        git.run("read-tree", version_id + "^{tree}")
        git.run("checkout-index", "--all", "--force", "--quiet")


def read_file(version_id: str, path: str, *, repository: Path) -> bytes:
    """Returns the content of a file in a version, as git stores it."""
    with VersionObjects(repository) as objects:
        name = next((file.name for file in objects.files(version_id) if file.path == path), None)
        if name is None:
            remedy = "`list_files` returns the files that it holds"
            raise VersionError(f"version {version_id[:12]} in {repository} holds no file {path!r}; {remedy}")
        return objects.content(name)


def list_files(version_id: str, *, repository: Path) -> list[str]:
    """Returns the paths of the files in a version, in git's order; without submodules."""
    with VersionObjects(repository) as objects:
        return [file.path for file in objects.files(version_id)]


def history(repository: Path) -> list[HistoryEntry]:
    """Returns every version in a repository, newest first."""
    ours = ("--glob=refs/heads/relive/*", "--glob=refs/relive-versions/*", "--fixed-strings", f"--committer=<{EMAIL}>")
    plain = ("--no-color", "--no-show-signature", "--no-mailmap")
    out = Git(repository).with_paths(repository=repository).run("log", "-z", *plain, "--format=%H %ct %s", *ours)
    rows = (text(row).split(" ", 2) for row in out.split(b"\0") if row)
    return [HistoryEntry(id, int(time_s), subject) for id, time_s, subject in rows]


@contextmanager
def _scratch_folder(home: Path) -> Iterator[Path]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        folder = home.resolve() / f"version-{os.urandom(6).hex()}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove_folder(folder)
    except OSError as error:
        raise VersionError(
            f"no version could be taken ({error}); set RELIVE_HOME to a folder with free space"
        ) from error


def _remove_folder(folder: Path) -> None:
    """Removes a folder; if it is empty, as it usually is, without importing shutil."""
    try:
        folder.rmdir()
    except OSError:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


# Writing files to a tree, and the tree to a version.


def _write_tree(target: VersionRepository, selection: FileSelection) -> tuple[str, int]:
    """Returns the id of the tree and the number of files that git refused. Does not read files that equal HEAD."""
    git, head, gone = target.git, target.status.head, selection.gone
    if target.cache is not None:
        gone |= set(git.run("ls-files", "-z").split(b"\0")) - {b"", *selection.keep}
    elif head is not None and not selection.keep and not gone:
        return target.head_tree or git.run_line("rev-parse", head + "^{tree}"), 0
    elif head is not None:
        git.run("read-tree", head)
    _unstage(git, gone)
    dropped = _stage(git, selection.keep)
    tree = git.run_line("write-tree", "--missing-ok")  # or git would fetch the objects that a partial clone lacks
    if target.cache is not None:
        with suppress(FileNotFoundError):  # an empty project has no index
            os.replace(git.variables["GIT_INDEX_FILE"], target.cache)
    return tree, dropped


def _unstage(git: Git, paths: Iterable[bytes]) -> None:
    if data := _nul_terminated(paths):
        git.run("update-index", "-z", "--force-remove", "--stdin", data=data)


def _stage(git: Git, keep: Iterable[bytes]) -> int:
    """Adds files to the index; returns the number of those that git can't read, or whose filter fails."""
    paths, dropped = list(keep), 0
    while paths:
        try:
            git.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", data=_nul_terminated(paths))
            break
        except GitFailed as failure:
            failed_path = _failed_path(failure)
            if failed_path not in paths:
                raise
            paths.remove(failed_path)
            _unstage(git, [failed_path])  # the content in HEAD isn't what this run executes
            dropped += os.path.lexists(os.path.join(os.fsencode(git.cwd), failed_path))
    return dropped


def _failed_path(failure: GitFailed) -> bytes | None:
    found = re.search(_FAILED_PATH, failure.stderr, re.MULTILINE | re.DOTALL)
    return next(filter(None, found.groups()), None) if found else None


def _nul_terminated(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _is_dirty(target: VersionRepository, tree: str) -> bool:
    user = target.user
    if user.changed or user.gone or user.untracked:
        return True
    return bool(user.hidden) and tree != Git(target.top).run_line("rev-parse", f"{user.head}^{{tree}}")


def _commit(target: VersionRepository, tree: str, label: str) -> Tip:
    """Finds or creates the version. Runs that start at the same time with the same code get the same version."""
    for attempt in range(_COMMIT_ATTEMPTS):
        prefetched = target.tips if attempt == 0 else None
        tips = read_tips(prefetched.output(), target.stem) if prefetched is not None else _list_tips(target)
        for tip in tips.values():
            if tip.ours and (tip.tree, tip.head) == (tree, target.user.head):
                return tip
        created = _add_version(target, tips, tree=tree, label=label)
        if created is not None:
            return created
    raise VersionError(
        f"other runs moved the branch relive/{target.stem} in {target.repository} {_COMMIT_ATTEMPTS} times meanwhile;"
        " start the run again"
    )


def _add_version(target: VersionRepository, tips: dict[str, Tip], *, tree: str, label: str) -> Tip | None:
    """Commits a new version to the first ref that accepts it; returns None if another run was faster."""
    message = _commit_message(target, label).encode("utf-8", "replace")
    failure: GitFailed | None = None
    for ref in refs_for(target.stem):
        tip = tips.get(ref)
        if tip is not None and (tip.checked_out or not tip.ours):
            continue
        parent = ("-p", tip.id) if tip else ()
        commit = target.git.run_line("commit-tree", tree, *parent, data=message)
        try:
            target.git.run("update-ref", "--no-deref", ref, commit, tip.id if tip else "")
            return Tip(ref, commit, tree, target.user.head)
        except GitFailed as error:
            if _list_tips(target) != tips:
                return None
            failure = error  # the ref conflicts with a branch `relive`, or `a/b` with `a`
    raise failure or VersionError(
        f"no ref is free for versions in {target.repository}; delete refs/relive-versions there"
    )


def _list_tips(target: VersionRepository) -> dict[str, Tip]:
    return read_tips(target.git.run("for-each-ref", f"--format={REF_FORMAT}", *refs_for(target.stem)), target.stem)


def _commit_message(target: VersionRepository, label: str) -> str:
    """Names the user's HEAD, which isn't a parent: our branch must not keep alive commits that the user drops."""
    subject = "".join(c for c in " ".join(label.split()) if c.isprintable()) or f"code of {target.stem}"
    return f"{subject}\n\nrelive-head: {target.user.head}\n" if target.user.head else subject + "\n"
