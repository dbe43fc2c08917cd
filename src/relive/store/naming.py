"""What the journals of a home name: chunks, and the pieces of its checkpoints; and where that can't be told for sure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import Damaged, NotFound
from relive.store.chunks import Chunks
from relive.store.home import Home, JournalName
from relive.store.journal import FORMAT
from relive.store.packs import Piece
from relive.store.tombstones import Told, dropped

MANIFEST_FORMAT = 1
# Whatever is written like the name of a chunk counts as one, wherever it stands: too many names cost some space.
_NAME = re.compile(rb'"([0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that may name chunks and packs, and can't be read."""

    run: str
    text: str


@dataclass(frozen=True, slots=True)
class Named:
    """What is still needed. While there are doubts, anything else might be, too."""

    chunks: frozenset[str]
    pieces: dict[str, tuple[Piece, ...]]  # by manifest, of the checkpoints that are kept
    doubts: tuple[Doubt, ...]


class _Line(msgspec.Struct):
    """The part of a line that tells how its names are meant."""

    v: int = 0
    k: Any = None
    seq: Any = None
    manifest: Any = None
    kind: Any = None
    chunks: Any = None


class _Manifest(msgspec.Struct):
    v: int
    pieces: list[tuple[str, int, int, int, int, str]]


@dataclass(frozen=True, slots=True)
class _Journal:
    """What one file of lines names."""

    chunks: frozenset[str]
    checkpoints: tuple[Told, ...]
    nested: tuple[tuple[str, ...], ...]  # the chunks of artifacts whose content names further chunks
    unreadable: int


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_manifest = msgspec.json.Decoder(_Manifest).decode


class Names:
    """Reads what a home names. Looking again is quick: journals only grow, and chunks never change."""

    def __init__(self, home: Home, *, also: Callable[[], Iterable[str]] = tuple) -> None:
        self._home = home
        self._chunks = Chunks(home.chunks)
        self._also = also
        self._journals: dict[Path, tuple[int, _Journal]] = {}
        self._contents: dict[tuple[str, ...], frozenset[str]] = {}
        self._manifests: dict[str, tuple[Piece, ...]] = {}

    def look(self) -> Named:
        """What is named now, by all runs and by who else was given."""
        chunks, pieces = set(self._also()), dict[str, tuple[Piece, ...]]()
        doubts: list[Doubt] = []
        for run in sorted(self._home.run_ids()):
            try:
                for found, gone in self._of_run(self._home.run_folder(run)):
                    self._take(run, found, gone, chunks, pieces, doubts)
            except (OSError, Damaged) as error:
                doubts.append(Doubt(run, f"{error}; restore it, or remove the run with `relive rm`"))
        return Named(frozenset(chunks), pieces, tuple(doubts))

    def _of_run(self, folder: Path) -> Iterator[tuple[_Journal, frozenset[Told]]]:
        try:
            stems = {name.rpartition(".")[0] for name in os.listdir(folder) if name.endswith((".lines", ".slots"))}
        except (FileNotFoundError, NotADirectoryError):  # removed just now, or no run at all
            return
        for stem in sorted(stems):
            gone = dropped(folder, journal) if (journal := JournalName.parse(stem)) else frozenset()
            try:
                yield self._of_journal(folder / f"{stem}.lines"), gone
            except FileNotFoundError:
                if folder.exists():
                    raise

    def _of_journal(self, path: Path) -> _Journal:
        size = path.stat().st_size
        known = self._journals.get(path)
        if known is None or known[0] != size:
            self._journals[path] = known = size, _read_journal(path.read_bytes())
        return known[1]

    def _take(
        self, run: str, found: _Journal, gone: frozenset[Told], chunks: set[str],
        pieces: dict[str, tuple[Piece, ...]], doubts: list[Doubt],
    ) -> None:  # fmt: skip
        if found.unreadable:
            text = f"{found.unreadable} lines can't be read; restore the run, or remove it with `relive rm`"
            doubts.append(Doubt(run, text))
        chunks |= found.chunks
        manifests = {manifest for seq, manifest in found.checkpoints if (seq, manifest) not in gone}
        chunks |= manifests
        for read, name in [*((self._nested, names) for names in found.nested), *((self._pieces, m) for m in manifests)]:
            ...
