"""The thread that writes moments to disk: what is new into a pack, then the manifest, and last the journal's line."""

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

FORMAT = 1
PIECE_BYTES = 4 << 20
STAY_S = 30.0
Done = Callable[["Written"], None]


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint on disk, and what it took."""

    manifest: str
    size_bytes: int
    new_bytes: int
    took_s: float
    cpu_s: float


class Writer:
    """Writes one moment at a time. While it is at it others are refused: memory is bounded, training never waits."""

    def __init__(self, packs: Packs, chunks: Chunks) -> None:
        # Loaded here, not by the writer's thread: a child that is forked during an import waits for it for ever.
        import xxhash  # noqa: F401
        import zstandard  # noqa: F401

        self._packs = packs
        self._chunks = chunks
        self._known: dict[tuple[str, int], Piece] | None = None
        self._present: set[str] = set()  # the packs that were there when it was last looked
        self._todo: deque[tuple[CapturedState, Done]] = deque()
        self._changed = threading.Condition()
        self._is_at_it = False
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def is_busy(self) -> bool:
        return self._is_at_it

    def restore_speed(self) -> float | None:
        """How quickly checkpoints were seen to come back in this home."""
        return restore_speed(self._packs.folder)

    def begin(self, moment: CapturedState, done: Done) -> None:
        """Write in the background; `done` is called on the writer's thread, and makes the checkpoint exist."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_at_it)
            self._todo.append((moment, done))
            self._is_at_it = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relive-checkpoint", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_at_it)

    def trouble(self) -> Exception | None:
        """What went wrong since it was last asked."""
        error, self._error = self._error, None
        return error

    def _run(self) -> None:
        """Stays awhile after a checkpoint, because starting a thread takes the training as long as a small copy."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._todo, timeout=STAY_S):
                    self._thread = None
                    return
                moment, done = self._todo.popleft()
            try:
                self.write(moment, done)
            except Exception as error:  # noqa: BLE001 - told by the next checkpoint; the user's training must go on
                self._error = error
                self._known = None  # it may count pieces that were not written
            del moment, done
            with self._changed:
                self._is_at_it = False
                self._changed.notify_all()

    def write(self, moment: CapturedState, done: Done) -> None:
        if not moment.is_right():
            return  # it is as if it had not been taken; the next one will be
        begun, cpu = time.perf_counter(), time.thread_time()
        with self._packs.shared():
            known = self._fresh_known()
            with PackWriter(self._packs) as pack:
                numbers = _Pieces(known, pack)
                leaves = [[kind.form(), numbers.all(data)] for kind, data in moment.leaves]
                blobs = [numbers.all(data) for data in moment.blobs]
            manifest = {
                "v": FORMAT, "subjects": _told(moment.subjects), "leaves": leaves, "blobs": blobs,
                "pieces": numbers.listed,
            }  # fmt: skip
            self._present.add(pack.name)
            name = self._chunks.put(msgspec.json.encode(manifest))
            took = time.perf_counter() - begun
            done(Written(name, moment.size_bytes, pack.stored_bytes, took, time.thread_time() - cpu))

    def _fresh_known(self) -> dict[tuple[str, int], Piece]:
        """Pieces that need not be written again; those whose pack was collected meanwhile don't count."""
        present = set(self._packs.names())
        if self._known is None:
            self._known = self._packs.known()
        elif not self._present <= present:
            self._known = {key: piece for key, piece in self._known.items() if piece.pack in present}
        self._present = present
        return self._known


class _Pieces:
    """The pieces of one checkpoint, numbered; what is known already is not written again."""

    def __init__(self, known: dict[tuple[str, int], Piece], pack: PackWriter) -> None:
        self._known = known
        self._pack = pack
        self._numbers: dict[tuple[str, int], int] = {}
        self.listed: list[Piece] = []

    def all(self, data: Any) -> list[int]:
        view = memoryview(data)
        return [self._one(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES)]

    def _one(self, data: memoryview) -> int:
        key = piece_digest(data), len(data)
        number = self._numbers.get(key)
        if number is None:
            piece = self._known.get(key)
            if piece is None:
                piece = self._known[key] = self._pack.add(data, key[0])
            number = self._numbers[key] = len(self.listed)
            self.listed.append(piece)
        return number


def _told(subjects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Subjects with all of their trees: some left theirs to be made here."""
    return {
        name: {**subject, "rest": subject["rest"]() if callable(subject["rest"]) else subject["rest"]}
        for name, subject in subjects.items()
    }
