"""Cells that can't be executed as they were, and what to do about each."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from relive.hindsight.notebooks.cell_file import RecordedCell, split_file
from relive.record.provenance import REDACTED

INTERRUPTED = "KeyboardInterrupt"
_TYPED = frozenset({"input", "raw_input", "getpass"})
_AGAIN = "restart the kernel, execute the cells in order, and record the run again"


def find_obstacle(cells: Sequence[RecordedCell]) -> str:
    """Says which cell is in the way of a replay, why, and what to do; empty if there is none."""
    if not cells:
        return (
            "it was recorded in a notebook whose cells are not in the record;"
            " record it again with this release, in a kernel of IPython"
        )
    for cell in cells:
        if cell.is_before and cell.error == INTERRUPTED:
            return f"{_name(cell)} was interrupted before the run, and where it stopped is not known; {_AGAIN}"
        if REDACTED in cell.python and not cell.is_python:
            return f"{_name(cell)} holds a secret, which is not recorded; read it from an environment variable"
        if word := _asks_for(cell, cells):
            return (
                f"{_name(cell)} reads what was typed ({word}), which is not recorded;"
                f" assign the value in the cell, and record the run again"
            )
    return ""


def find_interruption(cells: Sequence[RecordedCell], text: str, lines: Collection[int]) -> str:
    """Says which cell was interrupted during the run, if all these lines of the file come after it; else nothing.

    What comes before, and the cell itself up to there, is replayed.
    """
    parts = [*split_file(text, cells)]
    at = next((at for at, (cell, _) in enumerate(parts[:-1]) if cell.error == INTERRUPTED), None)
    if at is None or not lines or any(line <= parts[at + 1][1].lines_before for line in lines):
        return ""
    return f"{_name(parts[at][0])} was interrupted during the run, and where it stopped is not known; {_AGAIN}"


def _name(cell: RecordedCell) -> str:
    first = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    return f"cell {cell.label} (`{first[:40]}{'…' if len(first) > 40 else ''}`)"


def _asks_for(cell: RecordedCell, cells: Sequence[RecordedCell]) -> str:
    """The name of the function by which a cell reads from the keyboard; empty if it does not."""
    if not any(word in cell.python for word in _TYPED) or not cell.is_python:
        return ""
    own = {name for one in cells if one.is_python for name in _bound(ast.parse(one.python))}
    for node in ast.walk(ast.parse(cell.python)):
        if isinstance(node, ast.Call):
            word = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if word in _TYPED and word not in own and (isinstance(node.func, ast.Name) or word == "getpass"):
                return f"{word}()"
    return ""


def _bound(tree: ast.Module) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
