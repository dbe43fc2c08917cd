"""Finds, compares and checks out the code versions of recorded runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relive.errors import VersionError
from relive.store.home import Home
from relive.store.versions.code_versions import materialise
from relive.store.versions.git import Git, GitFailed, text
from relive.store.versions.version_objects import VersionObjects

Code = Mapping[str, Any]  # the field `code` of a run's record
# Plumbing options, so that the user's diff settings have no effect; -M detects renames.
_DIFF_OPTIONS = ("-r", "-p", "-M", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")


def find_repository(home: Home, code: Code) -> Path:
    """Returns the repository that holds a run's code: the recorded path, or the home, or the repository around it."""
    if not code.get("version"):
        raise VersionError("no code version was taken for this run; record with git installed and `versions` on")
    known = Path(code["repository"])
    candidates = (known, home.path / known.name)
    found = next((path for path in candidates if path.exists()), None) or _enclosing_repository(home, code)
    if found is None:
        raise VersionError(f"the repository {known} is gone, and with it version {code['version'][:12]}; restore it")
    return found


def _enclosing_repository(home: Home, code: Code) -> Path | None:
    """Returns the repository around the home, if it holds the version, as it may for a run fetched from elsewhere."""
    git = Git(home.path.parent)
    try:
        found = home.path.parent / text(git.run("rev-parse", "--git-common-dir")).strip()
        git.run("cat-file", "-e", _version_id(code) + "^{tree}")
    except VersionError:
        return None
    return found.resolve()


def has_version(home: Home, code: Code) -> bool:
    """Whether the code of a run can still be read."""
    try:
        repository = find_repository(home, code)
        Git(repository).with_paths(repository=repository).run("cat-file", "-e", _version_id(code) + "^{tree}")
    except VersionError:
        return False
    return True


def checkout(home: Home, code: Code, into: Path) -> None:
    """Writes the files of a run's version to a new or empty folder; does not change the repository."""
    repository = find_repository(home, code)
    if into.exists() and not into.is_dir():
        raise VersionError(f"{into} is a file; give a new folder")
    if _is_inside(into, repository):
        raise VersionError(f"{into} is inside the repository {repository}; give a folder elsewhere")
    materialise(_version_id(code), repository=repository, into=into)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def diff(home: Home, old: Code, new: Code) -> str:
    """Returns the unified diff from one run's code to another's; empty if they are equal."""
    if _version_id(old) == _version_id(new) or (old.get("tree") and old.get("tree") == new.get("tree")):
        return ""
    repositories = [find_repository(home, code) for code in (old, new)]
    git = Git(repositories[1]).with_paths(repository=repositories[1])
    if repositories[0] != repositories[1]:  # lets git read the objects of both
        also = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repositories[0] / "objects")}
        git = git._replace(variables={**git.variables, **also})
    _verify_difference(repositories, _version_id(old), _version_id(new))
    try:
        return text(git.run("diff-tree", *_DIFF_OPTIONS, _version_id(old) + "^{tree}", _version_id(new) + "^{tree}"))
    except GitFailed as error:
        raise VersionError(
            f"the two versions can't be compared ({os.fsdecode(error.stderr)});"
            " check that both are still in their repositories"
        ) from error


def _verify_difference(repositories: Sequence[Path], old: str, new: str) -> None:
    """Verifies what a diff shows: the files that are in one of the versions only."""
    with VersionObjects(repositories[0]) as of_old, VersionObjects(repositories[1]) as of_new:
        old_files, new_files = set(of_old.files(old)), set(of_new.files(new))
        for objects, files in ((of_old, old_files - new_files), (of_new, new_files - old_files)):
            for file in files:
                objects.content(file.name)


def _version_id(code: Code) -> str:
    """Returns the version id, checked: git must not take it for an option or a branch."""
    version = str(code.get("version") or "")
    if not version or not all(digit in "0123456789abcdef" for digit in version):
        raise VersionError(f"{version!r} isn't a version id; record the run again with git installed")
    return version
