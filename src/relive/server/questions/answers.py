"""Answers one question after the other in a process of its own, within limits that the system enforces.

A question is a function and its arguments; it gets the index of the store and returns plain JSON values.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from relive.errors import NotFound, QueryError, ReliveError, StorageUnavailable
from relive.server.http import HttpError
from relive.store import Home
from relive.store.catalog import Index, RunEntry

MAX_ANSWER_BYTES = 32 << 20
# The errors that a question may end with, by the word for each.
_ERRORS: dict[str, type[ReliveError]] = {"query": QueryError, "missing": NotFound, "storage": StorageUnavailable}


class StoreAnswer(msgspec.Struct, frozen=True):
    """What a process says of a question: JSON, or an error with its status and message."""

    body: bytes = b""
    error: str = ""  # a word of `_ERRORS`, "http", "relive", "memory" or "failure"
    message: str = ""
    status: int = 0
    resident_bytes: int = 0

    def unwrap(self) -> bytes:
        """Returns the JSON; raises the error that the question ended with."""
        if not self.error:
            return self.body
        if self.error in ("http", "memory"):
            raise HttpError(self.status, self.message)
        if self.error == "failure":
            raise RuntimeError(self.message)
        raise _ERRORS.get(self.error, ReliveError)(self.message)


class ProjectIndex(Index):
    """An index that shows the runs of some projects only."""

    projects: frozenset[str] = frozenset()  # empty means all

    def runs(self) -> list[RunEntry]:
        entries = super().runs()
        return [one for one in entries if one.record.project in self.projects] if self.projects else entries

    def newest(self, limit: int) -> tuple[int, list[RunEntry]]:
        if not self.projects:
            return super().newest(limit)
        entries = self.runs()
        return len(entries), entries[-limit:]


class StoreQuestion(msgspec.Struct, frozen=True):
    """A function that is importable by name, its arguments, and the projects whose runs it may see."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    projects: tuple[str, ...] = ()


def answer_questions(
    connection: Connection, life: Connection, home: Home, memory_bytes: int, index_options: dict[str, Any]
) -> None:
    """Answers what comes over the connection until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes the connection
    threading.Thread(target=_end_with_server, args=(life,), daemon=True).start()
    _limit_memory(memory_bytes)
    index: ProjectIndex | None = None
    while True:
        try:
            raw = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            question = pickle.loads(raw)
            index = index or ProjectIndex(home, **index_options)
            index.projects = frozenset(question.projects)
            answer = _ask(index, question)
        except StorageUnavailable as error:
            answer, index = StoreAnswer(error="storage", message=str(error)), None
        except Exception:  # noqa: BLE001 - one question must not end the process; the server logs it
            answer, index = StoreAnswer(error="failure", message=traceback.format_exc()[-4000:]), None
        with contextlib.suppress(OSError):
            connection.send_bytes(msgspec.msgpack.encode(msgspec.structs.replace(answer, resident_bytes=_resident())))


def _ask(index: ProjectIndex, question: StoreQuestion) -> StoreAnswer:
    try:
        body = msgspec.json.encode(question.function(index, *question.args))
    except HttpError as error:
        return StoreAnswer(error="http", message=str(error), status=error.status)
    except StorageUnavailable:
        raise
    except ReliveError as error:
        kind = next((word for word, one in _ERRORS.items() if isinstance(error, one)), "relive")
        return StoreAnswer(error=kind, message=str(error))
    except Exception as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryException":  # of DuckDB
            raise
        return StoreAnswer(error="memory", status=422, message=(
            "this question needs more memory than the server gives to one; narrow it, or ask the operator to raise "
            "`relive serve --question-memory`"))  # fmt: skip
    if len(body) > MAX_ANSWER_BYTES:
        return StoreAnswer(error="http", status=422, message=(
            f"the answer has {len(body)} bytes, more than {MAX_ANSWER_BYTES}; narrow the question"))  # fmt: skip
    return StoreAnswer(body)


def warm_up(index: Index) -> int:
    """A question that loads what others need: the runs, and the SQL engine."""
    from relive.query.sql import columns_of

    columns_of("run > ''")
    return len(index.runs())


def _limit_memory(extra_bytes: int) -> None:
    """Limits the private memory of this process to what it has now and some more."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        used_kb = next((int(row.split()[1]) for row in file if row.startswith("VmData:")), 0)
        limit = used_kb * 1024 + extra_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _end_with_server(life: Connection) -> None:
    """Ends this process, also in the middle of a question, when the server has closed its end or was killed."""
    with contextlib.suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(0)
