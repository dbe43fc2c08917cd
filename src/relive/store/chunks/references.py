"""What the journals of a home name: chunks, and pieces of checkpoints; and where that can't be told for sure."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import Damaged, NotFound
from relive.store.chunks.chunk_store import Chunks
from relive.store.chunks.memo_table import memo_chunks
from relive.store.chunks.packs import Packs, Piece
from relive.store.chunks.tombstones import Told, dropped
from relive.store.home import Home, JournalName
from relive.store.journal import JOURNAL_FORMAT, Line, is_shipped

MANIFEST_FORMAT = 1
# Whatever is written like the name of a chunk counts as one, wherever it stands: too many names cost a little space.
_NAME = re.compile(rb'"([0-9a-f]{64})"')
Where = tuple[str, str, int]  # of a checkpoint: run, stem of the journal, sequence number of its line
_TAGS = ("$text", "$blob", "$array", "$image")  # of values that may lie in a chunk
_REMEDY = "restore it, or remove the run with `relive rm`"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that may name chunks and packs, and can't be read."""

    run: str
    text: str


@dataclass(slots=True)
class References:
    """What is still needed. While there are doubts, anything else might be, too."""

    chunks: set[str] = field(default_factory=set)
    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)  # of kept checkpoints, where they are now
    doubts: list[Doubt] = field(default_factory=list)

    @contextlib.contextmanager
    def doubting(self, run: str, *, elsewhere: bool = False) -> Iterator[None]:
        """What can't be read in here becomes a doubt; what is missing doesn't, if it may be `elsewhere`."""
        try:
            yield
        except (OSError, NotFound, Damaged) as error:
            if not (elsewhere and isinstance(error, NotFound)):
                self.doubts.append(Doubt(run, str(error)))


class ReferenceScanner:
    """Reads what a home names. Looking again is quick: journals only grow, and chunks never change."""

    def __init__(self, home: Home, also: Callable[[], Iterable[str]] = tuple) -> None:
        self._home = home
        self._chunks = Chunks(home.chunks)
        self._packs = Packs(home.packs)
        self._present: set[str] = set()  # chunks that were seen to be there
        self._also = also
        self._journals: dict[Path, tuple[int, _Journal]] = {}
        self._contents: dict[tuple[str, ...], frozenset[str]] = {}
        self._manifests: dict[str, tuple[Piece, ...]] = {}

    def look(self, without: Collection[Where] = ()) -> References:
        """What is named now, by runs, remembered calls and who else keeps chunks; `without` leaves out checkpoints."""
        named, packs = References(set(self._also())), {*self._packs.names(), *self._packs.spooled()}
        with named.doubting("memo"):
            named.chunks |= memo_chunks(self._home.memo)
        for run in sorted(self._home.run_ids()):
            with named.doubting(run):
                for stem in _stems(self._home.run_folder(run)):
                    found = self._journal(self._home.run_folder(run) / f"{stem}.lines")
                    if found is not None:
                        self._add_chunks(named, run, stem, found)
                        kept = self._kept(found, run, stem, without)
                        self._add_checkpoints(named, run, kept, packs)
        return named

    def _add_chunks(self, named: References, run: str, stem: str, found: _Journal) -> None:
        if found.unreadable:
            named.doubts.append(Doubt(run, f"{stem}.lines: {found.unreadable} lines can't be read; {_REMEDY}"))
        named.chunks |= found.chunks
        # A name that leads nowhere may be a damaged one: then who knows which chunk was meant.
        shipped = is_shipped(self._home.run_folder(run))
        for name in found.certain - self._present:
            with named.doubting(run, elsewhere=shipped):
                if name not in self._chunks:
                    raise NotFound(f"{stem}.lines names chunk {name[:12]}, which is not there; {_REMEDY}")
                self._present.add(name)
        for parts in found.nested:
            with named.doubting(run, elsewhere=shipped):
                named.chunks |= self._content(parts)

    def _kept(self, found: _Journal, run: str, stem: str, without: Collection[Where]) -> set[str]:
        journal = JournalName.parse(stem)
        gone = dropped(self._home.run_folder(run), journal) if journal else frozenset()
        return {told[1] for told in found.checkpoints if told not in gone and (run, stem, told[0]) not in without}

    def _add_checkpoints(self, named: References, run: str, manifests: Iterable[str], packs: set[str]) -> None:
        shipped = is_shipped(self._home.run_folder(run))
        for name in manifests:
            named.chunks.add(name)
            with named.doubting(run, elsewhere=shipped):
                pieces = self.manifest_pieces(name)
                named.pieces[name] = tuple(p if p.pack in packs else self._packs.find(p) for p in pieces)

    def _journal(self, path: Path) -> _Journal | None:
        """What a file of lines names; None when its run is being removed just now."""
        try:
            size = path.stat().st_size
            known = self._journals.get(path)
            if known is None or known[0] != size:
                self._journals[path] = known = size, _read_journal(path.read_bytes())
        except FileNotFoundError:
            if path.parent.exists():
                raise Damaged(f"{path.name} is missing; {_REMEDY}") from None
            return None
        return known[1]

    def _content(self, parts: tuple[str, ...]) -> frozenset[str]:
        if parts not in self._contents:
            self._contents[parts] = names_in_content(self._chunks, parts)
        return self._contents[parts]

    def manifest_pieces(self, name: str) -> tuple[Piece, ...]:
        """The pieces that a checkpoint needs, where they were when it was taken."""
        if name not in self._manifests:
            self._manifests[name] = _read_manifest(name, self._chunks.get(name))
        return self._manifests[name]


