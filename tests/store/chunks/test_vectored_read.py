"""Laws of reading many pieces at once: each fills its buffer, and a damaged one is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from relive.errors import Damaged
from relive.store.chunks import Packs, PackWriter, Piece, piece_digest, read_pieces
from relive.store.chunks.vectored_read import MAX_BUFFERS, MAX_GAP_BYTES, coalesce


def _write_pack(packs: Packs, contents: list[bytes]) -> list[Piece]:
    with PackWriter(packs) as pack:
        return [pack.add(memoryview(data), piece_digest(data)) for data in contents]


def _make_contents(count: int) -> list[bytes]:
    rng = random.Random(0)
    noise = [rng.randbytes(rng.choice([1, 4, 800, 3_000, 70_000])) for _ in range(count)]
    return [b"text " * 500 if place % 7 == 0 else data for place, data in enumerate(noise)]


def test_each_piece_fills_its_own_buffers(tmp_path: Path) -> None:
    packs, contents = Packs(tmp_path), _make_contents(300)
    pieces = _write_pack(packs, contents[:150]) + _write_pack(packs, contents[150:])
    wanted = [place for place in range(300) if place % 5] * 2  # some are left out, all others are read twice
    random.Random(1).shuffle(wanted)
    buffers = [bytearray(len(contents[place])) for place in wanted]

    read_pieces(packs, [(pieces[place], buffer) for place, buffer in zip(wanted, buffers, strict=True)])

    assert [bytes(buffer) for buffer in buffers] == [contents[place] for place in wanted]


def test_large_amounts_are_read_by_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relive.store.chunks.vectored_read.MIN_THREADED_BYTES", 1_000)
    monkeypatch.setattr("relive.store.chunks.vectored_read.MAX_READ_BYTES", 10_000)
    packs, contents = Packs(tmp_path), _make_contents(100)
    pieces = _write_pack(packs, contents)
    buffers = [bytearray(len(data)) for data in contents]

    read_pieces(packs, list(zip(pieces, buffers, strict=True)))

    assert [bytes(buffer) for buffer in buffers] == contents


def test_neighbouring_pieces_are_read_in_one_call() -> None:
    pieces = [Piece("a.pack", place * 100, 100, 100, 0, str(place)) for place in range(2 * MAX_BUFFERS)]
    far = Piece("a.pack", pieces[-1].offset + 100 + MAX_GAP_BYTES + 1, 100, 100, 0, "far")
    other = Piece("b.pack", 0, 100, 100, 0, "other")

    reads = coalesce([(piece, bytearray(100)) for piece in [*pieces, far, other]])

    assert [len(read.pieces) for read in reads] == [MAX_BUFFERS, MAX_BUFFERS, 1, 1]


def test_a_damaged_piece_among_many_is_reported(tmp_path: Path) -> None:
    packs, contents = Packs(tmp_path), _make_contents(50)
    pieces = _write_pack(packs, contents)
    path = tmp_path / pieces[20].pack
    raw = bytearray(path.read_bytes())
    raw[pieces[20].offset] ^= 1
    path.write_bytes(raw)

    with pytest.raises(Damaged, match=f"{path.name} is damaged at byte {pieces[20].offset}"):
        read_pieces(packs, [(piece, bytearray(piece.size_bytes)) for piece in pieces])
