"""Where a version of the user's code lies: a tree on a branch beside theirs, made without touching theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from relive.errors import VersionError
from relive.store.versions.git import EMAIL, Git, GitAnswer, GitFailed, text
from relive.store.versions.git_prefetch import REPOSITORY, GitPrefetch, start_git_prefetch
from relive.store.versions.version_refs import FORMAT, Tip, read_tips, refs_of
from relive.store.versions.work_tree import Choice, LargeFile, Limits, Look, Looking, choose, fence_of

__all__ = ["LargeFile", "Past", "Version", "history", "list_files", "materialise", "read_file", "take"]

_ATTEMPTS = 64  # at moving our branch; each lost race means that another run moved it

# A repository that git distrusts isn't ours to write to, so it counts as none.
_NO_REPOSITORY = (b"not a git repository", b"must be run in a work tree", b"dubious ownership", b"unsafe repository")
_CULPRIT = (  # patterns are compiled when they are needed, for a start waits for that
    rb"^fatal: (?:Unable to process path (.*)|(.*): clean filter '.*' failed|failed to encode '(.*)' from .*)\Z"
)
_JUNK = """.venv/ venv/ site-packages/ node_modules/ __pycache__/ *.pyc .ipynb_checkpoints/ .mypy_cache/ .pytest_cache/
    .ruff_cache/ .hypothesis/ .tox/ .nox/ .cache/ .eggs/ *.egg-info/ .DS_Store .idea/ .vscode/ .hg/ .svn/"""


class Version(NamedTuple):
    """What the working tree held when it was taken; `tree` is equal whenever the stored files are."""

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


class Past(NamedTuple):
    """A line of the history; `time_s` counts from 1970."""

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
    asking: GitPrefetch | None = None,
) -> Version:
    """Store the code under `root` as it is on disk now; unchanged code gives the version that is already there.

    `asking` may have been begun before, so that git was at work meanwhile.
    """
    limits = Limits(large_bytes, untracked_files, untracked_bytes)
    root = root.resolve()
    asked = asking if asking is not None and asking.root == root else start_git_prefetch(root)
    with asking or nullcontext(), asked or nullcontext(), _scratch(home) as scratch:
        place = _place(root, home.resolve(), scratch, asked)
        choice = choose(place.look, place.top, limits)
        tree, dropped = _write_tree(place, choice)
        tip = _commit(place, tree, label)
        return Version(
            id=tip.id,
            tree=tree,
            branch=tip.ref,
            head=place.user.head,
            user_branch=place.user.branch,
            dirty=_is_dirty(place, tree),
            repository=str(place.repository),
            root=str(place.top),
            large=choice.large,
            left_out=choice.left_out + dropped,
        )


def materialise(version_id: str, *, repository: Path, into: Path) -> None:
    """Write the files of a version to a new or empty folder; any number of calls may run at once."""
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise VersionError(f"{into} isn't empty; give a new folder for version {version_id[:12]}")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="relive-") as scratch:
        git = Git(into).using(repository=repository, work_tree=into, index=Path(scratch) / "index")
        git.run("read-tree", _tree_of(version_id))
        git.run("checkout-index", "--all", "--force", "--quiet")


def read_file(version_id: str, path: str, *, repository: Path) -> bytes:
    """One file of a version, as git stores it."""
    name = f"{_tree_of(version_id)}:{path}"
    try:
        return Git(repository).using(repository=repository).run("cat-file", "blob", name)
    except GitFailed as error:
        known = "`list_files` says which there are"
        raise VersionError(f"version {version_id[:12]} in {repository} holds no file {path!r}; {known}") from error


def list_files(version_id: str, *, repository: Path) -> list[str]:
    """The paths of a version, as git sorts them; a submodule, of which only the commit is known, isn't a file."""
    out = Git(repository).using(repository=repository).run("ls-tree", "-r", "-z", "--full-tree", _tree_of(version_id))
    entries = (entry.split(b"\t", 1) for entry in out.split(b"\0") if entry)
    return [text(path) for facts, path in entries if facts.split()[1] == b"blob"]


def history(repository: Path) -> list[Past]:
    """Every version in a repository, newest first."""
    ours = ("--glob=refs/heads/relive/*", "--glob=refs/relive-versions/*", "--fixed-strings", f"--committer=<{EMAIL}>")
    plain = ("--no-color", "--no-show-signature", "--no-mailmap")
    out = Git(repository).using(repository=repository).run("log", "-z", *plain, "--format=%H %ct %s", *ours)
    rows = (text(row).split(" ", 2) for row in out.split(b"\0") if row)
    return [Past(id, int(time_s), subject) for id, time_s, subject in rows]


