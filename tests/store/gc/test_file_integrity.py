"""The doctor names every damaged file of a home, and what is affected; an undamaged home gives no alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relive.store import Home, append_lines
from relive.store.chunks import OffloadNote, write_note
from relive.store.durable_files import write_sealed
from relive.store.gc import check_home
from relive.store.gc.file_integrity import Finding

FILES: dict[str, Callable[[Path], object]] = {
    "registry/net.lines": lambda path: append_lines(path, lambda _: [{"k": "retired", "version": 1}]),
    "alerts.lines": lambda path: append_lines(path, lambda _: [{"text": "rank 3 drifts"}]),
    "pins/ab.json": lambda path: (path.parent.mkdir(), write_sealed(path, b'{"diff":"+x = 1"}')),
    "tokens.json": lambda path: write_sealed(path, b"[]"),
    "chunks/packs/a.pack.spooled": lambda path: (
        path.parent.mkdir(parents=True),
        write_note(path.parent, "a.pack", OffloadNote(1, "s3://a/b", "a.pack", 7, "ab")),
    ),
    "id": lambda path: Home(path.parent).identity(),
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def damages(home: Home) -> list[Finding]:
    return [finding for finding in check_home(home) if finding.damage]


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named(home: Home, file: str) -> None:
    path = home.path / file
    FILES[file](path)
    assert damages(home) == []
    raw = bytearray(path.read_bytes())
    raw[1] ^= 0x40
    path.write_bytes(raw)

    (found,) = damages(home)
    assert path.name in found.text
    assert ";" in found.text, "it ends in the remedy"


def test_pinned_places_and_tokens_that_are_missing_are_missed(home: Home) -> None:
    (home.path / "tokens.lock").touch()
    append_lines(home.path / "pins/pins.lines", lambda _: [{"file": "ab.json"}])

    pin, tokens = damages(home)
    assert "ab.json is missing" in pin.text
    assert "tokens.json is missing" in tokens.text
