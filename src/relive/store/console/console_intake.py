"""Takes the console output of runs of other machines: whole records only, bounded, beside the journals of the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from relive.errors import NotFound, QueryError
from relive.store.console.console_file import console_file_path, is_unfinished_part
from relive.store.console.console_shipment import ConsoleHeld
from relive.store.console.console_text import decode_record
from relive.store.durable_files import atomic_write
from relive.store.home import Home, JournalName
from relive.store.journal import is_live, read_lines

MAX_FILE_BYTES = 32 << 20  # of one of the files of a rank; what comes then is not taken
MAX_PIECE_BYTES = 1 << 20


class ConsoleIntake:
    """Stores console files under a home. `is_paused` tells whether a run is being rewritten."""

    def __init__(self, home: Home, is_paused: Callable[[str], bool]) -> None:
        self._home, self._is_paused = home, is_paused
        self._lock = threading.Lock()

    def held(self, run: str, file: str) -> ConsoleHeld:
        """Returns how much of a file is here."""
        import xxhash

        path = self._path(run, file)
        content = path.read_bytes() if path.exists() else b""
        return ConsoleHeld(len(content), xxhash.xxh3_128_hexdigest(content), self._is_final(path, len(content)))

    def put(self, run: str, file: str, at: int, piece: bytes) -> ConsoleHeld:
        """Appends a piece, or replaces the file if it begins at 0; returns what is here then."""
        path = self._path(run, file)
        _check_records(piece)
        with self._lock:
            size = path.stat().st_size if path.exists() else 0
            if at not in (0, size) or self._is_paused(run):
                return ConsoleHeld(size)
            if at + len(piece) > MAX_FILE_BYTES or (size and not at and self._is_final(path, size)):
                return ConsoleHeld(size, is_final=True)
            self._write(path, at, piece)
        return ConsoleHeld(at + len(piece))

    def _write(self, path: Path, at: int, piece: bytes) -> None:
        if not at and not piece:
            path.unlink(missing_ok=True)
        elif not at:
            atomic_write(path, piece, durable=False, permissions=0o644)
        else:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(fd, piece)
            finally:
                os.close(fd)

    def _path(self, run: str, file: str) -> Path:
        folder = self._home.run_folder(run)
        path = console_file_path(folder, file)
        if path is None:
            raise NotFound(f"{file[:40]!r} is no file of a console; they are called like 0.console or 3.console-1")
        if not folder.is_dir():
            raise NotFound(f"no run {run} in this store; send its journal first")
        return path

    def _is_final(self, path: Path, size: int) -> bool:
        """Whether a file of a run that has ended is kept as it is: a text may have been removed from it."""
        if not size or is_unfinished_part(path):
            return False
        journal = path.parent / JournalName(0).stem
        return not is_live(read_lines(journal).lines, path.parent)


def _check_records(piece: bytes) -> None:
    if len(piece) > MAX_PIECE_BYTES:
        raise QueryError(f"a piece of {len(piece)} bytes is too long; send {MAX_PIECE_BYTES} at most")
    *rows, rest = piece.split(b"\n")
    if rest or any(decode_record(row) is None for row in rows):
        raise QueryError("the piece has something else than records of console output; see the format in the docs")
