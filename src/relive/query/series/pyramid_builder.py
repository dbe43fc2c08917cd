"""Which pyramids are missing, and their making: once per ended run, in the process that updates the index."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from relive.query.series.pyramids import LONG, pyramid_path, write_pyramid
from relive.query.series.series_reader import make_pyramid, read_lines, run_stamp
from relive.store.catalog import Index, RunEntry

_BATCH = 100
# The runs whose long lines have pyramids, by index: each is looked at once in a process.
_done: weakref.WeakKeyDictionary[Index, set[int]] = weakref.WeakKeyDictionary()


def build_pyramids(index: Index) -> int:
    """Writes the missing pyramids of ended runs; returns how many."""
    done = _done.setdefault(index, set())
    new = [entry for entry in index.runs() if entry.number is not None and entry.number not in done]
    made = 0
    for at in range(0, len(new), _BATCH):
        batch = new[at : at + _BATCH]
        made += _build(index, batch)
        done.update(entry.number for entry in batch if entry.number is not None)
    return made


def _build(index: Index, entries: Sequence[RunEntry]) -> int:
    made = 0
    long = {run: [one.name for one in found if one.count >= LONG] for run, found in index.summaries(entries).items()}
    for entry in entries:
        run = entry.record.run
        stamp = run_stamp(index, run) if long[run] else 0
        for name in long[run]:
            path = pyramid_path(index.home.index, run, name, 0)
            for line in read_lines(index, [entry], [name]):
                pyramid = make_pyramid(line, stamp)
                if pyramid is not None:
                    write_pyramid(path, *pyramid)
                    made += 1
    return made
