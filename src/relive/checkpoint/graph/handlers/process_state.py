"""State of the process as a whole: global random generators, defaults of libraries, environment, working folder."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # gives numbers, where `signal` makes an object for each
import builtins
import decimal
import gc
import locale
import logging
import operator
import os
import signal
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from relive.checkpoint.analysis import assigned_library_variables, is_project_module, project_modules
from relive.checkpoint.graph.handlers.attributes import module_name
from relive.checkpoint.graph.handlers.classes import has_same_values, is_library_state
from relive.checkpoint.graph.handlers.code import is_made_at_run_time
from relive.checkpoint.graph.handlers.objects import DISPLAY_PACKAGES
from relive.checkpoint.graph.object_tokens import PLAIN_TYPES, TYPED, value_token
from relive.checkpoint.graph.registry import MISSING, Handler, Restorer, Walker
from relive.checkpoint.state import (
    capture_random_states,
    current_filters,
    current_library_settings,
    restore_random_states,
    set_warning_filters,
)

_SIGNALS = sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
# Packages that put names into `builtins` when a kernel starts: the shell, and its debugger.
_OF_KERNELS = frozenset({"IPython", "ipykernel", "debugpy", "_pydev_bundle", "pydevd"})
_CONSTANTS = frozenset({"None", "True", "False", "Ellipsis", "NotImplemented", "copyright", "credits", "license"})


class ProcessState:
    """Stands for the process in the graph: what differs from when it was made.

    What was different before, as filters that a library has set when it was imported, is not told.
    Every walk looks at all of this, and nearly always it is as it was: that is found out by comparing whole tables.
    """

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.raw_environment = _raw_environment()
        self.builtins = dict(vars(builtins))
        self.added = _names_of_scripts()
        self.folder = _current_folder()
        self.search_path = list(sys.path)
        self.modules = set(sys.modules)
        self.signals = _signal_handlers()
        self.facts = {name: value for name, (value, _) in _facts().items()}


class FinalizerState:
    """Stands for the callbacks of the project that wait for objects to die."""


class LibraryState:
    """Stands for variables of the libraries that the project imports, or imports functions and classes of.

    What the project binds to something else is state, and so are the lists, dicts and sets of a library's modules.
    """

    def __init__(self) -> None:
        held = (value for module in project_modules() for value in list(vars(module).values()))
        libraries = {id(one): one for one in map(_library_of, held) if one is not None}
        self.variables = {name: dict(vars(one)) for one in libraries.values() if (name := one.__name__)}
        self.keepers = {name: _keepers_of(name, values) for name, values in self.variables.items()}
        for name, variables in assigned_library_variables().items():
            values = self.variables.setdefault(name, dict(vars(sys.modules[name]))) if name in sys.modules else {}
            keepers = self.keepers.setdefault(name, [])
            keepers += [one for one in variables if one not in keepers and _may_be_set(name, values.get(one))]
        # `isinstance` would ask each object for its class; some objects of torch.distributed warn when they are asked.
        self.classes = {
            name: [(key, one, frozenset(vars(one))) for key, one in values.items() if issubclass(type(one), type)]
            for name, values in self.variables.items()
        }


def _library_of(value: Any) -> types.ModuleType | None:
    """Returns the module of a library that a variable of the project holds, or of whose functions it holds one."""
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        name = vars(value).get("__name__") or ""
    elif kind is types.FunctionType:
        name = value.__globals__.get("__name__") or ""
    elif issubclass(kind, type):
        name = module_name(value)
    else:
        return None
    found = sys.modules.get(name) if type(name) is str and not is_project_module(name) else None
    return found if isinstance(found, types.ModuleType) and vars(found).get("__name__") == name else None


def _keepers_of(library: str, variables: dict[str, Any]) -> list[str]:
    """Returns the names of lists, dicts, sets and objects that a library may use to keep something."""
    package = library.partition(".")[0]
    if package in DISPLAY_PACKAGES or package in sys.stdlib_module_names:
        return []
    return [
        name
        for name, value in variables.items()
        if name[:2] != "__" and _is_object(value) and is_library_state(package, value)
    ]


def _may_be_set(library: str, value: Any) -> bool:
    """Whether a variable of a library that the project names may hold something of the project's."""
    package = library.partition(".")[0]
    if package in DISPLAY_PACKAGES or package in ("sys", "os", "builtins", "logging", "warnings", "relive"):
        return False  # looked at in other ways, or not at all
    # Whatever it holds, and of whichever kind: an OrderedDict, a Counter, a deque.
    is_container = isinstance(value, dict | list | set | deque)
    return value is None or is_container or (_is_object(value) and is_library_state(package, value))


def _is_object(value: Any) -> bool:
    """Whether a value can change; others are state only if they are bound to something else."""
    return type(value) not in PLAIN_TYPES and not issubclass(type(value), str | tuple | type)


