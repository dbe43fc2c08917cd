"""The main module of a process that `multiprocessing` spawns: loaded from the script, with its loops instrumented."""

from __future__ import annotations

import builtins
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.handsfree.capture import loop_hooks
from relive.handsfree.import_hook import compile_instrumented
from relive.instrument import HOOK_NAME, ProjectSurvey


class SpawnedMain:
    """Stands in for the module `runpy` in `multiprocessing.spawn`, which loads the main module by it."""

    def __init__(self, known: ProjectSurvey, is_project_file: Callable[[str], bool]) -> None:
        self._known = known
        self._is_project_file = is_project_file

    def run_path(self, path: str, run_name: str) -> dict[str, Any]:
        if not self._is_project_file(path):
            return runpy.run_path(path, run_name=run_name)
        code = compile_instrumented(Path(path).read_bytes(), path, self._known)
        names = {"__name__": run_name, "__file__": path, "__builtins__": builtins, "__package__": "", "__spec__": None}
        variables = {**names, "__doc__": None, "__cached__": None, "__loader__": None, HOOK_NAME: loop_hooks}
        exec(code, variables)
        return variables

    def run_module(self, name: str, run_name: str, alter_sys: bool) -> dict[str, Any]:
        # The import hook instruments its code, which then needs this variable.
        return runpy.run_module(name, {HOOK_NAME: loop_hooks}, run_name, alter_sys)
