"""Reads commits, trees and files of a repository through one git process, and verifies each against its name.

Git itself does not: `cat-file` and `checkout-index` return whatever content lies where an object should be.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from relive.errors import VersionDamaged, VersionError
from relive.store.versions.git import Git, GitFailed, text

_TREE, _SUBMODULE = b"40000", b"160000"


class StoredFile(NamedTuple):
    """A file of a version: its path, and the name of the object with its content."""

    path: str
    name: str


class VersionObjects:
    """Reads the objects of one repository. Trees and commits are read and verified once."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._git = Git(repository).with_paths(repository=repository)
        self._process: subprocess.Popen[bytes] | None = None
        self._verified: set[str] = set()  # files
        self._trees: dict[str, bytes] = {}
        self._name_bytes = 20  # of the names in trees; 32 in a repository with SHA-256

    def __enter__(self) -> VersionObjects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def files(self, version_id: str) -> Iterator[StoredFile]:
        """Yields the files of a version, in git's order; without submodules."""
        check_version_id(version_id)
        kind, content = self._read(version_id)
        if kind == "commit":
            content = self._read_tree(content.partition(b"\n")[0].removeprefix(b"tree ").decode())
        elif kind != "tree":
            raise VersionError(f"{version_id} in {self._repository} is no version; take one from its history")
        yield from self._walk(content, "")

    def _walk(self, tree: bytes, folder: str) -> Iterator[StoredFile]:
        at, size = 0, self._name_bytes
        while at < len(tree):
            end = tree.index(b"\0", at)
            mode, _, entry = tree[at:end].partition(b" ")
            path, name = folder + text(entry), tree[end + 1 : end + 1 + size].hex()
            at = end + 1 + size
            if mode == _TREE:
                yield from self._walk(self._read_tree(name), path + "/")
            elif mode != _SUBMODULE:
                yield StoredFile(path, name)

    def content(self, name: str) -> bytes:
        """Returns the content of a file."""
        return self._read(name)[1]

    def verify(self, version_id: str) -> None:
        """Reads everything that a version consists of; raises `VersionDamaged` if something is not what was stored."""
        for file in self.files(version_id):
            if file.name not in self._verified:
                self.content(file.name)
                self._verified.add(file.name)

    def _read_tree(self, name: str) -> bytes:
        if name not in self._trees:
            self._trees[name] = self._read(name)[1]
        return self._trees[name]

    def _read(self, name: str) -> tuple[str, bytes]:
        """Returns the kind and the content of an object."""
        import hashlib  # here, because recording a run imports this module and does not need it

        if self._process is None:
            self._process = self._git.open_pipe("cat-file", "--batch")
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise VersionError("git has no pipes to read files through; install git and put it on PATH")
        try:
            stdin.write(name.encode() + b"\n")
            stdin.flush()
            head = stdout.readline().split()
            content = stdout.read(int(head[2]) + 1)[:-1] if len(head) == 3 else b""  # a newline follows it
        except BrokenPipeError:
            head, content = [], b""
        if len(head) != 3:
            raise self._damage(name, "is missing" if head else self._last_words())
        found, kind = head[0].decode(), head[1].decode()
        hash_ = hashlib.sha1 if len(found) == 40 else hashlib.sha256
        if not found.startswith(name) or hash_(b"%b %d\0" % (head[1], len(content)) + content).hexdigest() != found:
            raise self._damage(name, "is not what was stored")
        self._name_bytes = len(found) // 2
        return kind, content

    def _last_words(self) -> str:
        """Returns why git ended; the next object is read by another process."""
        process, self._process = self._process, None
        stderr = process.communicate()[1] if process is not None else b""
        return f"can't be read ({text(stderr).strip().rpartition('fatal: ')[2] or 'git ended'})"

    def _damage(self, name: str, what: str) -> VersionDamaged:
        remedy = "restore the repository from a backup, or fetch the object from a clone"
        return VersionDamaged(f"the object {name[:12]} in {self._repository} {what}; {remedy}")


def check_version_id(version_id: str) -> str:
    """Returns the id, checked: git must not take it for an option or a branch."""
    if not re.fullmatch("[0-9a-f]{7,64}", version_id):
        raise VersionError(f"{version_id!r} isn't a version id; take one from the history of the repository")
    return version_id


def check_repository(repository: Path) -> list[str]:
    """Returns what `git fsck` reports about all refs and objects of a repository; empty if they are whole."""
    process = (
        Git(repository).with_paths(repository=repository).start("fsck", "--full", "--no-dangling", "--no-progress")
    )
    try:
        process.output()
    except GitFailed as failure:
        lines = [line for line in text(failure.stderr).splitlines() if line.startswith(("error:", "fatal:"))]
        return [f"git fsck in {repository}: {line}; restore it from a backup" for line in lines[:5]] or [str(failure)]
    except VersionError as error:
        return [str(error)]
    return []
