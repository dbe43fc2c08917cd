"""The memoizer protocol, the entries that a memoizer holds, and the in-memory implementation."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relive.memo.call_key import Call
from relive.memo.inputs import ObservedInput
from relive.memo.result_codec import StoredResult, read_value, store_value
from relive.memo.single_flight import Flights

RESULT = "result"
EXCEPTION = "exception"


@dataclass(slots=True, eq=False)  # not frozen, for the same reason as `Call`
class Entry:
    """A stored call: its result or exception, when it was computed, and how long it took."""

    key: str
    function: str
    kind: str  # "result" or "exception"
    run: str  # the run that computed it, or ""
    created_us: int
    took_s: float
    size_bytes: int
    read: Callable[[], Any] = field(repr=False)

    @property
    def is_exception(self) -> bool:
        return self.kind == EXCEPTION

    @property
    def age_s(self) -> float:
        return max(0.0, time.time() - self.created_us / 1e6)

    @property
    def age_days(self) -> float:
        return self.age_s / 86_400

    @property
    def value(self) -> Any:
        """The result or the exception; decoded on each access, so that callers never share a mutable value."""
        return self.read()


@dataclass(frozen=True, slots=True)
class Computed:
    """The circumstances of a computed call: duration, run, and what the lookup had found."""

    took_s: float
    run: str = ""
    found: str = "absent"  # result of the lookup: "absent", "expired" or "unreadable"


class InputIndex:
    """Which inputs the entries of a call have read: in memory."""

    def __init__(self) -> None:
        self._inputs: dict[str, dict[str, list[ObservedInput]]] = {}

    def inputs_of(self, key: str) -> list[tuple[str, list[ObservedInput]]]:
        """Returns the keys of the entries of a call that read inputs, newest first."""
        return list(reversed(self._inputs.get(key, {}).items()))

    def add_inputs(self, key: str, entry: str, inputs: Sequence[ObservedInput]) -> None:
        known = self._inputs.setdefault(key, {})
        known.pop(entry, None)
        known[entry] = list(inputs)


class Memoizer(Protocol):
    """A store of calls. A stored call can be looked up as soon as the store method has returned."""

    flights: Flights

    def look_up(self, key: str) -> Entry | None: ...
    def store_result(self, call: Call, result: Any, computed: Computed) -> None: ...
    def store_exception(self, call: Call, error: BaseException, computed: Computed) -> None: ...
    def close(self) -> None: ...


class InMemory:
    """Keeps results until the process ends: for tests, and for results that must not be written to disk."""

    def __init__(self, *, max_bytes: int = 0) -> None:
        self.flights = Flights(None)
        self.index = InputIndex()
        self._max_bytes = max_bytes  # 0: unlimited
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def look_up(self, key: str) -> Entry | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def store_result(self, call: Call, result: Any, computed: Computed) -> None:
        self._store(call, RESULT, result, computed)

    def store_exception(self, call: Call, error: BaseException, computed: Computed) -> None:
        self._store(call, EXCEPTION, error, computed)

    def close(self) -> None:
        self._entries.clear()

    def _store(self, call: Call, kind: str, value: Any, computed: Computed) -> None:
        chunks: dict[str, bytes] = {}

        def put(data: Any) -> str:
            chunks[name := str(len(chunks))] = bytes(data)
            return name

        stored: StoredResult = store_value(value, put)
        self._entries[call.key] = Entry(
            call.key, call.function, kind, computed.run, time.time_ns() // 1000, computed.took_s, stored.size_bytes,
            lambda: read_value(stored.form, chunks.__getitem__, allow_pickle=True),
        )  # fmt: skip
        self._entries.move_to_end(call.key)
        while self._max_bytes and sum(one.size_bytes for one in list(self._entries.values())) > self._max_bytes:
            self._entries.popitem(last=False)
