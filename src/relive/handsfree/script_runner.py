"""Runs a script as Python would, with its loops and log calls instrumented."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from relive.errors import NotFound
from relive.handsfree.capture import (
    GENERATOR_HOOKS,
    LOADER_HOOKS,
    LOGGER_HOOKS,
    explainer,
    loop_hooks,
    script_logs,
)
from relive.handsfree.configs import CONFIG_HOOKS, noted_settings
from relive.handsfree.exit_check import schedule_self_check
from relive.handsfree.frameworks import FRAMEWORK_HOOKS
from relive.handsfree.import_hook import (
    InstrumentingFinder,
    compile_instrumented,
    install_hook,
    is_project_file,
    project_reader,
)
from relive.handsfree.script_start import ScriptStart
from relive.handsfree.spawned_main import SpawnedMain
from relive.handsfree.sweeps import SWEEP_HOOKS, WorkerSetUp, sweep
from relive.installation import PACKAGE_FOLDER
from relive.instrument import (
    HOOK_NAME,
    RULES_VERSION,
    ProjectSurvey,
    names_passed_to_loggers,
    reachable_files,
    survey_functions,
)
from relive.record import open_driver, session
from relive.record.process import read_launch_context, warn_once


def run_script(start: ScriptStart) -> None:
    """Runs a script as `__main__`. Returns when it ends; exceptions pass through."""
    main = locate_script(start)
    sys.modules["__main__"] = main.module
    sys.argv = [start.argv0 or main.argv0, *start.argv]
    _hide_own_frames()
    known = _set_up_capture(main.path, start) if start.root is not None else _set_up_safely(main.path, start)
    if main.module.__package__:
        importlib.import_module(main.module.__package__)
    source = Path(main.path).read_bytes()
    if known is None:
        code = compile(source, main.path, "exec", dont_inherit=True)
    else:
        main.module.__dict__[HOOK_NAME] = loop_hooks
        code = compile_instrumented(source, main.path, known, start.recorded)
    exec(code, main.module.__dict__)


def locate_script(start: ScriptStart) -> _MainScript:
    """Finds the script or module to run, and sets `sys.path` as Python would for it."""
    return _MainModule.of(start) if start.is_module else _MainScript.of(start)


def find_running_script() -> ScriptStart | None:
    """Returns the running script, for `import relive.auto`; None if there is none that can be started again."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if not path or not os.path.isfile(path) or hasattr(main, HOOK_NAME):
        return None
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return ScriptStart(spec.name.removesuffix(".__main__"), sys.argv[1:], is_module=True)
    return ScriptStart(path, sys.argv[1:])


def _set_up_safely(path: str, start: ScriptStart) -> ProjectSurvey | None:
    try:
        return _set_up_capture(path, start)
    except Exception as error:  # noqa: BLE001 - the script must run, recorded or not
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded hands-free")
        return None


def _set_up_capture(path: str, start: ScriptStart) -> ProjectSurvey | None:
    """Installs the import hook, logger hooks and driver; returns None when relive is off."""
    context = read_launch_context()
    if start.root is None and context.settings.off:
        return None
    root, sources = os.path.realpath(start.root or context.entry.root), start.sources
    if sources is None:
        sources = context.settings.sources
    known = _survey_and_capture(path, root, tuple(sources), start)
    sweep.set_up = WorkerSetUp(set_up_worker, (path, root, tuple(sources)))
    session.place(open_driver)  # the run starts with the script, not with its first loop
    if start.root is None:
        schedule_self_check(context)
    if start.explains:
        explainer.start()
    return known


def set_up_worker(path: str, root: str, sources: tuple[str, ...]) -> None:
    """Sets up capture in a process that a pool of the script has started; does nothing in one that was forked."""
    if session.instrumented is not None:
        return
    known = _survey_and_capture(path, root, sources, ScriptStart(path, []))
    spawn: Any = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.runpy = SpawnedMain(known, script_logs.is_project_file)


