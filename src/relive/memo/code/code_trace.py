"""Which code and globals a function comes down to, transitively; and whether all of that is still so."""

from __future__ import annotations

import contextvars
import functools
import io
import logging
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from relive.errors import Unstable
from relive.hashing import stable_hash
from relive.memo.code.code_hash import code_hash, uses
from relive.memo.code.code_ownership import is_own_class, is_own_function, is_own_module, module_name, namespace_name
from relive.memo.code.imported_sources import module_files

ABSENT = object()
_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), range)
_SAME_ANYWHERE = (
    types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GenericAlias,
)  # fmt: skip
# Things that code works with, but that no result depends on.
_INERT = (
    type(threading.Lock()), type(threading.RLock()), threading.Event, threading.Condition, threading.Semaphore,
    threading.local, logging.Logger, logging.LoggerAdapter, io.IOBase, contextvars.ContextVar, Executor,
    weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
)  # fmt: skip


class Changed(Exception):
    """Something that was traced is not what it was."""


@dataclass(slots=True)
class Snapshot:
    """The code of a function or class at one time: its hash, the parts of it, and what to look at to see a change."""

    digest: str = ""
    parts: dict[str, str] = field(default_factory=dict)  # function, class or global → hash
    names: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    sizes: list[tuple[Mapping[str, Any], int]] = field(default_factory=list)
    functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = field(default_factory=list)
    cells: list[tuple[types.CellType, Any]] = field(default_factory=list)
    values: list[tuple[Any, str]] = field(default_factory=list)  # what can change in place, with its hash
    files: list[tuple[str, str]] = field(default_factory=list)  # of modules that are imported when the code runs
    index: dict[int, int] = field(default_factory=dict)  # id → number, of all that was visited
    states: list[str] = field(default_factory=list)  # what the code both reads and changes, so that it doesn't count

    def is_fresh(self) -> bool:
        """Is everything as it was? On the path of every hit, so identity decides wherever it can."""
        for namespace, name, expected in self.names:
            if namespace.get(name, ABSENT) is not expected:
                return False
        for function, code, defaults, kwdefaults in self.functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not kwdefaults
            ):
                return False
        return self._is_fresh_inside()

    def _is_fresh_inside(self) -> bool:
        if self.sizes and any(len(namespace) != size for namespace, size in self.sizes):
            return False
        if self.cells and any(_content(cell) is not expected for cell, expected in self.cells):
            return False
        if self.files and any(module_files(name)[1] != told for name, told in self.files):
            return False
        try:
            return not self.values or all(_value_hash(value, self._known) == told for value, told in self.values)
        except (Changed, Unstable):
            return False

    def _known(self, value: Any) -> object:
        """While a value is hashed again: the numbers that the functions and classes inside it had."""
        return stand_in(value, self._number)

    def _number(self, thing: Any) -> int:
        number = self.index.get(id(thing))
        if number is None:
            raise Changed
        return number


def trace(root: types.FunctionType | type, *, with_defaults: bool = True) -> Snapshot:
    """Look at all that a function or class uses, in an order that depends on nothing but the code."""
    tracer = _Tracer()
    if isinstance(root, type):
        tracer.visit_class(root)
    else:
        tracer.visit_function(root, with_defaults=with_defaults)
    return tracer.finish()


class _Later(NamedTuple):
    """A value that a part uses."""

    number: int
    name: str
    value: Any
    label: str
    owner: int
    place: tuple[int, str]  # the namespace or cell that it was found in


