"""Which code is the user's own and hashed by content; Python, libraries and relive are identified by name."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from relive.installation import PACKAGE_FOLDER

_MAIN_MODULES = ("__main__", "__mp_main__")


def is_own_function(function: FunctionType) -> bool:
    return is_own_code(function.__code__) and not _is_library(function.__module__)


def is_own_code(code: CodeType) -> bool:
    return is_own_file(code.co_filename)


def is_own_class(kind: type) -> bool:
    """Whether a class is defined in a project file, in a notebook or by `exec`."""
    if kind.__module__ in _MAIN_MODULES:  # in a worker, __main__ is not the file that defines the class
        return True
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in ("builtins", "typing") or kind.__module__ in sys.builtin_module_names:
        return False
    return is_own_module(module) if module is not None else not _is_library(kind.__module__)


def is_own_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__" or (not _is_library(module.__name__) and not hasattr(module, "__path__"))
    return is_own_file(file)


def module_name(thing: Any) -> str:
    """Returns the module of a function or class; the file name for a script, so that importing it changes nothing."""
    name = str(getattr(thing, "__module__", None) or "")
    if name not in _MAIN_MODULES:
        return name
    code = getattr(thing, "__code__", None)
    return _script_name(code.co_filename if code is not None else getattr(sys.modules.get(name), "__file__", None))


def namespace_name(namespace: Mapping[str, Any]) -> str:
    """Returns the module name for a module's globals, like `module_name`."""
    name = str(namespace.get("__name__", ""))
    return _script_name(namespace.get("__file__")) if name in _MAIN_MODULES else name


def _script_name(file: str | None) -> str:
    if not file or file.startswith("<") or "ipykernel" in file:
        return "__main__"
    return os.path.splitext(os.path.basename(file))[0]


def _is_library(name: str | None) -> bool:
    root = (name or "").partition(".")[0]
    return root in sys.stdlib_module_names or root == "relive"


@functools.lru_cache(maxsize=4096)
def is_own_file(path: str) -> bool:
    if path.startswith("<frozen"):
        return False
    if path.startswith("<"):
        return True
    real = os.path.realpath(path)
    if any(f"{os.sep}{part}{os.sep}" in real for part in ("site-packages", "dist-packages")):
        return False
    return not real.startswith((PACKAGE_FOLDER, *_python_folders()))


@functools.cache
def _python_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib")
    return tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in names})
