"""The code and globals that a function depends on, followed transitively from name to name."""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from relive.hashing import stable_hash
from relive.memo.code import library_uses
from relive.memo.code.code_hash import NameUses, code_hash, find_uses
from relive.memo.code.code_ownership import is_own_class, is_own_function, is_own_module, namespace_name
from relive.memo.code.code_tokens import (
    ABSENT,
    INERT_TYPES,
    cell_content,
    function_token,
    is_significant_member,
    member_parts,
    qualified_label,
)
from relive.memo.code.imported_sources import absolute_name, module_files
from relive.memo.code.snapshot import Snapshot, StateRoot, environment
from relive.memo.code.trace_graph import IN_LIBRARY, Place, TraceGraph

_NAMED_TYPES = (
    types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType, types.WrapperDescriptorType,
)  # fmt: skip
_BOOKKEEPING = frozenset({"__wrapped__", "__relive_memo__", "__isabstractmethod__", "__signature__"})
_ANY_GLOBAL = frozenset({"globals", "eval", "exec"})  # with these, any global may matter
_IMPORTERS = frozenset({"builtins.__import__", "importlib.import_module"})
_HEAP_TYPE_FLAG, _IMMUTABLE_TYPE_FLAG = 1 << 9, 1 << 8
_MOST_MEMBERS = 250


def trace(root: types.FunctionType | type, *, with_defaults: bool = True) -> Snapshot:
    """Visits everything that a function or class uses, in an order that depends only on the code."""
    tracer = _Tracer()
    if isinstance(root, type):
        tracer.visit_class(root)
    else:
        tracer.visit_function(root, with_defaults=with_defaults)
    return tracer.finish()