def _stems(folder: Path) -> list[str]:
    try:
        names = [name.rpartition(".") for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):  # removed just now, or no run at all
        return []
    return sorted({stem for stem, _, suffix in names if suffix in ("lines", "slots")})


def names_in_content(chunks: Chunks, parts: Iterable[str]) -> frozenset[str]:
    """Whatever looks like the name of a chunk in the content of some chunks, one after the other."""
    return _names_in(b"".join(chunks.get(name) for name in parts))


def _names_in(raw: bytes) -> frozenset[str]:
    return frozenset(name.decode() for name in _NAME.findall(raw))


# --- journals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Journal:
    """What one file of lines names."""

    chunks: frozenset[str]  # whatever looks like the name of one
    certain: frozenset[str]  # what is the name of one, whatever it looks like
    checkpoints: tuple[Told, ...]
    nested: tuple[tuple[str, ...], ...]  # the chunks of artifacts whose content names further chunks
    unreadable: int


class _Line(msgspec.Struct):
    """The part of a line that tells how its names are meant."""

    v: int = 0
    k: Any = None
    seq: int = 0
    manifest: str | None = None
    kind: Any = None
    chunks: list[str] = []


_decode_line = msgspec.json.Decoder(_Line).decode


def _read_journal(raw: bytes) -> _Journal:
    """Every whole line counts; the torn tail never did."""
    checkpoints: list[Told] = []
    nested: list[tuple[str, ...]] = []
    others: list[bytes] = []
    certain: set[str] = set()
    unreadable = 0
    for row in raw.split(b"\n")[:-1]:
        line = _read_line(row) if row else _Line()
        if line is None:
            unreadable += 1
        elif line.manifest is not None:
            checkpoints.append((line.seq, line.manifest))
            continue
        elif _is_nested(line):
            nested.append(tuple(line.chunks))
        if line is not None and b'"chunk' in row:
            certain |= named_chunks(msgspec.json.decode(row))
        others.append(row)
    return _Journal(_names_in(b"\n".join(others)), frozenset(certain), tuple(checkpoints), tuple(nested), unreadable)


def _read_line(row: bytes) -> _Line | None:
    """A line, if it can be understood; one that lacks the names it should have can't."""
    try:
        line = _decode_line(row)
    except msgspec.DecodeError:
        return None
    lacks_names = (line.k == "checkpoint" and line.manifest is None) or (_is_nested(line) and not line.chunks)
    return None if lacks_names or line.v > JOURNAL_FORMAT else line


def _is_nested(line: _Line) -> bool:
    return bool(line.k == "artifact" and line.kind == "json")


def named_chunks(line: Line) -> set[str]:
    """The chunks that a line names: the pieces of an artifact, and big values."""
    if line.get("k") == "artifact":
        return {name for part in (line, *line.get("files", ())) for name in part.get("chunks", ())}
    return _in_values(list(line.values()))


def _in_values(form: Any) -> set[str]:
    """Only tagged forms count: what the user calls `chunk` is the user's."""
    if isinstance(form, dict):
        inner = [form[tag] for tag in _TAGS if tag in form]
        own = {found["chunk"] for found in inner if isinstance(found, dict) and isinstance(found.get("chunk"), str)}
        return own.union(*map(_in_values, form.values()))
    return set().union(*map(_in_values, form)) if isinstance(form, list) else set()


# --- manifests --------------------------------------------------------------------------------------------------------


class _ManifestReferences(msgspec.Struct):
    v: int
    pieces: tuple[Piece, ...]


_decode_manifest = msgspec.json.Decoder(_ManifestReferences).decode


def _read_manifest(name: str, content: bytes) -> tuple[Piece, ...]:
    try:
        manifest = _decode_manifest(content)
    except msgspec.DecodeError as error:
        raise Damaged(f"manifest {name[:12]} can't be read ({error}); {_REMEDY}") from error
    if manifest.v > MANIFEST_FORMAT:
        raise Damaged(f"manifest {name[:12]} was written by a newer relive; upgrade to read it")
    return manifest.pieces
