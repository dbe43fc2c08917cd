"""Sends the console output of a run to a server, as the files stand; one that was emptied and begun anew is replaced.

Journals go first: the server takes console output of runs that it knows. A server of an older version takes none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relive.store.console.console_file import is_unfinished_part, list_console_files, rank_of
from relive.store.durable_files import read_at

PIECE_BYTES = 256 << 10
EVERY_S = 2.0  # console output is less urgent than values
_HEAD_BYTES = 200  # of a file: enough to see that it was begun anew


@dataclass(frozen=True, slots=True)
class ConsoleHeld:
    """How much of a console file a server has, and the digest of that; `is_final` if it takes nothing more of it."""

    size: int
    digest: str = ""
    is_final: bool = False


class ConsoleReceiver(Protocol):
    """What takes console output: the client of a server."""

    def console_held(self, run: str, file: str) -> ConsoleHeld | None:
        """Returns what the server has; None if it takes no console output."""
        ...

    def put_console(self, run: str, file: str, at: int, piece: bytes) -> ConsoleHeld:
        """Sends a piece of a file; at 0 it replaces what is there."""
        ...


class _FileProgress:
    """How far one file is sent."""

    def __init__(self) -> None:
        self.at: int | None = None  # how much the server has; None until it was asked
        self.head = b""
        self.is_final = False
        self.refused = 0


class ConsoleShipment:
    """Sends the console files of a run, or of one rank of it."""

    def __init__(self, folder: Path, run: str, remote: ConsoleReceiver, *, rank: int | None = None) -> None:
        self._folder, self._run, self._remote, self._rank = folder, run, remote, rank
        self._files: dict[Path, _FileProgress] = {}
        self._unfinished: dict[Path, bytes] = {}  # what was sent last of each file with unfinished lines
        self._next_s = 0.0
        self._is_refused = False
        self.sent_bytes = 0

    def step(self, *, final: bool) -> bool:
        """Sends a piece of each file; returns whether more is ready. Unless `final`, that is done every few seconds."""
        now = time.monotonic()
        if self._is_refused or (now < self._next_s and not final):
            return False
        more = False
        for path in self._listed():
            more |= self._send_unfinished(path) if is_unfinished_part(path) else self._send_piece(path)
        for path in set(self._unfinished) - set(self._listed()):  # its lines are finished
            self._put(path, 0, b"")
            del self._unfinished[path]
        self._next_s = 0.0 if more else now + EVERY_S
        return more

    def _listed(self) -> list[Path]:
        found = list_console_files(self._folder)
        return [path for path in found if self._rank is None or rank_of(path) == self._rank]

    def _send_piece(self, path: Path) -> bool:
        progress = self._files.setdefault(path, _FileProgress())
        if progress.is_final or self._is_refused:
            return False
        head = read_at(path, 0, _HEAD_BYTES)
        if progress.at is None and not self._ask(path, progress):
            return False
        if progress.head and not head.startswith(progress.head):
            progress.at = 0  # it was emptied and begun anew
        progress.head = head
        at = progress.at or 0
        raw = read_at(path, at, PIECE_BYTES)
        piece = raw[: raw.rfind(b"\n") + 1]
        if not piece:
            return False
        held = self._put(path, at, piece)
        progress.is_final = held.is_final
        if held.size != at + len(piece):  # something else is there, which is asked for anew, but not for ever
            progress.at, progress.refused = None, progress.refused + 1
            progress.is_final = progress.refused > 2
            return not progress.is_final
        progress.at = held.size
        return len(raw) == PIECE_BYTES

    def _ask(self, path: Path, progress: _FileProgress) -> bool:
        held = self._remote.console_held(self._run, path.name)
        if held is None:
            self._is_refused = True
            return False
        own = read_at(path, 0, held.size)
        progress.at = held.size if held.size and _digest(own) == held.digest else 0
        progress.is_final = held.is_final and progress.at != held.size
        return not progress.is_final

    def _send_unfinished(self, path: Path) -> bool:
        content = read_at(path, 0, PIECE_BYTES)
        if content != self._unfinished.get(path, b"") and content.endswith(b"\n"):
            self._put(path, 0, content)
            self._unfinished[path] = content
        return False

    def _put(self, path: Path, at: int, piece: bytes) -> ConsoleHeld:
        held = self._remote.put_console(self._run, path.name, at, piece)
        self.sent_bytes += len(piece)
        return held


def _digest(data: bytes) -> str:
    import xxhash

    return xxhash.xxh3_128_hexdigest(data)
