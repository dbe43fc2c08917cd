"""The code and globals that a function depends on, transitively, and whether any of it has changed."""

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
from relive.memo.code.code_hash import code_hash, find_uses
from relive.memo.code.code_ownership import is_own_class, is_own_function, is_own_module, module_name, namespace_name
from relive.memo.code.imported_sources import absolute_name, module_files

ABSENT = object()
_IMMUTABLE_TYPES = (type(None), bool, int, float, complex, str, bytes, type(...), range)
_NAMED_TYPES = (
    types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GenericAlias,
)  # fmt: skip
# Types of objects that results do not depend on.
_INERT_TYPES = (
    type(threading.Lock()), type(threading.RLock()), threading.Event, threading.Condition, threading.Semaphore,
    threading.local, logging.Logger, logging.LoggerAdapter, io.IOBase, contextvars.ContextVar, Executor,
    weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
)  # fmt: skip


class StaleSnapshot(Exception):
    """A traced value now refers to code that the snapshot does not contain."""


@dataclass(slots=True)
class Snapshot:
    """The code of a function or class at one time: its hash, its parts, and what to check for changes."""

    digest: str = ""
    parts: dict[str, str] = field(default_factory=dict)  # function, class or global → hash
    names: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    sizes: list[tuple[Mapping[str, Any], int]] = field(default_factory=list)
    functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = field(default_factory=list)
    cells: list[tuple[types.CellType, Any]] = field(default_factory=list)
    values: list[tuple[Any, str]] = field(default_factory=list)  # mutable values, with their hashes
    files: list[tuple[str, str]] = field(default_factory=list)  # modules imported at run time, with their hashes
    index: dict[int, int] = field(default_factory=dict)  # id of each visited function and class → its number
    mutable_state: list[str] = field(
        default_factory=list
    )  # names that the code both reads and changes; not part of the hash

    def is_fresh(self) -> bool:
        """Whether nothing has changed. On the path of every hit, so compares identities wherever possible."""
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
        return self._are_contents_fresh()

    def _are_contents_fresh(self) -> bool:
        if self.sizes and any(len(namespace) != size for namespace, size in self.sizes):
            return False
        if self.cells and any(_cell_content(cell) is not expected for cell, expected in self.cells):
            return False
        if self.files and any(module_files(name)[1] != expected for name, expected in self.files):
            return False
        try:
            return not self.values or all(
                _value_hash(value, self._known_code) == expected for value, expected in self.values
            )
        except (StaleSnapshot, Unstable):
            return False

    def _known_code(self, value: Any) -> object:
        """Replaces functions and classes inside a value by the numbers that they had when it was first hashed."""
        return substitute_code(value, self._known_number)

    def _known_number(self, thing: Any) -> int:
        number = self.index.get(id(thing))
        if number is None:
            raise StaleSnapshot
        return number


def trace(root: types.FunctionType | type, *, with_defaults: bool = True) -> Snapshot:
    """Visits everything that a function or class uses, in an order that depends only on the code."""
    tracer = _Tracer()
    if isinstance(root, type):
        tracer.visit_class(root)
    else:
        tracer.visit_function(root, with_defaults=with_defaults)
    return tracer.finish()


class _PendingValue(NamedTuple):
    """A value that a function or class uses, hashed after all code is visited."""

    number: int
    name: str
    value: Any
    label: str
    owner: int
    place: tuple[int, str]  # id of the namespace or cell it was found in, and the name