def _names_of_project(kind: type, before: frozenset[str]) -> list[tuple[str, Any]]:
    """Returns the attributes that the project has given to a library's class."""
    return [
        (name, value) for name, value in list(vars(kind).items())
        if name not in before and name[:2] != "__" and _is_of_project(value)
    ]  # fmt: skip


class RandomState:
    """Stands for the global random generators in the graph."""


def _path_from(start: str, folder: str) -> str:
    """Returns the path of a folder from the one that a replay has in its place; of others, the whole path."""
    relative = os.path.relpath(folder, start)
    return folder if relative.split(os.sep)[0] == os.pardir else relative


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _umask() -> int:
    """Returns the mask of new files. Python can only set it, which other threads would notice."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith(b"Umask:"))
    except (OSError, StopIteration):  # not Linux
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def _facts() -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """Returns settings of the process: the current value of each, and how it is set."""
    context = decimal.getcontext()
    found: dict[str, tuple[Any, Callable[[Any], None]]] = {
        "warning filters": (current_filters(), set_warning_filters),
        "recursion limit": (sys.getrecursionlimit(), sys.setrecursionlimit),
        "decimal precision": (context.prec, lambda value: setattr(context, "prec", value)),
        "decimal rounding": (context.rounding, lambda value: setattr(context, "rounding", value)),
        "switch interval": (sys.getswitchinterval(), sys.setswitchinterval),
        "integer digits": (sys.get_int_max_str_digits(), sys.set_int_max_str_digits),
        "umask": (_umask(), lambda mask: (os.umask(mask), None)[1]),
        "garbage collection": (gc.isenabled(), lambda is_on: gc.enable() if is_on else gc.disable()),
        "logging": (logging.root.manager.disable, logging.disable),
        "locale": (locale.setlocale(locale.LC_ALL), _set_locale),
    }
    return found | current_library_settings()


class ProcessHandler(Handler):
    """Settings of the process, the environment and the folder, as far as they have changed since the loop began."""

    def content(self, obj: Any, walk: Walker) -> Any:
        known = obj.facts
        facts = tuple(
            part for name, (value, _) in _facts().items() if known.setdefault(name, value) != value
            for part in (name, value)
        )  # fmt: skip
        changed, removed = _environment_changes(obj)
        folder = _current_folder()
        relative = _path_from(obj.folder, folder) if folder and obj.folder and folder != obj.folder else ""
        added = obj.added if has_same_values(vars(builtins), obj.builtins) else _names_of_scripts()
        searched = walk.refs([(at, path) for at, path in enumerate(sys.path) if path not in obj.search_path])
        if not obj.modules.issuperset(sys.modules):
            new = [(name, one) for name, one in list(sys.modules.items()) if name not in obj.modules]
            made = [name for name, one in new if is_made_at_run_time(one)]
            obj.modules.update(name for name, _ in new if name not in made)
            if made:
                walk.note_unknown("sys.modules", f"{made[0]} was made at run time")
        environment = walk.attributes(changed), removed, relative
        signals = [(at, one) for at, one in _signal_handlers().items() if one is not obj.signals.get(at)]
        hooks = walk.refs(_own_log_handlers()), walk.refs(signals)
        return facts, environment, searched, walk.attributes(added), hooks

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        facts, (changed, removed, relative), searched, added, (_, signals) = content
        settings = {**obj.facts, **dict(zip(facts[::2], facts[1::2], strict=True))}
        for name, (value, set_value) in _facts().items():
            if name in settings and settings[name] != value:
                set_value(settings[name])
        wanted = {name: restore.value(token) for name, token in zip(changed[::2], changed[1::2], strict=True)}
        for name in {*os.environ, *obj.environment, *wanted}:
            before = obj.environment.get(name)
            value = wanted.get(name, None if name in removed else before)
            if value is None:
                os.environ.pop(name, None)
            elif os.environ.get(name) != value:
                os.environ[name] = value
        if "TZ" in wanted or "TZ" in removed:
            time.tzset()
        folder = os.path.normpath(os.path.join(obj.folder, relative)) if relative else obj.folder
        if folder and folder != _current_folder():
            os.makedirs(folder, exist_ok=True)
            os.chdir(folder)
        for at, path in (restore.value(token) for token in searched):
            if path not in sys.path:
                sys.path.insert(at, path)
        for name, token in zip(added[::2], added[1::2], strict=True):
            setattr(builtins, name, restore.value(token))
        for number, handler in {**obj.signals, **dict(restore.value(token) for token in signals)}.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)


class LibraryHandler(Handler):
    """Variables of libraries that the project has bound to values or functions of its own: restored, not compared.

    So is what the lists, dicts, sets and objects of a library hold.
    """

    def content(self, obj: Any, walk: Walker) -> Any:
        found: list[Any] = []
        for module, before in obj.variables.items():
            now = vars(sys.modules[module]) if module in sys.modules else before
            for name in obj.keepers[module]:
                if name in now:
                    found += (module, name, walk.ref(now[name], ".", f"{module}.{name}"))
            for key, kind, names in obj.classes[module]:
                if len(vars(kind)) != len(names):
                    for name, value in _names_of_project(kind, names):
                        found += (module, f"{key}.{name}", walk.ref(value, ".", f"{module}.{key}.{name}"))
            if has_same_values(now, before):
                continue
            for name, value in list(now.items()):
                if value is not before.get(name, MISSING) and name[:2] != "__" and _is_of_project(value):
                    found += (module, name, walk.ref(value, ".", f"{module}.{name}"))
        return tuple(found)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        for module, name, token in zip(content[::3], content[1::3], content[2::3], strict=True):
            owner, _, attribute = name.rpartition(".")
            if module in sys.modules:
                holder = operator.attrgetter(owner)(sys.modules[module]) if owner else sys.modules[module]
                setattr(holder, attribute, restore.value(token))


class FinalizerHandler(Handler):
    """Callbacks of `weakref.finalize`: how many of the project's wait. They can't be registered again."""

    is_restorable = False

    def content(self, obj: Any, walk: Walker) -> Any:
        registry = list(weakref.finalize._registry.values())  # type: ignore[attr-defined]
        return sum(not _is_library_function(one.func) for one in registry)


def _is_library_function(function: Any) -> bool:
    function = getattr(function, "__func__", function)
    return type(function) is types.FunctionType and not is_project_module(function.__module__ or "")


def _is_of_project(value: Any) -> bool:
    """Whether a value is plain, or an object, function or class of the project."""
    kind = type(value)
    owner = value if kind is types.FunctionType or issubclass(kind, type) else kind
    return kind in PLAIN_TYPES or kind is str or is_project_module(getattr(owner, "__module__", None) or "")


def _signal_handlers() -> dict[int, Any]:
    return dict(zip(_SIGNALS, map(_signal.getsignal, _SIGNALS), strict=True))


def _raw_environment() -> Any:
    """Returns a copy of the table behind `os.environ`, which is compared at once; None if it has another form here."""
    table = getattr(os.environ, "_data", None)
    return table.copy() if isinstance(table, dict) else None


def _environment_changes(process: ProcessState) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns variables that were set since, with their values, and those that were removed."""
    if process.raw_environment is not None and _raw_environment() == process.raw_environment:
        return {}, ()
    now, before = dict(os.environ), process.environment
    changed = {name: value for name, value in sorted(now.items()) if before.get(name) != value}
    return changed, tuple(sorted(name for name in before if name not in now))


