"""Finds the run that a question is about, among those that its asker may see."""

from __future__ import annotations

from collections.abc import Iterator

from relive.model import RunRecord
from relive.store import list_journals
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.journal import line_schema, read_lines


def find_entry(index: Index, word: str) -> RunEntry:
    """Returns a run by its id, the beginning of it, its name, or `last`."""
    return find_run(index.runs(), word)


def find_record(index: Index, word: str) -> RunRecord:
    return find_entry(index, word).record


def journal_lines(index: Index, run: str) -> Iterator[tuple[int, int, list[line_schema.JournalLine]]]:
    """Yields rank, process and lines of each recorded journal of a run."""
    for name, path in list_journals(index.home.run_folder(run)):
        if not name.replay:
            yield name.rank, name.process, read_lines(path).lines
