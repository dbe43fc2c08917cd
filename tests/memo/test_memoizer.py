"""The contract that every store of remembered calls keeps."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.errors import Damaged
from relive.memo import Call, Computed, Keys, Sqlite, Unstorable
from relive.memo.memoizer import InMemory, Memoizer
from relive.store import Home
from relive.store.chunks import Chunks


def function(x: Any) -> None: ...


def call(x: Any) -> Call:
    return Keys(function).make({"x": x})


COMPUTED = Computed(took_s=1.5, run="abc")


def test_what_was_stored_is_found(memoizer: Memoizer):
    assert memoizer.look_up(call(1).key) is None
    memoizer.store_result(call(1), {"a": [1, 2]}, COMPUTED)
    entry = memoizer.look_up(call(1).key)

    assert entry is not None
    assert (entry.value, entry.is_exception, entry.run, entry.took_s) == ({"a": [1, 2]}, False, "abc", 1.5)
    assert entry.function.endswith("function")
    assert 0 <= entry.age_s < 60
    assert entry.age_days < 0.01
    assert memoizer.look_up(call(2).key) is None


def test_an_exception_is_found_as_one(memoizer: Memoizer):
    memoizer.store_exception(call(1), FileNotFoundError(2, "gone", "x.csv"), COMPUTED)
    entry = memoizer.look_up(call(1).key)

    assert entry is not None
    assert entry.is_exception
    assert isinstance(entry.value, FileNotFoundError)
    assert entry.value.filename == "x.csv"


def test_the_last_one_counts(memoizer: Memoizer):
    memoizer.store_exception(call(1), ValueError(), COMPUTED)
    memoizer.store_result(call(1), 2, COMPUTED)
    entry = memoizer.look_up(call(1).key)

    assert entry is not None
    assert (entry.value, entry.is_exception) == (2, False)


def test_what_a_hit_gives_is_the_callers_own(memoizer: Memoizer):
    memoizer.store_result(call(1), [np.zeros(3)], COMPUTED)
    entry = memoizer.look_up(call(1).key)
    assert entry is not None
    entry.value[0][:] = 7
    first = entry.value
    first[0][:] = 7

    again = memoizer.look_up(call(1).key)
    assert again is not None
    assert again.value[0].tolist() == [0, 0, 0]


def test_what_cannot_be_kept_is_refused_and_leaves_nothing(memoizer: Memoizer):
    with pytest.raises(Unstorable):
        memoizer.store_result(call(1), (x for x in ()), COMPUTED)

    assert memoizer.look_up(call(1).key) is None


@pytest.mark.parametrize("make", [lambda home: Sqlite(home, max_bytes=25_000), lambda home: InMemory(max_bytes=25_000)])
def test_the_least_recently_used_goes_first(home: Path, make: Callable[[Home], Memoizer]):
    memoizer = make(Home(home))
    for at in range(2):
        memoizer.store_result(call(at), b"%d" % at * 9_000, COMPUTED)
        time.sleep(0.001)
    assert memoizer.look_up(call(0).key) is not None
    memoizer.store_result(call(2), b"2" * 9_000, COMPUTED)

    assert [memoizer.look_up(call(at).key) is not None for at in range(3)] == [True, False, True]


# --- what only the one in the home can do -----------------------------------------------------------------------------


@pytest.fixture
def store(home: Path) -> Sqlite:
    return Sqlite(Home(home))


def test_an_exception_that_cannot_be_made_again_is_refused(store: Sqlite):
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} {b}")

    with pytest.raises(Unstorable):
        store.store_exception(call(1), Odd(1, 2), COMPUTED)


def test_a_damaged_row_raises_and_is_not_returned(store: Sqlite, change: Callable[..., None]):
    store.store_result(call(1), "right", COMPUTED)
    change("update entries set form = ?", b'"wrong"')

    with pytest.raises(Damaged):
        store.look_up(call(1).key)


def test_a_damaged_chunk_raises_and_is_not_returned(store: Sqlite, home: Path):
    store.store_result(call(1), np.arange(10_000), COMPUTED)
    (name,) = Chunks(home / "chunks").names()
    path = Chunks(home / "chunks").path(name)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    entry = store.look_up(call(1).key)
    assert entry is not None

    with pytest.raises(Damaged):
        entry.value  # noqa: B018


def test_a_pickle_from_elsewhere_is_not_read_until_it_is_trusted(store: Sqlite, home: Path, tmp_path: Path):
    store.store_result(call(1), {1: object}, COMPUTED)
    store.store_result(call(2), [1.0], COMPUTED)
    store.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "memo.sqlite").write_bytes((home / "memo.sqlite").read_bytes())
    elsewhere = Sqlite(Home(copy))
    plain, pickled = elsewhere.look_up(call(2).key), elsewhere.look_up(call(1).key)
    assert plain is not None
    assert pickled is not None

    assert plain.value == [1.0]
    with pytest.raises(relive.errors.ReliveError, match="relive memo trust"):
        pickled.value  # noqa: B018
    assert elsewhere.memos.trust() == 1
    trusted = elsewhere.look_up(call(1).key)
    assert trusted is not None
    assert trusted.value == {1: object}


def test_a_newer_format_is_left_alone(store: Sqlite, home: Path, change: Callable[..., None]):
    store.store_result(call(1), 1, COMPUTED)
    store.close()
    change("pragma user_version=99")

    with pytest.raises(sqlite3.OperationalError, match="newer relive; upgrade"):
        Sqlite(Home(home)).look_up(call(1).key)
