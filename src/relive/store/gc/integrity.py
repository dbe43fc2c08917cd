"""What is wrong in a home: torn tails, damaged lines, chunks and pieces that are missing or not what they should be."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relive.errors import Damaged, NotFound
from relive.store.chunks import (
    Chunks,
    MemoTable,
    OffloadNote,
    Packs,
    Piece,
    ReferenceScanner,
    kept_checkpoints,
    named_chunks,
    note_of,
)
from relive.store.gc.garbage import preview_garbage
from relive.store.gc.offload import is_whole
from relive.store.gc.repack_plan import pack_sizes
from relive.store.gc.retention import Policy
from relive.store.home import Home, journals_in
from relive.store.journal import is_shipped, parse_run, read_lines, read_slots


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth telling about a run; `damage` when something that was recorded can't be read."""

    run: str
    text: str
    damage: bool = False


def examine(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Look at every journal of a home, and at the chunks and checkpoints they name."""
    chunks, checkpoints = Chunks(home.chunks), _Checkpoints(home, deep)
    for run in sorted(home.run_ids()):
        journals, shipped = list(journals_in(home.run_folder(run))), is_shipped(home.run_folder(run))
        if not journals:
            yield Finding(run, "has no journal: it died while it was beginning; remove it with `relive rm`")
        for name, path in journals:
            yield from (Finding(run, f"{name.stem}: {text}", bad) for text, bad in _journal(path))
            named = set().union(*(named_chunks(line) for line in read_lines(path).lines if _may_name(line)))
            for chunk in sorted(named):
                yield from _chunk(run, chunks, chunk, deep, shipped=shipped)
        yield from checkpoints.examine(run, shipped=shipped)
    yield from checkpoints.outside()
    yield from _memo(home, chunks, deep)
    if orphans := preview_garbage(home, Policy()).total_bytes:
        yield Finding("home", f"orphans: {orphans} bytes; `relive gc` removes them")


def _journal(path: Any) -> Iterator[tuple[str, bool]]:
    read, slots = read_lines(path), read_slots(path)
    yield from ((problem, True) for problem in slots.problems)
    if read.torn_bytes:
        yield f"a torn tail of {read.torn_bytes} bytes is ignored", False
    if read.damaged:
        yield f"{read.damaged} lines can't be read", True
    if read.newer:
        yield f"{read.newer} lines were written by a newer relive; upgrade to read them", True
    if slots.torn:
        yield f"{slots.torn} half-written slots are ignored", False
    if slots.holes:
        yield f"{slots.holes} slots were reserved but never written; they are ignored", False


def _may_name(line: dict[str, Any]) -> bool:
    return line.get("k") in ("log", "artifact", "arg", "item")


def _chunk(run: str, chunks: Chunks, name: str, deep: bool, *, shipped: bool = False) -> Iterator[Finding]:
    try:
        if shipped and name not in chunks:
            text = f"chunk {name[:12]} has not arrived; `relive sync` where it was recorded sends it"
            yield Finding(run, text)
        elif deep:
            chunks.get(name)
        elif name not in chunks:
            raise NotFound(f"chunk {name[:12]} is missing; copy it back from another home")
    except (NotFound, Damaged) as error:
        yield Finding(run, str(error), damage=True)


def _memo(home: Home, chunks: Chunks, deep: bool) -> Iterator[Finding]:
    """Remembered calls that can't be read are no damage to the record: they are computed again."""
    if not home.memo.exists():
        return
    try:
        with contextlib.closing(MemoTable(home.memo)) as memos:
            rows = memos.rows()
    except (Damaged, sqlite3.Error, OSError) as error:
        yield Finding("memo", f"{error}; remembered calls are computed again")
        return
    for row in rows:
        wrong = [] if row.is_whole else ["is not what was written"]
        wrong += [found.text for name in row.chunks.split() for found in _chunk("memo", chunks, name, deep)]
        if wrong:
            yield Finding("memo", f"entry {row.key[:12]} of {row.function}: {wrong[0]}; it is computed again")


class _Checkpoints:
    """Looks after the pieces of checkpoints, each once however many checkpoints need it."""

    def __init__(self, home: Home, deep: bool) -> None:
        self._home = home
        self._deep = deep
        self._names = ReferenceScanner(home)
        self._packs = Packs(home.packs)
        self._chunks = Chunks(home.chunks)
        self._sizes = pack_sizes(self._packs)
        self._seen: dict[Piece, str | None] = {}  # what is wrong with it
        self._whole: set[OffloadNote] = set()  # kept outside, and read

    def examine(self, run: str, *, shipped: bool) -> Iterator[Finding]:
        for row in kept_checkpoints(self._home.run_folder(run), parse_run(self._home, run)):
            is_here = not shipped or row.manifest in self._chunks
            problem = self._problem(row.manifest) if is_here else None
            if problem:
                yield Finding(run, f"checkpoint at {row.where}: {problem}", damage=True)

    def outside(self) -> Iterator[Finding]:
        """What is kept outside the home is no loss, but worth knowing."""
        for url, sizes in self._sizes_by_place().items():
            yield Finding("home", f"{len(sizes)} packs ({sum(sizes)} bytes) are in {url}; reading brings them back")

    def _sizes_by_place(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for pack in sorted(self._packs.spooled() - set(self._sizes)):
            with contextlib.suppress(Damaged):  # told with the checkpoints that need it
                note = note_of(self._packs.folder, pack)
                found.setdefault(note.url, []).append(note.size_bytes) if note else None
        return found

    def _problem(self, manifest: str) -> str | None:
        try:
            pieces = self._names.manifest_pieces(manifest)
        except (OSError, NotFound, Damaged) as error:
            return str(error)
        return next((problem for piece in pieces if (problem := self._wrong_with(piece))), None)

    def _wrong_with(self, piece: Piece) -> str | None:
        if piece not in self._seen:
            try:
                self._check(piece)
                self._seen[piece] = None
            except (OSError, NotFound, Damaged) as error:
                self._seen[piece] = str(error)
        return self._seen[piece]

    def _check(self, piece: Piece) -> None:
        found = piece if piece.pack in self._sizes else self._packs.find(piece)
        if found.pack not in self._sizes and (note := note_of(self._packs.folder, found.pack)) is not None:
            self._check_outside(note)
            return
        if found.offset + found.stored_bytes > self._sizes.get(found.pack, 0):
            raise Damaged(f"pack {found.pack} ends early; restore an earlier checkpoint")
        if self._deep:
            self._packs.read(found)

    def _check_outside(self, note: OffloadNote) -> None:
        if not self._deep or note in self._whole:
            return
        if not is_whole(note):
            raise Damaged(f"{note.name} in {note.url} is damaged; restore an earlier checkpoint")
        self._whole.add(note)
