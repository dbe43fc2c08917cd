"""Modules of the project are rewritten when they are imported, and loggers are listened to when they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from relive import syntax_tree
from relive.handsfree.capture import explainer, loop_hooks, safely
from relive.instrument import HOOK, Survey, instrument
from relive.record.process import warn_once

_FOREIGN = frozenset({"site-packages", "dist-packages", "node_modules"})
Listen = Callable[[ModuleType], None]


def code_of(source: bytes, path: str, known: Survey) -> CodeType:
    """A file's code with its loops and log calls made visible, or as it is if that can't be done."""
    rewritten = _rewritten(source, path, known)
    return rewritten if rewritten is not None else compile(source, path, "exec", dont_inherit=True)


def _rewritten(source: bytes, path: str, known: Survey) -> CodeType | None:
    try:
        tree = syntax_tree.parse(source, path)
        explainer.chose(path, instrument(tree, known))
        return compile(tree, path, "exec", dont_inherit=True)
    except SyntaxError:
        return None  # Python will say what is wrong with it
    except Exception as error:  # noqa: BLE001 - the script must run, as it was if need be
        reason = f"{path}: {type(error).__name__}: {error}"
        warn_once("not-instrumented", f"{reason}; it runs as it is, and its loops are not seen")
        return None


def is_own(path: str, root: str) -> bool:
    """Is a file the project's: below its root, and of no library or environment there?"""
    real = os.path.realpath(path)
    if not real.startswith(root.rstrip(os.sep) + os.sep):
        return False
    folders = os.path.relpath(real, root).split(os.sep)[:-1]
    if any(part in _FOREIGN or part.startswith(".") for part in folders):
        return False
    above = [os.path.join(root, *folders[: at + 1]) for at in range(len(folders))]
    return not any(os.path.exists(os.path.join(folder, "pyvenv.cfg")) for folder in above)


class Finder(MetaPathFinder):
    """Stands before the other finders, and changes only how some of the modules that they find are loaded."""

    def __init__(self, root: str, known: Survey, listeners: dict[str, Listen]) -> None:
        self._root = root
        self._known = known
        self._listeners = listeners

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._listeners and name.partition(".")[0] in sys.stdlib_module_names:
            return None
        spec = self._found(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        if name in self._listeners:
            spec.loader = _Listening(spec.loader, self._listeners[name])
        elif type(spec.loader) is SourceFileLoader and spec.origin and is_own(spec.origin, self._root):
            spec.loader = _Instrumenting(name, spec.origin, self._known)
        return spec

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                return spec
        return None


class _Instrumenting(SourceFileLoader):
    """Loads a module of the project from its source. Nothing is cached: the compiled file beside it is Python's."""

    def __init__(self, name: str, path: str, known: Survey) -> None:
        super().__init__(name, path)
        self._known = known

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return code_of(self.get_data(path), path, self._known)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[HOOK] = loop_hooks
        super().exec_module(module)


class _Listening(Loader):
    """Loads a module as its own loader does, and listens to it from then on."""

    def __init__(self, loader: Any, listen: Listen) -> None:
        self._loader = loader
        self._listen = listen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        listen_safely(module, self._listen)


def listen_safely(module: ModuleType, listen: Listen) -> None:
    """Set a listener on a loaded module."""
    safely(module.__name__, listen, module)
