"""The texts of many versions at once: one git process for all of them, and each content read once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from relive.errors import VersionError
from relive.store.versions.git import Git, text


class VersionFiles:
    """Reads files of the versions in one repository. Most versions share most files, so contents are kept."""

    def __init__(self, repository: Path) -> None:
        self._git = Git(repository).using(repository=repository)
        self._process: subprocess.Popen[bytes] | None = None
        self._contents: dict[bytes, str] = {}

    def __enter__(self) -> VersionFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, version_id: str, suffix: str = ".py") -> dict[str, str]:
        """The files of a version whose names end so: path → text, with its line ends as they are stored."""
        listed = self._git.run("ls-tree", "-r", "-z", "--full-tree", version_id + "^{tree}")
        found: dict[str, str] = {}
        for entry in listed.split(b"\0"):
            facts, _, path = entry.partition(b"\t")
            if path.endswith(suffix.encode()) and facts.split()[1] == b"blob":
                found[text(path)] = self._content(facts.split()[2])
        return found

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _content(self, name: bytes) -> str:
        if name not in self._contents:
            self._contents[name] = text(self._ask(name))
        return self._contents[name]

    def _ask(self, name: bytes) -> bytes:
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch")
        inside, outside = self._process.stdin, self._process.stdout
        if inside is None or outside is None:
            raise VersionError("git can't be asked for files; install git and put it on PATH")
        inside.write(name + b"\n")
        inside.flush()
        head = outside.readline().split()
        if len(head) != 3:
            raise VersionError(f"the repository lacks {name.decode()}; see what `git fsck` says there")
        content = outside.read(int(head[2]))
        outside.read(1)
        return content
