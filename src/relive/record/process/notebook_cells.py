"""Cells of a notebook: their source is recorded as they are executed, and cells that are executed again are told apart.

A cell that is executed again is an iteration of its own of the loop `cell`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from relive.record.process.user_warnings import warn_once
from relive.record.session import Driver, Place
from relive.store.journal import Journal, line_schema

RERUN_LOOP = "cell"
_TIMER = "%%time"  # the one magic of a whole cell that does nothing but run it, so that its code can stay code


class CellDriver(Driver, Protocol):
    """A driver that records the iterations of loops."""

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int: ...
    def note_item(self, loop: int, iteration: int, item: Any) -> None: ...


class RecordingDriver(CellDriver, Protocol):
    """A driver with a journal, and with texts that must not get into it."""

    @property
    def journal(self) -> Journal: ...
    @property
    def secrets(self) -> Any: ...


class NotebookCells:
    """Moves the place that is outside of all loops when a cell is executed again; the first time it is the run itself.

    The column `cell` then has the number that the notebook shows beside the cell.
    """

    def __init__(self, driver: CellDriver, shell: Any, first: str | None = None) -> None:
        self._driver = driver
        self._shell = shell
        self._run = driver.root
        self._seen = {_cell_that_runs(shell) if first is None else first}  # the one that opened the run
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
            number = next_number(self._shell) if self._shell is not None else 0
            if self._loop is None:
                self._loop = self._driver.enter_loop(RERUN_LOOP, self._run, ())
            self._driver.note_item(self._loop, self._reruns, number)
            self._driver.root = Place(self._driver, self._loop, self._reruns, self._run)
            self._reruns += 1


class CellRecorder:
    """Records the cells of a kernel: those before a run when it begins, then each one as it begins and as it ends."""

    def __init__(self, driver: RecordingDriver, shell: Any) -> None:
        self._driver = driver
        self._shell = shell
        self._number: int | None = None  # of the cell that is being executed
        self._record_earlier()

    def _record_earlier(self) -> None:
        raw, errors = self._shell.history_manager.input_hist_raw, _known_errors(self._shell)
        last = len(raw) - 1  # the one that runs now, and that opens the run
        for number in range(1, last):
            facts = {"before": True} | ({"error": errors.get(number, "")} if errors is not None else {})
            self._record(number, raw[number], None, **facts)
        self._record(last, raw[last], _cell_id(self._shell))
        self._number = last

    def _record(self, number: int, source: str, cell: str | None, **facts: Any) -> None:
        text = self._driver.secrets.text
        python = python_source(source, self._shell.transform_cell)
        facts |= {"id": cell} if cell else {}
        facts |= {"python": text(python)} if python != source else {}
        self._driver.journal.line(line_schema.CellBegun, number=number, source=text(source), **facts)

    def before_cell(self, info: Any) -> None:
        """Is called by IPython before it executes a cell; must not raise."""
        try:
            self._number = next_number(self._shell)
            self._record(self._number, info.raw_cell, getattr(info, "cell_id", None))
        except Exception as error:  # noqa: BLE001 - the user's cell must run
            warn_once("cell-lost", f"{type(error).__name__}: {error}; this run can't be replayed")

    def after_cell(self, result: Any) -> None:
        """Is called by IPython after it has executed a cell; must not raise."""
        if self._number is None:
            return
        try:
            error = result.error_in_exec or result.error_before_exec
            name = type(error).__name__ if error is not None else ""
            self._driver.journal.line(line_schema.CellEnded, number=self._number, error=name)
        except Exception as failure:  # noqa: BLE001 - what the user sees below the cell must stay as it is
            warn_once("cell-lost", f"{type(failure).__name__}: {failure}; this run can't be replayed")
        self._number = None


def python_source(source: str, transform: Callable[[str], str]) -> str:
    """Returns what IPython makes of a cell: Python, with calls in place of magics; the cell itself if it is Python."""
    first, _, rest = source.partition("\n")
    if first.strip() == _TIMER:
        return f"# {_TIMER}\n{python_source(rest, transform)}"
    try:
        made = transform(source)
    except SyntaxError:  # then IPython runs nothing of it
        return source
    return source if made.rstrip("\n") == source.rstrip("\n") else made


def watch_notebook_cells(driver: RecordingDriver, *, is_explicit: bool) -> Callable[[], None]:
    """Records the cells of this notebook from now on; returns the function that ends it. Never raises.

    `is_explicit`: the run is a `with` block, which lies inside one cell, so that no cell is executed again in it.
    """
    ipython = sys.modules.get("IPython")
    find_shell: Callable[[], Any] | None = getattr(ipython, "get_ipython", None)
    shell = find_shell() if find_shell is not None else None
    if shell is None:
        return lambda: None
    hooks: list[tuple[str, Callable[[Any], None]]] = []
    try:
        recorder = CellRecorder(driver, shell)
        hooks += [("pre_run_cell", recorder.before_cell), ("post_run_cell", recorder.after_cell)]
    except Exception as error:  # noqa: BLE001 - a shell of another kind, or of another version
        warn_once("cell-lost", f"{type(error).__name__}: {error}; this run can't be replayed")
    if not is_explicit:
        hooks.append(("pre_run_cell", NotebookCells(driver, shell).before_cell))
    for event, hook in hooks:
        shell.events.register(event, hook)
    return lambda: _unregister(shell, hooks)


def _unregister(shell: Any, hooks: list[tuple[str, Callable[[Any], None]]]) -> None:
    for event, hook in hooks:
        with contextlib.suppress(ValueError):  # the user has reset the events of the shell
            shell.events.unregister(event, hook)


def next_number(shell: Any) -> int:
    """The number of the cell that is about to be executed."""
    # Not `execution_count`: whether that is counted before or after this call depends on the version.
    return len(shell.history_manager.input_hist_raw)


def _known_errors(shell: Any) -> dict[int, str] | None:
    """The errors that ended cells, by their number; None if this version of IPython does not keep them."""
    errors = getattr(shell.history_manager, "exceptions", None)
    if errors is None:
        return None
    return {number: str(error.get("ename", "")) for number, error in errors.items()}


def _cell_id(shell: Any) -> str | None:
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return (parent.get("metadata") or {}).get("cellId")


def _cell_that_runs(shell: Any) -> str:
    """Returns the id of the cell that is being executed, else its text."""
    with contextlib.suppress(Exception):  # a shell of another kind, or of another version
        return str(_cell_id(shell) or shell.history_manager.input_hist_raw[-1])
    return ""
