"""Where the code of a run lies now, what changed between two, and how one is written somewhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relive.errors import VersionError
from relive.store.home import Home
from relive.store.versions.code_versions import materialise
from relive.store.versions.git import Git, GitFailed, text

Code = Mapping[str, Any]  # of a run's record
# Plumbing, so that the user's settings for diffs don't count; -M tells moved files from new ones.
_DIFF = ("-r", "-p", "-M", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")


def repository_of(home: Home, code: Code) -> Path:
    """The repository that holds a run's code; a private one moves with its home."""
    if not code.get("version"):
        raise VersionError("no code version was taken for this run; record with git installed and `versions` on")
    known = Path(code["repository"])
    candidates = (known, home.path / known.name)
    found = next((path for path in candidates if path.exists()), None) or _around(home, code)
    if found is None:
        raise VersionError(f"the repository {known} is gone, and with it version {code['version'][:12]}; bring it back")
    return found


def _around(home: Home, code: Code) -> Path | None:
    """The repository that the home lies in, if it has the version: that of a run which was fetched from elsewhere."""
    git = Git(home.path.parent)
    try:
        found = home.path.parent / text(git.run("rev-parse", "--git-common-dir")).strip()
        git.run("cat-file", "-e", _id(code) + "^{tree}")
    except VersionError:
        return None
    return found.resolve()


def has_version(home: Home, code: Code) -> bool:
    """Can the code of a run still be read?"""
    try:
        repository = repository_of(home, code)
        Git(repository).using(repository=repository).run("cat-file", "-e", _id(code) + "^{tree}")
    except VersionError:
        return False
    return True


def checkout(home: Home, code: Code, into: Path) -> None:
    """Write the files of a run's version to a new or empty folder; the repository is only read."""
    repository = repository_of(home, code)
    if into.exists() and not into.is_dir():
        raise VersionError(f"{into} is a file; give a new folder")
    if _is_inside(into, repository):
        raise VersionError(f"{into} lies inside of the repository {repository}; give a folder elsewhere")
    materialise(_id(code), repository=repository, into=into)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def diff(home: Home, old: Code, new: Code) -> str:
    """What changed from one run's code to another's, as a unified diff; empty if nothing did."""
    if _id(old) == _id(new) or (old.get("tree") and old.get("tree") == new.get("tree")):
        return ""
    repositories = [repository_of(home, code) for code in (old, new)]
    git = Git(repositories[1]).using(repository=repositories[1])
    if repositories[0] != repositories[1]:  # git reads the objects of both, wherever they lie
        also = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repositories[0] / "objects")}
        git = git._replace(variables={**git.variables, **also})
    try:
        return text(git.run("diff-tree", *_DIFF, _id(old) + "^{tree}", _id(new) + "^{tree}"))
    except GitFailed as error:
        raise VersionError(
            f"the two versions can't be compared ({os.fsdecode(error.said)}); one of them is gone"
        ) from error


def _id(code: Code) -> str:
    """Checked where it comes to git: an id, never an option or a branch."""
    version = str(code.get("version") or "")
    if not version or not all(digit in "0123456789abcdef" for digit in version):
        raise VersionError(f"{version!r} isn't a version id; record the run again with git installed")
    return version
