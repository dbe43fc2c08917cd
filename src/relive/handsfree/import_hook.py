"""An import hook that instruments modules of the project and installs hooks in logging libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from relive import syntax_tree
from relive.handsfree.capture import call_safely, explainer, loop_hooks
from relive.instrument import HOOK_NAME, ProjectSurvey, RecordedSource, instrument_loops
from relive.record.process import warn_once

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages", "node_modules"})
ModuleHook = Callable[[ModuleType], None]


Recorded = Mapping[str, str | None]  # real path of a file that statements were added to → its text before
_NONE: Recorded = MappingProxyType({})


def compile_instrumented(source: bytes, path: str, known: ProjectSurvey, recorded: Recorded = _NONE) -> CodeType:
    """Compiles a file with its loops and log calls instrumented, or unchanged if that fails."""
    code = _try_instrument(source, path, known, recorded)
    return code if code is not None else compile(source, path, "exec", dont_inherit=True)


def _try_instrument(source: bytes, path: str, known: ProjectSurvey, recorded: Recorded) -> CodeType | None:
    try:
        tree = syntax_tree.parse(source, path)
        text = source.decode("utf-8", "surrogateescape")
        real = os.path.realpath(path)
        before = RecordedSource(recorded[real], text) if real in recorded else None
        explainer.add_choices(path, instrument_loops(tree, known, before))
        return compile(tree, path, "exec", dont_inherit=True)
    except SyntaxError:
        return None  # raised again when the unchanged source is compiled
    except Exception as error:  # noqa: BLE001 - the script must run, if need be unchanged
        reason = f"{path}: {type(error).__name__}: {error}"
        warn_once(
            "not-instrumented",
            f"{reason}; it runs unchanged, and its loops are not recorded",
        )
        return None


def is_project_file(path: str, root: str) -> bool:
    """Whether a file is below the root of the project, and not in a library or environment there."""
    real = os.path.realpath(path)
    if not real.startswith(root.rstrip(os.sep) + os.sep):
        return False
    folders = os.path.relpath(real, root).split(os.sep)[:-1]
    if any(part in _LIBRARY_FOLDERS or part.startswith(".") for part in folders):
        return False
    above = [os.path.join(root, *folders[: at + 1]) for at in range(len(folders))]
    return not any(os.path.exists(os.path.join(folder, "pyvenv.cfg")) for folder in above)


def project_reader(root: str, recorded: Recorded) -> Callable[[str], str | None]:
    """Returns a function that reads the files of a project by their path below its root."""

    def read(path: str) -> str | None:
        whole = os.path.join(root, path)
        if whole in recorded:
            return recorded[whole]
        if not os.path.isfile(whole) or not is_project_file(whole, root):
            return None
        return Path(whole).read_bytes().decode("utf-8", "surrogateescape")

    return read


class InstrumentingFinder(MetaPathFinder):
    """A finder that delegates to the other finders and replaces the loader of some modules."""

    def __init__(self, root: str, known: ProjectSurvey, hooks: dict[str, ModuleHook], recorded: Recorded) -> None:
        self._root = root
        self._recorded = recorded
        self.known = known
        self._hooks = hooks

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._hooks and name.partition(".")[0] in sys.stdlib_module_names:
            return None
        spec = self._find(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        if name in self._hooks:
            spec.loader = _HookedLoader(spec.loader, self._hooks[name])
        elif type(spec.loader) is SourceFileLoader and spec.origin and is_project_file(spec.origin, self._root):
            spec.loader = _InstrumentingLoader(name, spec.origin, self.known, self._recorded)
        return spec

    def _find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                return spec
        return None


class _InstrumentingLoader(SourceFileLoader):
    """Loads a module of the project from its source. Writes no .pyc file: that would replace Python's own."""

    def __init__(self, name: str, path: str, known: ProjectSurvey, recorded: Recorded) -> None:
        super().__init__(name, path)
        self._known = known
        self._recorded = recorded

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile_instrumented(self.get_data(path), path, self._known, self._recorded)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[HOOK_NAME] = loop_hooks
        super().exec_module(module)


class _HookedLoader(Loader):
    """Loads a module by its own loader, then calls a hook with it."""

    def __init__(self, loader: Any, hook: ModuleHook) -> None:
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        install_hook(module, self._hook)


def install_hook(module: ModuleType, hook: ModuleHook) -> None:
    """Calls a hook with a loaded module; a failure becomes a warning."""
    call_safely(module.__name__, hook, module)
