"""How packs get to a server: those that it lacks, part by part, each known by the hash of its content."""

from __future__ import annotations

import os
from collections.abc import Iterable

from relive.errors import ReliveError
from relive.hashing import hasher
from relive.store.chunks import Packs
from relive.store.sync.server_client import ServerClient

PART_BYTES = 4 << 20


class PackShipment:
    """Some packs on their way. May be stopped anywhere: the server says how far it is."""

    def __init__(self, packs: Packs, remote: ServerClient) -> None:
        self._packs = packs
        self._remote = remote
        self._unasked: set[str] = set()
        self._wanted: list[str] = []  # packs that the server lacks
        self._digests: dict[str, str] = {}
        self.sent_bytes = 0

    def add(self, names: Iterable[str]) -> None:
        self._unasked |= set(names)

    @property
    def is_done(self) -> bool:
        return not self._unasked and not self._wanted

    def step(self) -> bool:
        """Send a part; says whether there is more."""
        if self._unasked:
            sizes = {name: self._size(name) for name in sorted(self._unasked)}
            self._wanted += self._remote.missing_packs(sizes)
            self._unasked = set()
        if self._wanted and self._send_part(self._wanted[-1]):
            self._wanted.pop()
        return bool(self._wanted)

    def _send_part(self, name: str) -> bool:
        """Send some of a pack; says whether it is complete."""
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
            raise ReliveError(f"pack {name} was collected or moved meanwhile; run `relive sync` again") from None

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            hash_ = hasher()
            with (self._packs.folder / name).open("rb") as file:
                while piece := file.read(PART_BYTES):
                    hash_.update(piece)
            self._digests[name] = hash_.hexdigest()
        return self._digests[name]
