"""`%load_ext relive`: the loops and log calls of notebook cells are instrumented as the cells are executed."""

from __future__ import annotations

import ast
import os
from typing import Any

from relive.handsfree.capture import loop_hooks, script_logs
from relive.handsfree.import_hook import InstrumentingFinder, is_project_file, project_reader
from relive.handsfree.script_start import ScriptStart
from relive.instrument import (
    HOOK_NAME,
    ProjectSurvey,
    RecordedSource,
    instrument_loops,
    names_passed_to_loggers,
    reachable_files,
    survey_functions,
)
from relive.record import open_driver, session
from relive.record.process import read_launch_context, warn_once

_CELLS = "cells of the notebook.py"  # stands for a file in which all cells are


class CellInstruments:
    """Instruments each cell after the one that loads the extension; a survey of all cells says which loops train."""

    def __init__(self) -> None:
        self.start = ScriptStart("", [])  # a replay sets what its job says
        self.recorded: tuple[str, str] | None = None  # the cell in a replay: as recorded, and with added statements
        self._texts: list[str] = []
        self._root = ""
        self._finder: InstrumentingFinder | None = None

    def load(self, shell: Any) -> None:
        """Begins the run, which lasts until the kernel ends; does nothing when relive is off."""
        if self._finder is None:
            from relive.handsfree.script_runner import install_capture  # loads the hooks of all frameworks

            context = read_launch_context()
            if self.start.root is None and context.settings.off:
                return
            self._root = os.path.realpath(self.start.root or context.entry.root)
            sources = self.start.sources if self.start.sources is not None else context.settings.sources
            self._finder = install_capture(self._root, ProjectSurvey(), sources, self.start)
            script_logs.is_project_file = self._is_own_file
            session.place(open_driver)
        shell.user_ns[HOOK_NAME] = loop_hooks
        if self not in shell.ast_transformers:
            shell.ast_transformers.insert(0, self)

    def unload(self, shell: Any) -> None:
        """Leaves later cells as they are; the run goes on."""
        if self in shell.ast_transformers:
            shell.ast_transformers.remove(self)

    def visit(self, tree: ast.Module) -> ast.Module:
        """Is called by IPython with each cell that it is about to compile; must not raise."""
        unchanged = ast.unparse(tree)
        try:
            source = RecordedSource(*self.recorded) if self.recorded is not None else None
            self._texts.append(unchanged if self.recorded is None else self.recorded[0])
            instrument_loops(tree, self._survey(), source)
        except Exception as error:  # noqa: BLE001 - the cell must run, if need be unchanged
            reason = f"a cell: {type(error).__name__}: {error}"
            warn_once("not-instrumented", f"{reason}; it runs unchanged, and its loops are not recorded")
        return tree

    def _survey(self) -> ProjectSurvey:
        read = project_reader(self._root, self.start.recorded)
        cells = "\n".join(self._texts)
        files = reachable_files(_CELLS, lambda path: cells if path == _CELLS else read(path))
        known = survey_functions(files.values())
        script_logs.explicit_names = names_passed_to_loggers(files.values())
        if self._finder is not None:
            self._finder.known = known
        return known

    def _is_own_file(self, path: str) -> bool:
        # A cell has the name of a file that does not exist.
        return not os.path.exists(path) or is_project_file(path, self._root)


notebook_instruments = CellInstruments()
