"""How a run gets from a server to this home: its journals byte for byte, the chunks they name, and its checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import Damaged, ReliveError
from relive.store.chunks import Chunks, Packs
from relive.store.home import Home, JournalName, journals_in
from relive.store.journal import is_shipped, read_again, record_heartbeat
from relive.store.sync.run_shipment import chunks_named

if TYPE_CHECKING:
    from relive.store.sync.server_client import ServerClient

PART_BYTES = 4 << 20
SUFFIXES = ("lines", "slots", "dropped")  # lines before slots: a line says that the slots before it are there


class RunFetch:
    """One run on its way here. It may be stopped anywhere and done again: what is here is not asked for."""

    def __init__(self, home: Home, run: str, remote: ServerClient) -> None:
        home.create()
        self._home = home
        self._run = run
        self._folder = home.run_folder(run)
        self._remote = remote
        self.got_bytes = 0
        if self._folder.exists() and not is_shipped(self._folder):
            raise ReliveError(f"run {run[:8]} was recorded here; there is nothing to fetch")

    def journals(self) -> None:
        """Bring the journals up to what the server has now."""
        self._folder.mkdir(exist_ok=True)
        record_heartbeat(self._folder)
        listed = self._remote.get(f"/api/runs/{self._run}/files")["files"]
        sizes = {str(one["name"]): int(one["size"]) for one in listed}
        # Slots first: a reader that comes in between finds no line whose values are missing.
        for name in sorted(sizes, key=lambda name: name.endswith(".lines")):
            if file_of(self._folder, name) is None:
                raise Damaged(f"{self._remote.url} listed {name[:40]!r}, which is no file of a run; ask who runs it")
            self._append(f"/api/runs/{self._run}/files/{name}", self._folder / name, sizes[name])
        read_again(self._folder)

    def chunks(self) -> None:
        """Bring the chunks that the journals name; checkpoints are asked for apart."""
        from relive.store.sync.remote_registry import RemoteChunks

        near = Chunks(self._home.chunks)
        far = RemoteChunks(self._remote, near)
        named: set[str] = set()
        for _, path in journals_in(self._folder):
            named |= chunks_named(path.with_name(path.name + ".lines").read_bytes(), far)
        self._put(named, near, far)

    def checkpoints(self) -> int:
        """Bring the kept checkpoints that the server has; gives how many these are."""
        from relive.store.sync.remote_registry import RemoteChunks

        told = self._remote.get(f"/api/runs/{self._run}/checkpoints")
        near = Chunks(self._home.chunks)
        self._put(set(told["manifests"]), near, RemoteChunks(self._remote, near))
        packs = Packs(self._home.packs)
        for name, size in sorted(told["packs"].items()):
            self._pack(packs, str(name), int(size))
        return int(told["count"])

    def _put(self, names: set[str], near: Chunks, far: Chunks) -> None:
        for name in sorted(names):
            if name not in near:
                data = far.get(name)  # which compares the bytes with the name
                near.put(data)
                self.got_bytes += len(data)

    def _pack(self, packs: Packs, name: str, size: int) -> None:
        from relive.store.sync.pack_uploads import checked_name

        target = packs.folder / checked_name(name)
        if target.exists():
            return
        packs.folder.mkdir(parents=True, exist_ok=True)
        partial = packs.folder / f".{name}.partial"
        self._append(f"/api/packs/{name}", partial, size)
        incoming = Packs(packs.folder)
        pieces = incoming.pieces(partial.name)
        try:
            if not pieces:
                raise Damaged(f"{self._remote.url} gave a pack that is none; fetch it again")
            for piece in pieces:
                incoming.read(piece)  # which compares the bytes with their hash
        except Damaged:
            partial.unlink()
            raise
        with packs.shared():
            _sync(partial)
            partial.rename(target)

    def _append(self, address: str, path: Path, size: int) -> None:
        with path.open("ab") as file:
            while file.tell() < size:
                part = self._remote.content(f"{address}?at={file.tell()}", PART_BYTES)
                if not part:
                    raise Damaged(f"{path.name} ended early on {self._remote.url}; fetch it again")
                file.write(part[: size - file.tell()])
                self.got_bytes += len(part)
            file.flush()
            os.fsync(file.fileno())


def file_of(folder: Path, name: str) -> Path | None:
    """A file of a run that may be given to others; None for everything else."""
    stem, _, suffix = name.rpartition(".")
    journal = JournalName.parse(stem) if len(stem) < 30 and stem.isascii() else None
    return folder / name if suffix in SUFFIXES and journal is not None and journal.stem == stem else None


def files_of(folder: Path) -> list[tuple[str, int]]:
    """The files of a run's journals with their sizes, such that the slots before every line are among them."""
    found = [
        (f"{path.name}.{suffix}", path.with_name(f"{path.name}.{suffix}"))
        for suffix in SUFFIXES
        for _, path in journals_in(folder)
    ]
    return [(name, path.stat().st_size) for name, path in found if path.exists()]


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