class _Tracer:
    """Builds a snapshot: nodes are functions, classes and values; links are uses of one by another."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._nodes: list[tuple[str, str]] = []  # label and own hash, in visiting order
        self._links: list[tuple[int, str, object]] = []
        self._alive: list[Any] = []  # keeps ids from being reused
        self._pending: list[_PendingValue] = []  # hashed once it is known which values the code mutates
        self._mutated: set[int] = set()  # ids of values, classes and modules that the code mutates
        self._rebound: set[tuple[int, str]] = set()  # ids of namespaces and cells, with the name rebound there

    def finish(self) -> Snapshot:
        while self._pending:
            waiting, self._pending = self._pending, []
            for one in waiting:
                self._link(one.number, one.name, self._value_token(one))
        names = self._snapshot.names
        names[:] = [one for one in names if (id(one[0]), one[1]) not in self._rebound]
        cells = self._snapshot.cells
        cells[:] = [one for one in cells if (id(one[0]), "") not in self._rebound]
        seen: dict[str, int] = {}
        for label, own in self._nodes:  # equal labels (lambdas, functions of a factory) get a number
            seen[label] = seen.get(label, 0) + 1
            self._snapshot.parts[label if seen[label] == 1 else f"{label} ({seen[label]})"] = own
        self._snapshot.digest = stable_hash(["code", self._nodes, self._links])
        return self._snapshot

    def visit_function(self, function: types.FunctionType, *, with_defaults: bool = True) -> int:
        known = self._snapshot.index.get(id(function))
        if known is not None:
            return known
        code = function.__code__
        number = self._add_node(function, qualified_label(function), code_hash(code))
        defaults, kwdefaults = function.__defaults__, function.__kwdefaults__
        self._snapshot.functions.append((function, code, defaults, kwdefaults))
        found = find_uses(code)
        for chain in found.chains:
            self._follow_chain(number, function.__globals__, chain)
        closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in closure.items():
            content = _cell_content(cell)
            self._snapshot.cells.append((cell, content))
            self._link_use(
                number, f"closure {name}", content, f"{qualified_label(function)}.{name}", place=(id(cell), "")
            )
        for name in found.mutated:
            space = function.__globals__
            place = (id(closure[name]), "") if name in closure else (id(space), name)
            value = _cell_content(closure[name]) if name in closure else space.get(name, ABSENT)
            self._mark_mutated(value, place, f"{qualified_label(function)}.{name}", name in found.read)
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
        significant = [name for name in sorted(members) if _is_significant_member(name, members[name])]
        number = self._add_node(kind, qualified_label(kind), stable_hash(significant))
        self._snapshot.sizes.append((members, len(members)))
        for name in significant:
            self._snapshot.names.append((members, name, members[name]))
            for at, part in enumerate(_member_parts(members[name])):
                self._link_use(number, f"{name}/{at}", part, f"{qualified_label(kind)}.{name}", owner=id(kind))
        for base in kind.__bases__:
            self._link_use(number, "base", base, "")
        return number

    def _mark_mutated(self, value: Any, place: tuple[int, str], label: str, is_read: bool) -> None:
        """Marks a value that the code changes, which makes it state rather than an input."""
        if value is ABSENT or isinstance(value, types.FunctionType):
            return
        self._rebound.add(place)
        if type(value) not in _IMMUTABLE_TYPES:  # immutable objects may be shared between names
            self._alive.append(value)
            self._mutated.add(id(value))
        if is_read and not isinstance(value, types.ModuleType | type):
            self._snapshot.mutable_state.append(label)

    def _add_node(self, thing: Any, label: str, own: str) -> int:
        number = self._snapshot.index[id(thing)] = len(self._nodes)
        self._alive.append(thing)
        self._nodes.append((label, own))
        return number

    def _link(self, number: int, name: str, token: object) -> None:
        self._links.append((number, name, token))

    def _visit_defaults(self, number: int, function: types.FunctionType) -> None:
        named = {str(at): value for at, value in enumerate(function.__defaults__ or ())}
        for name, value in (named | (function.__kwdefaults__ or {})).items():
            self._link_use(
                number, f"default {name}", value, f"{qualified_label(function)} default {name}", owner=id(function)
            )

    def _visit_import(self, number: int, module: str, level: int, namespace: dict[str, Any]) -> None:
        name = absolute_name(module, level, str(namespace.get("__package__") or ""))
        files, files_hash = module_files(name)
        if files:
            self._snapshot.files.append((name, files_hash))
            self._nodes += [(f"{file} (imported)", own) for file, own in files.items()]
        self._link(number, f"import {name}", files_hash)

    def _follow_chain(self, number: int, namespace: Mapping[str, Any], chain: tuple[str, ...]) -> None:
        """Resolves a global name through the user's own modules to the object that it refers to."""
        owner = 0
        for at, name in enumerate(chain):
            value = namespace.get(name, ABSENT)
            self._snapshot.names.append((namespace, name, value))
            if isinstance(value, types.ModuleType) and is_own_module(value) and at + 1 < len(chain):
                namespace, owner = vars(value), id(value)
                continue
            label, place = f"{namespace_name(namespace)}.{name}", (id(namespace), name)
            self._link_use(number, ".".join(chain), value, label, owner=-owner, place=place)
            break

    def _link_use(
        self, number: int, name: str, value: Any, label: str, *, owner: int = 0, place: tuple[int, str] = (0, "")
    ) -> None:
        """Links a node to something it uses: another node, a named library object, or a value, which is hashed later.

        `owner` is the id of the class, function or (negative) module that the value is an attribute or default of.
        """
        token = self._code_token(value)
        if token is not None:
            self._link(number, name, token)
        elif isinstance(value, types.MethodType):
            self._link_use(number, f"{name} function", value.__func__, label)
            self._link_use(number, f"{name} object", value.__self__, label)
        else:
            self._pending.append(_PendingValue(number, name, value, label, owner, place))

    def _code_token(self, value: Any) -> object:
        """Returns the token of code, or of an object identified by its name; None for values."""
        if value is ABSENT:  # a builtin, or a name not defined yet
            return "absent"
        if isinstance(value, types.FunctionType):
            return _function_token(value, self._visit)
        if isinstance(value, type):
            return self.visit_class(value) if is_own_class(value) else f"class {qualified_label(value)}"
        if isinstance(value, types.ModuleType):
            return self._module_token(value)
        if isinstance(value, _NAMED_TYPES) and not _has_instance(value):
            return f"builtin {getattr(value, '__qualname__', value)}"
        if isinstance(value, _INERT_TYPES):
            return f"inert {qualified_label(type(value))}"
        if isinstance(value, types.MethodType):
            return None
        wrapped = getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
        if isinstance(wrapped, types.FunctionType):  # lru_cache and similar wrappers
            return [f"wrapped {qualified_label(type(value))}", _function_token(wrapped, self._visit)]
        return None

    def _module_token(self, module: types.ModuleType) -> object:
        """Returns the token of a module passed around as an object, any part of which may matter."""
        if is_own_module(module):
            files, files_hash = module_files(module.__name__)
            self._snapshot.files.append((module.__name__, files_hash))
            self._nodes += [(f"{file} (as a whole)", own) for file, own in files.items()]
            return f"module {module.__name__} {files_hash}"
        return f"module {module.__name__}"

    def _value_token(self, one: _PendingValue) -> object:
        value = one.value
        if id(value) in self._mutated or abs(one.owner) in self._mutated or one.place in self._rebound:
            return "changed by the code itself"
        try:
            own = _value_hash(value, lambda inner: substitute_code(inner, self._visit))
        except Unstable as error:
            if one.owner > 0:  # results do not depend on most class attributes
                return f"some {qualified_label(type(value))}"
            raise Unstable(f"the global {one.label}: {error}") from error
        self._nodes.append((one.label, own))
        if type(value) not in _IMMUTABLE_TYPES:  # identity does not reveal changes inside
            self._alive.append(value)
            self._snapshot.values.append((value, own))
        return ["value", len(self._nodes) - 1]

    def _visit(self, thing: Any) -> int:
        return self.visit_class(thing) if isinstance(thing, type) else self.visit_function(thing)


