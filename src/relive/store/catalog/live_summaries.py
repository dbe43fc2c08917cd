"""Incremental summaries of live runs: each part of a journal is parsed once, and its summaries are merged."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from relive.store.catalog.summaries import Summary, merge_summaries, summarise
from relive.store.home import Home, JournalName, list_journals
from relive.store.journal import is_shipped

_KINDS = ("slots", "lines")
PART_SLOTS = 100_000  # parsed at a time, which bounds memory


class LiveSummaries:
    """Summaries of the runs that are not in the catalog. An instance remembers how far it has read each journal."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._runs: dict[str, dict[JournalName, _JournalFollower]] = {}

    def summaries(self, run: str, names: Collection[str] | None, *, all_ranks: bool) -> list[Summary]:
        """Returns the summaries of a run on its canonical rank, or on each of its ranks."""
        return [
            summary
            for journal, follower in self._advance_followers(run).items()
            if not journal.process and (all_ranks or not journal.rank)
            for summary in follower.summaries.values()
            if names is None or summary.name in names
        ]

    def names(self, run: str) -> set[str]:
        """Returns the names that a run has logged so far."""
        return {name for follower in self._advance_followers(run).values() for name in follower.summaries}

    def keep_only(self, runs: Collection[str]) -> None:
        """Forgets all runs except these."""
        for run in self._runs.keys() - set(runs):
            del self._runs[run]

    def _advance_followers(self, run: str) -> dict[JournalName, _JournalFollower]:
        """Reads what was appended to the journals of a run since the last call."""
        followers = self._runs.setdefault(run, {})
        folder = self._home.run_folder(run)
        is_sent = is_shipped(folder)  # then its files grow by each write; those of a training here are mapped
        for name, path in list_journals(folder):  # ordered: a rank precedes its child processes
            if name not in followers:
                parent = followers.get(JournalName(name.rank)) if name.process else None
                followers[name] = _JournalFollower(path, name, parent)
            if not is_sent or followers[name].has_grown():
                followers[name].advance()
        return followers


class _JournalFollower:
    """The summaries of one journal, up to the slot that was read last."""

    def __init__(self, path: Path, name: JournalName, parent: _JournalFollower | None) -> None:
        from relive.store.journal import ParseProgress  # commands that parse nothing start sooner

        self._path, self._name, self._parent = path, name, parent
        self._progress = ParseProgress()
        self.summaries: dict[str, Summary] = {}
        self._sizes: tuple[tuple[int, int], ...] = ()
        self._restart()

    def _restart(self) -> None:
        from relive.store.journal import ParseProgress

        self._progress = ParseProgress(known=self._parent._progress.known if self._parent is not None else None)
        self.summaries = {}

    def has_grown(self) -> bool:
        """Whether the files are others than at the last call; sees no writes to mapped files."""
        before, self._sizes = self._sizes, tuple(_file_stamp(Path(f"{self._path}.{kind}")) for kind in _KINDS)
        return self._sizes != before

    def advance(self) -> None:
        """Reads the slots and lines appended since the last call."""
        from relive.store.journal import count_written_slots, parse_appended

        holes = self._progress.holes
        if holes and count_written_slots(self._path, holes):  # a skipped slot was written since: start over
            self._restart()
        while True:
            part, self._progress = parse_appended(self._path, self._name, self._progress, PART_SLOTS)
            for summary in summarise(part) if part is not None else ():
                before = self.summaries.get(summary.name)
                self.summaries[summary.name] = summary if before is None else merge_summaries(before, summary)
            if not self._progress.has_more:
                return


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_ino, stat.st_size
