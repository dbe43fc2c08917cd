"""Notices what changes in a store while pages are open, and tells each of them what it may see."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relive.errors import ReliveError
from relive.server.http import HttpError
from relive.server.questions.answers import ProjectIndex, StoreQuestion
from relive.server.questions.store_process import StoreProcess
from relive.store import Home
from relive.store.catalog import Index

LOOK_S = 0.5
PATIENCE_S = 10.0  # so long does a page wait for the first look
IDLE_S = 20.0  # the process is ended when no page has been open for so long
MAX_EVENTS = 1_000  # remembered for pages whose connection was interrupted
MAX_QUEUED = 200  # for one page; one that reads no more is told to start anew
MAX_RUNS = 1_000  # in one event
_STOPPED = HttpError(503, "the server stops")
_log = logging.getLogger("relive.server")


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One thing that happened. `runs` has the facts by run; projects say who may see them."""

    id: str
    kind: str  # runs, points, ended, reset, question
    runs: dict[str, Any] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)

    def encode(self, only: frozenset[str] = frozenset()) -> bytes:
        runs = self.runs if not only or self.kind != "points" else {r: v for r, v in self.runs.items() if r in only}
        data = msgspec.json.encode({"kind": self.kind, "runs": runs})
        return b"id: " + self.id.encode() + b"\nevent: " + self.kind.encode() + b"\ndata: " + data + b"\n\n"


class Subscription:
    """One open page. For the event loop."""

    def __init__(self, projects: frozenset[str], runs: frozenset[str]) -> None:
        self._projects, self._runs = projects, runs
        self._events: deque[StoreEvent | None] = deque()
        self._ready = asyncio.Event()

    def wants(self, event: StoreEvent) -> bool:
        if self._projects and event.runs and not self._projects.intersection(event.projects.values()):
            return False
        return event.kind != "points" or not self._runs or not self._runs.isdisjoint(event.runs)

    def put(self, event: StoreEvent | None) -> None:
        if len(self._events) >= MAX_QUEUED:
            self._events.clear()
            event = StoreEvent(event.id if event else "", "reset")
        if event is None or self.wants(event):
            self._events.append(self._visible(event))
            self._ready.set()

    def _visible(self, event: StoreEvent | None) -> StoreEvent | None:
        if event is None or not self._projects:
            return event
        runs = {run: facts for run, facts in event.runs.items() if event.projects.get(run) in self._projects}
        return StoreEvent(event.id, event.kind, runs, event.projects)

    async def next(self) -> StoreEvent | None:
        """Returns the next event; None when there will be no more."""
        while not self._events:
            self._ready.clear()
            await self._ready.wait()
        return self._events.popleft()


