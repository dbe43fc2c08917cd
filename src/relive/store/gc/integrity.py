"""Checks a home: torn tails, damaged lines, and chunks and checkpoint pieces that are missing or damaged."""

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
    find_note,
    list_kept_checkpoints,
    named_chunks,
)
from relive.store.gc.garbage_plan import preview_garbage
from relive.store.gc.offload import is_stored_intact
from relive.store.gc.repack_plan import pack_sizes
from relive.store.gc.retention import Policy
from relive.store.home import Home, list_journals
from relive.store.journal import is_shipped, parse_run, read_lines, read_slots


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth reporting about a run; `damage` when something that was recorded can't be read."""

    run: str
    text: str
    damage: bool = False


def check_home(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Checks every journal of a home, and the chunks and checkpoints they name; `deep` reads all bytes."""
    chunks, checkpoints = Chunks(home.chunks), _CheckpointChecker(home, deep)
    for run in sorted(home.run_ids()):
        journals, shipped = list(list_journals(home.run_folder(run))), is_shipped(home.run_folder(run))
        if not journals:
            yield Finding(run, "has no journal: it died while it was starting; remove it with `relive rm`")
        for name, path in journals:
            yield from (Finding(run, f"{name.stem}: {text}", bad) for text, bad in _check_journal(path))
            named = set().union(*(named_chunks(line) for line in read_lines(path).lines if _may_name_chunks(line)))
            for chunk in sorted(named):
                yield from _check_chunk(run, chunks, chunk, deep, shipped=shipped)
        yield from checkpoints.check_run(run, shipped=shipped)
    yield from checkpoints.list_offloaded()
    yield from _check_memo(home, chunks, deep)
    if orphans := preview_garbage(home, Policy()).total_bytes:
        yield Finding("home", f"orphans: {orphans} bytes; `relive gc` removes them")


def _check_journal(path: Any) -> Iterator[tuple[str, bool]]:
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


def _may_name_chunks(line: dict[str, Any]) -> bool:
    return line.get("k") in ("log", "artifact", "arg", "item")


def _check_chunk(run: str, chunks: Chunks, name: str, deep: bool, *, shipped: bool = False) -> Iterator[Finding]:
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


def _check_memo(home: Home, chunks: Chunks, deep: bool) -> Iterator[Finding]:
    """Checks memoised calls. Unreadable ones are no damage to the record: they are computed again."""
    if not home.memo.exists():
        return
    try:
        with contextlib.closing(MemoTable(home.memo)) as table:
            rows = table.rows()
    except (Damaged, sqlite3.Error, OSError) as error:
        yield Finding("memo", f"{error}; memoised calls are computed again")
        return
    for row in rows:
        problems = [] if row.is_whole else ["is not what was written"]
        problems += [found.text for name in row.chunks.split() for found in _check_chunk("memo", chunks, name, deep)]
        if problems:
            yield Finding("memo", f"entry {row.key[:12]} of {row.function}: {problems[0]}; it is computed again")


class _CheckpointChecker:
    """Checks the pieces of checkpoints, each once however many checkpoints need it."""

    def __init__(self, home: Home, deep: bool) -> None:
        self._home = home
        self._deep = deep
        self._scanner = ReferenceScanner(home)
        self._packs = Packs(home.packs)
        self._chunks = Chunks(home.chunks)
        self._sizes = pack_sizes(self._packs)
        self._problems: dict[Piece, str | None] = {}
        self._intact: set[OffloadNote] = set()  # offloaded packs that were read and verified

    def check_run(self, run: str, *, shipped: bool) -> Iterator[Finding]:
        """Yields the kept checkpoints of a run that can't be restored."""
        for row in list_kept_checkpoints(self._home.run_folder(run), parse_run(self._home, run)):
            is_here = not shipped or row.manifest in self._chunks
            problem = self._manifest_problem(row.manifest) if is_here else None
            if problem:
                yield Finding(run, f"checkpoint at {row.where}: {problem}", damage=True)

    def list_offloaded(self) -> Iterator[Finding]:
        """Yields how many packs are kept outside the home: not damage, but worth knowing."""
        for url, sizes in self._offloaded_sizes().items():
            yield Finding("home", f"{len(sizes)} packs ({sum(sizes)} bytes) are in {url}; reading brings them back")

    def _offloaded_sizes(self) -> dict[str, list[int]]:
        """Returns the sizes of the packs that are only outside the home, by object store."""
        sizes: dict[str, list[int]] = {}
        for pack in sorted(self._packs.offloaded() - set(self._sizes)):
            with contextlib.suppress(Damaged):  # reported with the checkpoints that need it
                note = find_note(self._packs.folder, pack)
                sizes.setdefault(note.url, []).append(note.size_bytes) if note else None
        return sizes

    def _manifest_problem(self, manifest: str) -> str | None:
        try:
            pieces = self._scanner.manifest_pieces(manifest)
        except (OSError, NotFound, Damaged) as error:
            return str(error)
        return next((problem for piece in pieces if (problem := self._piece_problem(piece))), None)

    def _piece_problem(self, piece: Piece) -> str | None:
        if piece not in self._problems:
            try:
                self._check_piece(piece)
                self._problems[piece] = None
            except (OSError, NotFound, Damaged) as error:
                self._problems[piece] = str(error)
        return self._problems[piece]

    def _check_piece(self, piece: Piece) -> None:
        found = piece if piece.pack in self._sizes else self._packs.find(piece)
        if found.pack not in self._sizes and (note := find_note(self._packs.folder, found.pack)) is not None:
            self._check_offloaded(note)
            return
        if found.offset + found.stored_bytes > self._sizes.get(found.pack, 0):
            raise Damaged(f"pack {found.pack} ends early; restore an earlier checkpoint")
        if self._deep:
            self._packs.read(found)

    def _check_offloaded(self, note: OffloadNote) -> None:
        if not self._deep or note in self._intact:
            return
        if not is_stored_intact(note):
            raise Damaged(f"{note.name} in {note.url} is damaged; restore an earlier checkpoint")
        self._intact.add(note)
