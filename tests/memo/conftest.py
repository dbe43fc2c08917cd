"""Fixtures for tests of memoized functions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.memo import Sqlite
from relive.memo.memoizer import InMemory, Memoizer
from relive.record.process import user_warnings
from relive.store import Home


@pytest.fixture(autouse=True)
def own_home(home: Path) -> Path:
    return home


@pytest.fixture(autouse=True)
def fresh_warnings() -> None:
    """Warnings are shown once per process; each test starts as a new process would."""
    user_warnings.reset_warnings()


@pytest.fixture
def change(home: Path) -> Callable[..., None]:
    """Executes a statement on the SQLite file over a separate connection."""

    def change(statement: str, *values: object) -> None:
        with contextlib.closing(sqlite3.connect(home / "memo.sqlite", isolation_level=None)) as connection:
            connection.execute(statement, values)

    return change


@pytest.fixture(params=["sqlite", "in memory"])
def memoizer(request: pytest.FixtureRequest, home: Path) -> Iterator[Memoizer]:
    """Both implementations of the memoizer protocol."""
    chosen: Memoizer = Sqlite(Home(home)) if request.param == "sqlite" else InMemory()
    yield chosen
    chosen.close()
