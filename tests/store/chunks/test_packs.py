"""Laws of packs: pieces are read back unchanged or not at all, stored once, and no lock outlives its holder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import Damaged, NotFound, ReliveError
from relive.store import Home
from relive.store.chunks import Packs, PackWriter, Piece, piece_digest
from relive.store.gc.repack_plan import copy_pieces

TEXT, NOISE = b"the same words again " * 1_000, os.urandom(30_000)


def write_pack(packs: Packs, *contents: bytes) -> list[Piece]:
    with PackWriter(packs) as pack:
        return [pack.add(memoryview(data), piece_digest(data)) for data in contents]


@given(st.lists(st.binary(max_size=2_000), min_size=1, max_size=5))
def test_what_is_added_is_read_back(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        packs = Packs(Path(folder))
        pieces = write_pack(packs, *contents)

        assert [packs.read(piece) for piece in pieces] == contents
        assert packs.pieces(packs.names()[0]) == pieces


def test_text_is_compressed_and_noise_is_stored_as_it_is(tmp_path: Path) -> None:
    text, noise = write_pack(Packs(tmp_path), TEXT, NOISE)

    assert text.stored_bytes < len(TEXT) / 10
    assert noise.stored_bytes == len(NOISE)
    assert [Packs(tmp_path).read(piece) for piece in (text, noise)] == [TEXT, NOISE]


def test_a_pack_to_which_nothing_was_added_leaves_no_file(tmp_path: Path) -> None:
    with PackWriter(Packs(tmp_path)):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with contextlib.suppress(OSError), PackWriter(Packs(tmp_path)) as pack:
        pack.add(NOISE, piece_digest(NOISE))
        raise OSError("the disk is full")

    assert list(tmp_path.iterdir()) == []


def test_a_pack_has_no_name_until_it_is_complete(tmp_path: Path) -> None:
    packs = Packs(tmp_path)
    with PackWriter(packs) as pack:
        pack.add(NOISE, piece_digest(NOISE))

        assert packs.names() == []
    assert packs.names() == [pack.name]


@given(cut=st.integers(0, 400), junk=st.binary(max_size=40))
def test_a_truncated_or_overwritten_pack_lists_its_own_pieces_or_none(cut: int, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        packs = Packs(Path(folder))
        before = write_pack(packs, TEXT, b"short")
        path = packs.folder / packs.names()[0]
        raw = path.read_bytes()
        path.write_bytes(raw[: max(0, len(raw) - cut)] + junk)

        assert packs.pieces(path.name) in ([], before)


@pytest.mark.parametrize("content", [TEXT, NOISE])
def test_a_damaged_piece_is_never_returned(tmp_path: Path, content: bytes) -> None:
    packs = Packs(tmp_path)
    (piece,) = write_pack(packs, content)
    path = tmp_path / piece.pack
    raw = bytearray(path.read_bytes())
    raw[piece.offset + piece.stored_bytes // 2] ^= 1
    path.write_bytes(raw)

    with pytest.raises(Damaged, match="restore an earlier checkpoint"):
        packs.read(piece)


def test_a_truncated_pack_is_reported(tmp_path: Path) -> None:
    packs = Packs(tmp_path)
    (piece,) = write_pack(packs, NOISE)
    os.truncate(tmp_path / piece.pack, piece.offset + 10)

    with pytest.raises(Damaged, match="ends early"):
        packs.read(piece)


def test_a_missing_pack_is_reported_with_the_remedy(tmp_path: Path) -> None:
    packs = Packs(tmp_path)
    (piece,) = write_pack(packs, NOISE)
    (tmp_path / piece.pack).unlink()

    with pytest.raises(NotFound, match="is gone; restore an earlier checkpoint"):
        packs.read(piece)


def test_a_piece_whose_pack_was_rewritten_is_found_by_its_hash(tmp_path: Path) -> None:
    packs = Packs(tmp_path)
    text, noise = write_pack(packs, TEXT, NOISE)
    copy_pieces(packs, [noise])
    (tmp_path / noise.pack).unlink()

    assert packs.read(noise) == NOISE
    again = copy_pieces(packs, [noise])
    for name in packs.names():
        if name != again:
            (tmp_path / name).unlink()
    assert packs.read(noise) == NOISE, "also when it moved a second time"
    with pytest.raises(NotFound):
        packs.read(text)


def test_a_state_that_did_not_change_is_stored_once(store: Home, record: Callable[..., Any]) -> None:
    run = record()
    first = run.checkpoint()
    second = run.checkpoint(again=True)
    record(seed=1).checkpoint()

    assert first == second
    before, after = ((store.packs / name).stat().st_size for name in Packs(store.packs).names())
    assert before - after >= run.frozen_bytes, "what another run has stored isn't stored again"


def test_the_collector_waits_for_writers_but_not_for_ever(tmp_path: Path) -> None:
    packs, is_written = Packs(tmp_path), threading.Event()
    order: list[str] = []

    def collect() -> None:
        with packs.exclusive_lock(patience_s=60):
            order.append("collected")

    with packs.shared_lock():
        with packs.shared_lock():  # writers don't wait for each other
            pass
        with pytest.raises(ReliveError, match="try again later"), packs.exclusive_lock(patience_s=0.05):
            pass
        thread = threading.Thread(target=collect)
        thread.start()
        is_written.wait(0.1)
        order.append("written")
    thread.join()

    assert order == ["written", "collected"]


def test_writers_wait_while_packs_are_collected(tmp_path: Path) -> None:
    packs, order = Packs(tmp_path), list[str]()

    def write() -> None:
        with packs.shared_lock():
            order.append("written")

    with packs.exclusive_lock(patience_s=1):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.1)
        order.append("collected")
    thread.join()

    assert order == ["collected", "written"]


def test_a_child_forked_while_a_checkpoint_is_written_does_not_keep_the_lock(tmp_path: Path) -> None:
    source = """
import os, sys, time
from pathlib import Path
from relive.store.chunks.packs import Packs

packs = Packs(Path(sys.argv[1]))
with packs.shared_lock():
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
with packs.exclusive_lock(patience_s=5):
    print("alone")
os.kill(child, 9)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.stdout == "alone\n", done.stderr
