"""Reads the text files of many versions through one git process, each content once."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from relive.store.versions.git import text
from relive.store.versions.version_objects import VersionObjects


class VersionFiles:
    """Reads files of the versions in one repository. Caches contents, because most versions share most files."""

    def __init__(self, repository: Path) -> None:
        self._objects = VersionObjects(repository)
        self._contents: dict[str, str] = {}

    def __enter__(self) -> VersionFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, version_id: str, suffix: str = ".py") -> dict[str, str]:
        """Returns path → text of the files of a version with this suffix; line endings are as stored."""
        found = (file for file in self._objects.files(version_id) if file.path.endswith(suffix))
        return {file.path: self._read_text(file.name) for file in found}

    def close(self) -> None:
        self._objects.close()

    def _read_text(self, name: str) -> str:
        if name not in self._contents:
            self._contents[name] = text(self._objects.content(name))
        return self._contents[name]
