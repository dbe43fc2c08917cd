"""What is not derived survives a power cut: its bytes and its name are on disk when the call returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.hindsight.analysis.patched_source import Patch
from relive.hindsight.analysis.pinned_patches import PinnedPatches
from relive.hindsight.merge import _MergedJournal
from relive.server.tokens import Tokens
from relive.store import Home
from relive.store.chunks import Chunks, OffloadNote, write_note
from relive.store.gc.offload import retire


def _merge(home: Home) -> Path:
    recorded: Any = SimpleNamespace(loops={})
    journal, folder = _MergedJournal(recorded, {}), home.runs / "0123456789ab"
    folder.mkdir(parents=True)
    journal.reserve(folder, 1, 0, {})
    journal.write(folder, 1, 0)
    return folder / "0-r1.slots"


def _put(home: Home) -> Path:
    chunks = Chunks(home.chunks)
    return chunks.path(chunks.put(b"an artifact"))


def _pin(home: Home) -> Path:
    PinnedPatches(home, ["loss"]).write("tree", Patch())
    (path,) = (home.path / "pins").glob("*.json")
    return path


def _create_token(home: Home) -> Path:
    Tokens(home.path).create("laptop", ["read"])
    return home.path / "tokens.json"


def _identify(home: Home) -> Path:
    home.identity()
    return home.path / "id"


def _retire(home: Home) -> Path:
    home.packs.mkdir(parents=True)
    write_note(home.packs, "1.pack", OffloadNote(1, "/elsewhere", "1.pack", 1, "0"))
    retire(home.packs, ["1.pack"])
    return home.packs / "1.pack.retired"


@pytest.mark.parametrize("write", [_merge, _put, _pin, _create_token, _identify, _retire])
def test_bytes_are_on_disk_before_the_name_and_the_name_before_the_call_returns(
    write: Callable[[Home], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents: set[int] = set()
    names: dict[int, set[str]] = {}  # of each folder, when it was last forced to disk
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        contents.add(inode)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            names[inode] = set(os.listdir(path))
        real_fsync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    target = write(Home(tmp_path / "home"))

    assert target.stat().st_ino in contents
    assert target.name in names.get(target.parent.stat().st_ino, ())
    assert not list(target.parent.glob("*.part*"))


def test_a_new_folder_of_chunks_is_forced_to_disk_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    Chunks(tmp_path / "chunks").put(b"an artifact")

    assert str(tmp_path / "chunks") in synced
