"""Executes recorded cells in order by IPython's rules, without a kernel: magics, top-level await, display."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from relive.errors import NotFound
from relive.hindsight.notebooks.cell_file import CellText, RecordedCell, split_file

_INSTALLERS = ("pip", "conda", "mamba", "micromamba", "uv")
_INSTALL = re.compile(
    r"\s*(\S*python\S*\s+-m\s+)?(\S*/)?(uv\s+)?(pip3?|conda|mamba|micromamba|uv)\s+(install|add|uninstall|remove)\b"
)
BeforeCell = Callable[[RecordedCell, str], None]  # with the text that is executed


def run_cells(script: Path, cells: Sequence[RecordedCell], folder: Path, before_cell: BeforeCell) -> None:
    """Executes the cells of a file as a kernel did; a cell that failed then must fail now, and the others not.

    `folder`: for the files of IPython; `before_cell` is called before each cell.
    """
    shell = _make_shell(script, folder)
    parts = [*split_file(script.read_bytes().decode("utf-8", "surrogateescape"), cells)]
    # One event loop for all cells, as in a kernel: tasks that a cell has started go on below the next one.
    asyncio.run(_run_all(shell, parts, before_cell))


async def _run_all(shell: Any, parts: Sequence[tuple[RecordedCell, CellText]], before_cell: BeforeCell) -> None:
    for cell, text in parts:
        before_cell(cell, text.python)
        shell.execution_count = cell.number
        shell.lines_before = text.lines_before
        result = await shell.run_cell_async(
            text.python, store_history=True, transformed_cell=text.python, cell_id=cell.id or None
        )
        _check_ending(cell, result.error_in_exec or result.error_before_exec)


def _check_ending(cell: RecordedCell, error: BaseException | None) -> None:
    """Raises the error of a cell, unless the cell was ended by such an error when it was recorded."""
    if error is None:
        return
    is_known = cell.error is not None or not cell.is_before
    if type(error).__name__ == cell.error or (not is_known and isinstance(error, Exception)):
        return
    error.add_note(f"in cell {cell.label}")
    raise error


def _make_shell(script: Path, folder: Path) -> Any:
    """Makes a shell whose cells are parts of one file: frames and tracebacks show its path and its line numbers."""
    try:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    except ImportError as error:
        raise NotFound("the run was recorded in a notebook; install ipython to replay it") from error
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    settings = Config()
    settings.HistoryManager.enabled = False  # the user's own history stays as it is
    shell = InteractiveShell.instance(config=settings, ipython_dir=str(folder / "ipython"), user_module=main_module)
    shell.compile.cache = lambda *_args, **_named: str(script)
    shell.ast_transformers.append(SimpleNamespace(visit=lambda node: _move_down(node, shell.lines_before)))
    shell.enable_gui = lambda gui=None: None  # there is no event loop of a window here, nor was there one in the kernel
    _leave_packages_alone(shell)
    return shell


def _move_down(node: ast.AST, lines: int) -> ast.AST:
    return ast.increment_lineno(node, lines)


def _leave_packages_alone(shell: Any) -> None:
    """Has commands that install packages do nothing: the packages of a replay are those that are installed now."""
    for name in _INSTALLERS:
        shell.register_magic_function(lambda _line: None, "line", name)
    for name in ("system", "getoutput"):
        setattr(shell, name, _unless_install(getattr(shell, name)))


def _unless_install(command: Callable[..., Any]) -> Callable[..., Any]:
    def run(line: str, *args: Any, **named: Any) -> Any:
        return None if _INSTALL.match(line) else command(line, *args, **named)

    return run
