"""Leaderboards: runs ranked by one number each, in groups of runs that are comparable."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from relive.errors import QueryError
from relive.model import Verdict
from relive.query.compare.comparability import CODE, DATA, ENVIRONMENT, GROUP_KEYS, IDENTITY, difference_reason
from relive.query.compare.point_groups import group_ends, group_starts, main_process_rows
from relive.query.compare.run_facts import RunFactColumns
from relive.query.compare.scores import (
    BEST,
    BY_CHOICES,
    LAST,
    MAX,
    MEAN,
    MIN,
    Score,
    aggregate_ranks,
    assign_places,
    guess_order,
    mean_score,
    score,
    sort_key,
    summarize,
)
from relive.store.catalog import TAIL_LENGTH, Index, RunEntry
from relive.store.journal import plain_value

CANONICAL = "canonical"
RANK_CHOICES = (CANONICAL, MEAN, MIN, MAX)  # how the ranks of a run become one score


@dataclass(frozen=True, slots=True)
class LeaderboardTerms:
    """The options of a leaderboard. `docs/reference/leaderboard.md` explains each."""

    by: str = LAST  # last, best, min, max, or mean of the last k
    order: str | None = None  # what is better: "min" or "max"; None decides by the metric's name
    k: int = 10
    where: str | None = None
    group: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    guard: tuple[str, ...] = (DATA,)  # data, code, environment
    ranks: str = CANONICAL  # for runs with several ranks: the canonical rank, or the mean, min or max over all
    limit: int = 0  # rows per group; 0 means all

    def __post_init__(self) -> None:
        _check_choice("by", self.by, BY_CHOICES)
        _check_choice("order", self.order, (None, MIN, MAX))
        _check_choice("ranks", self.ranks, RANK_CHOICES)
        for one in self.guard:
            _check_choice("guard", one, (DATA, CODE, ENVIRONMENT))
        if self.k < 1 or self.limit < 0:
            raise QueryError(f"k={self.k}, limit={self.limit} is out of range; k is 1 or more, limit is 0 or more")

    @classmethod
    def of(cls, *, across_data: bool = False, **given: Any) -> LeaderboardTerms:
        """Creates terms from user options: a single name or several, and `across_data` to drop the guard on data."""
        known = {one.name for one in fields(cls)}
        for name in given:
            _check_choice("option", name, sorted(known | {"across_data"}))
        for name in known.intersection(given, ("group", "columns", "guard")):
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        terms = cls(**given)
        return replace(terms, guard=tuple(one for one in terms.guard if one != DATA)) if across_data else terms


def _check_choice(option: str, given: str | None, known: Sequence[str | None]) -> None:
    if given not in known:
        choices = ", ".join(repr(one) for one in known if one is not None)
        raise QueryError(f"{option}={given!r} is not known; use one of {choices}")


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A run with its score, and what decides which group it belongs to."""

    entry: RunEntry
    score: Score
    identities: tuple[str | None, ...]  # of its data, code or environment, one per guard
    group: tuple[Any, ...]  # its values of the columns to group by
    cells: dict[str, Any] = field(default_factory=dict)

    @property
    def tie_breaker(self) -> tuple[int, str]:
        """Among equal scores, the run that started first wins, so that new runs don't reorder a board."""
        return self.entry.record.started_us, self.entry.record.run


def build_leaderboard(index: Index, metric: str, terms: LeaderboardTerms = LeaderboardTerms()) -> dict[str, Any]:  # noqa: B008 - frozen
    """Returns the runs that logged a metric, best first, in groups of comparable runs, as plain JSON values."""
    facts = RunFactColumns(index, index.runs())
    _check_metric(index, facts, metric)
    facts = facts.matching(terms.where)
    order = terms.order or guess_order(metric)
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
        "groups": [_group_json(group, shown, terms, order) for group in shown],
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
    """Returns one score per run, from summaries; points are read only for means over more values than these hold."""
    all_ranks = terms.ranks != CANONICAL
    found = index.summaries(entries, [metric], all_ranks=all_ranks)
    if by == MEAN and terms.k > TAIL_LENGTH:
        long_means = _means_from_points(index, entries, metric, terms.k, all_ranks=all_ranks)
    else:
        long_means = {}
    scores = []
    for entry in entries:
        run = entry.record.run
        by_rank = [long_means.get((run, one.rank)) or score(one, by, terms.k) for one in found[run]]
        total = aggregate_ranks(by_rank, terms.ranks) if all_ranks else next(iter(by_rank), Score())
        worst = Verdict(max((one.verdict for one in found[run]), default=0))
        scores.append(replace(total, note=worst.word) if worst.is_marked and total.note is None else total)
    return scores