def _tree_of(version_id: str) -> str:
    """The id as an argument that git can't take for an option or a branch."""
    if not re.fullmatch("[0-9a-f]{7,64}", version_id):
        raise VersionError(f"{version_id!r} isn't a version id; take one from the history of the repository")
    return version_id + "^{tree}"


@contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        folder = home.resolve() / f"version-{os.urandom(6).hex()}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove_folder(folder)
    except OSError as error:
        raise VersionError(f"no version could be taken ({error}); set RELIVE_HOME to a folder with room") from error


def _remove_folder(folder: Path) -> None:
    """Mostly nothing was put there, and then nothing needs to be loaded to remove it."""
    try:
        folder.rmdir()
    except OSError:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


# Which repository holds the version.


class _VersionRepository(NamedTuple):
    """A work tree, the repository that will hold its version, and an index to do it with."""

    git: Git
    repository: Path
    top: Path
    stem: str  # our branch is relive/<stem>
    look: Look  # what is to be stored, seen from `repository`
    user: Look  # what the user's own git says
    head_tree: str | None = None  # of the user's HEAD, if it is known
    tips: GitAnswer | None = None  # a question already asked
    cache: Path | None = None  # an index that outlives us, so that unchanged files aren't hashed again


class _Found(NamedTuple):
    """The repository around a folder, and what its HEAD was when it was found."""

    top: Path  # of the work tree
    repository: Path  # the git folder with the objects
    head: str | None = None
    tree: str | None = None  # of HEAD


def _place(root: Path, home: Path, scratch: Path, asked: GitPrefetch | None) -> _VersionRepository:
    found = _find_repository(root, asked)
    if found is None:
        return _private_place(root, home, scratch)
    early = asked if asked is not None and found.top == root else None
    fence = fence_of(home, found.top)
    look = early.look.result(fence) if early is not None else _look_at(Git(found.top), fence)
    if not _ours_to_write(found.repository):
        return _private_place(found.top, home, scratch)._replace(user=look)
    git = Git(found.top).using(index=scratch / "index")
    tree = found.tree if look.head == found.head else None
    place = _VersionRepository(
        git, found.repository, found.top, look.branch or "detached", look, user=look, head_tree=tree
    )
    return place if early is None else place._replace(tips=early.tips)


def _look_at(git: Git, fence: bytes) -> Look:
    with Looking(git) as looking:
        return looking.result(fence)


def _find_repository(root: Path, asked: GitPrefetch | None) -> _Found | None:
    """The repository that `root` is in; None if there is none."""
    if not root.is_dir():
        raise VersionError(f"{root} isn't a folder; give the project's folder")
    question = asked.repository if asked is not None else Git(root).ask("rev-parse", *REPOSITORY, "HEAD", "HEAD^{tree}")
    try:
        out = text(question.answer()).removesuffix("\n")
    except GitFailed as failure:
        if any(reason in failure.said for reason in _NO_REPOSITORY):
            return None
        out = Git(root).line("rev-parse", *REPOSITORY)  # perhaps nothing was committed yet
    top, common, *head = [*out.split("\n"), ""]
    found = _Found(Path(top), (root / common).resolve(), *head[:2]) if common else None
    if found is None:
        raise VersionError(f"git rev-parse says nothing useful in {root}; see what `git --version` says there")
    return None if _is_ignored(root, found.top) else found


def _is_ignored(root: Path, top: Path) -> bool:
    """Whether the repository around `root` doesn't care for it, such as one that keeps dotfiles."""
    if root == top:
        return False
    try:
        Git(top).run("check-ignore", "--quiet", "--", str(root))
    except GitFailed:
        return False
    return True


def _ours_to_write(repository: Path) -> bool:
    """A folder that root makes among another user's objects would stop that user's next commit."""
    mine = repository.stat().st_uid == os.geteuid()
    return mine and os.access(repository / "objects", os.W_OK | os.X_OK)


def _private_place(top: Path, home: Path, scratch: Path) -> _VersionRepository:
    repository = _private_repository(home, scratch)
    stem = "main" if home.parent == top else _stem_of(top)
    index, cache = scratch / "index", repository / f"{stem}.index"
    git = Git(top).using(repository=repository, work_tree=top, index=index)
    look = _look_at(git, fence_of(home, top))  # before there is an index, when every file is an untracked one
    from shutil import copy2

    with suppress(FileNotFoundError):
        copy2(cache, index)  # with its time, from which git knows which entries it can trust
    return _VersionRepository(git, repository, top, stem, look, user=Look(), cache=cache)


def _stem_of(top: Path) -> str:
    import hashlib

    return f"project-{hashlib.sha256(os.fsencode(top)).hexdigest()[:12]}"