def _set_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _names_of_scripts() -> dict[str, Any]:
    """Returns what scripts have put into `builtins`."""
    return {name: value for name, value in vars(builtins).items() if not _is_standard(name, value)}


def _is_standard(name: str, value: Any) -> bool:
    """Whether a name in `builtins` is Python's own, rather than one that a script has put there."""
    if name[0] == "_" or name in _CONSTANTS or type(value).__module__ == "_sitebuiltins":
        return True
    if str(getattr(value, "__module__", "")).partition(".")[0] in _OF_KERNELS:
        return True  # a replay has those of its own shell
    value = (
        getattr(value, "__wrapped__", value) if name == "open" else value
    )  # a replay maps files that it leaves alone
    return isinstance(value, type | types.BuiltinFunctionType) and value.__module__ in ("builtins", "io", "_io")


def _own_log_handlers() -> list[Any]:
    """Returns handlers of logging whose class is the project's: loggers hold them, and they may hold state."""
    handlers = [refer() for refer in list(logging._handlerList)]  # type: ignore[attr-defined]
    return [one for one in handlers if one is not None and is_project_module(type(one).__module__)]


class GlobalRandomHandler(Handler):
    """The global generators of `random`, numpy and torch."""

    is_data = True
    is_essential = True  # no replay can do without them, and they take a tenth of a millisecond

    def content(self, obj: Any, walk: Walker) -> Any:
        return value_token(capture_random_states())

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        restore_random_states(restore.value(content))


def have_same_random_states(one: Any, other: Any) -> bool:
    """Whether two contents agree on the generators of all libraries that both processes had loaded."""
    if one[0] != TYPED or other[0] != TYPED:  # a generator of a device, whose state is no plain data
        return bool(one == other)
    first, second = (dict(zip(form[1::2], form[2::2], strict=True)) for form in (one[1], other[1]))
    return all(first[name] == second[name] for name in first if name in second)


def choose_process(kind: type) -> Handler | None:
    handlers: dict[type, Handler] = {
        ProcessState: ProcessHandler(), RandomState: GlobalRandomHandler(), LibraryState: LibraryHandler(),
        FinalizerState: FinalizerHandler(),
    }  # fmt: skip
    return handlers.get(kind)
