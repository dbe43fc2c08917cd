"""How a run gets to a server: its journals range by range, then the chunks they name, part by part.

All of it can be stopped anywhere and done again: the server says how far it is, and takes nothing twice.
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
from relive.store.home import Home, JournalName, journals_in
from relive.store.journal import first_line, is_alive, is_live, read_lines
from relive.store.sync.journal_tail import JournalTail, TailRange
from relive.store.sync.server_client import Position, ServerClient

if TYPE_CHECKING:
    from relive.store.sync.pack_shipment import PackShipment

PART_BYTES = 1 << 20  # of a chunk, in one request: values go out between two of them
SIGN_EVERY_S = 10.0  # a run that has nothing to say still shows that it lives
SCAN_BYTES = 8 << 20


class _Shipped:
    """One journal on its way."""

    def __init__(self, path: Path) -> None:
        self.tail = JournalTail(path)
        self.path = path
        self.at: Position | None = None  # how far the server is; None until it was asked
        self.is_done = False
        self.sent_at = 0.0


class RunShipment:
    """Brings a run, or one rank of it, to a server, as far as it is written by now."""

    def __init__(self, home: Home, run: str, remote: ServerClient, *, rank: int | None = None) -> None:
        self.run = run
        self.pause_s = 0.0  # what the server would like us to wait between two rounds
        self._home = home
        self._folder = home.run_folder(run)
        self._chunks = Chunks(home.chunks)
        self._remote = remote
        self._rank = rank
        self._journals: dict[JournalName, _Shipped] = {}
        self._unasked: set[str] = set()  # chunks that were named and not asked for yet
        self._asked: set[str] = set()
        self._wanted: list[str] = []  # chunks that the server lacks
        self._packs: PackShipment | None = None
        self._sent_bytes = 0

    def add_checkpoints(self) -> int:
        """Send the kept checkpoints, too: their manifests, then the packs that hold their pieces; gives how many.

        In this order, so that a collector on the server never meets a pack that nothing names.
        """
        # Here, since a run that is being recorded sends no checkpoints.
        from relive.store.chunks import Packs, list_checkpoint_files
        from relive.store.sync.pack_shipment import PackShipment

        found = list_checkpoint_files(self._home, self.run)
        self._unasked |= found.manifests
        self._packs = PackShipment(Packs(self._home.packs), self._remote)
        self._packs.add(found.packs)
        return found.count

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes + (self._packs.sent_bytes if self._packs else 0)

    def step(self, is_final: Callable[[JournalName, Path], bool]) -> bool:
        """Send a range of each journal and a part of a chunk; says whether there is more to send at once."""
        more = False
        for name, path in journals_in(self._folder):
            if self._rank is None or name.rank == self._rank:
                more |= self._send_range(name, self._journals.setdefault(name, _Shipped(path)), is_final)
        return self._send_part() or more

    @property
    def is_whole(self) -> bool:
        """Are there no journals of other ranks, which others send?"""
        return all(name in self._journals for name, _ in journals_in(self._folder))

    @property
    def is_done(self) -> bool:
        """Is all of it there, for good?"""
        chunks_left = self._unasked or self._wanted or (self._packs and not self._packs.is_done)
        return bool(self._journals) and not chunks_left and all(journal.is_done for journal in self._journals.values())

    # --- journals ---------------------------------------------------------------------------------------------------

    def _send_range(self, name: JournalName, one: _Shipped, is_final: Callable[[JournalName, Path], bool]) -> bool:
        if one.is_done:
            return False
        if one.at is None:
            one.at = self._remote.position(self.run, name)
            self._note_chunks(_read_until(one.path, one.at.lines))
        final = is_final(name, one.path)  # asked before reading: what is written in between must not be missed
        piece = one.tail.read(one.at.slots, one.at.lines, final=final)
        last = final and not piece.more
        if piece.is_empty and not last and time.monotonic() - one.sent_at < max(SIGN_EVERY_S, self.pause_s):
            return False
        self._note_chunks([piece.lines])
        return self._send(name, one, piece, last=last)

    def _send(self, name: JournalName, one: _Shipped, piece: TailRange, *, last: bool) -> bool:
        assert one.at is not None
        answer = self._remote.append(self.run, name, one.at, piece.slots, piece.lines, final=last)
        self.pause_s = answer.pause_s
        one.at, one.sent_at = Position(answer.slots, answer.lines), time.monotonic()
        if not answer.accepted:
            return True
        self._sent_bytes += len(piece.slots) + len(piece.lines)
        one.is_done = last
        return piece.more

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _note_chunks(self, pieces: Iterable[bytes]) -> None:
        found = {name for piece in pieces for name in chunks_named(piece, self._chunks)}
        self._unasked |= found - self._asked

    def _send_part(self) -> bool:
        if self._unasked:
            asked = {name for name in self._unasked if name in self._chunks}  # what isn't here can't be sent
            self._wanted += self._remote.missing_chunks(asked)
            self._asked |= self._unasked
            self._unasked = set()
        if not self._wanted:
            return self._packs is not None and self._packs.step()
        if self._send_chunk_part(self._wanted[-1]):
            self._wanted.pop()
        return bool(self._wanted) or self._packs is not None

    def _send_chunk_part(self, name: str) -> bool:
        """Send some of a chunk's file; says whether the chunk is done with."""
        try:
            fd = os.open(self._chunks.path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # collected meanwhile, so nothing names it any more
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


def chunks_named(lines: bytes, chunks: Chunks) -> set[str]:
    """The chunks that some lines name, and those that the content of their artifacts names."""
    found: set[str] = set()
    for row in lines.split(b"\n"):
        if b'"chunk' not in row:
            continue
        line = msgspec.json.decode(row)
        own = named_chunks(line)
        found |= own
        if line.get("k") == "artifact" and line.get("kind") == "json":
            found |= {name for name in names_in_content(chunks, line.get("chunks", ())) if name in chunks}
    return found


def _read_until(path: Path, end: int) -> Iterable[bytes]:
    """The lines before an offset, some at a time."""
    if not end:
        return
    with path.with_name(path.name + ".lines").open("rb") as file:
        while file.tell() < end and (rows := file.readlines(SCAN_BYTES)):
            yield b"".join(rows)


def has_ended(name: JournalName, path: Path) -> bool:
    """Will nobody write this journal any more? For who sends what others recorded."""
    if name.replay:  # those get their name when they are whole
        return True
    if name.process:
        return not is_alive((first_line(path) or {}).get("pid"), None)
    return not is_live(read_lines(path).lines, path.parent)


def note_sent(home: Home, run: str, url: str) -> None:
    """Remember that all of this run is on that server. A home that can't be written is asked about again."""
    note = _note_of(home, run, url)
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


def is_noted(home: Home, run: str, url: str) -> bool:
    """Was all of it sent, and no journal added since, by a replay for instance?"""
    try:
        return _note_of(home, run, url).stat().st_mtime_ns >= home.run_folder(run).stat().st_mtime_ns
    except OSError:
        return False


def _note_of(home: Home, run: str, url: str) -> Path:
    return home.path / "sent" / digest(url.encode())[:16] / run