def _means_from_points(
    index: Index, entries: Sequence[RunEntry], metric: str, k: int, *, all_ranks: bool
) -> dict[tuple[str, int], Score]:
    """Returns by run and rank the mean of the last k values, read from the points."""
    points = index.points(entries, [metric], all_ranks=all_ranks)
    rows = main_process_rows(points)
    starts = group_starts(points.run[rows], points.rank[rows])
    found = {}
    for start, end in zip(starts.tolist(), group_ends(starts, len(rows)).tolist(), strict=True):
        row = rows[start]
        values = points.value[rows[max(start, end - k) : end]].tolist()
        found[points.runs[int(points.run[row])], int(points.rank[row])] = mean_score(values)
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
    """Returns groups of comparable runs; in each, the best run comes first.

    Runs that a guard separates are ordered by the newest run of each part, never by value; within a part, the groups
    that the user asked for are ordered by their best run.
    """
    found: dict[Any, list[_Candidate]] = {}
    newest: dict[Any, tuple[int, str]] = {}
    for one in candidates:
        found.setdefault((one.identities, one.group), []).append(one)
        newest[one.identities] = max(newest.get(one.identities, one.tie_breaker), one.tie_breaker)
    for group in found.values():
        group.sort(key=lambda one: sort_key(one.score, order, one.tie_breaker))

    def place(group: list[_Candidate]) -> tuple[Any, ...]:
        started_us, run = newest[group[0].identities]
        return (-started_us, run, *sort_key(group[0].score, order, group[0].tie_breaker))

    return sorted(found.values(), key=place)


def _group_json(
    group: list[_Candidate], shown: Sequence[list[_Candidate]], terms: LeaderboardTerms, order: str
) -> dict[str, Any]:
    first = group[0]
    group_values = dict(zip(terms.group, first.group, strict=True))
    listed = group[: terms.limit] if terms.limit else group
    places = assign_places([one.score for one in group])
    row = {
        "data_version": first.entry.record.data_version if DATA in terms.guard else _common_data_version(group),
        **{
            GROUP_KEYS[guard]: value
            for guard, value in zip(terms.guard, first.identities, strict=True)
            if guard != DATA
        },
        **({"group": group_values} if group_values else {}),
        "reason": _separation_reason(first, shown, terms.guard) or _mixed_data_note(group),
        "summary": summarize([one.score for one in group], order),
        "runs": [_run_json(one, place) for one, place in zip(listed, places[: len(listed)], strict=True)],
    }
    return row if len(listed) == len(group) else {**row, "more": len(group) - len(listed)}


def _common_data_version(group: Sequence[_Candidate]) -> str | None:
    """Returns the data version that all runs of a group share, or None."""
    found = {one.entry.record.data_version for one in group}
    return found.pop() if len(found) == 1 else None


def _mixed_data_note(group: Sequence[_Candidate]) -> str | None:
    """Returns a note for a group with runs on several data versions, which exists only at the user's request."""
    found = {one.entry.record.data_version for one in group}
    return f"ranked across {len(found)} data versions, as requested" if len(found) > 1 else None


def _separation_reason(first: _Candidate, shown: Sequence[list[_Candidate]], guards: Sequence[str]) -> str | None:
    """Returns why this group is separate from the others, or None if no guard separates anything."""
    parts = {group[0].identities for group in shown}
    if len(parts) == 1:
        return None
    reference = shown[0][0]
    if first.identities == reference.identities:
        differing = [g for at, g in enumerate(guards) if len({identities[at] for identities in parts}) > 1]
        count = sum(len(group) for group in shown if group[0].identities != first.identities)
        verb = "differs" if len(differing) == 1 else "differ"
        others = "1 other run stands" if count == 1 else f"{count} other runs stand"
        return f"{others} apart, since their {' and '.join(differing)} {verb}"
    why = (difference_reason(guard, first.entry.record, reference.entry.record) for guard in guards)
    return "; ".join(reason for reason in why if reason)


def _run_json(one: _Candidate, place: int | None) -> dict[str, Any]:
    record = one.entry.record
    return {
        "run": record.run, "place": place, "value": one.score.value,
        **({"note": one.score.note} if one.score.note else {}),
        "at": one.score.at, "name": record.name, "outcome": record.outcome, "started_us": record.started_us,
        "args": {name: plain_value(arg["value"]) for name, arg in record.config["args"].items()},
        "tags": plain_value(record.tags), "version": record.version, "data_version": record.data_version,
        **({"columns": one.cells} if one.cells else {}),
    }  # fmt: skip


def leaderboard_rows(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a board as flat rows, one per run, each starting with the identities of its group."""
    return [
        {
            **{key: group[key] for key in GROUP_KEYS.values() if key in group},
            **{key: run[key] for key in ("place", "run", "value")},
            "note": run.get("note"),
            **group.get("group", {}),
            **run.get("columns", {}),
            **run["args"],
        }
        for group in board["groups"]
        for run in group["runs"]
    ]