class _Tracer:
    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._nodes: list[tuple[str, str]] = []  # label and own hash, in the order of the visit
        self._links: list[tuple[int, str, object]] = []
        self._alive: list[Any] = []  # so that no id is used twice
        self._later: list[_Later] = []  # values, hashed when it is known which of them the code changes
        self._changed: set[int] = set()  # ids of values, classes and modules that the code changes
        self._rebound: set[tuple[int, str]] = set()  # and of namespaces and cells, with the name that it sets there

    def finish(self) -> Snapshot:
        while self._later:
            waiting, self._later = self._later, []
            for one in waiting:
                self._link(one.number, one.name, self._value(one))
        names = self._snapshot.names
        names[:] = [one for one in names if (id(one[0]), one[1]) not in self._rebound]
        cells = self._snapshot.cells
        cells[:] = [one for one in cells if (id(one[0]), "") not in self._rebound]
        seen: dict[str, int] = {}
        for label, own in self._nodes:  # two of one name (lambdas, or what a factory made) are told apart by number
            seen[label] = seen.get(label, 0) + 1
            self._snapshot.parts[label if seen[label] == 1 else f"{label} ({seen[label]})"] = own
        self._snapshot.digest = stable_hash(["code", self._nodes, self._links])
        return self._snapshot

    def visit_function(self, function: types.FunctionType, *, with_defaults: bool = True) -> int:
        known = self._snapshot.index.get(id(function))
        if known is not None:
            return known
        code = function.__code__
        number = self._enter(function, label_of(function), code_hash(code))
        defaults, kwdefaults = function.__defaults__, function.__kwdefaults__
        self._snapshot.functions.append((function, code, defaults, kwdefaults))
        found = uses(code)
        for chain in found.chains:
            self._follow(number, function.__globals__, chain)
        closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in closure.items():
            content = _content(cell)
            self._snapshot.cells.append((cell, content))
            self._thing(number, f"closure {name}", content, f"{label_of(function)}.{name}", place=(id(cell), ""))
        for name in found.changed:
            space = function.__globals__
            place = (id(closure[name]), "") if name in closure else (id(space), name)
            value = _content(closure[name]) if name in closure else space.get(name, ABSENT)
            self._change(value, place, f"{label_of(function)}.{name}", name in found.read)
        if with_defaults:
            self._visit_defaults(number, function)
        for module, level in found.imports:
            self._visit_import(number, module, level, function.__globals__)
        return number

    def visit_class(self, kind: type) -> int:
        known = self._snapshot.index.get(id(kind))
        if known is not None:
            return known
        members = vars(kind)
        told = [name for name in sorted(members) if _tells(name, members[name])]
        number = self._enter(kind, label_of(kind), stable_hash(told))
        self._snapshot.sizes.append((members, len(members)))
        for name in told:
            self._snapshot.names.append((members, name, members[name]))
            for at, part in enumerate(_member_parts(members[name])):
                self._thing(number, f"{name}/{at}", part, f"{label_of(kind)}.{name}", owner=id(kind))
        for base in kind.__bases__:
            self._thing(number, "base", base, "")
        return number

    def _change(self, value: Any, place: tuple[int, str], label: str, is_read: bool) -> None:
        """The code changes this: it is where results of calls pile up, and no input."""
        if value is ABSENT or isinstance(value, types.FunctionType):
            return
        self._rebound.add(place)
        if type(value) not in _ATOMS:  # of which there may be only one, with many names
            self._alive.append(value)
            self._changed.add(id(value))
        if is_read and not isinstance(value, types.ModuleType | type):
            self._snapshot.states.append(label)

    def _enter(self, thing: Any, label: str, own: str) -> int:
        number = self._snapshot.index[id(thing)] = len(self._nodes)
        self._alive.append(thing)
        self._nodes.append((label, own))
        return number

    def _link(self, number: int, name: str, token: object) -> None:
        self._links.append((number, name, token))

    def _visit_defaults(self, number: int, function: types.FunctionType) -> None:
        named = {str(at): value for at, value in enumerate(function.__defaults__ or ())}
        for name, value in (named | (function.__kwdefaults__ or {})).items():
            self._thing(number, f"default {name}", value, f"{label_of(function)} default {name}", owner=id(function))

    def _visit_import(self, number: int, module: str, level: int, namespace: dict[str, Any]) -> None:
        name = _absolute(module, level, namespace)
        files, told = module_files(name)
        if files:
            self._snapshot.files.append((name, told))
            self._nodes += [(f"{file} (imported)", own) for file, own in files.items()]
        self._link(number, f"import {name}", told)

    def _follow(self, number: int, namespace: Mapping[str, Any], chain: tuple[str, ...]) -> None:
        """From a global name through modules of the user's own, to what is meant in the end."""
        owner = 0
        for at, name in enumerate(chain):
            value = namespace.get(name, ABSENT)
            self._snapshot.names.append((namespace, name, value))
            if isinstance(value, types.ModuleType) and is_own_module(value) and at + 1 < len(chain):
                namespace, owner = vars(value), id(value)
                continue
            label, place = f"{namespace_name(namespace)}.{name}", (id(namespace), name)
            self._thing(number, ".".join(chain), value, label, owner=-owner, place=place)
            break

    def _thing(
        self, number: int, name: str, value: Any, label: str, *, owner: int = 0, place: tuple[int, str] = (0, "")
    ) -> None:
        """Link a part to something that it uses: another part, a name, or a value, which comes later.

        `owner` is the id of the class, function or (negative) module that the value is an attribute or default of.
        """
        token = self._token(value)
        if token is not None:
            self._link(number, name, token)
        elif isinstance(value, types.MethodType):
            self._thing(number, f"{name} function", value.__func__, label)
            self._thing(number, f"{name} object", value.__self__, label)
        else:
            self._later.append(_Later(number, name, value, label, owner, place))

    def _token(self, value: Any) -> object:
        """What stands for code and for what goes by its name; None for values."""
        if value is ABSENT:  # a builtin, or a name that is not there yet
            return "absent"
        if isinstance(value, types.FunctionType):
            return _function_token(value, self._visit)
        if isinstance(value, type):
            return self.visit_class(value) if is_own_class(value) else f"class {label_of(value)}"
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, _SAME_ANYWHERE) and not _has_instance(value):
            return f"builtin {getattr(value, '__qualname__', value)}"
        if isinstance(value, _INERT):
            return f"inert {label_of(type(value))}"
        if isinstance(value, types.MethodType):
            return None
        wrapped = getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
        if isinstance(wrapped, types.FunctionType):  # lru_cache and the like
            return [f"wrapped {label_of(type(value))}", _function_token(wrapped, self._visit)]
        return None

    def _module(self, module: types.ModuleType) -> object:
        """A module that is used as a whole, so anything in it may count."""
        if is_own_module(module):
            files, told = module_files(module.__name__)
            self._snapshot.files.append((module.__name__, told))
            self._nodes += [(f"{file} (as a whole)", own) for file, own in files.items()]
            return f"module {module.__name__} {told}"
        return f"module {module.__name__}"

    def _value(self, one: _Later) -> object:
        value = one.value
        if id(value) in self._changed or abs(one.owner) in self._changed or one.place in self._rebound:
            return "changed by the code itself"
        try:
            own = _value_hash(value, lambda inner: stand_in(inner, self._visit))
        except Unstable as error:
            if one.owner > 0:  # classes have attributes of all kinds, most of which no result depends on
                return f"some {label_of(type(value))}"
            raise Unstable(f"the global {one.label}: {error}") from error
        self._nodes.append((one.label, own))
        if type(value) not in _ATOMS:  # identity doesn't tell of changes inside
            self._alive.append(value)
            self._snapshot.values.append((value, own))
        return ["value", len(self._nodes) - 1]

    def _visit(self, thing: Any) -> int:
        return self.visit_class(thing) if isinstance(thing, type) else self.visit_function(thing)