class _Tracer(TraceGraph):
    """Visits functions and classes, and what their names refer to."""

    # --- functions ---------------------------------------------------------------------------------------------------

    def visit_function(self, function: types.FunctionType, *, with_defaults: bool = True) -> int:
        known = self._snapshot.index.get(id(function))
        if known is not None:
            return known
        if not is_own_function(function):
            return self._visit_library_closure(function)
        code = function.__code__
        number = self._add_node(function, qualified_label(function), code_hash(code))
        self._snapshot.functions.append((function, code, function.__defaults__, function.__kwdefaults__))
        found = find_uses(code)
        for chain in found.chains:
            self._follow_chain(number, function, chain, found)
        closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, cell in closure.items():
            content, place = cell_content(cell), (id(cell), "")
            self._snapshot.cells.append((cell, content))
            self._link_use(number, f"closure {name}", content, f"{qualified_label(function)}.{name}", place)
        self._note_mutations(function, found, closure)
        self._visit_attributes(number, function)
        if with_defaults:
            self._visit_defaults(number, function)
        for module, level in found.imports:
            self._visit_import(number, absolute_name(module, level, str(function.__globals__.get("__package__") or "")))
        return number

    def _visit_library_closure(self, function: types.FunctionType) -> int:
        """Visits what a library's function was made around: the functions of a dispatcher, a wrapped function."""
        number = self._add_node(function, qualified_label(function), "")
        label = qualified_label(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            content = cell_content(cell)
            if isinstance(content, types.FunctionType | type):
                self._link_use(number, f"closure {name}", content, label, (id(cell), ""))
            elif type(content) in (dict, list, tuple, set):
                self._add_pending(number, f"closure {name}", content, label, IN_LIBRARY, is_lenient=True)
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType):
            self._link_use(number, "wrapped", wrapped, label, (0, ""))
        return number

    def _note_mutations(
        self, function: types.FunctionType, found: NameUses, closure: Mapping[str, types.CellType]
    ) -> None:
        self._read_attributes |= {attribute for name, attribute in found.read if not name}
        label = qualified_label(function)
        for is_read, names in ((True, found.read), (False, found.mutated)):
            for name, attribute in names:
                if not name:
                    continue
                holder: Any = closure.get(name, function.__globals__)
                place = (id(holder), "" if name in closure else name)
                value = cell_content(holder) if name in closure else holder.get(name, ABSENT)
                inner = self._attribute_place(value, attribute)
                if inner is not None:
                    place, holder = inner
                    value = (vars(holder) if isinstance(holder, type) else holder).get(attribute, ABSENT)
                if is_read:
                    self._read.add(place)
                    self._read_ids.add(id(value))
                else:
                    at = attribute if inner is not None else name
                    self._mark_mutated(value, place, StateRoot(f"{label}.{name}", holder, at))

    def _attribute_place(self, value: Any, attribute: str) -> tuple[Place, Mapping[str, Any] | type] | None:
        """Returns where an attribute of a class, module or function is kept; None for other objects."""
        if not attribute or not isinstance(value, type | types.ModuleType | types.FunctionType):
            return None
        if isinstance(value, type):
            owner = next((base for base in value.__mro__ if attribute in vars(base)), value)
            return (id(owner), attribute), owner
        return (id(vars(value)), attribute), vars(value)

    def _visit_attributes(self, number: int, function: types.FunctionType) -> None:
        own = function.__dict__
        self._snapshot.sizes.append((own, len(own)))
        for name, value in sorted(own.items()):
            if name not in _BOOKKEEPING:
                self._guard(own, name, value, (id(own), name))
                self._link_use(
                    number, f"attribute {name}", value, f"{qualified_label(function)}.{name}", (id(own), name)
                )

    def _visit_defaults(self, number: int, function: types.FunctionType) -> None:
        named = {str(at): value for at, value in enumerate(function.__defaults__ or ())}
        keywords = function.__kwdefaults__ or {}
        for name, value in keywords.items():
            self._guard(keywords, name, value, (id(keywords), name))
        for name, value in (named | keywords).items():
            self._link_use(number, f"default {name}", value, f"{qualified_label(function)} default {name}", (0, ""))

    def _visit_import(self, number: int, name: str) -> None:
        files, files_hash = module_files(name)
        if files:
            self._snapshot.files.append((name, files_hash))
            self._nodes += [(f"{file} (imported)", own) for file, own in files.items()]
        self._link(number, f"import {name}", files_hash)

    # --- classes -----------------------------------------------------------------------------------------------------

    def visit_class(self, kind: type) -> int:
        known = self._snapshot.index.get(id(kind))
        if known is not None:
            return known
        members = vars(kind)
        significant = [name for name in sorted(members) if is_significant_member(name, members[name])]
        number = self._add_node(kind, qualified_label(kind), stable_hash([significant, _annotations(kind)]))
        self._classes.append(kind)
        self._snapshot.sizes.append((members, len(members)))
        self._snapshot.checks.append((lambda: kind.__bases__, kind.__bases__))
        for name in significant:
            place = (id(kind), name)
            self._guard(members, name, members[name], place)
            for at, part in enumerate(member_parts(members[name])):
                label = f"{qualified_label(kind)}.{name}"
                self._link_use(number, f"{name}/{at}", part, label, place, is_lenient=True)
        for base in (*kind.__bases__, type(kind)):
            self._link_use(number, "base", base, "", (0, ""))
        return number

    def link_more(self) -> bool:
        """Links the subclasses of all classes, if the code asks for them; returns whether there were new ones."""
        if "__doc__" in self._read_attributes:
            self._nodes += [(f"docstring {at}", stable_hash(text)) for at, text in enumerate(self._docstrings())]
            self._read_attributes.discard("__doc__")
        classes = self._classes if "__subclasses__" in self._read_attributes else []
        before = len(classes)
        while classes:
            kind = classes.pop()
            found: list[type] = type.__subclasses__(kind)
            self._snapshot.checks.append((lambda kind=kind: type.__subclasses__(kind), found))  # type: ignore[misc]
            for one in found:
                self._link_use(self._snapshot.index[id(kind)], f"subclass {one.__qualname__}", one, "", (0, ""))
        return before > 0

    def _docstrings(self) -> list[str | None]:
        """Returns the docstrings of all code that was visited, which count only if one is read."""
        things = [thing for thing in self._snapshot.alive if isinstance(thing, types.FunctionType | type)]
        found = [thing.__doc__ for thing in things]
        self._snapshot.checks.append((lambda: [thing.__doc__ for thing in things], found))
        return found

    def _library_class_token(self, kind: type) -> object:
        """Returns the token of a library's class, with those of its methods that the user has replaced."""
        replaced: list[object] = []
        for base in kind.__mro__:
            members = vars(base)
            is_fixed = not base.__flags__ & _HEAP_TYPE_FLAG or base.__flags__ & _IMMUTABLE_TYPE_FLAG
            if is_fixed or len(members) > _MOST_MEMBERS or is_own_class(base):
                continue
            if id(base) not in self._whole:
                self._whole.add(id(base))
                self._snapshot.members.append((members, [*members.values()]))
            own = [(name, part) for name, part in members.items() if isinstance(part, types.FunctionType)]
            replaced += [[name, self.visit(part)] for name, part in own if is_own_function(part)]
        return [f"class {qualified_label(kind)}", *replaced] if replaced else f"class {qualified_label(kind)}"

    # --- names -------------------------------------------------------------------------------------------------------

    def _follow_chain(self, number: int, function: types.FunctionType, chain: tuple[str, ...], found: NameUses) -> None:
        """Resolves a global name through modules to the object that it refers to."""
        namespace: Mapping[str, Any] = function.__globals__
        module: types.ModuleType | None = None
        for at, name in enumerate(chain):
            value = namespace.get(name, ABSENT)
            self._guard(namespace, name, value, (id(namespace), name))
            if value is ABSENT and at == 0:
                namespace, module = vars(builtins), builtins
                value = namespace.get(name, ABSENT)
                self._guard(namespace, name, value, (id(namespace), name))
            if value is ABSENT and module is not None and is_own_module(module):
                value = namespace.get("__getattr__", ABSENT)
            if isinstance(value, types.ModuleType) and at + 1 < len(chain):
                namespace, module = vars(value), value
                continue
            if module is not None and not is_own_module(module):
                self._use_library(number, function, chain, at, value, module, found)
            else:
                place = (id(namespace), name)
                self._link_use(number, ".".join(chain), value, f"{namespace_name(namespace)}.{name}", place)
                if not isinstance(value, types.FunctionType) or not is_own_function(value):
                    self._note_library_use(number, function, chain, at, value, None, found)
            break

    def _use_library(
        self, number: int, function: types.FunctionType, chain: tuple[str, ...], at: int, value: Any,
        module: types.ModuleType, found: NameUses,
    ) -> None:  # fmt: skip
        """Links what is used of a library: by its name, unless the user has put something of their own there."""
        dotted = library_uses.dotted_name(chain, at, value, module)
        label = ".".join(chain)
        is_own = isinstance(value, types.FunctionType) and is_own_function(value)
        if is_own or (isinstance(value, type) and (is_own_class(value) or value.__flags__ & _HEAP_TYPE_FLAG)):
            self._link_use(number, label, value, dotted, (0, ""))
        elif value is not os.environ and library_uses.is_library_value(value, dotted):
            self._add_pending(number, label, value, dotted, IN_LIBRARY, is_lenient=True)
        else:
            self._link(number, label, f"library {dotted}" if module is not builtins else "builtin")
        self._note_library_use(number, function, chain, at, value, module, found)

    def _note_library_use(
        self, number: int, function: types.FunctionType, chain: tuple[str, ...], at: int, value: Any,
        module: types.ModuleType | None, found: NameUses,
    ) -> None:  # fmt: skip
        """Notes clocks, chance, the environment, the working folder, and names that are looked up at run time."""
        dotted = library_uses.dotted_name(chain, at, value, module)
        reason = library_uses.volatile_reason(dotted, is_bare_call=chain in found.bare_calls)
        if reason is not None:
            self._snapshot.volatile[reason] = None
        self._is_seeded = self._is_seeded or library_uses.seeds_generators(chain)
        if library_uses.reads_environment(dotted):
            self._use_environment(number, function, chain, found)
        if library_uses.reads_folder(dotted):
            self._check_fact(number, "working folder", os.getcwd)
        if module is builtins and chain[0] in _ANY_GLOBAL:
            self._use_whole_namespace(number, function.__globals__)
        if dotted in _IMPORTERS:
            self._use_imports_by_name(number, function, found)

    def _use_environment(
        self, number: int, function: types.FunctionType, chain: tuple[str, ...], found: NameUses
    ) -> None:
        for used, constant, name in found.texts:
            if used == chain:
                given = constant if constant is not None else function.__globals__.get(name) if name else None
                if isinstance(given, str):
                    self._check_fact(number, f"${given}", lambda given=given: os.environ.get(given))
                else:
                    self._check_fact(number, "all environment variables", environment)

    def _check_fact(self, number: int, label: str, read: Any) -> None:
        value = read()
        self._snapshot.checks.append((read, value))
        self._nodes.append((label, stable_hash(value)))
        self._link(number, label, len(self._nodes) - 1)

    def _use_whole_namespace(self, number: int, namespace: Mapping[str, Any]) -> None:
        """Links everything in a module, any part of which may matter."""
        if id(namespace) in self._whole:
            return
        self._whole.add(id(namespace))
        self._snapshot.sizes.append((namespace, len(namespace)))
        for name in sorted(namespace):
            if not name.startswith("__"):
                value, place = namespace[name], (id(namespace), name)
                self._guard(namespace, name, value, place)
                if not isinstance(value, types.ModuleType) or is_own_module(value):
                    label = f"{namespace_name(namespace)}.{name}"
                    self._link_use(number, f"any {name}", value, label, place, is_lenient=True)

    def _use_imports_by_name(self, number: int, function: types.FunctionType, found: NameUses) -> None:
        """Links modules whose names are constants or globals; others can't be seen."""
        texts = {text for text in function.__globals__.values() if type(text) is str} | found.strings
        names = sorted(text for text in texts if text.replace(".", "a").isidentifier() and module_files(text)[0])
        for name in names:
            self._visit_import(number, name)
            if name in sys.modules:
                self._use_whole_namespace(number, vars(sys.modules[name]))
        if not names:
            label = qualified_label(function)
            self._snapshot.unseen[f"the modules that {label} imports by name"] = "their names are not known beforehand"

    # --- values ------------------------------------------------------------------------------------------------------

    def _link_use(
        self, number: int, name: str, value: Any, label: str, place: Place, *, is_lenient: bool = False
    ) -> None:
        """Links a node to something it uses: another node, a named object, or a value, which is hashed later."""
        token = self._code_token(number, value)
        if token is not None:
            self._link(number, name, token)
        elif isinstance(value, types.MethodType):
            self._link_use(number, f"{name} function", value.__func__, label, (0, ""))
            self._link_use(number, f"{name} object", value.__self__, label, place, is_lenient=is_lenient)
        else:
            self._add_pending(number, name, value, label, place, is_lenient=is_lenient)

    def _code_token(self, number: int, value: Any) -> object:
        """Returns the token of code, or of an object identified by its name; None for values."""
        if value is ABSENT:  # a name not defined yet
            return "absent"
        if isinstance(value, types.FunctionType):
            return function_token(value, self.visit)
        if isinstance(value, type):
            return self.visit_class(value) if is_own_class(value) else self._library_class_token(value)
        if isinstance(value, types.ModuleType):
            return self._module_token(number, value)
        if isinstance(value, types.GenericAlias):
            return f"alias {value!r}"
        if isinstance(value, _NAMED_TYPES) and not _has_instance(value):
            return f"builtin {getattr(value, '__qualname__', value)}"
        if value is os.environ:
            return "environment"
        if isinstance(value, types.MethodType):
            return None
        wrapped = getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
        if isinstance(wrapped, types.FunctionType) and not isinstance(value, INERT_TYPES):  # lru_cache and similar
            self._snapshot.has_cache = True
            return [f"wrapped {qualified_label(type(value))}", function_token(wrapped, self.visit)]
        return None

    def _module_token(self, number: int, module: types.ModuleType) -> object:
        """Returns the token of a module passed around as an object, any part of which may matter."""
        if is_own_module(module):
            self._use_whole_namespace(number, vars(module))
        return f"module {module.__name__}"

    def visit(self, thing: Any) -> int:
        return self.visit_class(thing) if isinstance(thing, type) else self.visit_function(thing)


def _annotations(kind: type) -> list[tuple[str, str]]:
    """Returns the annotated attributes of a class: dataclasses and validators read them."""
    try:
        found = vars(kind).get("__annotations__") or {}
        return [(name, getattr(one, "__qualname__", None) or str(one)) for name, one in found.items()]
    except Exception:  # noqa: BLE001 - an annotation may be any object of the user's
        return []


def _has_instance(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    return owner is not None and not isinstance(owner, types.ModuleType | type)