def _private_repository(home: Path, scratch: Path) -> Path:
    repository, made = home / "versions.git", scratch / "versions.git"
    if not repository.exists():
        Git(scratch).run("init", "--quiet", "--bare", "--template=", str(made))
        (made / "info").mkdir(exist_ok=True)
        (made / "info" / "exclude").write_text("\n".join(_JUNK.split()) + "\n")
        with suppress(OSError):  # another run was first
            made.rename(repository)
    return repository


# How files become a tree, and a tree a version.


def _write_tree(place: _VersionRepository, choice: Choice) -> tuple[str, int]:
    """The tree's id, and how many files git refused. Files that HEAD holds and nobody changed are never read."""
    git, head, gone = place.git, place.look.head, choice.gone
    if place.cache is not None:
        gone |= set(git.run("ls-files", "-z").split(b"\0")) - {b"", *choice.keep}
    elif head is not None and not choice.keep and not gone:
        return place.head_tree or git.line("rev-parse", head + "^{tree}"), 0
    elif head is not None:
        git.run("read-tree", head)
    _remove(git, gone)
    dropped = _add(git, choice.keep)
    tree = git.line("write-tree", "--missing-ok")  # else git would fetch what a partial clone lacks
    if place.cache is not None:
        with suppress(FileNotFoundError):  # an empty project has no index
            os.replace(git.variables["GIT_INDEX_FILE"], place.cache)
    return tree, dropped


def _remove(git: Git, paths: Iterable[bytes]) -> None:
    if data := _lines(paths):
        git.run("update-index", "-z", "--force-remove", "--stdin", data=data)


def _add(git: Git, keep: Iterable[bytes]) -> int:
    """Put files into the index; gives the number of those that git can't read, or whose filter fails."""
    paths, dropped = list(keep), 0
    while paths:
        try:
            git.run("update-index", "-z", "--add", "--remove", "--replace", "--stdin", data=_lines(paths))
            break
        except GitFailed as failure:
            culprit = _culprit(failure)
            if culprit not in paths:
                raise
            paths.remove(culprit)
            _remove(git, [culprit])  # what HEAD holds under that name isn't what runs
            dropped += os.path.lexists(os.path.join(os.fsencode(git.cwd), culprit))
    return dropped


def _culprit(failure: GitFailed) -> bytes | None:
    found = re.search(_CULPRIT, failure.said, re.MULTILINE | re.DOTALL)
    return next(filter(None, found.groups()), None) if found else None


def _lines(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _is_dirty(place: _VersionRepository, tree: str) -> bool:
    user = place.user
    if user.changed or user.gone or user.untracked:
        return True
    return bool(user.hidden) and tree != Git(place.top).line("rev-parse", f"{user.head}^{{tree}}")


def _commit(place: _VersionRepository, tree: str, label: str) -> Tip:
    """Find or make the version. Many runs may start at once: those with the same code get the same one."""
    for attempt in range(_ATTEMPTS):
        known = place.tips if attempt == 0 else None
        tips = read_tips(known.answer(), place.stem) if known is not None else _tips(place)
        for tip in tips.values():
            if tip.ours and (tip.tree, tip.head) == (tree, place.user.head):
                return tip
        made = _advance(place, tips, tree=tree, label=label)
        if made is not None:
            return made
    raise VersionError(f"the branch relive/{place.stem} in {place.repository} keeps moving; start the run again")


def _advance(place: _VersionRepository, tips: dict[str, Tip], *, tree: str, label: str) -> Tip | None:
    """Put a new version on the first ref that takes it; None if another run was faster."""
    message = _message(place, label).encode("utf-8", "replace")
    failure: GitFailed | None = None
    for ref in refs_of(place.stem):
        tip = tips.get(ref)
        if tip is not None and (tip.checked_out or not tip.ours):
            continue
        parent = ("-p", tip.id) if tip else ()
        made = place.git.line("commit-tree", tree, *parent, data=message)
        try:
            place.git.run("update-ref", "--no-deref", ref, made, tip.id if tip else "")
            return Tip(ref, made, tree, place.user.head)
        except GitFailed as error:
            if _tips(place) != tips:
                return None
            failure = error  # a branch `relive`, or `a` beside `a/b`, leaves no room for this ref
    raise failure or VersionError(
        f"no ref is free for versions in {place.repository}; delete refs/relive-versions there"
    )


def _tips(place: _VersionRepository) -> dict[str, Tip]:
    return read_tips(place.git.run("for-each-ref", f"--format={FORMAT}", *refs_of(place.stem)), place.stem)


def _message(place: _VersionRepository, label: str) -> str:
    """The user's HEAD is named, not made a parent: our branch must not keep alive what they amend or drop."""
    subject = "".join(c for c in " ".join(label.split()) if c.isprintable()) or f"code of {place.stem}"
    return f"{subject}\n\nrelive-head: {place.user.head}\n" if place.user.head else subject + "\n"