def stand_in(value: Any, enter: Callable[[Any], object]) -> object:
    """What stands for code inside a value that is hashed; `enter` gives it for each function and class of the user's.

    The rest is left to its usual hash, but the classes that decide what it does are entered as well.
    """
    if isinstance(value, types.FunctionType):
        return _function_token(value, enter)
    if isinstance(value, type):
        return enter(value) if is_own_class(value) else f"class {label_of(value)}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    for kind in kinds_of(value):
        enter(kind)
    return NotImplemented


def _function_token(function: types.FunctionType, enter: Callable[[Any], object]) -> object:
    if is_own_function(function):
        return enter(function)
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):  # a library's wrapper around a function of the user's
        return [f"wrapper {label_of(function)}", _function_token(wrapped, enter)]
    return f"function {label_of(function)}"


def kinds_of(value: Any) -> list[type]:
    """The classes of the user's own whose code decides what a value does: its type, and those of a network's parts."""
    is_network = any(base.__module__ == "torch.nn.modules.module" for base in type(value).__mro__)
    things = list(value.modules()) if is_network else [value]
    return [kind for kind in dict.fromkeys(map(type, things)) if is_own_class(kind)]


def label_of(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    return f"{module_name(thing)}.{name}"


def _value_hash(value: Any, special: Callable[[Any], object]) -> str:
    return stable_hash(value, by_state=True, special=special)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _has_instance(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    return owner is not None and not isinstance(owner, types.ModuleType | type)


def _tells(name: str, part: Any) -> bool:
    """Does a member of a class say what the class does? Most names with underscores around them are bookkeeping."""
    if name.startswith("__") and name.endswith("__"):
        is_made_up = isinstance(part, types.FunctionType) and part.__code__.co_filename.startswith("<")
        is_code = isinstance(part, types.FunctionType | classmethod | staticmethod)
        return name == "__dataclass_fields__" or (is_code and not is_made_up and not name.startswith("__annotate"))
    return name not in ("_abc_impl", "_field_defaults")


def _member_parts(member: Any) -> list[Any]:
    if isinstance(member, property):
        return [member.fget, member.fset, member.fdel]
    if isinstance(member, functools.cached_property):
        return [member.func]
    if isinstance(member, dict) and member and all(type(v).__name__ == "Field" for v in member.values()):
        fields = [(name, str(one.type), str(one.compare)) for name, one in member.items()]
        return [fields, *(part for one in member.values() for part in (one.default, one.default_factory))]
    return [getattr(member, "__func__", member)]


def _absolute(module: str, level: int, namespace: Mapping[str, Any]) -> str:
    if not level:
        return module
    package = str(namespace.get("__package__") or "").split(".")
    base = package[: len(package) - level + 1]
    return ".".join([*base, module] if module else base)
