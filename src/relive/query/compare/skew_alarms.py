"""Alarms on the skew between ranks: rules, and the first steps that break one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import QueryError
from relive.query.compare.rank_spread import RankSpread, measure_spread, spread_to_json
from relive.store.catalog import Index, RunEntry, find_run, read_run
from relive.store.journal import finite_or_none, is_process_alive

MAX_LAG_STEPS = 1_000  # a rank that is farther behind is not waited for


def settled_steps(found: RankSpread, waiting_for: Collection[int]) -> int:
    """Returns how many steps, from the first, every rank has passed; `waiting_for` are ranks that may still log more.

    A rank that is very far behind, or never logs the name, is not waited for.
    """
    import numpy as np

    counts = [len(found.contexts)]
    for column, rank in enumerate(found.ranks):
        if rank in waiting_for:
            seen = np.flatnonzero(found.logged[:, column])
            counts.append(int(seen[-1]) + 1 if len(seen) else 0)
    if any(rank not in found.ranks for rank in waiting_for):
        counts.append(0)
    return max(min(counts), len(found.contexts) - MAX_LAG_STEPS)


def live_ranks(entry: RunEntry) -> list[int]:
    """Returns the ranks whose processes are alive, or may be alive on another machine."""
    return [
        journal.journal.rank
        for journal in entry.live
        if not journal.journal.process and not _has_ended(journal.lines) and _may_be_alive(journal.header)
    ]


def _has_ended(lines: Sequence[dict[str, Any]]) -> bool:
    return any(line.get("k") == "end" for line in lines)


def _may_be_alive(header: dict[str, Any]) -> bool:
    import socket

    return header.get("host") != socket.gethostname() or is_process_alive(header.get("pid"), header.get("start"))


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SkewRule:
    """A condition for an alarm: the skew of a name exceeds a bound for `steps` consecutive steps."""

    name: str
    bound: float
    steps: int = 1

    @classmethod
    def parse(cls, text: str, steps: int = 1) -> SkewRule:
        """Parses a rule such as `loss>0.05`."""
        name, sign, bound = text.rpartition(">")
        try:
            number = float(bound)
        except ValueError:
            number = math.nan
        if not sign or not name.strip() or not math.isfinite(number) or number < 0:
            raise QueryError(f"{text!r} is not a rule; write a name, > and a number, like: loss>0.05")
        if steps < 1:
            raise QueryError(f"a rule needs at least 1 step, not {steps}; leave --for out for 1")
        return cls(name.strip(), number, steps)


@dataclass(frozen=True, slots=True)
class Breach:
    """The consecutive steps that break a rule: row numbers of the first and the last one."""

    first: int
    last: int


def first_breach(found: RankSpread, rule: SkewRule, count: int) -> Breach | None:
    """Returns the first consecutive steps, among the first `count`, that break the rule.

    A NaN skew counts as above any bound: NaN on one rank is what a poisoned shard looks like. Steps without a
    canonical value, or with one rank only, are skipped.
    """
    import numpy as np

    skews = found.skew[:count]
    is_comparable = found.has_canonical[:count] & (found.logged[:count].sum(axis=1) > 1)
    first, length = 0, 0
    for row in np.flatnonzero(is_comparable).tolist():
        if not (skews[row] > rule.bound or math.isnan(skews[row])):
            length = 0
            continue
        first = row if not length else first
        length += 1
        if length == rule.steps:
            return Breach(first, row)
    return None


def make_alert(found: RankSpread, rule: SkewRule, breach: Breach) -> dict[str, Any]:
    """Returns a breach as plain JSON values, with a message for people."""
    row = breach.last
    step = spread_to_json(found.at_row(row), len(found.ranks))["steps"][0]
    where = ", ".join(f"{loop} {item}" for loop, item in found.contexts[row].items()) or "outside of loops"
    length = "1 step" if rule.steps == 1 else f"{rule.steps} steps"
    seen = f"{step['skew']:.6g}" if step["skew"] is not None else "not a number"
    text = (
        f"run {found.run[:8]}: skew of {found.name} is {seen} at {where}, above {rule.bound:g} for {length};"
        f" rank {step['worst_rank']} is farthest off"
    )
    values = {
        rank: finite_or_none(float(value))
        for rank, value, there in zip(found.ranks, found.value[row].tolist(), found.logged[row].tolist(), strict=True)
        if there
    }
    return {
        "kind": "skew", "run": found.run, "name": found.name, "bound": rule.bound, "steps": rule.steps,
        "since": found.contexts[breach.first], **step, "values": {str(rank): value for rank, value in values.items()},
        "text": text,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The state of a run under a rule: whether it is live, whether it has logged the name, and the alert, if any."""

    live: bool
    logged: bool
    alert: dict[str, Any] | None = None


def check_rule(index: Index, run: str, rule: SkewRule) -> RuleStatus:
    """Checks a rule against the current state of a run; for a live run, only its own journals are read."""
    entry = read_run(index.home, run)
    if entry is None or not entry.live:
        entry = find_run(index.runs(), run)
    live = bool(entry.live)
    try:
        found = measure_spread(index, entry, rule.name)
    except QueryError:  # not logged yet
        return RuleStatus(live, logged=False)
    breach = first_breach(found, rule, settled_steps(found, live_ranks(entry)))
    return RuleStatus(live, logged=True, alert=None if breach is None else make_alert(found, rule, breach))
