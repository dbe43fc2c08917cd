"""The memoizer of a home: rows in its SQLite file, results in its chunks, read again for every hit."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from relive.errors import Damaged, ReliveError
from relive.memo.call_key import Call
from relive.memo.inputs import ObservedInput, decode_inputs, encode_inputs
from relive.memo.memoizer import EXCEPTION, RESULT, Computed, Entry, InputIndex
from relive.memo.result_codec import StoredResult, Unstorable, read_value, store_value
from relive.memo.single_flight import Flights
from relive.record.process import warn_once
from relive.store import Home
from relive.store.chunks import Chunks, MemoRow, MemoTable, MissRow
from relive.store.journal import to_json

_HOUR_US = 3_600_000_000
_MAX_INTACT = 1_000
_MAX_INTACT_BYTES = 4_096
_DURABLE_AFTER_S = 0.1  # longer computations are synced to disk, which is cheap in comparison
_REWRITE_AFTER_S = 600.0  # well within the grace period of `relive gc` for unreferenced chunks


class StoredInputs(InputIndex):
    """Which inputs the entries of a call have read: in the home."""

    def __init__(self, memos: MemoTable) -> None:
        self._memos = memos

    def inputs_of(self, key: str) -> list[tuple[str, list[ObservedInput]]]:
        return [(row.entry, decode_inputs(row.inputs)) for row in self._memos.inputs(key) if row.is_whole]

    def add_inputs(self, key: str, entry: str, inputs: Sequence[ObservedInput]) -> None:
        self._memos.put_inputs(key, entry, encode_inputs(inputs))


class Sqlite:
    """Stores calls in the home."""

    def __init__(self, home: Home, *, max_bytes: int = 0) -> None:
        self.home = home
        self.flights = Flights(home.path / "memo.lock")
        self.memos = MemoTable(home.memo)
        self.index = StoredInputs(self.memos)
        self._chunks = Chunks(home.chunks)
        self._max_bytes = max_bytes  # 0: unlimited
        self._intact: dict[str, MemoRow] = {}  # rows whose checksum was right
        os.register_at_fork(after_in_child=self._after_fork)

    def look_up(self, key: str) -> Entry | None:
        """Returns the entry of a key, or None; raises `Damaged` if its checksum does not match."""
        try:
            row = self.memos.get(key)
        except Damaged:
            self.memos.set_aside()
            raise
        if row is None:
            return None
        if self._intact.get(key) != row and not self._check(row):
            raise Damaged(f"the entry {key[:12]} of {row.function} is damaged; the call is computed again")
        self._record_use(row)
        return self.entry(row)

    def _check(self, row: MemoRow) -> bool:
        """Whether a row is what was written; remembers rows that are, since comparing is faster than a checksum."""
        if not row.is_whole:
            return False
        if len(self._intact) >= _MAX_INTACT:
            self._intact.clear()
        if len(row.form) <= _MAX_INTACT_BYTES:
            self._intact[row.key] = row
        return True

    def entry(self, row: MemoRow) -> Entry:
        """Returns a row as an entry that reads its value on demand."""
        return Entry(
            row.key, row.function, row.kind, row.run, row.created_us, row.took_s, row.size_bytes,
            lambda: self._read_result(row),
        )  # fmt: skip

    def store_result(self, call: Call, result: Any, computed: Computed) -> None:
        self._store(call, RESULT, result, computed)

    def store_exception(self, call: Call, error: BaseException, computed: Computed) -> None:
        self._store(call, EXCEPTION, error, computed)

    def record_miss(self, call: Call, computed: Computed, kept: str) -> None:
        """Records for `relive memo why` that a call was computed and not stored."""
        arguments = to_json(call.describe_arguments())
        self.memos.put(None, _miss_row(call, arguments, computed, kept), to_json(call.parts()))

    def adopt(self, key: str, run: str) -> None:
        """Assigns an entry to a run that was opened after the call."""
        self.memos.adopt(key, run)

    def close(self) -> None:
        self.memos.close()

    def _store(self, call: Call, kind: str, value: Any, computed: Computed) -> None:
        """Writes the chunks first, then the row that commits them."""
        begun = time.monotonic()
        stored = store_value(value, self._chunks.put)
        if kind == EXCEPTION:
            _check_exception(value, stored, self._chunks)
        if time.monotonic() - begun > _REWRITE_AFTER_S:
            self._rewrite_chunks(stored)
        arguments = to_json(call.describe_arguments())
        row = self._entry_row(call, kind, stored, arguments, computed)
        miss = _miss_row(call, arguments, computed, "stored")
        self.memos.put(row, miss, to_json(call.parts()), durably=computed.took_s > _DURABLE_AFTER_S)
        if self._max_bytes:
            self.memos.evict(self._max_bytes)

    def _entry_row(self, call: Call, kind: str, stored: StoredResult, arguments: str, computed: Computed) -> MemoRow:
        now_us = time.time_ns() // 1000
        row = MemoRow(
            key=call.key, function=call.function, kind=kind, form=stored.form, seal="",
            chunks=" ".join(stored.chunks), size_bytes=stored.size_bytes,
            pickled=self.memos.mark if stored.is_pickled else "", code=call.code, arguments=arguments,
            extra=call.extra, run=computed.run, created_us=now_us, used_us=now_us, took_s=computed.took_s,
        )  # fmt: skip
        return row.sealed()

    def _rewrite_chunks(self, stored: StoredResult) -> None:
        """Writes all chunks again: storing took so long that `relive gc` may take the first ones for orphans."""
        for name in stored.chunks:
            self._chunks.put(self._chunks.get(name))

    def _read_result(self, row: MemoRow) -> Any:
        if row.pickled and row.pickled != self.memos.mark:
            raise ReliveError(
                f"the entry {row.key[:12]} of {row.function} was pickled by another user or in another home, and "
                f"reading it would run its code; it is computed again, unless you run `relive memo trust`"
            )
        return read_value(row.form, self._chunks.get, allow_pickle=bool(row.pickled))

    def _record_use(self, row: MemoRow) -> None:
        now_us = time.time_ns() // 1000
        if self._max_bytes or now_us - row.used_us > _HOUR_US:
            try:
                self.memos.touch(row.key, now_us)
            except sqlite3.OperationalError as error:  # reading works in a read-only home
                warn_once("memo-read-only", f"{self.memos.path}: {error}; the time of last use is not recorded")

    def _after_fork(self) -> None:
        self.flights.reset()
        self.memos.renew()


def _miss_row(call: Call, arguments: str, computed: Computed, kept: str) -> MissRow:
    now_us = time.time_ns() // 1000
    return MissRow(
        call.key, call.function, call.code, arguments, call.extra, computed.found, kept, computed.run, now_us
    )


def _check_exception(error: BaseException, stored: StoredResult, chunks: Chunks) -> None:
    """Raises `Unstorable` for an exception that can be pickled but not unpickled, as many can."""
    try:
        again = read_value(stored.form, chunks.get, allow_pickle=True)
    except Exception as trouble:  # unpickling runs code of the user's exception
        raise Unstorable(f"it can't be unpickled ({trouble})") from trouble
    if type(again) is not type(error):
        raise Unstorable(f"it is unpickled as {type(again).__name__}")
