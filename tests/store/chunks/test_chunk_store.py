"""Laws of chunks: stored once, completely or not at all, and verified when read."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from relive.errors import Damaged, NotFound
from relive.store.chunks import Chunks


@pytest.mark.parametrize("data", [b"", b"x", b"text " * 10_000, os.urandom(200_000)])
def test_what_is_put_is_read_back(tmp_path: Path, data: bytes) -> None:
    chunks = Chunks(tmp_path)

    assert chunks.get(chunks.put(data)) == data


def test_the_same_bytes_are_stored_once(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path)

    assert chunks.put(b"same") == chunks.put(b"same")
    assert len(list(chunks.names())) == 1


def test_text_is_compressed(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path)
    name = chunks.put(b"the same words again " * 10_000)

    assert chunks.path(name).stat().st_size < 10_000


@pytest.mark.parametrize("data", [b"words " * 1000, os.urandom(5_000)])
def test_a_damaged_chunk_is_reported_and_never_returned(tmp_path: Path, data: bytes) -> None:
    chunks = Chunks(tmp_path)
    name = chunks.put(data)
    raw = bytearray(chunks.path(name).read_bytes())
    raw[len(raw) // 2] ^= 1
    chunks.path(name).write_bytes(raw)

    with pytest.raises(Damaged, match=name[:12]):
        chunks.get(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 63, "A" * 64, "", "/" * 64])
def test_a_name_that_is_not_a_hash_reaches_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        Chunks(tmp_path).get(name)


def test_a_missing_chunk_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not in"):
        Chunks(tmp_path).get("0" * 64)


def test_many_threads_may_put_the_same_bytes(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path)
    threads = [threading.Thread(target=chunks.put, args=(b"shared" * 1000,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(list(chunks.names())) == 1
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Chunks(tmp_path).put(b"x" * 100)

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_file_is_stored_in_pieces_and_read_back_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relive.store.chunks.chunk_store.PIECE_BYTES", 1000)
    (tmp_path / "big").write_bytes(os.urandom(4_500))
    chunks = Chunks(tmp_path / "chunks")
    names, size = chunks.put_file(tmp_path / "big")

    assert (len(names), size) == (5, 4_500)
    assert b"".join(chunks.get(name) for name in names) == (tmp_path / "big").read_bytes()


@pytest.mark.parametrize("data", [b"text " * 1_000, os.urandom(5_000)])
def test_a_damaged_chunk_is_stored_anew_by_whoever_has_its_bytes(tmp_path: Path, data: bytes) -> None:
    chunks = Chunks(tmp_path)
    name = chunks.put(data)
    raw = bytearray(chunks.path(name).read_bytes())
    raw[len(raw) // 2] ^= 1
    chunks.path(name).write_bytes(raw)

    assert chunks.put(data) == name
    assert chunks.get(name) == data


def test_every_changed_byte_of_the_head_of_a_chunk_is_noticed(tmp_path: Path) -> None:
    chunks = Chunks(tmp_path)
    name = chunks.put(b"text " * 1_000)
    raw = chunks.path(name).read_bytes()

    for at in range(8):
        for bit in range(8):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            chunks.path(name).write_bytes(changed)
            with contextlib.suppress(Damaged):
                assert chunks.get(name) == b"text " * 1_000
