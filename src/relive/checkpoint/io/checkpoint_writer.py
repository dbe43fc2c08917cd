"""The thread that writes captured state to disk: new pieces to a pack, then the manifest, last the journal line."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from relive.checkpoint.io.capture import CapturedState
from relive.store.chunks import Chunks, Packs, PackWriter, Piece, piece_digest, restore_speed

FORMAT = 3
PIECE_BYTES = 4 << 20
IDLE_S = 30.0  # after which an idle thread ends


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint on disk, and the time that writing it took."""

    manifest: str
    size_bytes: int
    new_bytes: int
    took_s: float
    cpu_s: float


OnWritten = Callable[[WrittenCheckpoint], None]


class CheckpointWriter:
    """Writes one checkpoint at a time in the background; while it is busy none is captured, so memory is bounded."""

    def __init__(self, packs: Packs, chunks: Chunks) -> None:
        # Imported here, not by the writer's thread: a child that is forked during an import would wait for it forever.
        import xxhash  # noqa: F401
        import zstandard  # noqa: F401

        self._packs = packs
        self._chunks = chunks
        self._known: dict[tuple[str, int], Piece] | None = None
        self._start = _StartDigests()
        self._packs_seen: set[str] = set()  # the packs that existed at the last check
        self._queue: deque[tuple[CapturedState, OnWritten]] = deque()
        self._changed = threading.Condition()
        self._is_busy = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def home(self) -> str:
        return str(self._chunks.folder.parent)

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def restore_speed(self) -> float | None:
        """Returns the measured speed of restores in this home, in bytes per second; None if there were none."""
        return restore_speed(self._packs.folder)

    def begin(self, captured: CapturedState, on_written: OnWritten) -> None:
        """Writes in the background; `on_written` is called on the writer's thread, and commits the checkpoint."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy)
            self._queue.append((captured, on_written))
            self._is_busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relive-checkpoint", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy)

    def take_error(self) -> Exception | None:
        """Returns the error since the last call, if any."""
        error, self._error = self._error, None
        return error

    def _run(self) -> None:
        """The thread stays alive for a while: starting one takes the training as long as a small copy."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._queue, timeout=IDLE_S):
                    self._thread = None
                    return
                captured, on_written = self._queue.popleft()
            try:
                self.write(captured, on_written)
            except Exception as error:  # noqa: BLE001 - raised by the next checkpoint; the user's training must go on
                self._error = error
                self._known = None  # it may contain pieces that were not written
            del captured, on_written
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def write(self, captured: CapturedState, on_written: OnWritten) -> None:
        from xxhash import xxh3_64_intdigest

        begun, cpu = time.perf_counter(), time.thread_time()
        self._start.begin(captured.start)
        for way, leaf in captured.copied:
            captured.changes.buffers[way].digest = xxh3_64_intdigest(captured.leaves[leaf])
        with self._packs.shared_lock():
            known = self._existing_pieces()
            with PackWriter(self._packs) as pack:
                pieces = _PieceNumbers(known, pack)
                graph = [pieces.add(captured.start, self._start), pieces.add(captured.changes.encode())]
                leaves = [pieces.add(data, self._start) for data in captured.leaves]
            manifest = {"v": FORMAT, "graph": graph, "memory": leaves, "pieces": pieces.listed}
            self._packs_seen.add(pack.name)
            name = self._chunks.put(msgspec.json.encode(manifest))
            took = time.perf_counter() - begun
            on_written(WrittenCheckpoint(name, captured.size_bytes, pack.stored_bytes, took, time.thread_time() - cpu))

    def _existing_pieces(self) -> dict[tuple[str, int], Piece]:
        """Returns the pieces that exist on disk, without those whose pack was garbage-collected in the meantime."""
        present = set(self._packs.names())
        if self._known is None:
            self._known = self._packs.pieces_by_digest()
        elif not self._packs_seen <= present:
            self._known = {key: piece for key, piece in self._known.items() if piece.pack in present}
        self._packs_seen = present
        return self._known


class _StartDigests:
    """The digests of what all checkpoints of a loop hold: the state when it began, which is hashed once."""

    def __init__(self) -> None:
        self._start: bytes = b""
        self._of: dict[int, tuple[bytes, list[str]]] = {}

    def begin(self, start: bytes) -> None:
        """Forgets what belongs to another loop."""
        if start is not self._start:
            self._start, self._of = start, {}

    def of(self, data: Any, parts: list[memoryview]) -> list[str]:
        if type(data) is not bytes:  # a view of the arena, which is filled anew
            return [piece_digest(part) for part in parts]
        if id(data) not in self._of:
            self._of[id(data)] = data, [piece_digest(part) for part in parts]  # kept alive, so that ids are unique
        return self._of[id(data)][1]


class _PieceNumbers:
    """Numbers the pieces of one checkpoint, and writes those that don't exist on disk yet."""

    def __init__(self, known: dict[tuple[str, int], Piece], pack: PackWriter) -> None:
        self._known = known
        self._pack = pack
        self._numbers: dict[tuple[str, int], int] = {}
        self.listed: list[Piece] = []

    def add(self, data: Any, known: _StartDigests | None = None) -> list[int]:
        """Splits data into pieces; returns their numbers. `known` has the digests of what every checkpoint holds."""
        view = memoryview(data)
        parts = [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
        digests = known.of(data, parts) if known is not None else map(piece_digest, parts)
        return [self._number_of(part, digest) for part, digest in zip(parts, digests, strict=True)]

    def _number_of(self, data: memoryview, digest: str) -> int:
        key = digest, len(data)
        number = self._numbers.get(key)
        if number is None:
            piece = self._known.get(key)
            if piece is None:
                piece = self._known[key] = self._pack.add(data, key[0])
            number = self._numbers[key] = len(self.listed)
            self.listed.append(piece)
        return number