class ChangeWatcher:
    """A thread that looks at the store while pages are open. All methods but `close` are for the event loop."""

    def __init__(self, home: Home, memory_bytes: int, questions: Callable[[], int] | None = None) -> None:
        """`questions` returns another number whenever a question to past runs has got on."""
        self._home, self._memory_bytes = home, memory_bytes
        self._questions = questions
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._events: deque[StoreEvent] = deque(maxlen=MAX_EVENTS)
        self._open: set[Subscription] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._lock = threading.Lock()  # around `_wake` and `_has_looked`
        self._has_looked = False  # whether there is a state of the store with which the next one is compared
        self._waiting: list[asyncio.Future[None]] = []  # for the first look
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: StoreProcess | None = None

    def subscribe(self, projects: frozenset[str], runs: frozenset[str]) -> Subscription:
        """Begins to collect the events for a page."""
        subscription = Subscription(projects, runs)
        self._open.add(subscription)
        if self._thread is None and not self._stop.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, name="relive-watch", daemon=True)
            self._thread.start()
        with self._lock:
            self._wake.set()
        return subscription

    async def first_look(self) -> int:
        """Waits until the store has been looked at: a run that begins later is told as new.

        Returns the number of the last event so far.
        """
        subscription = self.subscribe(frozenset(), frozenset())
        try:
            with self._lock:
                is_ready = self._has_looked
            if not is_ready:
                self._waiting.append(looked := asyncio.get_running_loop().create_future())
                await asyncio.wait([looked], timeout=PATIENCE_S)  # that a store can't be read is logged
            return self._number
        finally:
            self.unsubscribe(subscription)

    def _tell_looked(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    def after(self, number: int) -> list[StoreEvent]:
        """Returns the events after the one with this number."""
        return list(self._events)[len(self._events) - (self._number - number) :] if number < self._number else []

    def unsubscribe(self, subscription: Subscription) -> None:
        self._open.discard(subscription)
        if not self._open:
            with self._lock:
                self._wake.clear()

    def since(self, last_id: str) -> list[StoreEvent]:
        """Returns the events after that one; one that says `reset` if they are no longer known."""
        if not last_id:
            return []
        if last_id == f"{self._epoch}-{self._number}":
            return []
        known = [at for at, event in enumerate(self._events) if event.id == last_id]
        if known:
            return list(self._events)[known[0] + 1 :]
        return [StoreEvent(f"{self._epoch}-{self._number}", "reset")]

    def tell(self, kind: str, runs: dict[str, Any], projects: dict[str, str] | None = None) -> None:
        """Sends an event to all open pages."""
        self._number += 1
        event = StoreEvent(f"{self._epoch}-{self._number}", kind, runs, projects or {})
        self._events.append(event)
        for subscription in self._open:
            subscription.put(event)

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        seen: dict[str, Any] | None = None
        asked = 0
        while not self._stop.is_set():
            if not self._wake.wait(IDLE_S):
                with self._lock:
                    self._has_looked = self._wake.is_set()  # a page may have come in this moment
                    seen = seen if self._has_looked else None
                if seen is None:
                    self._end_process()
                continue
            begun = time.monotonic()
            now = self._questions() if self._questions is not None else 0
            if now != asked:
                asked = now
                self._send("question", {}, {})
            found = self._look()
            if found is not None:
                if seen is not None:
                    self._report(seen, found)
                seen = found
                self._note_look()
            self._stop.wait(max(LOOK_S, 2 * (time.monotonic() - begun)))  # a large store is looked at less often
        self._end_process()

    def _note_look(self) -> None:
        with self._lock:
            self._has_looked = True
        with contextlib.suppress(RuntimeError):  # the loop was closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._tell_looked)

    def _look(self) -> dict[str, Any] | None:
        try:
            if self._process is None or not self._process.is_usable:
                self._process = StoreProcess(self._home, self._memory_bytes, updates_catalog=False)
            raw = self._process.ask(StoreQuestion(store_state), self._check_stop)
            state: dict[str, Any] = msgspec.json.decode(raw)
            return state
        except (OSError, ReliveError, RuntimeError) as error:
            if not self._stop.is_set():
                _log.warning("the store could not be watched: %s", error)
            return None

    def _check_stop(self, _cpu_s: float) -> None:
        if self._stop.is_set():
            raise _STOPPED

    def _report(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        for kind, runs in find_changes(before, now).items():
            projects = {run: (now.get(run) or before[run])["project"] for run in runs}
            self._send(kind, runs, projects)

    def _send(self, kind: str, runs: dict[str, Any], projects: dict[str, str]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.tell, kind, runs, projects)

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def store_state(index: ProjectIndex) -> dict[str, Any]:
    """A question: each run with its outcome, and how many values of each name a live run has."""
    entries = index.runs()
    live = [entry for entry in entries if entry.live and entry.record.outcome == "running"]
    counts = _live_counts(index, live)
    return {
        entry.record.run: {
            "project": entry.record.project, "outcome": entry.record.outcome,
            "version": entry.number or len(entry.record.incomplete), "names": counts.get(entry.record.run),
        }
        for entry in entries
    }  # fmt: skip


def _live_counts(index: Index, live: list[Any]) -> dict[str, dict[str, list[Any]]]:
    found = index.summaries(live) if live else {}
    return {run: {one.name: [one.count, one.exact_last] for one in summaries} for run, summaries in found.items()}


def find_changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns what happened between two states of a store: kind of event → run → facts."""
    found: dict[str, dict[str, Any]] = {"runs": {}, "points": {}, "ended": {}}
    for run, facts in now.items():
        old = before.get(run)
        if old is None:
            found["runs"][run] = {"outcome": facts["outcome"], "new": True}
        elif old["outcome"] != facts["outcome"]:
            found["ended" if old["outcome"] == "running" else "runs"][run] = {"outcome": facts["outcome"]}
        elif old["version"] != facts["version"] and facts["outcome"] != "running":
            found["runs"][run] = {"outcome": facts["outcome"]}
        elif facts["names"] and facts["names"] != old["names"]:
            known = old["names"] or {}
            found["points"][run] = {
                name: {"count": count, "last": last}
                for name, (count, last) in facts["names"].items()
                if known.get(name, [0])[0] != count
            }
    found["runs"] |= {run: {"outcome": None, "gone": True} for run in before.keys() - now.keys()}
    return {kind: dict(list(runs.items())[:MAX_RUNS]) for kind, runs in found.items() if runs}
