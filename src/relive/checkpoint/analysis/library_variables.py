"""Variables of library modules that the project's source assigns: `json.encoder.STATE = {}`."""

from __future__ import annotations

import linecache
import re
import sys
from functools import lru_cache
from types import ModuleType

from relive.checkpoint.analysis.project_mutations import is_project_module, project_modules

_ASSIGNED = re.compile(r"(?<![\w.])([^\W\d]\w*(?:\.[^\W\d]\w*)+)\s*(?:\[[^\]\n]*\]\s*)?[-+*/|&]?=(?!=)")


def assigned_library_variables() -> dict[str, list[str]]:
    """Returns the names of variables by the module that has them, or gets them; no functions and modules."""
    return _assigned(len(sys.modules))


@lru_cache(maxsize=2)
def _assigned(_count: int) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for module in project_modules():
        file = getattr(module, "__file__", None)
        for chain in {*_ASSIGNED.findall("".join(linecache.getlines(file)))} if file else ():
            first, *rest = chain.split(".")
            current = vars(module).get(first)
            for part in rest:
                if not isinstance(current, ModuleType) or is_project_module(current.__name__):
                    break
                value = vars(current).get(part)
                if not isinstance(value, ModuleType) and not callable(value):
                    found.setdefault(current.__name__, {})[part] = None
                current = value
    return {name: list(variables) for name, variables in found.items()}
