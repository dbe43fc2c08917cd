"""Which runs are best: ranked by one number each, and only beside runs that they can be compared with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from relive.errors import QueryError
from relive.query.compare.comparability import CODE, DATA, ENVIRONMENT, IDENTITY, KEYS, why_apart
from relive.query.compare.run_facts import RunFactColumns
from relive.query.compare.scores import (
    BEST,
    LAST,
    MAX,
    MEAN,
    MIN,
    WAYS,
    Score,
    mean_of,
    over_ranks,
    places,
    score,
    sort_key,
    summed_up,
    told_by_name,
)
from relive.store.catalog import TAIL, Index, RunEntry
from relive.store.journal import plain_value

CANONICAL = "canonical"
VIEWS = (CANONICAL, MEAN, MIN, MAX)  # of a run with several ranks


@dataclass(frozen=True, slots=True)
class LeaderboardTerms:
    """How a board is made. `docs/reference/leaderboard.md` explains each."""

    by: str = LAST  # last, best, min, max, or mean of the last k
    order: str | None = None  # what is better: "min" or "max"; None lets the metric's name tell
    k: int = 10
    where: str | None = None
    group: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    guard: tuple[str, ...] = (DATA,)  # data, code, environment
    ranks: str = CANONICAL  # of a run with several: rank 0, or mean, min or max over them
    limit: int = 0  # rows in a group; 0 is all

    def __post_init__(self) -> None:
        _check("by", self.by, WAYS)
        _check("order", self.order, (None, MIN, MAX))
        _check("ranks", self.ranks, VIEWS)
        for one in self.guard:
            _check("guard", one, (DATA, CODE, ENVIRONMENT))
        if self.k < 1 or self.limit < 0:
            raise QueryError(f"k = {self.k} and limit = {self.limit} can't both be; k is 1 or more, limit 0 or more")

    @classmethod
    def of(cls, *, across_data: bool = False, **given: Any) -> LeaderboardTerms:
        """From options as people give them: one name or several, and `across_data` for no guard on data."""
        known = {one.name for one in fields(cls)}
        for name in given:
            _check("the option", name, sorted(known | {"across_data"}))
        for name in known.intersection(given, ("group", "columns", "guard")):
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        terms = cls(**given)
        return replace(terms, guard=tuple(one for one in terms.guard if one != DATA)) if across_data else terms


def _check(option: str, given: str | None, known: Sequence[str | None]) -> None:
    if given not in known:
        listed = ", ".join(repr(one) for one in known if one is not None)
        raise QueryError(f"{option}={given!r} is not known; use one of {listed}")


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A run with what it is ranked by, and what keeps it apart from others."""

    entry: RunEntry
    score: Score
    apart: tuple[str | None, ...]  # what each guard tells of it
    group: tuple[Any, ...]
    cells: dict[str, Any] = field(default_factory=dict)

    @property
    def since(self) -> tuple[int, str]:
        """What decides between equals: the run that was there first, so that a board does not change by itself."""
        return self.entry.record.started_us, self.entry.record.run


def build_leaderboard(index: Index, metric: str, terms: LeaderboardTerms = LeaderboardTerms()) -> dict[str, Any]:  # noqa: B008 - frozen
    """The runs that logged a metric, best first, in groups of runs that may stand side by side; plain JSON values."""
    facts = RunFactColumns(index, index.runs())
    _check_metric(index, facts, metric)
    facts = facts.matching(terms.where)
    order = terms.order or told_by_name(metric)
    by = order if terms.by == BEST else terms.by
    candidates = _candidates(facts, _scores(index, facts.entries, metric, by, terms), terms)
    groups = _groups(candidates, terms.guard, order)
    shown = [group for group in groups if any(one.score.number is not None for one in group)]
    return {
        "metric": metric,
        "by": terms.by,
        "order": order,
        "ranks": terms.ranks,
        "guard": list(terms.guard),
        "groups": [_told(group, shown, terms, order) for group in shown],
        "left_out": sum(len(group) for group in groups if group not in shown),
    }


