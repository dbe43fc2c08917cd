"""What the system says when a disk is full or can't be written, as an error that names the place and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from relive.errors import DiskTrouble, ReliveError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_LOW_BYTES = 1 << 20


@contextlib.contextmanager
def telling_disk_errors(home: Callable[[], Path]) -> Iterator[None]:
    """Raises `DiskTrouble` in place of an error of the system, of SQLite or of DuckDB that only a disk can cause."""
    try:
        yield
    except Exception as error:
        message = _describe(error, home()) if _may_be_of_disk(error) else None
        if message is None:
            raise
        raise DiskTrouble(message) from error


def _may_be_of_disk(error: Exception) -> bool:
    kinds = ("sqlite3", "OperationalError"), ("duckdb", "Error")
    is_raw = isinstance(error, OSError) and not isinstance(error, ReliveError)
    return is_raw or any(_is_of(*kind, error) for kind in kinds)


def _describe(error: Exception, home: Path) -> str | None:
    place = _place_of(error, home)
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return _full(place)
        return _closed(place) if error.errno in _CLOSED and _is_below(place, home) else None
    text = str(error).lower()
    if _is_of("sqlite3", "OperationalError", error):
        if "full" in text or ("i/o error" in text and _is_full(place)):
            return _full(place)
        return _closed(place) if "readonly" in text or "unable to open" in text else None
    if _is_of("duckdb", "Error", error) and ("no space" in text or ("could not write" in text and _is_full(place))):
        return _full(place)
    return None


def _is_of(module: str, name: str, error: Exception) -> bool:
    """Whether an error is of a library's class; a library that is not loaded has raised nothing."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(error, kind)


def _place_of(error: Exception, home: Path) -> Path:
    """The folder that an error is about: the one it names, or else whichever is full, or the home."""
    named = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if isinstance(named, str | bytes):
        return Path(os.fsdecode(named)).absolute().parent
    import tempfile

    candidates = [home, Path(tempfile.gettempdir())]
    return next((one for one in candidates if _is_full(one)), candidates[0])


def _is_below(place: Path, home: Path) -> bool:
    return place == home or home in place.parents


def _is_full(place: Path) -> bool:
    import shutil  # takes longer to load than most commands need for all their work

    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free < _LOW_BYTES
    except OSError:
        return False


def _full(place: Path) -> str:
    return f"the disk of {place} is full; free some space there (`relive gc` removes what nothing refers to), ask again"


def _closed(place: Path) -> str:
    return f"{place} can't be written by you; change its permissions, or copy the home to where you can write"
