"""Locates the repository that stores the versions of a folder: the user's own, or a private one in the home."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from relive.errors import VersionError
from relive.store.versions.git import Git, GitFailed, GitProcess, text
from relive.store.versions.git_prefetch import LOCATE_REPOSITORY, GitPrefetch
from relive.store.versions.work_tree import StatusQuery, WorkTreeStatus, path_prefix_of_home

# Messages of git that mean: no repository. One that git distrusts counts as none, because we may not write to it.
_NO_REPOSITORY = (b"not a git repository", b"must be run in a work tree", b"dubious ownership", b"unsafe repository")
_IGNORE_PATTERNS = """.venv/ venv/ site-packages/ node_modules/ __pycache__/ *.pyc .ipynb_checkpoints/ .mypy_cache/
    .pytest_cache/ .ruff_cache/ .hypothesis/ .tox/ .nox/ .cache/ .eggs/ *.egg-info/ .DS_Store .idea/ .vscode/ .hg/
    .svn/"""


class VersionRepository(NamedTuple):
    """A work tree, the repository that will hold its version, and git set up with an index for it."""

    git: Git
    repository: Path
    top: Path
    stem: str  # our branch is relive/<stem>
    status: WorkTreeStatus  # relative to `repository`: what has to be stored
    user: WorkTreeStatus  # relative to the user's repository
    head_tree: str | None = None  # the tree of the user's HEAD, if known
    tips: GitProcess | None = None  # a query that is already running
    cache: Path | None = None  # an index kept between runs, so that unchanged files aren't hashed again


class _UserRepository(NamedTuple):
    """The repository that contains a folder, and its HEAD at that time."""

    top: Path  # the root of the work tree
    repository: Path  # the git folder with the objects
    head: str | None = None
    tree: str | None = None  # of HEAD


def locate_repository(root: Path, home: Path, scratch: Path, prefetch: GitPrefetch | None) -> VersionRepository:
    """Returns where to store a version of `root`, with the status of its work tree."""
    found = _find_repository(root, prefetch)
    if found is None:
        return _use_private_repository(root, home, scratch)
    usable = prefetch if prefetch is not None and found.top == root else None
    home_prefix = path_prefix_of_home(home, found.top)
    status = usable.status.result(home_prefix) if usable is not None else _query_status(Git(found.top), home_prefix)
    if not _is_ours_to_write(found.repository):
        return _use_private_repository(found.top, home, scratch)._replace(user=status)
    git = Git(found.top).with_paths(index=scratch / "index")
    tree = found.tree if status.head == found.head else None
    target = VersionRepository(
        git, found.repository, found.top, status.branch or "detached", status, user=status, head_tree=tree
    )
    return target if usable is None else target._replace(tips=usable.tips)


def _query_status(git: Git, home_prefix: bytes) -> WorkTreeStatus:
    with StatusQuery(git) as query:
        return query.result(home_prefix)


def _find_repository(root: Path, prefetch: GitPrefetch | None) -> _UserRepository | None:
    """Returns the repository that contains `root`; None if there is none, or if it ignores `root`."""
    if not root.is_dir():
        raise VersionError(f"{root} isn't a folder; give the project's folder")
    query = (
        prefetch.repository
        if prefetch is not None
        else Git(root).start("rev-parse", *LOCATE_REPOSITORY, "HEAD", "HEAD^{tree}")
    )
    try:
        out = text(query.output()).removesuffix("\n")
    except GitFailed as failure:
        if any(reason in failure.stderr for reason in _NO_REPOSITORY):
            return None
        out = Git(root).run_line("rev-parse", *LOCATE_REPOSITORY)  # there may be no commit yet
    top, common, *head = [*out.split("\n"), ""]
    found = _UserRepository(Path(top), (root / common).resolve(), *head[:2]) if common else None
    if found is None:
        raise VersionError(f"git rev-parse gives unexpected output in {root}; check the version with `git --version`")
    return None if _is_ignored(root, found.top) else found


def _is_ignored(root: Path, top: Path) -> bool:
    """Whether the repository around `root` ignores it, such as a repository of dotfiles."""
    if root == top:
        return False
    try:
        Git(top).run("check-ignore", "--quiet", "--", str(root))
    except GitFailed:
        return False
    return True


def _is_ours_to_write(repository: Path) -> bool:
    """Whether we own the repository and may write to it. Folders that root creates would block its owner's commits."""
    is_owner = repository.stat().st_uid == os.geteuid()
    return is_owner and os.access(repository / "objects", os.W_OK | os.X_OK)


def _use_private_repository(top: Path, home: Path, scratch: Path) -> VersionRepository:
    """Stores the version in a repository inside the home, which has no HEAD: all files are untracked there."""
    repository = _create_private_repository(home, scratch)
    stem = "main" if home.parent == top else _project_stem(top)
    index, cache = scratch / "index", repository / f"{stem}.index"
    git = Git(top).with_paths(repository=repository, work_tree=top, index=index)
    # Before there is an index, so that every file is untracked.
    status = _query_status(git, path_prefix_of_home(home, top))
    from shutil import copy2

    with suppress(FileNotFoundError):
        copy2(cache, index)  # with its mtime, by which git knows which entries it can trust
        if not is_index_whole(index):  # git would store a version that names wrong contents
            index.unlink()
    return VersionRepository(git, repository, top, stem, status, user=WorkTreeStatus(), cache=cache)


def is_index_whole(path: Path) -> bool:
    """Whether an index ends in its own checksum, which git writes but does not verify."""
    import hashlib

    raw = path.read_bytes()
    return any(raw[-size:] == hash_(raw[:-size]).digest() for size, hash_ in ((20, hashlib.sha1), (32, hashlib.sha256)))


def _project_stem(top: Path) -> str:
    import hashlib

    return f"project-{hashlib.sha256(os.fsencode(top)).hexdigest()[:12]}"


def _create_private_repository(home: Path, scratch: Path) -> Path:
    repository, new = home / "versions.git", scratch / "versions.git"
    if not repository.exists():
        Git(scratch).run("init", "--quiet", "--bare", "--template=", str(new))
        (new / "info").mkdir(exist_ok=True)
        (new / "info" / "exclude").write_text("\n".join(_IGNORE_PATTERNS.split()) + "\n")
        with suppress(OSError):  # another run was faster
            new.rename(repository)
    return repository
