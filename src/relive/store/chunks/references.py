"""What a home refers to: the chunks and checkpoint pieces that journals name, and what could not be read for sure."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import Damaged, NotFound
from relive.store.chunks.chunk_store import Chunks
from relive.store.chunks.memo_table import memo_chunks
from relive.store.chunks.packs import Packs, Piece
from relive.store.chunks.tombstones import SeqAndManifest, read_dropped
from relive.store.home import Home, JournalName
from relive.store.journal import is_shipped, line_schema

MANIFEST_FORMAT = 3
# Any quoted text that looks like the name of a chunk counts as one: a false match only costs a little space.
_CHUNK_NAME = re.compile(rb'"([0-9a-f]{64})"')
CheckpointKey = tuple[str, str, int]  # the run, the stem of the journal, and the sequence number of the line
_VALUE_TAGS = ("$text", "$blob", "$array", "$image")  # of values that may be stored in a chunk
_REMEDY = "restore it, or remove the run with `relive rm`"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that can't be read and may name chunks and packs."""

    run: str
    text: str


@dataclass(slots=True)
class References:
    """What is still needed. As long as there are doubts, anything else might be needed as well."""

    chunks: set[str] = field(default_factory=set)
    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)  # by manifest, where they are now
    doubts: list[Doubt] = field(default_factory=list)

    @contextlib.contextmanager
    def recording_doubts(self, run: str, *, may_be_elsewhere: bool = False) -> Iterator[None]:
        """Turns read errors into doubts; what is missing is no doubt if it may be in another home."""
        try:
            yield
        except (OSError, NotFound, Damaged) as error:
            if not (may_be_elsewhere and isinstance(error, NotFound)):
                self.doubts.append(Doubt(run, str(error)))


class ReferenceScanner:
    """Scans the references of a home. Repeated scans are quick: journals only grow, and chunks never change."""

    def __init__(self, home: Home, more_chunks: Callable[[], Iterable[str]] = tuple) -> None:
        self._home = home
        self._chunks = Chunks(home.chunks)
        self._packs = Packs(home.packs)
        self._present: set[str] = set()  # chunks that were found to exist
        self._more_chunks = more_chunks
        self._journals: dict[Path, tuple[int, _JournalReferences]] = {}  # with the size of the file that was read
        self._contents: dict[tuple[str, ...], frozenset[str]] = {}
        self._manifests: dict[str, tuple[Piece, ...]] = {}

    def scan(self, without: Collection[CheckpointKey] = ()) -> References:
        """Returns what runs, memoised calls and `more_chunks` refer to now; `without` leaves out checkpoints."""
        references = References(set(self._more_chunks()))
        packs = {*self._packs.names(), *self._packs.offloaded()}
        with references.recording_doubts("memo"):
            references.chunks |= memo_chunks(self._home.memo)
        for run in sorted(self._home.run_ids()):
            with references.recording_doubts(run):
                for stem in _journal_stems(self._home.run_folder(run)):
                    journal = self._read_journal(self._home.run_folder(run) / f"{stem}.lines")
                    if journal is not None:
                        self._add_chunks(references, run, stem, journal)
                        manifests = self._kept_manifests(journal, run, stem, without)
                        self._add_checkpoints(references, run, manifests, packs)
        return references

    def _add_chunks(self, references: References, run: str, stem: str, journal: _JournalReferences) -> None:
        if journal.unreadable_lines:
            text = f"{stem}.lines: {journal.unreadable_lines} lines can't be read; {_REMEDY}"
            references.doubts.append(Doubt(run, text))
        references.chunks |= journal.chunks
        # The name of a missing chunk may itself be damaged, and then another chunk was meant.
        shipped = is_shipped(self._home.run_folder(run))
        for name in journal.certain - self._present:
            with references.recording_doubts(run, may_be_elsewhere=shipped):
                if name not in self._chunks:
                    raise NotFound(f"{stem}.lines names chunk {name[:12]}, which is not there; {_REMEDY}")
                self._present.add(name)
        for parts in journal.nested:
            with references.recording_doubts(run, may_be_elsewhere=shipped):
                references.chunks |= self._names_in_content(parts)

    def _kept_manifests(
        self, journal: _JournalReferences, run: str, stem: str, without: Collection[CheckpointKey]
    ) -> set[str]:
        name = JournalName.parse(stem)
        dropped = read_dropped(self._home.run_folder(run), name) if name else frozenset()
        return {
            manifest
            for seq, manifest in journal.checkpoints
            if (seq, manifest) not in dropped and (run, stem, seq) not in without
        }

    def _add_checkpoints(self, references: References, run: str, manifests: Iterable[str], packs: set[str]) -> None:
        shipped = is_shipped(self._home.run_folder(run))
        for name in manifests:
            references.chunks.add(name)
            with references.recording_doubts(run, may_be_elsewhere=shipped):
                pieces = self.manifest_pieces(name)
                references.pieces[name] = tuple(p if p.pack in packs else self._packs.find(p) for p in pieces)

    def _read_journal(self, path: Path) -> _JournalReferences | None:
        """Returns what a file of lines refers to; None when its run is being removed."""
        try:
            size = path.stat().st_size
            known = self._journals.get(path)
            if known is None or known[0] != size:
                self._journals[path] = known = size, _parse_journal(path.read_bytes())
        except FileNotFoundError:
            if path.parent.exists():
                raise Damaged(f"{path.name} is missing; {_REMEDY}") from None
            return None
        return known[1]

    def _names_in_content(self, parts: tuple[str, ...]) -> frozenset[str]:
        if parts not in self._contents:
            self._contents[parts] = names_in_content(self._chunks, parts)
        return self._contents[parts]

    def manifest_pieces(self, name: str) -> tuple[Piece, ...]:
        """Returns the pieces that a checkpoint needs, where they were when it was taken."""
        if name not in self._manifests:
            self._manifests[name] = _parse_manifest(name, self._chunks.get(name))
        return self._manifests[name]