def _check_metric(index: Index, facts: RunFactColumns, metric: str) -> None:
    known = index.names(facts.entries, all_ranks=False)
    if metric not in known:
        near = difflib.get_close_matches(metric, known, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise QueryError(f"no run logged {metric!r}; {hint}logged were {', '.join(known[:30]) or 'none yet'}")


# --- scores ---------------------------------------------------------------------------------------------------------


def _scores(index: Index, entries: Sequence[RunEntry], metric: str, by: str, terms: LeaderboardTerms) -> list[Score]:
    """One score for each run; from summaries, so that no point is read unless many of them are asked for."""
    all_ranks = terms.ranks != CANONICAL
    found = index.summaries(entries, [metric], all_ranks=all_ranks)
    if by == MEAN and terms.k > TAIL:
        by_journal = _long_means(index, entries, metric, terms.k, all_ranks=all_ranks)
    else:
        by_journal = {}
    scores = []
    for entry in entries:
        own = found[entry.record.run]
        each = [by_journal.get((entry.record.run, one.rank)) or score(one, by, terms.k) for one in own]
        scores.append(over_ranks(each, terms.ranks) if all_ranks else next(iter(each), Score()))
    return scores


def _long_means(
    index: Index, entries: Sequence[RunEntry], metric: str, k: int, *, all_ranks: bool
) -> dict[tuple[str, int], Score]:
    """Means over more values than summaries hold, from the points."""
    import numpy as np

    points = index.points(entries, [metric], all_ranks=all_ranks)
    own = np.flatnonzero(points.process == 0)
    key = points.run[own].astype(np.int64) << 32 | points.rank[own]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else key
    ends = np.r_[starts[1:], len(key)]
    found = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        row = own[start]
        values = points.value[own[max(start, end - k) : end]].tolist()
        found[points.runs[int(points.run[row])], int(points.rank[row])] = mean_of(values)
    return found


def _candidates(facts: RunFactColumns, scores: Sequence[Score], terms: LeaderboardTerms) -> list[_Candidate]:
    columns = {name: facts.values(name) for name in terms.columns}
    by_group = [facts.values(name) for name in terms.group]
    return [
        _Candidate(
            entry,
            scores[at],
            tuple(IDENTITY[guard](entry.record) for guard in terms.guard),
            tuple(_hashable(values[at]) for values in by_group),
            {name: values[at] for name, values in columns.items()},
        )
        for at, entry in enumerate(facts.entries)
    ]


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value


# --- groups ---------------------------------------------------------------------------------------------------------


def _groups(candidates: Iterable[_Candidate], guard: Sequence[str], order: str) -> list[list[_Candidate]]:
    """Runs that may stand side by side, best first.

    What a guard keeps apart is in the order of its newest run, never of its values; what was asked to be grouped is in
    the order of its best.
    """
    found: dict[Any, list[_Candidate]] = {}
    newest: dict[Any, tuple[int, str]] = {}
    for one in candidates:
        found.setdefault((one.apart, one.group), []).append(one)
        newest[one.apart] = max(newest.get(one.apart, one.since), one.since)
    for group in found.values():
        group.sort(key=lambda one: sort_key(one.score, order, one.since))

    def place(group: list[_Candidate]) -> tuple[Any, ...]:
        started_us, run = newest[group[0].apart]
        return (-started_us, run, *sort_key(group[0].score, order, group[0].since))

    return sorted(found.values(), key=place)


def _told(
    group: list[_Candidate], shown: Sequence[list[_Candidate]], terms: LeaderboardTerms, order: str
) -> dict[str, Any]:
    first = group[0]
    asked = dict(zip(terms.group, (one for one in first.group), strict=True))
    kept = group[: terms.limit] if terms.limit else group
    ranked = places([one.score for one in group])
    told = {
        "data_version": first.entry.record.data_version if DATA in terms.guard else _shared_data(group),
        **{KEYS[guard]: value for guard, value in zip(terms.guard, first.apart, strict=True) if guard != DATA},
        **({"group": asked} if asked else {}),
        "reason": _reason(first, shown, terms.guard) or _mixture(group),
        "summary": summed_up([one.score for one in group], order),
        "runs": [_row(one, place) for one, place in zip(kept, ranked[: len(kept)], strict=True)],
    }
    return told if len(kept) == len(group) else {**told, "more": len(group) - len(kept)}


def _shared_data(group: Sequence[_Candidate]) -> str | None:
    """The data version of a group that may hold several: the one of all, or None."""
    found = {one.entry.record.data_version for one in group}
    return found.pop() if len(found) == 1 else None


def _mixture(group: Sequence[_Candidate]) -> str | None:
    """What to know of a group that holds runs on several data versions, which only happens when it was asked for."""
    found = {one.entry.record.data_version for one in group}
    return f"ranked across {len(found)} data versions, as was asked" if len(found) > 1 else None


def _reason(first: _Candidate, shown: Sequence[list[_Candidate]], guards: Sequence[str]) -> str | None:
    """Why this group stands apart, or None if no guard keeps anything apart."""
    apart = {group[0].apart for group in shown}
    if len(apart) == 1:
        return None
    reference = shown[0][0]
    if first.apart == reference.apart:
        differing = [g for at, g in enumerate(guards) if len({one[at] for one in apart}) > 1]
        count = sum(len(group) for group in shown if group[0].apart != first.apart)
        verb = "differs" if len(differing) == 1 else "differ"
        others = "1 other run stands" if count == 1 else f"{count} other runs stand"
        return f"{others} apart, since their {' and '.join(differing)} {verb}"
    why = (why_apart(guard, first.entry.record, reference.entry.record) for guard in guards)
    return "; ".join(reason for reason in why if reason)


def _row(one: _Candidate, place: int | None) -> dict[str, Any]:
    record = one.entry.record
    return {
        "run": record.run, "place": place, "value": one.score.value,
        **({"note": one.score.note} if one.score.note else {}),
        "at": one.score.at, "name": record.name, "outcome": record.outcome, "started_us": record.started_us,
        "args": {name: plain_value(arg["value"]) for name, arg in record.config["args"].items()},
        "tags": plain_value(record.tags), "version": record.version, "data_version": record.data_version,
        **({"columns": one.cells} if one.cells else {}),
    }  # fmt: skip


def rows_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    """A board as flat rows, one for each run, with what its group is told by in front."""
    return [
        {
            **{key: group[key] for key in KEYS.values() if key in group},
            **{key: run[key] for key in ("place", "run", "value")},
            "note": run.get("note"),
            **group.get("group", {}),
            **run.get("columns", {}),
            **run["args"],
        }
        for group in board["groups"]
        for run in group["runs"]
    ]
