"""Sends packs to a server: those that it lacks, part by part, each identified by the hash of its file."""

from __future__ import annotations

import os
from collections.abc import Iterable

from relive.errors import ReliveError
from relive.store.chunks import Packs, pack_file_digest
from relive.store.sync.server_client import ServerClient

PART_BYTES = 4 << 20


class PackShipment:
    """Sends a set of packs. It may be stopped anywhere and resumed: the server says how much it has."""

    def __init__(self, packs: Packs, remote: ServerClient) -> None:
        self._packs = packs
        self._remote = remote
        self._unchecked: set[str] = set()  # packs that the server was not asked about yet
        self._missing: list[str] = []  # packs that the server lacks
        self._digests: dict[str, str] = {}
        self.sent_bytes = 0

    def add(self, names: Iterable[str]) -> None:
        """Adds packs to send."""
        self._unchecked |= set(names)

    @property
    def is_done(self) -> bool:
        """Whether the server has all packs."""
        return not self._unchecked and not self._missing

    def step(self) -> bool:
        """Sends one part; returns whether there is more to send."""
        if self._unchecked:
            sizes = {name: self._size(name) for name in sorted(self._unchecked)}
            self._missing += self._remote.missing_packs(sizes)
            self._unchecked = set()
        if self._missing and self._send_part(self._missing[-1]):
            self._missing.pop()
        return bool(self._missing)

    def _send_part(self, name: str) -> bool:
        """Sends one part of a pack; returns whether the pack is complete."""
        size, digest = self._size(name), self._digest(name)
        at = self._remote.pack_position(name, digest, size)
        if at is None:
            return True
        with (self._packs.folder / name).open("rb") as file:
            part = os.pread(file.fileno(), PART_BYTES, at)
        self.sent_bytes += len(part)
        return self._remote.put_pack(name, digest, at=at, size=size, part=part) is None

    def _size(self, name: str) -> int:
        try:
            return (self._packs.folder / name).stat().st_size
        except FileNotFoundError:
            raise ReliveError(f"pack {name} was removed or offloaded meanwhile; run `relive sync` again") from None

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = pack_file_digest(self._packs.folder / name)
        return self._digests[name]
