"""A damaged memo file costs computations, and never returns another result."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relive
from relive.errors import Damaged
from relive.memo import Sqlite
from relive.store import Home
from relive.store.chunks import MemoTable
from relive.store.gc import check_home

CALLS = 6


def result(x: int) -> Any:
    return {"x": x, "text": "abc" * x, "rows": [[x, -x], [0.5 * x]]}


def remembered(home: Path) -> tuple[Callable[[int], Any], Sqlite]:
    store = Sqlite(Home(home))
    return relive.memo(memoizer=store)(result), store


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with some entries, in one file."""
    home = tmp_path_factory.mktemp("stored")
    call, store = remembered(home)
    for x in range(CALLS):
        call(x)
    store.close()
    return home


@contextlib.contextmanager
def copy_of(stored: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(stored, Path(folder) / "home"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 0.9999), bit=st.integers(0, 7), count=st.integers(1, 8))
def test_damaged_bytes_never_give_another_result(stored: Path, place: float, bit: int, count: int):
    with copy_of(stored) as home:
        data = bytearray((home / "memo.sqlite").read_bytes())
        at = int(place * len(data))
        for offset in range(at, min(at + count, len(data))):
            data[offset] ^= 1 << bit
        (home / "memo.sqlite").write_bytes(data)
        call, store = remembered(home)
        found = [call(x) for x in range(CALLS)]
        store.close()

    assert found == [result(x) for x in range(CALLS)]


SEALED = "function kind form seal chunks size_bytes pickled code arguments extra run created_us took_s".split()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(column=st.sampled_from(SEALED), row=st.integers(0, CALLS - 1), place=st.integers(0, 200), flip=st.integers(1, 9))
def test_a_changed_column_is_noticed_and_named(stored: Path, column: str, row: int, place: int, flip: int):
    with copy_of(stored) as home:
        key = MemoTable(home / "memo.sqlite").rows()[row].key
        with contextlib.closing(sqlite3.connect(home / "memo.sqlite", isolation_level=None)) as connection:
            (value,) = connection.execute(f"select {column} from entries where key = ?", (key,)).fetchone()
            connection.execute(f"update entries set {column} = ? where key = ?", (_changed(value, place, flip), key))
        store = Sqlite(Home(home))
        with pytest.raises(Damaged):
            store.look_up(key)
        store.close()
        findings = [finding.text for finding in check_home(Home(home)) if finding.run == "memo"]

    assert any(key[:12] in text for text in findings)


def test_changed_inputs_are_noticed_and_named(tmp_path: Path):
    (tmp_path / "data.txt").write_text("1")

    def read(path: str) -> str:
        with open(path) as file:
            return file.read()

    store = Sqlite(Home(tmp_path / "home"))
    call = relive.memo(memoizer=store)(read)
    call(str(tmp_path / "data.txt"))
    row = store.memos.all_inputs()[0]
    (tmp_path / "data.txt").write_text("2")
    with contextlib.closing(sqlite3.connect(tmp_path / "home/memo.sqlite", isolation_level=None)) as connection:
        connection.execute("update inputs set inputs = ?", (b"[]",))  # as if it had read nothing
    found = call(str(tmp_path / "data.txt"))
    findings = [finding.text for finding in check_home(Home(tmp_path / "home")) if finding.run == "memo"]
    store.close()

    assert found == "2"
    assert any(row.entry[:12] in text for text in findings)


def _changed(value: Any, place: int, flip: int) -> Any:
    if isinstance(value, int | float):
        return value + flip
    if not value:
        return b"x" if isinstance(value, bytes) else "x"
    at = place % len(value)
    if isinstance(value, bytes):
        return value[:at] + bytes([value[at] ^ flip]) + value[at + 1 :]
    return value[:at] + chr(ord(value[at]) ^ flip) + value[at + 1 :]
