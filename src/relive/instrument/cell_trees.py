"""Cells of a notebook that are joined to one file: each is instrumented by itself, as when it was executed."""

from __future__ import annotations

import ast
import itertools
import re

from relive.instrument.loop_rewriter import instrument_loops
from relive.instrument.project_survey import ProjectSurvey
from relive.instrument.recorded_source import RecordedSource

CELL_FILE_SUFFIX = ".ipynb.py"
_HEADER = re.compile(r"^# %% In \[\d+\]$", re.MULTILINE)


def parse_cells(text: str, known: ProjectSurvey, recorded: RecordedSource | None = None) -> ast.Module:
    """Returns the tree of a file of cells, instrumented; the names of loops are unique in a cell, not in the file."""
    parts = _split(text)
    before = _split(recorded.recorded) if recorded is not None and recorded.recorded is not None else None
    whole = ast.Module([], [])
    lines = 0
    for at, part in enumerate(parts):
        tree = ast.parse(part)
        source = RecordedSource(before[at], part) if before is not None and len(before) == len(parts) else None
        instrument_loops(tree, known, source)
        whole.body += ast.increment_lineno(tree, lines).body
        lines += part.count("\n")
    return whole


def _split(text: str) -> list[str]:
    """The texts between the headers; together they are the file."""
    starts = [0, *(found.start() for found in _HEADER.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(starts)]
