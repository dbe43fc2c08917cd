"""Which pyramids are missing, and their making: once per ended run, in the process that updates the index."""

from __future__ import annotations

from collections.abc import Sequence

from relive.query.series.pyramids import LONG, is_current, pyramid_path, write_pyramid
from relive.query.series.series_reader import make_pyramid, read_lines, run_stamp
from relive.store.catalog import Index, RunEntry

_BATCH = 100


def build_pyramids(index: Index, done: int = 0) -> int:
    """Writes the missing pyramids of the ended runs with higher numbers than `done`; returns the highest number."""
    ended = [(entry.number, entry) for entry in index.runs() if entry.number is not None]
    highest = max((number for number, _ in ended), default=0)
    after = done if done <= highest else 0  # the index was built anew
    new = [entry for number, entry in ended if number > after]
    for at in range(0, len(new), _BATCH):
        _build(index, new[at : at + _BATCH])
    return highest


def _build(index: Index, entries: Sequence[RunEntry]) -> None:
    long = {run: [one.name for one in found if one.count >= LONG] for run, found in index.summaries(entries).items()}
    for entry in entries:
        run = entry.record.run
        stamp = run_stamp(index, run) if long[run] else 0
        for name in long[run]:
            path = pyramid_path(index.home.index, run, name, 0)
            if is_current(path, stamp):
                continue
            for line in read_lines(index, [entry], [name]):
                pyramid = make_pyramid(line, stamp)
                if pyramid is not None:
                    write_pyramid(path, *pyramid)
