"""Questions of a page, each planned and replayed by a process of its own; one is replayed at a time."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relive.errors import NotFound, ReliveError
from relive.store import Home

MAX_PLANS = 8  # that wait to be started; the oldest is given up for another
MAX_KEPT = 100  # questions that are remembered after their end
END_S = 10.0
PLANNING, READY, WAITING, RUNNING, DONE, STOPPED, FAILED = (
    "planning", "ready", "waiting", "running", "done", "stopped", "failed"
)  # fmt: skip
_COMMAND = (sys.executable, "-m", "relive.cli.commands.ui.ask_process")


@dataclass(eq=False)
class _ReplayQuestion:
    """One question, from its plan to its answer."""

    id: str
    by: str
    process: subprocess.Popen[bytes]
    state: str = PLANNING
    plan: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    done: int = 0
    of: int = 0
    error: str = ""
    guesses: bool = False
    started_s: float = 0.0
    took_s: float = 0.0
    is_stopping: bool = False
    ready: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def order(self, order: dict[str, Any]) -> None:
        """Tells the process something; one that has ended needs no orders."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self.process.stdin.write(msgspec.json.encode(order) + b"\n")
                self.process.stdin.flush()

    def to_json(self) -> dict[str, Any]:
        took_s = time.monotonic() - self.started_s if self.state == RUNNING else self.took_s
        found = self.answer
        runs = found.get("runs", [])
        return {
            "id": self.id, "by": self.by, "state": self.state, "names": self.plan.get("names", []), "done": self.done,
            "of": self.of, "took_s": found.get("took_s", took_s), "predicted_s": self.plan.get("total_s"),
            "values": found.get("values", 0), "verdicts": found.get("verdicts", {}), "runs": runs,
            "refused": found.get("refused", []),
            "errors": [*([self.error] if self.error else []), *(text for run in runs for text in run["errors"])],
        }  # fmt: skip


class ReplayAsker:
    """Plans and replays what a page asks of the runs of one home. Its methods may wait; each is for a thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._asked: dict[str, _ReplayQuestion] = {}
        self._lock = threading.RLock()
        self.changes = 0  # counts what happened, so that others can see whether something did

    def plan(self, question: dict[str, Any], by: str) -> dict[str, Any]:
        """Plans a question; raises why it can't be."""
        process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._home.path.parent, start_new_session=True
        )
        asked = _ReplayQuestion(secrets.token_hex(6), by, process)
        with self._lock:
            self._asked[asked.id] = asked
            self._forget_old()
        asked.order({"home": str(self._home.path), "question": question})
        threading.Thread(target=self._listen, args=(asked,), name="relive-ask", daemon=True).start()
        asked.ready.wait()
        if asked.state != READY:
            with self._lock:
                self._asked.pop(asked.id, None)
            raise ReliveError(asked.error or "the plan was given up; ask again")
        return {"plan": asked.id, **asked.plan}

    def start(self, plan: str, *, guesses: bool) -> dict[str, Any]:
        """Replays a plan as soon as no other one is replayed."""
        with self._lock:
            asked = self._find(plan)
            if asked.state != READY:
                raise ReliveError(f"this plan was started already, and is {asked.state}; make another")
            asked.state, asked.guesses = WAITING, guesses
            self._start_next()
        return {"question": asked.id}

    def questions(self) -> list[dict[str, Any]]:
        """Returns all questions that were started, the newest first."""
        with self._lock:
            started = [one for one in self._asked.values() if one.state not in (PLANNING, READY)]
        return [one.to_json() for one in reversed(started)]

    def question(self, question: str) -> dict[str, Any]:
        with self._lock:
            return self._find(question).to_json()

    def stop(self, question: str) -> dict[str, Any]:
        """Stops a question; what it has is kept."""
        with self._lock:
            asked = self._find(question)
            asked.is_stopping = True
        asked.order({"stop": True})
        asked.ended.wait(END_S)
        with self._lock:
            return asked.to_json()

    def close(self) -> None:
        """Stops all questions, as if the user had."""
        with self._lock:
            going = [one for one in self._asked.values() if one.process.poll() is None]
        for asked in going:
            asked.is_stopping = True
            asked.order({"stop": True})
        end_s = time.monotonic() + END_S
        for asked in going:
            try:
                asked.process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                asked.process.kill()

    def _find(self, word: str) -> _ReplayQuestion:
        asked = self._asked.get(word)
        if asked is None:
            raise NotFound(f"no question {word[:40]!r} here; plan it again, plans are forgotten when there are many")
        return asked

    def _start_next(self) -> None:
        if any(one.state == RUNNING for one in self._asked.values()):
            return
        asked = next((one for one in self._asked.values() if one.state == WAITING), None)
        if asked is not None:
            asked.state, asked.started_s = RUNNING, time.monotonic()
            self.changes += 1
            asked.order({"start": {"guesses": asked.guesses}})

    def _forget_old(self) -> None:
        plans = [one for one in self._asked.values() if one.state in (PLANNING, READY)]
        ended = [one for one in self._asked.values() if one.state in (DONE, STOPPED, FAILED)]
        for asked in [*plans[:-MAX_PLANS], *ended[:-MAX_KEPT]]:
            del self._asked[asked.id]
            asked.order({"stop": True})

    def _listen(self, asked: _ReplayQuestion) -> None:
        """Takes what the process tells, until it ends."""
        for row in asked.process.stdout or ():
            told = msgspec.json.decode(row)
            with self._lock:
                self._take(asked, told)
            if told["kind"] == "planned":
                asked.ready.set()
        asked.process.wait()
        with self._lock:
            if asked.state in (RUNNING, WAITING, READY):
                is_failed = asked.state == RUNNING and not asked.is_stopping
                asked.state = FAILED if is_failed else STOPPED
                asked.error = "the replay ended unexpectedly; see the log of the page" if is_failed else ""
            elif asked.state == PLANNING:
                asked.state, asked.error = FAILED, asked.error or "the plan could not be made; see the log of the page"
            if asked.started_s and not asked.took_s:
                asked.took_s = time.monotonic() - asked.started_s
            self.changes += 1
            self._start_next()
        asked.ready.set()
        asked.ended.set()
        for stream in (asked.process.stdin, asked.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _take(self, asked: _ReplayQuestion, told: dict[str, Any]) -> None:
        self.changes += 1
        if told["kind"] == "planned":
            asked.plan, asked.state = told["plan"], READY
            asked.of = sum(row["iterations"] for row in asked.plan["rows"])
        elif told["kind"] == "progress":
            asked.done, asked.of = told["done"], told["of"]
        elif told["kind"] == "done":
            asked.answer = told["answer"]
            asked.state = STOPPED if asked.answer["is_stopped"] else DONE
            asked.done = asked.of if asked.state == DONE else asked.done
        else:
            asked.state, asked.error = FAILED, told["error"]
