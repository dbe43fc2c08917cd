"""Reads the text files of many versions through one git process, each content once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from relive.errors import VersionError
from relive.store.versions.git import Git, text


class VersionFiles:
    """Reads files of the versions in one repository. Caches contents, because most versions share most files."""

    def __init__(self, repository: Path) -> None:
        self._git = Git(repository).with_paths(repository=repository)
        self._process: subprocess.Popen[bytes] | None = None
        self._contents: dict[bytes, str] = {}

    def __enter__(self) -> VersionFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, version_id: str, suffix: str = ".py") -> dict[str, str]:
        """Returns path → text of the files of a version with this suffix; line endings are as stored."""
        listed = self._git.run("ls-tree", "-r", "-z", "--full-tree", version_id + "^{tree}")
        found: dict[str, str] = {}
        for entry in listed.split(b"\0"):
            facts, _, path = entry.partition(b"\t")
            if path.endswith(suffix.encode()) and facts.split()[1] == b"blob":
                found[text(path)] = self._read_text(facts.split()[2])
        return found

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _read_text(self, name: bytes) -> str:
        if name not in self._contents:
            self._contents[name] = text(self._read_object(name))
        return self._contents[name]

    def _read_object(self, name: bytes) -> bytes:
        if self._process is None:
            self._process = self._git.open_pipe("cat-file", "--batch")
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise VersionError("git has no pipes to read files through; install git and put it on PATH")
        stdin.write(name + b"\n")
        stdin.flush()
        head = stdout.readline().split()
        if len(head) != 3:
            raise VersionError(f"the repository lacks the object {name.decode()}; run `git fsck` there")
        content = stdout.read(int(head[2]))
        stdout.read(1)  # the newline after the content
        return content
