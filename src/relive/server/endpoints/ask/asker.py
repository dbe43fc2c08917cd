"""The seam to replay: what a server needs of whoever can plan and replay, and how a question is put."""

from __future__ import annotations

import shlex
from typing import Any, Protocol

import msgspec

from relive.server.http import HttpError

MAX_RUNS = 10_000


class Asker(Protocol):
    """Plans and replays questions to past runs. Methods block, and raise `ReliveError` with the remedy."""

    @property
    def changes(self) -> int:
        """Grows whenever a question changes."""

    def plan(self, question: dict[str, Any], by: str) -> dict[str, Any]:
        """Returns the plan: its id, a row for each run, the price, and what is refused."""

    def start(self, plan: str, *, guesses: bool) -> dict[str, Any]:
        """Begins to replay a plan; returns the id of the question."""

    def questions(self) -> list[dict[str, Any]]: ...

    def question(self, question: str) -> dict[str, Any]: ...

    def stop(self, question: str) -> dict[str, Any]:
        """Stops a question; what it has is kept."""

    def close(self) -> None: ...


class AskBody(msgspec.Struct, forbid_unknown_fields=True):
    """A question: names that are logged somewhere, or a statement with its place; to some runs, or where it holds.

    `source` is a run whose version has the place, or the statements; without it they are in the working tree.
    """

    names: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    where: str | None = None
    statement: str | None = None
    file: str | None = None
    line: int | None = None
    source: str | None = None
    again: bool = False
    from_start: bool = False

    def check(self) -> None:
        """Raises for what no replay could answer."""
        if not self.names and self.statement is None:
            raise HttpError(422, 'no column is named; give names, or a statement like relive.log("name", x)')
        if self.statement is not None and (not self.file or self.line is None or self.line < 1):
            raise HttpError(422, "a statement needs its place; give file and line")
        if len(self.runs) > MAX_RUNS:
            raise HttpError(422, f"more than {MAX_RUNS} runs are named; select them with where")

    def commands(self) -> list[str]:
        """Returns what to do on the machine where the runs were recorded, to the same effect."""
        names = " ".join(shlex.quote(name) for name in self.names) or "NAME"
        runs = "".join(f" --run {shlex.quote(run[:12])}" for run in self.runs[:20])
        where = f" --where {shlex.quote(self.where)}" if self.where else ""
        source = f" --from {shlex.quote(self.source)}" if self.source and self.statement is None else ""
        add = [f"# add before {self.file}:{self.line}: {self.statement}"] if self.statement is not None else []
        return [*add, f"relive replay {names}{where}{runs}{source}"]


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """How a plan is replayed: also where the place of a statement is a guess, or not."""

    guesses: bool = False