def _journal_stems(folder: Path) -> list[str]:
    try:
        names = [name.rpartition(".") for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):  # just removed, or not a run
        return []
    return sorted({stem for stem, _, suffix in names if suffix in ("lines", "slots")})


def names_in_content(chunks: Chunks, parts: Iterable[str]) -> frozenset[str]:
    """Returns everything that looks like the name of a chunk in the concatenated content of some chunks."""
    return _find_names(b"".join(chunks.get(name) for name in parts))


def _find_names(raw: bytes) -> frozenset[str]:
    return frozenset(name.decode() for name in _CHUNK_NAME.findall(raw))


# --- journals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JournalReferences:
    """What one file of lines refers to."""

    chunks: frozenset[str]  # everything that looks like the name of a chunk
    certain: frozenset[str]  # names in fields that hold chunk names, even if they don't look like one
    checkpoints: tuple[SeqAndManifest, ...]
    nested: tuple[tuple[str, ...], ...]  # the chunks of artifacts whose content names further chunks
    unreadable_lines: int


class _ReferenceLine(msgspec.Struct):
    """The fields of a line that determine how it refers to chunks.

    Independent of the schema: what a line of an unknown or malformed kind names must not be collected either.
    """

    v: int = 0
    k: Any = None
    seq: int = 0
    manifest: str | None = None
    kind: Any = None
    chunks: list[str] = []


_decode_line = msgspec.json.Decoder(_ReferenceLine).decode


def _parse_journal(raw: bytes) -> _JournalReferences:
    """Parses all complete lines; a torn tail was never committed and is ignored."""
    checkpoints: list[SeqAndManifest] = []
    nested: list[tuple[str, ...]] = []
    others: list[bytes] = []
    certain: set[str] = set()
    unreadable = 0
    for row in raw.split(b"\n")[:-1]:
        line = _parse_line(row) if row else _ReferenceLine()
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
    return _JournalReferences(
        _find_names(b"\n".join(others)), frozenset(certain), tuple(checkpoints), tuple(nested), unreadable
    )


def _parse_line(row: bytes) -> _ReferenceLine | None:
    """Parses a line; returns None if it is damaged, too new, or lacks the names that its kind requires."""
    try:
        line = _decode_line(row)
    except msgspec.DecodeError:
        return None
    lacks_names = (line.k == "checkpoint" and line.manifest is None) or (_is_nested(line) and not line.chunks)
    return None if lacks_names or line.v > line_schema.JOURNAL_FORMAT else line


def _is_nested(line: _ReferenceLine) -> bool:
    """Whether the content of this artifact may name further chunks."""
    return bool(line.k == "artifact" and line.kind == "json")


def named_chunks(line: Mapping[str, Any]) -> set[str]:
    """Returns the chunks that a line names: the pieces of an artifact, or values that are stored in chunks."""
    if line.get("k") == "artifact":
        return {name for part in (line, *line.get("files", ())) for name in part.get("chunks", ())}
    return _chunks_of_values(list(line.values()))


def _chunks_of_values(encoded: Any) -> set[str]:
    """Returns the chunks in tagged values only: a key `chunk` elsewhere belongs to the user."""
    if isinstance(encoded, dict):
        tagged = [encoded[tag] for tag in _VALUE_TAGS if tag in encoded]
        names = {value["chunk"] for value in tagged if isinstance(value, dict) and isinstance(value.get("chunk"), str)}
        return names.union(*map(_chunks_of_values, encoded.values()))
    return set().union(*map(_chunks_of_values, encoded)) if isinstance(encoded, list) else set()


# --- manifests --------------------------------------------------------------------------------------------------------


class _ManifestReferences(msgspec.Struct):
    v: int
    pieces: tuple[Piece, ...]


_decode_manifest = msgspec.json.Decoder(_ManifestReferences).decode


def _parse_manifest(name: str, content: bytes) -> tuple[Piece, ...]:
    try:
        manifest = _decode_manifest(content)
    except msgspec.DecodeError as error:
        raise Damaged(f"manifest {name[:12]} can't be read ({error}); {_REMEDY}") from error
    if manifest.v > MANIFEST_FORMAT:
        raise Damaged(f"manifest {name[:12]} was written by a newer relive; upgrade to read it")
    return manifest.pieces
