"""The roots of the graph: named objects, variables of the project's modules and of running functions, the process."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from relive.checkpoint.analysis import is_project_module, live_outs, project_modules, rebound_in_loop
from relive.checkpoint.graph.walk import ObjectWalk
from relive.checkpoint.state import UncapturedValue, collect_user_frames, is_small, set_variables

NAMED, MODULE, FRAME, PROCESS, EXTRA, THREAD = "=", "m", "f", "p", "x", "t"
_SEPARATOR = "|"
# Names that IPython gives to itself, to the texts of cells and to what they displayed: a replay has its own.
_OF_IPYTHON = re.compile(r"get_ipython|exit|quit|open|In|Out|_[iod]h|_i+|_i?\d+|_exit_code")
OuterLoop = tuple[int, int, int]  # the enclosing loop: identities of its frame and code, and its line


def root_key(kind: str, *parts: Any) -> str:
    return _SEPARATOR.join((kind, *map(str, parts)))


@dataclass(frozen=True, slots=True)
class Roots:
    """Where a walk begins."""

    named: Mapping[str, Any]
    frames: Sequence[FrameType] = ()  # of the user's functions, from the outermost inwards
    left_out: Mapping[int, Collection[str]] = field(
        default_factory=dict
    )  # names of variables, by identity of the frame
    process: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    has_modules: bool = True  # variables of the project's modules are roots, too

    def add_to(self, walk: ObjectWalk) -> None:
        for name, obj in self.named.items():
            walk.add_root(root_key(NAMED, name), obj, name)
        left_out = self.left_out
        of_modules = {id(frame.f_globals): left_out.get(id(frame), ()) for frame in self.frames if _is_module(frame)}
        for module in project_modules() if self.has_modules else ():
            self._add_module(walk, module, of_modules.get(id(vars(module)), ()))
        for level, frame in enumerate(self.frames):
            if not _is_module(frame):
                prefix = frame.f_code.co_qualname.replace("<locals>.", "")
                without = left_out.get(id(frame), ())
                for name, value in list(frame.f_locals.items()):
                    if name not in without:
                        key = root_key(FRAME, level, frame.f_code.co_qualname, name)
                        walk.add_root(key, value, f"{prefix}.{name}" if level else name)
        if self.has_modules:
            _add_threads(walk)
        for name, obj in self.process.items():
            walk.add_root(root_key(PROCESS, name), obj, f"({name})")
        for name, obj in self.extra.items():
            walk.add_root(root_key(EXTRA, name), obj, name)

    def _add_module(self, walk: ObjectWalk, module: ModuleType, without: Collection[str]) -> None:
        prefix = "" if module.__name__ == "__main__" else f"{module.__name__}."
        is_notebook = "get_ipython" in vars(module)
        for name, value in list(vars(module).items()):
            if name[:2] != "__" and name not in without and not (is_notebook and _OF_IPYTHON.fullmatch(name)):
                walk.add_root(root_key(MODULE, module.__name__, name), value, prefix + name)

    def names_left_out(self) -> list[str]:
        """Returns the root keys of variables that are left out."""
        found = []
        for level, frame in enumerate(self.frames):
            for name in self.left_out.get(id(frame), ()):
                module = frame.f_globals.get("__name__", "")
                key = (MODULE, module, name) if _is_module(frame) else (FRAME, level, frame.f_code.co_qualname, name)
                found.append(root_key(*key))
        return found


def _add_threads(walk: ObjectWalk) -> None:
    """Adds the variables of functions of the project that run in other threads; they can be seen, but not restored."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    for ident, innermost in sys._current_frames().items():
        frames = collect_user_frames(innermost) if ident != own and ident in names else []
        for level, frame in enumerate(frame for frame in frames if not _is_module(frame)):
            for name, value in list(frame.f_locals.items()):
                key = root_key(THREAD, names[ident], level, frame.f_code.co_qualname, name)
                walk.add_root(key, value, f"{frame.f_code.co_qualname}.{name}")


def changed_threads(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the functions that run in other threads and whose variables are not what they were."""
    changed = [key for key in {**then, **now} if key[0] == THREAD and then.get(key) != now.get(key)]
    return list(dict.fromkeys(key.split(_SEPARATOR)[3] for key in changed))


def _is_module(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>" and is_project_module(frame.f_globals.get("__name__") or "")


def variables_left_out(frame: FrameType, line: int) -> frozenset[str]:
    """Returns the variables that a loop binds, that no later code reads, and that are too large to keep anyway."""
    bound = rebound_in_loop(frame, line) - frozenset(live_outs(frame, line))
    values = frame.f_locals
    return frozenset(name for name in bound if name in values and not is_small(values[name]))


def import_modules(roots: Mapping[str, Any]) -> None:
    """Imports modules of the project that the run had imported by then: their variables are restored, too."""
    for name in dict.fromkeys(key.split(_SEPARATOR)[1] for key in roots if key[0] == MODULE):
        if name not in sys.modules:
            with contextlib.suppress(ImportError):  # made at run time: its variables are reported as missing
                importlib.import_module(name)


def set_roots(roots: Roots, values: Mapping[str, Any], left_out: Collection[str]) -> list[str]:
    """Binds variables of modules and running functions; returns the roots that do not exist here."""
    missing: list[str] = []
    modules = {module.__name__: module for module in project_modules()}
    of_frames: dict[int, dict[str, Any]] = {}
    placeholders = {key: UncapturedValue(key.rpartition(_SEPARATOR)[2]) for key in left_out}
    for key, value in {**values, **placeholders}.items():
        kind, *parts = key.split(_SEPARATOR)
        if kind == MODULE:
            module = modules.get(parts[0])
            if module is None:
                missing.append(f"{parts[0]}.{parts[1]}")
            elif vars(module).get(parts[1], _MISSING) is not value:
                vars(module)[parts[1]] = value
        elif kind == FRAME:
            level = int(parts[0])
            if level >= len(roots.frames) or roots.frames[level].f_code.co_qualname != parts[1]:
                missing.append(f"{parts[1]}.{parts[2]}")
            else:
                of_frames.setdefault(level, {})[parts[2]] = value
    for level, variables in of_frames.items():
        set_variables(roots.frames[level], variables)
    return missing


_MISSING = object()
