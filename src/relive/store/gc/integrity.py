"""Checks a home: journals, and chunks and checkpoint pieces that are missing or damaged, beside its other files."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

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
from relive.store.gc.file_integrity import Finding, check_files
from relive.store.gc.garbage_plan import preview_garbage
from relive.store.gc.offload import is_stored_intact
from relive.store.gc.repack_plan import pack_sizes
from relive.store.gc.retention import Policy
from relive.store.home import Home, list_journals
from relive.store.journal import (
    ParsedJournal,
    describe_losses,
    is_shipped,
    line_schema,
    parse_run,
    read_lines,
    read_slots,
)
from relive.store.registry import Registry


def check_home(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Checks every journal of a home, and the chunks and checkpoints they name; `deep` reads all bytes."""
    chunks, checkpoints = Chunks(home.chunks), _CheckpointChecker(home, deep)
    for run in sorted(home.run_ids()):
        journals, shipped = list(list_journals(home.run_folder(run))), is_shipped(home.run_folder(run))
        if not journals:
            yield Finding(run, "has no journal: it died while it was starting; remove it with `relive rm`")
        for name, path in journals:
            yield from (Finding(run, f"{name.stem}: {text}", bad) for text, bad in _check_journal(path))
            named = set().union(*(named_chunks(line) for line in _lines_with_chunks(path)))
            for chunk in sorted(named):
                yield from _check_chunk(run, chunks, chunk, deep, shipped=shipped)
        try:
            yield from (Finding(run, text, damage=True) for text in _lost_by_damage(parse_run(home, run)))
        except Exception as error:  # noqa: BLE001 - whatever is in it, it is reported and the others are checked
            problem = f"it can't be parsed and is left out of tables ({type(error).__name__}: {error})"
            yield Finding(run, f"{problem}; remove it with `relive rm`", damage=True)
            continue
        yield from checkpoints.check_run(run, shipped=shipped)
    yield from checkpoints.list_offloaded()
    yield from check_files(home, deep=deep)
    with contextlib.suppress(Damaged):  # reported with the registry
        for chunk in sorted(Registry(home).promoted_chunks()):
            yield from _check_chunk("registry", chunks, chunk, deep)
    yield from _check_memo(home, chunks, deep)
    if orphans := _orphaned_bytes(home):
        yield Finding("home", f"orphans: {orphans} bytes; `relive gc` removes them")


def _check_journal(path: Path) -> Iterator[tuple[str, bool]]:
    read, slots = read_lines(path), read_slots(path)
    yield from ((f"incomplete: {text}", False) for text in describe_losses(read.lines))
    if read.torn_bytes:
        yield f"a torn tail of {read.torn_bytes} bytes is ignored", False
    if read.damaged:
        yield f"{read.damaged} lines can't be read, or are not as they were written", True
    if read.newer:
        yield f"{read.newer} lines were written by a newer relive; upgrade to read them", True
    if slots.torn:
        yield f"{slots.torn} half-written slots are ignored", False
    if slots.holes:
        yield f"{slots.holes} slots were reserved but never written; they are ignored", False


def _lost_by_damage(journals: list[ParsedJournal]) -> Iterator[str]:
    """Yields what checksums show to be damaged, and how many values are left."""
    for journal in journals:
        yield from journal.damage
        if journal.damage:
            counts = Counter(journal.names[number] for number in journal.name.tolist())
            left = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items())) or "none"
            yield f"{journal.journal.stem}: values that are still there: {left}; copy both files back from a backup"


def _lines_with_chunks(path: Path) -> list[dict[str, Any]]:
    kinds = (line_schema.ValueLogged, line_schema.ArtifactKept, line_schema.Arg, line_schema.LoopItem)
    return [msgspec.to_builtins(line) for line in read_lines(path).lines if isinstance(line, kinds)]


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
            rows, inputs = table.rows(), table.all_inputs()
    except (Damaged, sqlite3.Error, OSError) as error:
        yield Finding("memo", f"{error}; memoised calls are computed again")
        return
    for row in rows:
        problems = [] if row.is_whole else ["is not what was written"]
        problems += [
            found.text for name in str(row.chunks).split() for found in _check_chunk("memo", chunks, name, deep)
        ]
        if problems:
            yield Finding("memo", f"entry {str(row.key)[:12]} of {row.function}: {problems[0]}; it is computed again")
    for damaged in (one for one in inputs if not one.is_whole):
        yield Finding(
            "memo", f"inputs of entry {str(damaged.entry)[:12]} are not what was written; it is computed again"
        )


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


def _orphaned_bytes(home: Home) -> int:
    try:
        return preview_garbage(home, Policy()).total_bytes
    except Damaged:  # what refers to chunks can't be read, which is reported; nothing counts as an orphan then
        return 0
