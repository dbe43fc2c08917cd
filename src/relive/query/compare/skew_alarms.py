"""When the skew of a run is worth an alarm: rules, and the first steps that break one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import QueryError
from relive.query.compare.rank_spread import Spread, spread, told
from relive.store.catalog import Index, RunEntry, find_run, read_run
from relive.store.journal import is_alive, plain_number

PATIENCE = 1_000  # steps


def settled(found: Spread, waiting_for: Collection[int]) -> int:
    """How many steps, from the first, every rank has passed; `waiting_for` are those that may still log more.

    A rank that is very far behind, or never logs the name, is not waited for.
    """
    import numpy as np

    counts = [len(found.at)]
    for column, rank in enumerate(found.ranks):
        if rank in waiting_for:
            seen = np.flatnonzero(found.there[:, column])
            counts.append(int(seen[-1]) + 1 if len(seen) else 0)
    if any(rank not in found.ranks for rank in waiting_for):
        counts.append(0)
    return max(min(counts), len(found.at) - PATIENCE)


def ranks_at_work(entry: RunEntry) -> list[int]:
    """The ranks whose processes live, or may live on another machine."""
    return [
        journal.journal.rank
        for journal in entry.live
        if not journal.journal.process and not _has_ended(journal.lines) and _may_live(journal.header)
    ]


def _has_ended(lines: Sequence[dict[str, Any]]) -> bool:
    return any(line.get("k") == "end" for line in lines)


def _may_live(header: dict[str, Any]) -> bool:
    import socket

    return header.get("host") != socket.gethostname() or is_alive(header.get("pid"), header.get("start"))


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """An alarm: the skew of a name is above a bound for so many steps on end."""

    name: str
    bound: float
    steps: int = 1

    @classmethod
    def parse(cls, text: str, steps: int = 1) -> Rule:
        """From `loss>0.05`."""
        name, sign, bound = text.rpartition(">")
        try:
            number = float(bound)
        except ValueError:
            number = math.nan
        if not sign or not name.strip() or not math.isfinite(number) or number < 0:
            raise QueryError(f"{text!r} is no rule; write a name, > and a number, like: loss>0.05")
        if steps < 1:
            raise QueryError(f"a rule needs at least 1 step, not {steps}; leave --for out for 1")
        return cls(name.strip(), number, steps)


@dataclass(frozen=True, slots=True)
class Breach:
    """Where a rule was broken: the first and the last step of the stretch, as row numbers."""

    first: int
    last: int


def first_breach(found: Spread, rule: Rule, count: int) -> Breach | None:
    """The first stretch of steps, among the first `count`, that breaks the rule.

    A skew that is no number counts as above any bound: one rank's NaN is what a poisoned shard looks like. Steps
    without a canonical value, or with one rank only, are passed over.
    """
    import numpy as np

    skews = found.skew[:count]
    telling = found.has_canonical[:count] & (found.there[:count].sum(axis=1) > 1)
    begun, length = 0, 0
    for row in np.flatnonzero(telling).tolist():
        if not (skews[row] > rule.bound or math.isnan(skews[row])):
            length = 0
            continue
        begun = row if not length else begun
        length += 1
        if length == rule.steps:
            return Breach(begun, row)
    return None


def alert(found: Spread, rule: Rule, breach: Breach) -> dict[str, Any]:
    """A breach as plain values, with a sentence for people."""
    row = breach.last
    step = told(Spread(found.run, found.name, found.ranks, (found.at[row],), found.value[row : row + 1],
                       found.there[row : row + 1]), len(found.ranks))["steps"][0]  # fmt: skip
    where = ", ".join(f"{loop} {item}" for loop, item in found.at[row].items()) or "outside of loops"
    length = "1 step" if rule.steps == 1 else f"{rule.steps} steps"
    seen = f"{step['skew']:.6g}" if step["skew"] is not None else "no number"
    text = (
        f"run {found.run[:8]}: skew of {found.name} is {seen} at {where}, above {rule.bound:g} for {length};"
        f" rank {step['worst_rank']} is farthest off"
    )
    values = {
        rank: plain_number(float(value))
        for rank, value, there in zip(found.ranks, found.value[row].tolist(), found.there[row].tolist(), strict=True)
        if there
    }
    return {
        "kind": "skew", "run": found.run, "name": found.name, "bound": rule.bound, "steps": rule.steps,
        "since": found.at[breach.first], **step, "values": {str(rank): value for rank, value in values.items()},
        "text": text,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Watched:
    """What a look at a run shows: does it go on, did it log the name yet, and was the rule broken?"""

    live: bool
    logged: bool
    alert: dict[str, Any] | None = None


def watched(index: Index, run: str, rule: Rule) -> Watched:
    """Look at a run as it is now; while it goes on only its own journals are read."""
    entry = read_run(index.home, run)
    if entry is None or not entry.live:
        entry = find_run(index.runs(), run)
    live = bool(entry.live)
    try:
        found = spread(index, entry, rule.name)
    except QueryError:  # not logged yet
        return Watched(live, logged=False)
    breach = first_breach(found, rule, settled(found, ranks_at_work(entry)))
    return Watched(live, logged=True, alert=None if breach is None else alert(found, rule, breach))
