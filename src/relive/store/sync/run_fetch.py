"""Fetches a run from a server: its journals byte for byte, what it printed, the chunks they name, its checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import Damaged, ReliveError
from relive.store.chunks import Chunks, Packs
from relive.store.console import console_file_path, decode_record, is_unfinished_part, list_console_files
from relive.store.durable_files import atomic_write, publish
from relive.store.home import Home, JournalName, list_journals
from relive.store.journal import is_shipped, mark_for_reindexing, record_heartbeat
from relive.store.sync.run_shipment import chunks_named_by
from relive.store.trust import record_origin

if TYPE_CHECKING:
    from relive.store.sync.server_client import ServerClient

PART_BYTES = 4 << 20
MAX_CONSOLE_BYTES = 64 << 20  # of one file; more than a server takes
SUFFIXES = ("lines", "slots", "dropped")  # lines before slots: a line implies that the slots before it exist


class RunFetch:
    """Fetches one run. It may be stopped anywhere and repeated: what is here already is not requested again."""

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
        """Fetches the journals, and what the run printed, as far as the server has them now."""
        self._folder.mkdir(exist_ok=True)
        record_origin(self._folder, self._remote.url)
        record_heartbeat(self._folder)
        listed = self._remote.get(f"/api/runs/{self._run}/files")
        sizes = {str(one["name"]): int(one["size"]) for one in listed["files"]}
        # Slots first: a concurrent reader must not find a line whose values are missing.
        for name in sorted(sizes, key=lambda name: name.endswith(".lines")):
            if journal_file_path(self._folder, name) is None:
                raise Damaged(
                    f"{self._remote.url} listed {name[:40]!r}, which is not a file of a run; ask its administrator"
                )
            self._download(f"/api/runs/{self._run}/files/{name}", self._folder / name, sizes[name])
        self._fetch_console(listed.get("console", []))  # servers of older versions list none
        mark_for_reindexing(self._folder)

    def _fetch_console(self, listed: list[dict[str, Any]]) -> None:
        """Fetches the console files that differ from those here; of a live run they are rewritten as it prints."""
        names = set()
        for one in listed:
            path = console_file_path(self._folder, str(one["name"]))
            if path is None or int(one["size"]) > MAX_CONSOLE_BYTES:
                raise Damaged(f"{self._remote.url} listed {str(one)[:80]}, which is no console file of a run")
            names.add(path.name)
            if _digest(path) != one["digest"]:
                atomic_write(path, self._read_console(path.name, int(one["size"])), durable=False, permissions=0o644)
        for path in list_console_files(self._folder):
            if path.name not in names and is_unfinished_part(path):
                path.unlink(missing_ok=True)  # its lines are finished

    def _read_console(self, name: str, size: int) -> bytes:
        """Returns the whole records of a console file; one may be cut that was written meanwhile."""
        content = bytearray()
        while len(content) < size:
            part = self._remote.content(f"/api/runs/{self._run}/files/{name}?at={len(content)}", PART_BYTES)
            if not part:
                break
            content += part
        self.got_bytes += len(content)
        rows = bytes(content).split(b"\n")[:-1]
        return b"".join(row + b"\n" for row in rows if decode_record(row) is not None)

    def chunks(self) -> None:
        """Fetches the chunks that the journals name; checkpoints are fetched separately."""
        from relive.store.sync.remote_registry import RemoteChunks

        local = Chunks(self._home.chunks)
        remote = RemoteChunks(self._remote, local)
        named: set[str] = set()
        for _, path in list_journals(self._folder):
            named |= chunks_named_by(path.with_name(path.name + ".lines").read_bytes(), remote)
        self._fetch_chunks(named, local, remote)

    def checkpoints(self) -> int:
        """Fetches the kept checkpoints that the server has; returns how many there are."""
        from relive.store.sync.remote_registry import RemoteChunks

        listed = self._remote.get(f"/api/runs/{self._run}/checkpoints")
        local = Chunks(self._home.chunks)
        self._fetch_chunks(set(listed["manifests"]), local, RemoteChunks(self._remote, local))
        packs = Packs(self._home.packs)
        for name, size in sorted(listed["packs"].items()):
            self._fetch_pack(packs, str(name), int(size))
        return int(listed["count"])

    def _fetch_chunks(self, names: set[str], local: Chunks, remote: Chunks) -> None:
        for name in sorted(names):
            if name not in local:
                data = remote.get(name)  # verifies the bytes against the name
                local.put(data)
                self.got_bytes += len(data)

    def _fetch_pack(self, packs: Packs, name: str, size: int) -> None:
        from relive.store.sync.pack_uploads import check_pack_name

        target = packs.folder / check_pack_name(name)
        if target.exists():
            return
        packs.folder.mkdir(parents=True, exist_ok=True)
        partial = packs.folder / f".{name}.partial"
        self._download(f"/api/packs/{name}", partial, size)
        incoming = Packs(packs.folder)
        pieces = incoming.pieces(partial.name)
        try:
            if not pieces:
                raise Damaged(f"{self._remote.url} sent an invalid pack; fetch it again")
            for piece in pieces:
                incoming.read(piece)  # verifies the bytes against their hash
        except Damaged:
            partial.unlink()
            raise
        with packs.shared_lock():
            publish(partial, target)

    def _download(self, address: str, path: Path, size: int) -> None:
        self.got_bytes += download(self._remote, address, path, size)


def download(remote: ServerClient, address: str, path: Path, size: int) -> int:
    """Appends to a file what it lacks up to a size, and forces it to disk; returns how many bytes came."""
    got_bytes = 0
    with path.open("ab") as file:
        while file.tell() < size:
            part = remote.content(f"{address}?at={file.tell()}", PART_BYTES)
            if not part:
                raise Damaged(f"{path.name} ended early on {remote.url}; fetch it again")
            file.write(part[: size - file.tell()])
            got_bytes += len(part)
        file.flush()
        os.fsync(file.fileno())
    return got_bytes


def _digest(path: Path) -> str:
    import xxhash

    return xxhash.xxh3_128_hexdigest(path.read_bytes()) if path.exists() else ""


def journal_file_path(folder: Path, name: str) -> Path | None:
    """Returns the path of a journal file by its name; None for any name that must not be served."""
    stem, _, suffix = name.rpartition(".")
    journal = JournalName.parse(stem) if len(stem) < 30 and stem.isascii() else None
    return folder / name if suffix in SUFFIXES and journal is not None and journal.stem == stem else None


def list_journal_files(folder: Path) -> list[tuple[str, int]]:
    """Returns the files of a run's journals with their sizes, so that the slots before every line are included."""
    found = [
        (f"{path.name}.{suffix}", path.with_name(f"{path.name}.{suffix}"))
        for suffix in SUFFIXES
        for _, path in list_journals(folder)
    ]
    return [(name, path.stat().st_size) for name, path in found if path.exists()]


def describe_console_files(folder: Path) -> list[dict[str, Any]]:
    """Returns the console files of a run with their sizes, and digests that say whether somebody has the same."""
    found = [(path, path.stat().st_size) for path in list_console_files(folder)]
    return [{"name": path.name, "size": size, "digest": _digest(path)} for path, size in found if size]
