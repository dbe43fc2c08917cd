"""Cells of a notebook that are executed again: what they log then is an iteration of its own of the loop `cell`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from relive.record.session import Driver, Place

LOOP = "cell"


class CellDriver(Driver, Protocol):
    """A driver that records the iterations of loops."""

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int: ...
    def note_item(self, loop: int, iteration: int, item: Any) -> None: ...


class NotebookCells:
    """Moves the place that is outside of all loops when a cell is executed again; the first time it is the run itself.

    The column `cell` then has the number that the notebook shows beside the cell.
    """

    def __init__(self, driver: CellDriver, shell: Any) -> None:
        self._driver = driver
        self._shell = shell
        self._run = driver.root
        self._seen = {_cell_that_runs(shell)}  # the one that opened the run
        self._loop: int | None = None
        self._reruns = 0

    def before_cell(self, info: Any) -> None:
        """Is called by IPython before it executes a cell; must not raise."""
        with contextlib.suppress(Exception):  # it would be printed below the user's cell
            cell = getattr(info, "cell_id", None) or info.raw_cell
            if cell not in self._seen:
                self._seen.add(cell)
                self._driver.root = self._run
                return
            if self._loop is None:
                self._loop = self._driver.enter_loop(LOOP, self._run, ())
            # Not `execution_count`: whether that is counted before or after this call depends on the version.
            number = len(self._shell.history_manager.input_hist_raw)
            self._driver.note_item(self._loop, self._reruns, number)
            self._driver.root = Place(self._driver, self._loop, self._reruns, self._run)
            self._reruns += 1


def watch_notebook_cells(driver: CellDriver) -> None:
    """Tells the cells of this notebook apart that are executed again; never raises."""
    with contextlib.suppress(Exception):  # a shell of another kind, or of another version
        ipython = sys.modules.get("IPython")
        find_shell: Callable[[], Any] | None = getattr(ipython, "get_ipython", None)
        shell = find_shell() if find_shell is not None else None
        if shell is not None:
            shell.events.register("pre_run_cell", NotebookCells(driver, shell).before_cell)


def _cell_that_runs(shell: Any) -> str:
    """Returns the id of the cell that is being executed, else its text."""
    with contextlib.suppress(Exception):  # a shell of another kind, or of another version
        parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
        return str((parent.get("metadata") or {}).get("cellId") or shell.history_manager.input_hist_raw[-1])
    return ""
