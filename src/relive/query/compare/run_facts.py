"""What a name means for whole runs: a column of the `runs` view, an arg, a tag, or the last logged value."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relive.errors import QueryError
from relive.query.compare.scores import LAST, score
from relive.query.sql import RUNS, columns_of, make_column, matching, run_row
from relive.query.table import Column, Table
from relive.store.catalog import Index, RunEntry
from relive.store.journal import plain_value

TAG = "tag."  # a prefix for tags whose name is taken


class RunFactColumns:
    """A table with one row per run, whose columns are built on demand."""

    def __init__(self, index: Index, entries: Sequence[RunEntry], known: Sequence[RunEntry] | None = None) -> None:
        self._index = index
        self.entries = list(entries)
        self._known_entries = self.entries if known is None else known  # the runs that define which names exist

    def matching(self, where: str | None) -> RunFactColumns:
        """Returns the table of the runs for which a condition holds."""
        if where is None or not self.entries:
            return self
        columns = {name: self.column(name) for name in columns_of(where)} or {"run": self.column("run")}
        mask = matching(Table(columns, []), where)
        chosen = [entry for entry, holds in zip(self.entries, mask, strict=True) if holds]
        return RunFactColumns(self._index, chosen, self._known_entries)

    def values(self, name: str) -> list[Any]:
        """Returns the value of a name for each run as a plain JSON value; None for runs without it."""
        resolved = self._resolve(name)
        if resolved in RUNS:
            at = list(RUNS).index(resolved)
            return [run_row(entry)[at] for entry in self.entries]
        if any(resolved in entry.record.config["args"] for entry in self._known_entries):
            return [_arg_value(entry, resolved) for entry in self.entries]
        tag = resolved.removeprefix(TAG)
        if any(tag in entry.record.tags for entry in self._known_entries):
            return [plain_value(entry.record.tags.get(tag)) for entry in self.entries]
        return self._last_values(resolved)

    def column(self, name: str) -> Column:
        """Returns the values of a name as a column for SQL."""
        resolved = self._resolve(name)
        cells = self.values(name)
        if resolved in RUNS:
            return make_column(RUNS[resolved], cells)
        values = np.empty(len(cells), object)
        values[:] = cells
        return Column(values, np.fromiter((cell is not None for cell in cells), bool, len(cells)))

    def _last_values(self, name: str) -> list[Any]:
        found = self._index.summaries(self.entries, [name])
        scores = [score(next(iter(found[entry.record.run]), None), LAST) for entry in self.entries]
        return [one.number if one.value is not None or _is_nan(one.number) else None for one in scores]

    def _resolve(self, name: str) -> str:
        """Returns the known spelling of a name, since SQL is case-insensitive; raises QueryError for unknown names."""
        if name in RUNS:  # the first of all names, and known without reading live journals
            return name
        known = self.names()
        if name in known:
            return name
        alike = [one for one in known if one.lower() == name.lower()]
        if alike:
            return alike[0]
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        listed = ", ".join(known[len(RUNS) :][:30]) or "none yet"
        raise QueryError(f"no run has {name!r}; {hint}known args, tags and names are {listed}")

    def names(self) -> list[str]:
        """Returns every name with a meaning: columns of `runs`, args, tags, then logged names."""
        args = sorted({name for entry in self._known_entries for name in entry.record.config["args"]})
        tags = sorted({name for entry in self._known_entries for name in entry.record.tags})
        logged = self._index.names(self._known_entries, all_ranks=False)
        return list(dict.fromkeys([*RUNS, *args, *tags, *(TAG + tag for tag in tags), *logged]))


def _arg_value(entry: RunEntry, name: str) -> Any:
    arg = entry.record.config["args"].get(name)
    return None if arg is None else plain_value(arg["value"])


def _is_nan(number: float | None) -> bool:
    return number is not None and math.isnan(number)