def _survey_and_capture(path: str, root: str, sources: tuple[str, ...], start: ScriptStart) -> ProjectSurvey:
    entry = Path(os.path.relpath(os.path.realpath(path), root)).as_posix()
    files = reachable_files(entry, project_reader(root, start.recorded))
    known = survey_functions(files.values())
    sweep.trainers = known.trainers | known.loop_holders
    script_logs.explicit_names = names_passed_to_loggers(files.values())
    install_capture(root, known, sources, start)
    return known


def install_capture(
    root: str, known: ProjectSurvey, sources: Collection[str], start: ScriptStart
) -> InstrumentingFinder:  # fmt: skip
    """Installs the import hook and the hooks of libraries for a project; what they log is captured from now on."""
    script_logs.sources, script_logs.only = frozenset(sources), dict(start.only)
    script_logs.is_project_file = partial(is_project_file, root=root)
    script_logs.holds_back = start.holds_back
    noted_settings.is_on, noted_settings.is_project_file = "config" in sources, script_logs.is_project_file
    session.instrumented = {"rules": RULES_VERSION, "sources": list(sources), "holds_back": start.holds_back}
    session.flushes.append(script_logs.flush)
    session.at_exit.insert(0, script_logs.flush)
    hooks = LOGGER_HOOKS | FRAMEWORK_HOOKS | LOADER_HOOKS | GENERATOR_HOOKS | CONFIG_HOOKS | SWEEP_HOOKS
    finder = InstrumentingFinder(root, known, hooks, start.recorded)
    sys.meta_path.insert(0, finder)
    for name, hook in hooks.items():
        if name in sys.modules:
            install_hook(sys.modules[name], hook)
    return finder


# --- main modules ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _MainScript:
    """A main module that is not executed yet."""

    path: str
    argv0: str
    module: ModuleType

    @classmethod
    def of(cls, start: ScriptStart) -> _MainScript:
        path = os.path.abspath(start.target)
        if not os.path.isfile(path):
            raise NotFound(f"{start.target} is not a file; pass the path of a script, or a module with -m")
        _set_search_folder(os.path.dirname(os.path.realpath(path)))
        module = _main_module(path, None)
        module.__loader__ = SourceFileLoader("__main__", path)
        return cls(path, start.target, module)


class _MainModule(_MainScript):
    """The main module of `-m name`."""

    @classmethod
    def of(cls, start: ScriptStart) -> _MainScript:
        _set_search_folder(os.getcwd())
        spec = _find_main_spec(start.target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or not spec.origin:
            raise NotFound(f"there is no module {start.target} with Python source; pass one that can be imported here")
        return cls(spec.origin, spec.origin, _main_module(spec.origin, spec))


def _set_search_folder(folder: str) -> None:
    """Puts a folder first on `sys.path`, as Python does. Workers of replays use safe_path and get it from their job."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _find_main_spec(name: str) -> ModuleSpec | None:
    """Finds the spec of a module without importing its packages, which happens after the import hook is installed."""
    search, spec = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), search)
        if spec is None:
            return None
        search = spec.submodule_search_locations
    return PathFinder.find_spec(f"{name}.__main__", search) if search is not None else spec


def _main_module(path: str, spec: ModuleSpec | None) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    module.__spec__ = spec
    module.__package__ = spec.parent if spec is not None else None
    if spec is not None:
        module.__loader__ = spec.loader
    return module


# --- tracebacks -------------------------------------------------------------------------------------------------------


def _hide_own_frames() -> None:
    """Removes the frames of relive from uncaught exceptions, as if Python had started the script."""
    original = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        error.__traceback__ = sys.last_traceback = trimmed = _trim_to_script(trace)
        original(kind, error, trimmed)

    sys.excepthook = hook


def _trim_to_script(trace: TracebackType | None) -> TracebackType | None:
    begun = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if begun and not file.startswith(PACKAGE_FOLDER) and not file.startswith("<frozen"):
            return trace
        begun |= trace.tb_frame.f_code is run_script.__code__
        trace = trace.tb_next
    return None
