"""Handlers of classes: their attributes are state of all instances, whether or not a variable names them."""

from __future__ import annotations

import enum
import functools
import operator
import sys
import types
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any

from relive.checkpoint.analysis import is_project_module
from relive.checkpoint.graph.handlers.attributes import HEAP_TYPE, Attributes, module_name, own_dict
from relive.checkpoint.graph.handlers.objects import DISPLAY_PACKAGES
from relive.checkpoint.graph.object_tokens import BY_NAME, PLAIN_TYPES, Token
from relive.checkpoint.graph.registry import MISSING, CannotRestore, Handler, Restorer, Walker

CONTAINERS = frozenset({list, dict, set, deque, defaultdict, Counter})
MAX_ITEMS = 256  # of a library's list that is looked at: longer ones are tables that it was made with
MAX_DEPTH = 3
COMPILERS = ("torch._dynamo", "torch._inductor")  # their functions and objects cache code
_CLASS_MACHINERY = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __qualname__ __abstractmethods__ _abc_impl __slotnames__ __firstlineno__ "
    "__static_attributes__ __annotations_cache__ __annotate__ __annotate_func__ __parameters__ __orig_bases__ "
    "__match_args__ __dataclass_fields__ __dataclass_params__ __slots__ __annotations__ __init_subclass__".split()
)
DESCRIPTORS = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, property, functools.cached_property,
)  # fmt: skip


class ClassHandler(Handler):
    """A class of the project: its attributes. Classes of libraries are known by their name."""

    def content(self, obj: Any, walk: Walker) -> Any:
        found = {
            name: value
            for name, value in list(type.__getattribute__(obj, "__dict__").items())
            if name not in _CLASS_MACHINERY and not isinstance(value, DESCRIPTORS)
        }
        return walk.attributes({name: _underlying(value) for name, value in found.items()})

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        raise CannotRestore("a class that was made at run time")

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        current = type.__getattribute__(obj, "__dict__")
        values = {name: restore.value(token) for name, token in zip(content[::2], content[1::2], strict=True)}
        for name, value in values.items():
            if name not in current or _underlying(current[name]) is not value:
                type.__setattr__(obj, name, value)
        kept = (*DESCRIPTORS, types.FunctionType)
        gone = [
            n for n, v in current.items() if n not in values and n not in _CLASS_MACHINERY and not isinstance(v, kept)
        ]
        for name in gone:
            type.__delattr__(obj, name)


class LibraryClassHandler(ClassHandler):
    """A class of a library: what it holds besides code, as counters, registries and descriptors that keep values."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return walk.attributes(_state_of_library_class(obj))

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        current = type.__getattribute__(obj, "__dict__")
        for name, token in zip(content[::2], content[1::2], strict=True):
            value = restore.value(token)
            if current.get(name, MISSING) is not value:
                type.__setattr__(obj, name, value)


_library_classes: weakref.WeakKeyDictionary[type, tuple[dict[str, Any], dict[str, Any]]] = weakref.WeakKeyDictionary()


def _state_of_library_class(kind: type) -> dict[str, Any]:
    """Returns the attributes of a class that are no code; what they are is found out again when one was bound anew."""
    current = type.__getattribute__(kind, "__dict__")
    seen = _library_classes.get(kind)
    if seen is not None and has_same_values(current, seen[0]):
        return seen[1]
    package = module_name(kind).partition(".")[0]
    found = {
        name: value for name, value in list(current.items()) if name[:2] != "__" and is_library_state(package, value)
    }
    _library_classes[kind] = dict(current), found
    return found


def is_library_state(package: str, value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a library may keep something in a value: in an object of its own, in a list, or by binding it anew.

    An object that holds much else is none: from the settings of a library one comes to all that it ever made.
    """
    kind = type(value)
    if kind in PLAIN_TYPES or kind is str or issubclass(kind, type):
        return True
    if depth == 0:
        return False
    if kind in CONTAINERS or kind is tuple:
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return len(items) <= MAX_ITEMS and all(is_library_state(package, one, depth - 1) for one in items)
    if not kind.__flags__ & HEAP_TYPE or callable(value) or issubclass(kind, types.ModuleType):
        return False  # code, in one form or another
    if Attributes.of(kind).has_hidden_memory:
        return False  # as the properties that a library has compiled
    if is_project_module(module_name(kind)):
        return True
    own = own_dict(value)
    return module_name(kind).partition(".")[0] == package and (
        own is None or all(is_library_state(package, one, depth - 1) for one in list(own.values()))
    )


def has_same_values(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether the same names are bound to the same objects."""
    return len(now) == len(before) and all(map(operator.is_, now.values(), before.values()))


def choose_class_state(kind: type) -> Handler | None:
    """Returns the handler of a class whose instance was met; None if it holds nothing."""
    if not kind.__flags__ & HEAP_TYPE or issubclass(type(kind), enum.EnumMeta):
        return None
    if not is_library_class(kind):
        return AnyClassHandler.of_nodes
    package = module_name(kind).partition(".")[0]
    if package in DISPLAY_PACKAGES or package in sys.stdlib_module_names or module_name(kind).startswith(COMPILERS):
        return None
    return _OF_LIBRARY_CLASSES if _state_of_library_class(kind) else None


_OF_LIBRARY_CLASSES = LibraryClassHandler()


class NamedClassHandler(Handler):
    """A class of a library, or a generic alias."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if isinstance(obj, type) and not is_library_class(obj):
            raise AssertionError("classes of the project are nodes")
        return (BY_NAME, getattr(obj, "__module__", "") or "", getattr(obj, "__qualname__", None) or str(obj))


class AnyClassHandler(Handler):
    """Chooses by the class itself: nodes for the project's, names for others."""

    is_inline = True
    of_nodes = ClassHandler()

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if is_library_class(obj):
            return (BY_NAME, obj.__module__, obj.__qualname__)
        return walk.node_token(obj, form, key, self.of_nodes)


def is_library_class(kind: type) -> bool:
    return not is_project_module(module_name(kind))


def _underlying(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value
