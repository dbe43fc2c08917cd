"""The table of runs: any columns of any runs, filtered, sorted, grouped and paged; and the names of all columns."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relive.errors import QueryError
from relive.model import Verdict
from relive.query.bounded_cells import cell_chars, cut_cell
from relive.query.compare.run_facts import RunFactColumns
from relive.query.sql import RUNS, run_row
from relive.store.catalog import Index, RunEntry, Summary
from relive.store.journal import from_json, plain_value, plain_value_from_json

KINDS = ("run", "arg", "metric", "tag", "env")
_QUALIFIED = re.compile(r"(run|arg|metric|tag|env):(.+)", re.DOTALL)
_AGGREGATE = re.compile(r"(min|max|count)\((.+)\)", re.DOTALL)
_SHOWN_BY_DEFAULT = 20
_SAMPLED_RUNS = 1_000  # the newest, whose args say which ones differ between runs
_SAMPLED_VALUES = 100
MAX_GROUP_RUNS = 200
MAX_WORD_CHARS = 200  # of names, of what is missing from a run, and of the values of a group


@dataclass(frozen=True, slots=True)
class TableSort:
    """One column of the order of a table."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class TableTerms:
    """What a table of runs shows. `runs` limits it to some ids; `group` are columns whose values make groups.

    The runs of `first` come before all others, in the same order among themselves, and whether `where` holds or not.
    """

    where: str | None = None
    columns: tuple[str, ...] | None = None
    sort: tuple[TableSort, ...] = ()
    group: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 100
    runs: tuple[str, ...] | None = None
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as it was asked for, and what it means."""

    key: str
    kind: str
    name: str
    aggregate: str = "last"


class RunTable:
    """A table over the runs of an index, in their state at its creation."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._entries = index.runs()

    @cached_property
    def _args(self) -> dict[str, int]:
        return _count_names(entry.record.config["args"] for entry in self._entries)

    @cached_property
    def _tags(self) -> dict[str, int]:
        return _count_names(entry.record.tags for entry in self._entries)

    @cached_property
    def _environment(self) -> dict[str, int]:
        return _count_names(_plain_environment(entry) for entry in self._entries)

    @cached_property
    def _metrics(self) -> list[str]:
        return self._index.names(self._entries, all_ranks=False)

    def column_names(self, prefix: str, limit: int) -> dict[str, Any]:
        """Returns the columns whose name contains a text, those that begin with it first; and their runs."""
        every = len(self._entries)
        known: list[tuple[str, str, int | None]] = [(name, "run", every) for name in RUNS]
        known += [(name, "arg", count) for name, count in sorted(self._args.items())]
        known += [(name, "metric", None) for name in self._metrics]
        known += [(name, "tag", count) for name, count in sorted(self._tags.items())]
        known += [(name, "env", count) for name, count in sorted(self._environment.items())]
        word = prefix.lower()
        found = [row for row in known if word in row[0].lower()]
        found.sort(key=lambda row: not row[0].lower().startswith(word))
        shown = found[:limit]
        summaries = self._metric_summaries([name for name, kind, _ in shown if kind == "metric"])
        values = self._arg_values({name for name, kind, _ in shown if kind == "arg"})
        return {
            "total": len(found),
            "columns": [
                {
                    "name": name, "kind": kind, "runs": len(summaries.get(name, ())) if kind == "metric" else count,
                    "values": len(values[name]) if kind == "arg" else None,
                    "is_number": _has_numbers(summaries[name]) if kind == "metric" and name in summaries else None,
                }
                for name, kind, count in shown
            ],
        }  # fmt: skip

    def _arg_values(self, names: set[str]) -> dict[str, set[str]]:
        """Returns different values of args in the newest runs, up to a number."""
        values: dict[str, set[str]] = {name: set() for name in names}
        for entry in self._entries[-_SAMPLED_RUNS:]:
            args = entry.record.config["args"]
            for name in names & args.keys():
                if len(values[name]) < _SAMPLED_VALUES:
                    values[name].add(repr(args[name]["value"])[:MAX_WORD_CHARS])
        return values

    def _metric_summaries(self, names: Sequence[str]) -> dict[str, list[Summary]]:
        """Returns the summaries of names, if they are few enough to be asked for."""
        if not names or len(self._entries) * len(names) > 20_000:
            return {}
        found: dict[str, list[Summary]] = {}
        for summaries in self._index.summaries(self._entries, names).values():
            for one in summaries:
                found.setdefault(one.name, []).append(one)
        return found

    def answer(self, terms: TableTerms) -> dict[str, Any]:
        """Returns one page of the table."""
        chosen = self._entries
        if terms.runs is not None:
            wanted = set(terms.runs)
            chosen = [entry for entry in chosen if entry.record.run in wanted]
        matching = RunFactColumns(self._index, chosen, self._entries).matching(terms.where or None).entries
        ordered = self._sorted(_with_first(chosen, matching, terms.first)[::-1], terms.sort)
        if terms.first:
            ordered.sort(key=lambda entry: entry.record.run not in terms.first)
        groups = self._groups(ordered, terms.group) if terms.group else []
        shown = ordered[terms.offset : terms.offset + terms.limit]
        keys = self._default_keys() if terms.columns is None else terms.columns
        columns = [self.column(key) for key in keys]
        found = self._index.summaries(shown, [one.name for one in columns if one.kind == "metric"]) if shown else {}
        whole = {column.key: self.cells(column, shown, found) for column in columns}
        chars = cell_chars(len(shown), len(columns))
        cells = {key: [cut_cell(cell, chars) for cell in of_column] for key, of_column in whole.items()}
        marks = _marks(columns, found)
        rows = [
            {
                "run": entry.record.run, "name": cut_cell(entry.record.name, MAX_WORD_CHARS)[0],
                "started_us": entry.record.started_us,
                "live": entry.record.outcome == "running", "outcome": entry.record.outcome,
                "incomplete": [cut_cell(one, MAX_WORD_CHARS)[0] for one in entry.record.incomplete[:3]],
                "ranks": entry.record.world_size,
                "cells": {key: of_column[at][0] for key, of_column in cells.items()},
                "cut": [key for key, of_column in cells.items() if of_column[at][1]],
                "verdicts": marks.get(entry.record.run, {}),
            }
            for at, entry in enumerate(shown)
        ]  # fmt: skip
        described = [
            {"name": column.key, "kind": column.kind, "type": _type_of(whole[column.key])} for column in columns
        ]
        return {
            "total": len(ordered), "matching": len(matching), "all": len(self._entries), "columns": described,
            "rows": rows, "groups": groups,
        }  # fmt: skip

    # --- columns ------------------------------------------------------------------------------------------------------

    def _default_keys(self) -> list[str]:
        args = list(self._args)[:_SHOWN_BY_DEFAULT]
        return ["name", "outcome", "tstamp", "took_s", *(f"arg:{name}" for name in args),
                *(f"metric:{name}" for name in self._metrics[:_SHOWN_BY_DEFAULT])]  # fmt: skip

    def column(self, key: str) -> TableColumn:
        """Returns what a column means: `arg:lr`, `metric:loss`, `min(loss)`, or a plain name."""
        aggregate = _AGGREGATE.fullmatch(key)
        if aggregate is not None and aggregate[2] in self._metrics:
            return TableColumn(key, "metric", aggregate[2], aggregate[1])
        qualified = _QUALIFIED.fullmatch(key)
        if qualified is not None:
            return TableColumn(key, qualified[1], qualified[2])
        known = (("run", RUNS), ("arg", self._args), ("tag", self._tags), ("metric", self._metrics))
        for kind, names in known:
            if key in names:
                return TableColumn(key, kind, key)
        near = difflib.get_close_matches(key, [*RUNS, *self._args, *self._tags, *self._metrics], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "GET /api/columns lists the columns"
        raise QueryError(f"there is no column {key!r}; {hint}")

    def cells(
        self, column: TableColumn, entries: Sequence[RunEntry], found: Mapping[str, Sequence[Summary]] | None = None
    ) -> list[Any]:
        """Returns the value of a column for each run, None for runs without it; `found` are known summaries."""
        if column.kind == "run":
            at = list(RUNS).index(column.name) if column.name in RUNS else -1
            return [run_row(entry)[at] if at >= 0 else None for entry in entries]
        if column.kind == "arg":
            return [_plain_arg(entry, column.name) for entry in entries]
        if column.kind == "tag":
            return [plain_value(entry.record.tags.get(column.name)) for entry in entries]
        if column.kind == "env":
            return [_plain_environment(entry).get(column.name) for entry in entries]
        known = self._index.summaries(entries, [column.name]) if found is None else found
        of_name = {
            entry.record.run: next((one for one in known[entry.record.run] if one.name == column.name), None)
            for entry in entries
        }
        return [_metric_cell(of_name[entry.record.run], column.aggregate) for entry in entries]

    # --- order and groups ---------------------------------------------------------------------------------------------

    def _sorted(self, entries: Sequence[RunEntry], sort: Sequence[TableSort]) -> list[RunEntry]:
        ordered = list(entries)
        for one in reversed(sort):
            cells = self.cells(self.column(one.column), ordered)
            keyed = sorted(
                range(len(ordered)), key=lambda at: _order_key(cells[at]), reverse=one.descending
            )  # fmt: skip
            there = [at for at in keyed if not _is_absent(cells[at])]
            ordered = [ordered[at] for at in [*there, *(at for at in range(len(cells)) if _is_absent(cells[at]))]]
        return ordered

    def _groups(self, entries: Sequence[RunEntry], group: Sequence[str]) -> list[dict[str, Any]]:
        columns = [self.cells(self.column(key), entries) for key in group]
        found: dict[str, dict[str, Any]] = {}
        for at, entry in enumerate(entries):
            values = [cells[at] for cells in columns]
            one = found.setdefault(repr(values), {"values": values, "count": 0, "runs": []})
            one["count"] += 1
            if len(one["runs"]) < MAX_GROUP_RUNS:
                one["runs"].append(entry.record.run)
        for one in found.values():
            one["values"] = [cut_cell(value, MAX_WORD_CHARS)[0] for value in one["values"]]
        return list(found.values())


def _with_first(entries: Sequence[RunEntry], matching: Sequence[RunEntry], first: Sequence[str]) -> Sequence[RunEntry]:
    """Returns the matching runs and those of `first`, in the order of all."""
    if not first:
        return matching
    kept = {entry.record.run for entry in matching} | set(first)
    return [entry for entry in entries if entry.record.run in kept]


def _marks(columns: Sequence[TableColumn], found: Mapping[str, Sequence[Summary]]) -> dict[str, dict[str, str]]:
    """Returns the verdicts on replayed values, by run and column."""
    metrics = {column.name: column.key for column in columns if column.kind == "metric"}
    return {
        run: {metrics[one.name]: Verdict(one.verdict).word for one in summaries if one.verdict and one.name in metrics}
        for run, summaries in found.items()
    }


def _has_numbers(summaries: Sequence[Summary]) -> bool:
    return any(one.last is not None or one.lowest is not None for one in summaries)


def _count_names(mappings: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for mapping in mappings:
        for name in mapping:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _plain_arg(entry: RunEntry, name: str) -> Any:
    arg = entry.record.config["args"].get(name)
    return None if arg is None else plain_value(arg["value"])


def _plain_environment(entry: RunEntry) -> dict[str, Any]:
    """Returns the facts of the environment that fit into a cell."""
    return {
        name: value for name, value in entry.record.environment.items() if isinstance(value, str | int | float | bool)
    }


def _metric_cell(summary: Summary | None, aggregate: str) -> Any:
    if summary is None:
        return None
    if aggregate == "count":
        return summary.count
    if aggregate != "last":
        return summary.lowest if aggregate == "min" else summary.highest
    last = summary.exact_last
    if summary.last_text == '{"$float":"nan"}':
        return math.nan
    if summary.last is not None and summary.last_text in ("true", "false"):
        return summary.last_text == "true"
    if isinstance(last, str):
        form = from_json(last)
        return form if isinstance(form, str) else plain_value_from_json(last)
    return last


def _is_absent(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _order_key(cell: Any) -> tuple[int, Any]:
    if _is_absent(cell):
        return 2, ""
    return (0, cell) if isinstance(cell, int | float) else (1, str(cell))


def _type_of(cells: Sequence[Any]) -> str:
    kinds = {_cell_type(cell) for cell in cells if cell is not None}
    return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "none"


def _cell_type(cell: Any) -> str:
    if isinstance(cell, bool):
        return "bool"
    return "number" if isinstance(cell, int | float) else "text" if isinstance(cell, str) else "json"
