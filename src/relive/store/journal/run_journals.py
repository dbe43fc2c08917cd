"""The journals of one run, parsed on first access, each after the journal of the process it was forked from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.store.home import Home, JournalName, list_journals
from relive.store.journal.line_reader import first_line
from relive.store.journal.line_schema import ChildStarted

if TYPE_CHECKING:
    from relive.store.journal.journal_parser import ParsedJournal


def parse_run(home: Home, run: str) -> list[ParsedJournal]:
    """Parses all journals of a run, canonical rank first."""
    return list(RunJournals(dict(list_journals(home.run_folder(run)))))


class RunJournals(Sequence["ParsedJournal"]):
    """The journals of a run. A forked child is parsed after its parent, inside whose loops it may log."""

    def __init__(self, paths: dict[JournalName, Path]) -> None:
        self.paths = paths
        self._parsed: dict[JournalName, ParsedJournal | None] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: Any) -> Any:
        return self.parsed(list(self.paths)[at])

    def parsed(self, name: JournalName) -> ParsedJournal:
        found = self._parsed.get(name)
        if found is None:
            from relive.store.journal.journal_parser import parse_journal  # commands that parse nothing start sooner

            self._parsed[name] = None  # being parsed: with reused pids the chain of parents may lead back here
            parent = self._parent_of(name)
            found = self._parsed[name] = parse_journal(self.paths[name], name, self.parsed(parent) if parent else None)
        return found

    def _parent_of(self, name: JournalName) -> JournalName | None:
        if not name.process:
            return None
        header = first_line(self.paths[name])
        parent = header.parent if isinstance(header, ChildStarted) else None
        candidates = (JournalName(name.rank, parent or 0), JournalName(name.rank))
        available = (c for c in candidates if c in self.paths and self._parsed.get(c, c) is not None)
        return next((c for c in available if c != name), None)
