"""Today's cells in the place of the recorded ones, so that a statement added in the notebook is found by comparison."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import msgspec

from relive.errors import NotFound, ReliveError
from relive.hindsight.notebooks.cell_file import RecordedCell, is_python, join_texts
from relive.model import RunRecord
from relive.record.process import python_source

_ALIKE = 0.5  # the share of lines by which a cell without an id is recognised
_FOREIGN = frozenset({"node_modules", "site-packages", "__pycache__"})
_MAX_NOTEBOOKS = 1_000


class NotebookCell(msgspec.Struct, frozen=True):
    """A code cell of a notebook."""

    source: str
    id: str = ""


def cells_of_notebook(record: RunRecord, cells: Sequence[RecordedCell], home: Path) -> list[NotebookCell]:
    """Returns the code cells of the notebook of a run as it is saved now; empty if it is not found.

    A kernel may not know its notebook, and notebooks are renamed: then the one with the most cells of the run counts.
    """
    script = record.code.get("script")
    if script and os.path.isfile(script):
        return _read_notebook(Path(script))
    known = {cell.source.strip() for cell in cells} | {cell.id for cell in cells if cell.id}
    best: list[NotebookCell] = []
    best_count = 0
    for path in _find_notebooks(Path(record.code["root"]), home):
        try:
            found = _read_notebook(path)
        except ReliveError:  # another notebook than that of the run must not be in the way
            continue
        count = sum(cell.source.strip() in known or cell.id in known for cell in found)
        if count > best_count:
            best, best_count = found, count
    return best


def cells_of_run(cells: Sequence[RecordedCell]) -> list[NotebookCell]:
    """Returns the cells of a run as a notebook: each once, as it was executed last."""
    return [NotebookCell(cell.source, cell.id) for cell in {cell.key: cell for cell in cells}.values()]


def with_todays_cells(cells: Sequence[RecordedCell], today: Sequence[NotebookCell]) -> str:
    """Returns the file of a run's cells, with the text that each of them has today.

    Cells of today that the run did not execute come after the cell that they follow in the notebook.
    """
    matches = [_match(cell, today) for cell in cells]
    last = {at: position for position, at in enumerate(matches) if at is not None}
    new: dict[int, list[str]] = {}  # by the position of the recorded cell before them
    position = -1
    for at, other in enumerate(today):
        if at in last:
            position = last[at]
        else:
            new.setdefault(position, []).append(other.source)
    texts = [*_added(new.get(-1, ()))]
    for position, (cell, match) in enumerate(zip(cells, matches, strict=True)):
        is_same = match is None or today[match].source == cell.source
        python = cell.python if match is None or is_same else _to_python(today[match].source)
        texts += [(cell.label, python if is_python(python) else cell.python)] if cell.is_python else []
        texts += _added(new.get(position, ()))
    return join_texts(texts)


def _added(sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    for source in sources:
        python = _to_python(source)
        if is_python(python):
            yield "a new cell", python


def _match(cell: RecordedCell, today: Sequence[NotebookCell]) -> int | None:
    """Finds a recorded cell in the notebook: by its id, its text, or most of its lines."""
    for at, other in enumerate(today):
        if cell.id and cell.id == other.id:
            return at
    for at, other in enumerate(today):
        if cell.source.strip() == other.source.strip():
            return at
    lines = cell.source.split("\n")
    shares = [(SequenceMatcher(None, lines, other.source.split("\n")).ratio(), -at) for at, other in enumerate(today)]
    share, at = max(shares, default=(0.0, 0))
    return -at if share >= _ALIKE else None


def _to_python(source: str) -> str:
    if is_python(source):
        return source
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError as error:
        raise NotFound("the notebook has magics, which IPython translates; install ipython here") from error
    return python_source(source, TransformerManager().transform_cell)


def _read_notebook(path: Path) -> list[NotebookCell]:
    try:
        document = msgspec.json.decode(path.read_bytes())
        rows = [row for row in document["cells"] if row.get("cell_type") == "code"]
        return [NotebookCell("".join(row.get("source", "")), str(row.get("id") or "")) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReliveError(f"{path} can't be read as a notebook ({error}); save it again in Jupyter") from error


def _find_notebooks(root: Path, home: Path) -> Iterator[Path]:
    count = 0
    for folder, names, files in os.walk(root):
        names[:] = [
            name for name in names
            if not name.startswith(".") and name not in _FOREIGN and Path(folder) / name != home
        ]  # fmt: skip
        for file in sorted(files):
            if file.endswith(".ipynb") and count < _MAX_NOTEBOOKS:
                count += 1
                yield Path(folder) / file