def substitute_code(value: Any, visit: Callable[[Any], object]) -> object:
    """Returns the replacement for code inside a value that is hashed, or NotImplemented for other values.

    `visit` returns the token of one of the user's functions or classes; it is also called for the value's own classes.
    """
    if isinstance(value, types.FunctionType):
        return _function_token(value, visit)
    if isinstance(value, type):
        return visit(value) if is_own_class(value) else f"class {qualified_label(value)}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    for kind in user_classes_of(value):
        visit(kind)
    return NotImplemented


def _function_token(function: types.FunctionType, visit: Callable[[Any], object]) -> object:
    if is_own_function(function):
        return visit(function)
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):  # a library's wrapper around a user's function
        return [f"wrapper {qualified_label(function)}", _function_token(wrapped, visit)]
    return f"function {qualified_label(function)}"


def user_classes_of(value: Any) -> list[type]:
    """Returns the user's own classes among the type of a value and, for a torch module, the types of its submodules."""
    is_network = any(base.__module__ == "torch.nn.modules.module" for base in type(value).__mro__)
    things = list(value.modules()) if is_network else [value]
    return [kind for kind in dict.fromkeys(map(type, things)) if is_own_class(kind)]


def qualified_label(thing: Any) -> str:
    """Returns `module.qualname`, by which a function, class or type is shown and keyed."""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    return f"{module_name(thing)}.{name}"


def _value_hash(value: Any, substitute: Callable[[Any], object]) -> str:
    return stable_hash(value, by_state=True, substitute=substitute)


def _cell_content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _has_instance(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    return owner is not None and not isinstance(owner, types.ModuleType | type)


def _is_significant_member(name: str, part: Any) -> bool:
    """Whether a class member affects what the class does; most dunder names are bookkeeping."""
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
