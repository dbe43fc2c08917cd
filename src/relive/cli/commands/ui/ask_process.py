"""A process that plans one question and replays it when told to; JSON lines come in on stdin and go out on stdout.

In: `{"home", "question"}` first, then `{"start": {"guesses"}}` or `{"stop": true}`. Out: `planned`, `progress`, `done`,
`failed`. If stdin ends, the question is stopped, and what it has is kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from relive.cli.replay_json import answer_json, plan_json
from relive.errors import ReliveError
from relive.hindsight import Plan, Question, ReplaySession, execute_plan, plan_replay
from relive.hindsight.analysis import InsertedStatement, logged_names
from relive.hindsight.workers import Task
from relive.store import Home

PROGRESS_S = 0.25


class _QuestionOrders:
    """What comes in on stdin, read by a thread, so that a stop is seen while a replay runs."""

    def __init__(self, stream: BinaryIO) -> None:
        self.first: dict[str, Any] = msgspec.json.decode(stream.readline())
        self._stream = stream
        self.started = threading.Event()
        self.stopped = threading.Event()
        self.guesses = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for row in self._stream:
            order = msgspec.json.decode(row)
            if "start" in order:
                self.guesses = bool(order["start"].get("guesses"))
                self.started.set()
            if order.get("stop"):
                break
        self.stopped.set()
        self.started.set()


def main() -> None:
    """Answers one question, until it is done or given up."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print must not come between the lines
    orders = _QuestionOrders(sys.stdin.buffer)

    def tell(kind: str, **content: Any) -> None:
        out.write(msgspec.json.encode({"kind": kind, **content}) + b"\n")

    try:
        _answer(orders, tell)
    except ReliveError as error:
        tell("failed", error=str(error))


def _answer(orders: _QuestionOrders, tell: Any) -> None:
    home = Home(Path(orders.first["home"]))
    with ReplaySession(home) as session:
        plan = plan_replay(session, parse_question(orders.first["question"]))
        tell("planned", plan=plan_json(plan))
        orders.started.wait()
        if orders.stopped.is_set():
            return
        chosen = plan if orders.guesses else plan.without_guesses()
        begun = time.perf_counter()
        watch = _ProgressTeller(chosen, orders, tell)
        found = execute_plan(session, chosen, watch=watch)
        found.took_s = time.perf_counter() - begun
    tell("done", answer=answer_json(found))


class _ProgressTeller:
    """Tells progress now and then, and stops the replay as Ctrl-C would: what was done is kept."""

    def __init__(self, plan: Plan, orders: _QuestionOrders, tell: Any) -> None:
        self._orders, self._tell = orders, tell
        self._of = sum(case.plan.iterations for case in plan.cases)
        self._told = 0.0

    def __call__(self, tasks: Sequence[Task]) -> None:
        if self._orders.stopped.is_set():
            raise KeyboardInterrupt
        if time.monotonic() - self._told > PROGRESS_S:
            self._told = time.monotonic()
            done = sum(task.done_iterations() for task in tasks)
            self._tell("progress", done=done, of=max(self._of, done), segments=sum(task.is_ok for task in tasks))


def parse_question(asked: dict[str, Any]) -> Question:
    """Returns the question that a page asked, with the statement in its place."""
    statement, names = asked.get("statement"), tuple(asked.get("names") or ())
    inserted = None
    if statement is not None:
        if not asked.get("file") or not asked.get("line"):
            raise ReliveError("a statement needs its place: give file and line")
        names = names or logged_names(statement)
        inserted = InsertedStatement(statement, asked["file"], int(asked["line"]), asked.get("source"))
    if not names:
        raise ReliveError('no column is named; give names, or a statement like relive.log("name", x)')
    return Question(
        names, asked.get("where"), tuple(asked.get("runs") or ()), again=bool(asked.get("again")),
        from_start=bool(asked.get("from_start")), source=None if inserted else asked.get("source"), inserted=inserted,
    )  # fmt: skip


if __name__ == "__main__":
    main()
