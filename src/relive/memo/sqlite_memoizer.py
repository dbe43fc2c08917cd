"""Remembered calls in a home: rows in its SQLite file, results in its chunks. Nothing is held in memory."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any

from relive.errors import Damaged, ReliveError
from relive.memo.call_key import Call
from relive.memo.memoizer import EXCEPTION, RESULT, Computed, Entry
from relive.memo.result_codec import StoredResult, Unstorable, read_value, store_value
from relive.memo.single_flight import Flights
from relive.record.process import warn_once
from relive.store import Home
from relive.store.chunks import Chunks, MemoRow, MemoTable, MissRow, sealed
from relive.store.journal import to_text

_HOUR_US = 3_600_000_000
_WORTH_SYNCING_S = 0.1  # what took longer is forced to disk: the wait is small beside it
_RENEWED_AFTER_S = 600.0  # well within the grace that `relive gc` gives to chunks that nothing names yet


class Sqlite:
    """The memoizer of a home."""

    def __init__(self, home: Home, *, max_bytes: int = 0) -> None:
        self.home = home
        self.flights = Flights(home.path / "memo.lock")
        self.memos = MemoTable(home.memo)
        self._chunks = Chunks(home.chunks)
        self._max_bytes = max_bytes  # 0 is no bound
        os.register_at_fork(after_in_child=self._after_fork)

    def look_up(self, key: str) -> Entry | None:
        """The entry, if there is one and it is whole; raises `Damaged` if it isn't."""
        try:
            row = self.memos.get(key)
        except Damaged:
            self.memos.set_aside()
            raise
        if row is None:
            return None
        if not row.is_whole:
            raise Damaged(f"the entry {key[:12]} of {row.function} is not what was written; it is computed again")
        self._used(row)
        return self.entry(row)

    def entry(self, row: MemoRow) -> Entry:
        """A row as callers see it."""
        return Entry(
            row.key, row.function, row.kind, row.run, row.created_us, row.took_s, row.size_bytes,
            lambda: self._read(row),
        )  # fmt: skip

    def store_result(self, call: Call, result: Any, computed: Computed) -> None:
        self._store(call, RESULT, result, computed)

    def store_exception(self, call: Call, error: BaseException, computed: Computed) -> None:
        self._store(call, EXCEPTION, error, computed)

    def note_miss(self, call: Call, computed: Computed, kept: str) -> None:
        """Remember that a call was computed and not kept, for `relive memo why`."""
        looks = to_text(call.looks())
        self.memos.put(None, _miss(call, looks, computed, kept), to_text(call.parts()))

    def adopt(self, key: str, run: str) -> None:
        """The run that a call belongs to was opened after the call."""
        self.memos.adopt(key, run)

    def close(self) -> None:
        self.memos.close()

    def _store(self, call: Call, kind: str, value: Any, computed: Computed) -> None:
        """Chunks first, then the one row that makes them real."""
        begun = time.monotonic()
        stored = store_value(value, self._chunks.put)
        if kind == EXCEPTION:
            _check_exception(value, stored, self._chunks)
        if time.monotonic() - begun > _RENEWED_AFTER_S:
            self._renew(stored)
        looks = to_text(call.looks())
        row = self._row(call, kind, stored, looks, computed)
        miss = _miss(call, looks, computed, "stored")
        self.memos.put(row, miss, to_text(call.parts()), durably=computed.took_s > _WORTH_SYNCING_S)
        if self._max_bytes:
            self.memos.evict(self._max_bytes)

    def _row(self, call: Call, kind: str, stored: StoredResult, looks: str, computed: Computed) -> MemoRow:
        now_us = time.time_ns() // 1000
        return MemoRow(
            key=call.key, function=call.function, kind=kind, form=stored.form,
            seal=sealed(call.key, kind, stored.form), chunks=" ".join(stored.chunks), size_bytes=stored.size_bytes,
            pickled=self.memos.mark if stored.is_pickled else "", code=call.code, arguments=looks,
            extra=call.extra, run=computed.run, created_us=now_us, used_us=now_us, took_s=computed.took_s,
        )  # fmt: skip

    def _renew(self, stored: StoredResult) -> None:
        """Storing took so long that the first chunks may be taken for orphans: make all of them young."""
        for name in stored.chunks:
            self._chunks.put(self._chunks.get(name))

    def _read(self, row: MemoRow) -> Any:
        if row.pickled and row.pickled != self.memos.mark:
            raise ReliveError(
                f"the entry {row.key[:12]} of {row.function} was pickled by another user or in another place, and "
                f"reading it would run its code; it is computed again, unless you say `relive memo trust`"
            )
        return read_value(row.form, self._chunks.get)

    def _used(self, row: MemoRow) -> None:
        now_us = time.time_ns() // 1000
        if self._max_bytes or now_us - row.used_us > _HOUR_US:
            try:
                self.memos.touch(row.key, now_us)
            except sqlite3.OperationalError as error:  # a home that can be read only is fine to read
                warn_once("memo-read-only", f"{self.memos.path}: {error}; what is used is not noted")

    def _after_fork(self) -> None:
        self.flights.renew()
        self.memos.renew()


def _miss(call: Call, looks: str, computed: Computed, kept: str) -> MissRow:
    now_us = time.time_ns() // 1000
    return MissRow(call.key, call.function, call.code, looks, call.extra, computed.found, kept, computed.run, now_us)


def _check_exception(error: BaseException, stored: StoredResult, chunks: Chunks) -> None:
    """Many exceptions can be pickled and not be read back, because of how they are made."""
    try:
        again = read_value(stored.form, chunks.get)
    except Exception as trouble:  # whatever the user's exception does when it is made again
        raise Unstorable(f"it can't be made again from its arguments ({trouble})") from trouble
    if type(again) is not type(error):
        raise Unstorable(f"it comes back as {type(again).__name__}")
