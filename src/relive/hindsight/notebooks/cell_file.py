"""The cells that a run executed, as one Python file: in the order of execution, each below a line with its number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from relive.instrument import CELL_FILE_SUFFIX
from relive.model import RunRecord
from relive.store.journal import line_schema

_LIKE_A_HEADER = re.compile(r"^# %%( In \[\d+\]\s*)$", re.MULTILINE)
_UNNAMED = "notebook.ipynb"  # of a kernel that did not know its file


class RecordedCell(msgspec.Struct, frozen=True):
    """One execution of a cell."""

    number: int  # as the notebook shows it: `In [4]`
    source: str  # as the user wrote it
    python: str  # as IPython executed it
    id: str = ""
    is_before: bool = False  # it was executed before the run began
    error: str | None = None  # the type of the error that ended it; empty: none; None: not known

    @property
    def key(self) -> str:
        """What tells it from other cells, and not from other executions."""
        return self.id or self.source

    @property
    def label(self) -> str:
        return f"In [{self.number}]"

    @property
    def is_python(self) -> bool:
        """Whether any of it was executed: IPython refuses a cell with a syntax error as a whole."""
        return is_python(self.python)


class CellText(msgspec.Struct, frozen=True):
    """The text of a cell in a file, and the number of lines before it."""

    python: str
    lines_before: int


def is_notebook_run(record: RunRecord) -> bool:
    return record.code.get("kind") == "notebook"


def cell_file_name(record: RunRecord) -> str:
    """The path of the file with the cells, below the root of the project: beside the notebook."""
    root = Path(record.code["root"])
    script = Path(record.code.get("script") or Path(record.code.get("cwd") or root) / _UNNAMED)
    inside = script.relative_to(root) if script.is_relative_to(root) else Path(script.name)
    return f"{inside.as_posix()}.py"


def read_cells(lines: Iterable[line_schema.JournalLine]) -> list[RecordedCell]:
    """Returns the cells of a run, in the order of execution."""
    cells: list[RecordedCell] = []
    for line in lines:
        if isinstance(line, line_schema.CellBegun):
            cells.append(
                RecordedCell(
                    line.number,
                    line.source,
                    line.source if line.python is UNSET else line.python,
                    "" if line.id is UNSET else line.id,
                    line.before is True,
                    None if line.error is UNSET else line.error,
                )
            )
        elif isinstance(line, line_schema.CellEnded):
            at = next((at for at, cell in reversed([*enumerate(cells)]) if cell.number == line.number), None)
            if at is not None:
                cells[at] = msgspec.structs.replace(cells[at], error=line.error)
    return cells


def join_cells(cells: Iterable[RecordedCell]) -> str:
    """Returns the file. Cells of which nothing was executed are left out."""
    return join_texts((cell.label, cell.python) for cell in cells if cell.is_python)


def join_texts(texts: Iterable[tuple[str, str]]) -> str:
    """Returns a file with texts below their labels."""
    # A comment of the user that looks like a header gets another look: the file is split at headers.
    plain = ((label, _LIKE_A_HEADER.sub(r"#%%\1", text).strip("\n")) for label, text in texts)
    return "\n".join(f"{_header(label)}\n{text}\n" for label, text in plain)


def split_file(text: str, cells: Sequence[RecordedCell]) -> Iterator[tuple[RecordedCell, CellText]]:
    """Yields the cells of a file to which statements may have been added, with their text there."""
    lines = text.splitlines(keepends=True)
    starts: list[int] = []
    for cell in (known := [cell for cell in cells if cell.is_python]):
        header, after = _header(cell.label), starts[-1] + 1 if starts else 0
        starts.append(next(at for at in range(after, len(lines)) if lines[at].rstrip() == header))
    ends = [*starts[1:], len(lines)]
    starts[:1] = [-1] if starts else []  # what was added above the first header belongs to the first cell
    for cell, start, end in zip(known, starts, ends, strict=True):
        yield cell, CellText("".join(lines[start + 1 : end]), start + 1)


def place_of(file: str, line: int, text: str) -> str:
    """Says where a line of a file is: `train.py:12`, or `look.ipynb In [3]:2` in the cells of a notebook."""
    if not file.endswith(CELL_FILE_SUFFIX):
        return f"{file}:{line}"
    above = text.splitlines()[: line - 1]
    at = next((at for at in range(len(above) - 1, -1, -1) if above[at].startswith(_header("In ["))), -1)
    label = above[at].removeprefix(_header("")) if at >= 0 else "In [0]"
    return f"{file.removesuffix('.py')} {label}:{line - at - 1}"


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _header(label: str) -> str:
    return f"# %% {label}"
