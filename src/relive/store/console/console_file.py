"""Writes console output: a file for the beginning, two that take turns for the end, and one for unfinished lines.

Each record is a line of JSON with a checksum, appended by one write, so that a kill leaves whole records.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from relive.store.journal import line_schema

CONSOLE_FORMAT = 1
MAX_RANK = line_schema.MAX_RANKS
_NAME = re.compile(r"(\d+)\.console(-1|-2|-open)?")
_OPEN = "-open"
_TURNS = ("-1", "-2")


def console_path(folder: Path, rank: int, part: str = "") -> Path:
    """Returns the path of a part of a rank's console: "" is the beginning, `-1` and `-2` the end."""
    return folder / f"{rank}.console{part}"


def list_console_files(folder: Path) -> list[Path]:
    """Returns all files with console output in the folder of a run."""
    return sorted(path for path in folder.glob("*.console*") if _NAME.fullmatch(path.name))


def console_file_path(folder: Path, name: str) -> Path | None:
    """Returns the path of a console file by its name; None for any other name."""
    found = _NAME.fullmatch(name) if len(name) < 30 and name.isascii() else None
    return folder / name if found is not None and str(int(found[1])) == found[1] and int(found[1]) <= MAX_RANK else None


def rank_of(path: Path) -> int:
    """Returns the rank whose console a file holds."""
    return int(path.name.partition(".")[0])


def is_unfinished_part(path: Path) -> bool:
    """Whether a file holds the lines that are not finished yet; it is rewritten as they change."""
    return path.name.endswith(_OPEN)


class ConsoleFile:
    """The files of one rank. Nothing is created before the first record."""

    def __init__(self, folder: Path, rank: int, max_bytes: int) -> None:
        self._folder, self._rank = folder, rank
        self._head_bytes, self._turn_bytes = max_bytes // 2, max_bytes // 4
        self._part, self._size = "", 0
        self._fd: int | None = None
        self._unfinished = b""

    def append(self, record: dict[str, Any]) -> None:
        """Writes a record; if the file is full, to the next one, whose old content goes."""
        row = encode_record(record)
        limit = self._turn_bytes if self._part else self._head_bytes
        if self._fd is None or self._size + len(row) > limit:
            self._open_next()
        if self._fd is not None:
            self._size += os.write(self._fd, row)

    def replace_unfinished(self, lines: dict[str, str]) -> None:
        """Writes the unfinished lines of both streams in place of those written before."""
        row = encode_record({"v": CONSOLE_FORMAT, "open": lines}) if lines else b""
        if row == self._unfinished:
            return
        path = console_path(self._folder, self._rank, _OPEN)
        if row:
            with open(path, "wb") as file:
                file.write(row)
        else:
            path.unlink(missing_ok=True)
        self._unfinished = row

    def close(self) -> None:
        """Removes the file for unfinished lines, which are records by now, and closes the other."""
        self.replace_unfinished({})
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open_next(self) -> None:
        """Opens the first file, or the next one of those that take turns."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._part = _TURNS[1] if self._part == _TURNS[0] else _TURNS[0]
            flags |= os.O_TRUNC
        self._fd = os.open(console_path(self._folder, self._rank, self._part), flags, 0o666)
        self._size = 0


def encode_record(record: dict[str, Any]) -> bytes:
    """Returns a record as a line with its checksum; lone surrogates are written as `?`."""
    import msgspec

    try:
        return line_schema.with_sum(msgspec.json.encode(record))
    except UnicodeEncodeError:
        return line_schema.with_sum(msgspec.json.encode(_clean(record)))


def _clean(form: Any) -> Any:
    if isinstance(form, str):
        return form.encode("utf-8", "replace").decode()
    return {key: _clean(item) for key, item in form.items()} if isinstance(form, dict) else form
