"""What a version consists of, for display: its files with sizes, the text of one, and what changed since another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from relive.errors import NotFound, VersionError
from relive.store.home import Home
from relive.store.versions.git import Git, text
from relive.store.versions.version_checkout import find_repository
from relive.store.versions.version_objects import VersionObjects, check_version_id

Code = Mapping[str, Any]  # the field `code` of a run's record
_STATUS = {"A": "added", "D": "removed", "M": "changed", "T": "changed"}


class ListedFile(NamedTuple):
    """A file of a version. `name` is that of the object with its content."""

    path: str
    size_bytes: int
    name: str


def list_version(home: Home, code: Code) -> list[ListedFile]:
    """Returns the files of a run's version, by path; without submodules."""
    git, version = _git_of(home, code)
    rows = [row for row in text(git.run("ls-tree", "-r", "-l", "-z", version)).split("\0") if row]
    split = (row.partition("\t") for row in rows)
    parts = [(path, facts.split()) for facts, _, path in split]
    return [ListedFile(path, int(facts[3]), facts[2]) for path, facts in parts if facts[1] == "blob"]


def read_listed(home: Home, code: Code, path: str) -> bytes:
    """Returns the content of one file of a run's version, compared with its name."""
    found = next((file for file in list_version(home, code) if file.path == path), None)
    if found is None:
        raise NotFound(f"no file {path[:200]!r} in version {str(code['version'])[:12]}; list its files first")
    with VersionObjects(find_repository(home, code)) as objects:
        return objects.content(found.name)


def parent_version(home: Home, code: Code) -> str | None:
    """Returns the version before that of a run, on the branch of the versions; None for the first one."""
    git, version = _git_of(home, code)
    ids = git.run_line("rev-list", "--parents", "--max-count=1", version).split()
    return ids[1] if len(ids) > 1 else None


def changed_paths(home: Home, code: Code, old: str) -> dict[str, str]:
    """Returns path → `added`, `removed` or `changed` for what differs from an older version in the same repository."""
    git, version = _git_of(home, code)
    old_tree = check_version_id(old) + "^{tree}"
    words = text(git.run("diff-tree", "-r", "-z", "--name-status", old_tree, version + "^{tree}")).split("\0")
    return {path: _STATUS.get(status, "changed") for status, path in zip(words[::2], words[1::2], strict=False)}


def _git_of(home: Home, code: Code) -> tuple[Git, str]:
    repository: Path = find_repository(home, code)
    try:
        version = check_version_id(str(code["version"]))
    except VersionError as error:
        raise NotFound(str(error)) from error
    return Git(repository).with_paths(repository=repository), version
