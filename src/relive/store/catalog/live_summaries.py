"""What the names of runs that go on come to so far: each part of a journal is read once, and the summaries add up."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from relive.store.catalog.summaries import Summary, merged, summarise
from relive.store.home import Home, JournalName, journals_in
from relive.store.journal import ParseProgress, count_written_slots, parse_appended

PART_SLOTS = 100_000  # of a journal at a time, which bounds memory


class LiveSummaries:
    """The runs of a home that are not in its catalog. Whoever keeps this pays only for what is new."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._runs: dict[str, dict[JournalName, _Follower]] = {}

    def summaries(self, run: str, names: Collection[str] | None, *, all_ranks: bool) -> list[Summary]:
        """What each name comes to on the canonical rank of a run, or on each of its ranks."""
        return [
            summary
            for journal, follower in self._followed(run).items()
            if not journal.process and (all_ranks or not journal.rank)
            for summary in follower.summaries.values()
            if names is None or summary.name in names
        ]

    def names(self, run: str) -> set[str]:
        return {name for follower in self._followed(run).values() for name in follower.summaries}

    def forget_others(self, runs: Collection[str]) -> None:
        """Only these go on."""
        for run in self._runs.keys() - set(runs):
            del self._runs[run]

    def _followed(self, run: str) -> dict[JournalName, _Follower]:
        followers = self._runs.setdefault(run, {})
        for name, path in journals_in(self._home.run_folder(run)):  # a rank comes before its children
            if name not in followers:
                parent = followers.get(JournalName(name.rank)) if name.process else None
                followers[name] = _Follower(path, name, parent)
            followers[name].advance()
        return followers


class _Follower:
    """One journal, as far as it was read."""

    def __init__(self, path: Path, name: JournalName, parent: _Follower | None) -> None:
        self._path, self._name, self._parent = path, name, parent
        self._progress = ParseProgress()
        self.summaries: dict[str, Summary] = {}
        self._begin()

    def _begin(self) -> None:
        self._progress = ParseProgress(known=self._parent._progress.known if self._parent is not None else None)
        self.summaries = {}

    def advance(self) -> None:
        """Read what was added since."""
        holes = self._progress.holes
        if holes and count_written_slots(
            self._path, holes
        ):  # a slot that was being written then: its place is further back
            self._begin()
        while True:
            part, self._progress = parse_appended(self._path, self._name, self._progress, PART_SLOTS)
            for summary in summarise(part):
                before = self.summaries.get(summary.name)
                self.summaries[summary.name] = summary if before is None else merged(before, summary)
            if not self._progress.has_more:
                return
