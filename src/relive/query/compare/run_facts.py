"""What a word means when it is asked of whole runs: a fact of the run, an arg, a tag, or the last value of a name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from relive.errors import QueryError
from relive.query.compare.scores import LAST, score
from relive.query.sql import RUNS, columns_of, make_column, matching, run_row
from relive.query.table import Column, Table
from relive.store.catalog import Index, RunEntry
from relive.store.journal import plain_value

TAG = "tag."  # in front of a tag whose name is taken


class RunFactColumns:
    """One row for each run; columns are made when they are asked for."""

    def __init__(self, index: Index, entries: Sequence[RunEntry], among: Sequence[RunEntry] | None = None) -> None:
        self._index = index
        self.entries = list(entries)
        self._among = self.entries if among is None else among  # the runs that say which words there are

    def matching(self, where: str | None) -> RunFactColumns:
        """Only the runs for which a condition holds."""
        if where is None or not self.entries:
            return self
        wanted = columns_of(where)
        found = {name: self.column(name) for name in wanted} or {"run": self.column("run")}
        mask = matching(Table(found, []), where)
        chosen = [entry for entry, holds in zip(self.entries, mask, strict=True) if holds]
        return RunFactColumns(self._index, chosen, self._among)

    def values(self, name: str) -> list[Any]:
        """What the name is for each run, as JSON can say it; None for runs that don't have it."""
        word = self._known(name)
        if word in RUNS:
            at = list(RUNS).index(word)
            return [run_row(entry)[at] for entry in self.entries]
        if any(word in entry.record.config["args"] for entry in self._among):
            return [_arg(entry, word) for entry in self.entries]
        tag = word.removeprefix(TAG)
        if any(tag in entry.record.tags for entry in self._among):
            return [plain_value(entry.record.tags.get(tag)) for entry in self.entries]
        return self._last_values(word)

    def column(self, name: str) -> Column:
        """The same for SQL."""
        word = self._known(name)
        cells = self.values(name)
        if word in RUNS:
            return make_column(RUNS[word], cells)
        values = np.empty(len(cells), object)
        values[:] = cells
        return Column(values, np.fromiter((cell is not None for cell in cells), bool, len(cells)))

    def _last_values(self, name: str) -> list[Any]:
        found = self._index.summaries(self.entries, [name])
        scores = [score(next(iter(found[entry.record.run]), None), LAST) for entry in self.entries]
        return [one.number if one.value is not None or _is_nan(one.number) else None for one in scores]

    def _known(self, name: str) -> str:
        """The name as it is spelt here; SQL does not tell `LR` from `lr`."""
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
        """Every word that can be asked for: facts, args, tags, then what was logged."""
        args = _sorted(name for entry in self._among for name in entry.record.config["args"])
        tags = _sorted(name for entry in self._among for name in entry.record.tags)
        logged = self._index.names(self._among, all_ranks=False)
        return list(dict.fromkeys([*RUNS, *args, *tags, *(TAG + tag for tag in tags), *logged]))


def _arg(entry: RunEntry, name: str) -> Any:
    arg = entry.record.config["args"].get(name)
    return None if arg is None else plain_value(arg["value"])


def _sorted(names: Iterable[str]) -> Collection[str]:
    return sorted(set(names))


def _is_nan(number: float | None) -> bool:
    return number is not None and math.isnan(number)
