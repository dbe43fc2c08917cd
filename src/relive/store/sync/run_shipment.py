"""Sends a run to a server: its journals range by range, then the chunks they name, part by part.

It may be stopped anywhere and repeated: the server says how much it has, and stores nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from relive.hashing import digest
from relive.store.chunks import Chunks, named_chunks, names_in_content
from relive.store.console import ConsoleShipment
from relive.store.home import Home, JournalName, list_journals
from relive.store.journal import first_line, is_live, is_process_alive, line_schema, read_lines
from relive.store.sync.journal_tail import JournalTail, TailRange
from relive.store.sync.server_client import Position, ServerClient

if TYPE_CHECKING:
    from relive.store.sync.pack_shipment import PackShipment

PART_BYTES = 1 << 20  # of a chunk, in one request: values are sent between two requests
HEARTBEAT_S = 10.0  # a run without new values still sends an empty range
SCAN_BYTES = 8 << 20


class _JournalProgress:
    """How far one journal is sent."""

    def __init__(self, path: Path) -> None:
        self.tail = JournalTail(path)
        self.path = path
        self.at: Position | None = None  # how much the server has; None until it was asked
        self.is_done = False
        self.sent_at = 0.0


class RunShipment:
    """Sends a run, or one rank of it, to a server, as far as it is written by now."""

    def __init__(self, home: Home, run: str, remote: ServerClient, *, rank: int | None = None) -> None:
        self.run = run
        self.pause_s = 0.0  # how long the server asks us to wait between two steps
        self._home = home
        self._folder = home.run_folder(run)
        self._chunks = Chunks(home.chunks)
        self._remote = remote
        self._rank = rank
        self._journals: dict[JournalName, _JournalProgress] = {}
        self._unchecked: set[str] = set()  # named chunks that the server was not asked about yet
        self._checked: set[str] = set()
        self._missing: list[str] = []  # chunks that the server lacks
        self._packs: PackShipment | None = None
        self._console = ConsoleShipment(self._folder, run, remote, rank=rank)
        self._sent_bytes = 0

    def add_checkpoints(self) -> int:
        """Adds the kept checkpoints: their manifests, then the packs that hold their pieces; returns how many.

        In this order, a garbage collection on the server never finds a pack that nothing names.
        """
        # Imported here, since a run that is being recorded sends no checkpoints.
        from relive.store.chunks import Packs, list_checkpoint_files
        from relive.store.sync.pack_shipment import PackShipment

        found = list_checkpoint_files(self._home, self.run)
        self._unchecked |= found.manifests
        self._packs = PackShipment(Packs(self._home.packs), self._remote)
        self._packs.add(found.packs)
        return found.count

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes + self._console.sent_bytes + (self._packs.sent_bytes if self._packs else 0)

    def step(self, is_final: Callable[[JournalName, Path], bool]) -> bool:
        """Sends a range of each journal and a part of a chunk; returns whether more is ready to be sent."""
        journals = [
            (name, path) for name, path in list_journals(self._folder) if self._rank is None or name.rank == self._rank
        ]
        # Before the end of the journals: once that is there, the server keeps the console as it is.
        was_known = self._is_known
        more = was_known and self._send_console(journals, is_final)
        for name, path in journals:
            more |= self._send_range(name, self._journals.setdefault(name, _JournalProgress(path)), is_final)
        return self._send_part() or more or (not was_known and self._is_known)

    @property
    def _is_known(self) -> bool:
        """Whether the server has something of the run."""
        return any(one.at is not None and (one.at.slots or one.at.lines) for one in self._journals.values())

    def _send_console(
        self, journals: list[tuple[JournalName, Path]], is_final: Callable[[JournalName, Path], bool]
    ) -> bool:
        """Sends console output; all that is left of it when a journal of the run's own processes is complete."""
        final = any(is_final(name, path) for name, path in journals if not name.process and not name.replay)
        more = self._console.step(final=final)
        while more and final:
            more = self._console.step(final=True)
        return more

    @property
    def is_whole(self) -> bool:
        """Whether this sends all journals of the run: there are none of other ranks."""
        return all(name in self._journals for name, _ in list_journals(self._folder))

    @property
    def is_done(self) -> bool:
        """Whether the server has all of the run, and nothing more will be written."""
        chunks_left = self._unchecked or self._missing or (self._packs and not self._packs.is_done)
        return bool(self._journals) and not chunks_left and all(journal.is_done for journal in self._journals.values())

    # --- journals ---------------------------------------------------------------------------------------------------

    def _send_range(
        self, name: JournalName, progress: _JournalProgress, is_final: Callable[[JournalName, Path], bool]
    ) -> bool:
        if progress.is_done:
            return False
        if progress.at is None:
            progress.at = self._remote.position(self.run, name)
            self._add_chunks(_read_until(progress.path, progress.at.lines))
        final = is_final(name, progress.path)  # checked before reading: what is written in between must not be missed
        piece = progress.tail.read(progress.at.slots, progress.at.lines, final=final)
        last = final and not piece.more
        if piece.is_empty and not last and time.monotonic() - progress.sent_at < max(HEARTBEAT_S, self.pause_s):
            return False
        self._add_chunks([piece.lines])
        return self._send(name, progress, piece, last=last)

    def _send(self, name: JournalName, progress: _JournalProgress, piece: TailRange, *, last: bool) -> bool:
        assert progress.at is not None
        answer = self._remote.append(self.run, name, progress.at, piece.slots, piece.lines, final=last)
        self.pause_s = answer.pause_s
        progress.at, progress.sent_at = Position(answer.slots, answer.lines), time.monotonic()
        if not answer.accepted:
            return True
        self._sent_bytes += len(piece.slots) + len(piece.lines)
        progress.is_done = last
        return piece.more

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _add_chunks(self, pieces: Iterable[bytes]) -> None:
        found = {name for piece in pieces for name in chunks_named_by(piece, self._chunks)}
        self._unchecked |= found - self._checked

    def _send_part(self) -> bool:
        if self._unchecked:
            here = {name for name in self._unchecked if name in self._chunks}  # others can't be sent
            self._missing += self._remote.missing_chunks(here)
            self._checked |= self._unchecked
            self._unchecked = set()
        if not self._missing:
            return self._packs is not None and self._packs.step()
        if self._send_chunk_part(self._missing[-1]):
            self._missing.pop()
        return bool(self._missing) or self._packs is not None

    def _send_chunk_part(self, name: str) -> bool:
        """Sends a part of a chunk's file; returns whether nothing of the chunk is left to send."""
        try:
            fd = os.open(self._chunks.path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed meanwhile, so nothing names it any more
            return True
        try:
            size, at = os.fstat(fd).st_size, self._remote.chunk_position(name)
            while at is not None:
                part = os.pread(fd, PART_BYTES, at)
                at = self._remote.put_chunk(name, at, size, part)
                self._sent_bytes += len(part)
                if size > PART_BYTES:
                    return at is None
            return True
        finally:
            os.close(fd)


def chunks_named_by(lines: bytes, chunks: Chunks) -> set[str]:
    """Returns the chunks that some lines name, and those that the content of their artifacts names."""
    found: set[str] = set()
    for row in lines.split(b"\n"):
        if b'"chunk' not in row:
            continue
        line = msgspec.json.decode(row)
        found |= named_chunks(line)
        if line.get("k") == "artifact" and line.get("kind") == "json":
            found |= {name for name in names_in_content(chunks, line.get("chunks", ())) if name in chunks}
    return found


def _read_until(path: Path, end: int) -> Iterable[bytes]:
    """Yields the lines before an offset, several at a time."""
    if not end:
        return
    with path.with_name(path.name + ".lines").open("rb") as file:
        while file.tell() < end and (rows := file.readlines(SCAN_BYTES)):
            yield b"".join(rows)


def has_ended(name: JournalName, path: Path) -> bool:
    """Whether a journal that another process recorded will not be written any more."""
    if name.replay:  # a replay's journal gets its name when it is complete
        return True
    if name.process:
        header = first_line(path)
        return not is_process_alive(header.pid if isinstance(header, line_schema.ChildStarted) else None, None)
    return not is_live(read_lines(path).lines, path.parent)


def record_sent(home: Home, run: str, url: str) -> None:
    """Records that all of this run is on that server; without effect in a read-only home, which is checked again."""
    marker = _sent_marker(home, run, url)
    with contextlib.suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def is_recorded_as_sent(home: Home, run: str, url: str) -> bool:
    """Whether all of this run is recorded as sent, and no journal was added since, by a replay for instance."""
    try:
        return _sent_marker(home, run, url).stat().st_mtime_ns >= home.run_folder(run).stat().st_mtime_ns
    except OSError:
        return False


def _sent_marker(home: Home, run: str, url: str) -> Path:
    return home.path / "sent" / digest(url.encode())[:16] / run
