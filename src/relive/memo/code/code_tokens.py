"""How code, classes and inert objects are named inside the values that refer to them."""

from __future__ import annotations

import contextvars
import functools
import io
import logging
import threading
import types
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from relive.installation import PACKAGE_FOLDER
from relive.memo.code.code_ownership import is_own_class, is_own_function, module_name

ABSENT = object()
# Types of objects that results do not depend on.
INERT_TYPES = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore,
    logging.Logger, logging.LoggerAdapter, io.IOBase, Executor,
)  # fmt: skip
_STREAMS_IN_MEMORY = (io.StringIO, io.BytesIO)

Visit = Callable[[Any], object]


def substitute_code(value: Any, visit: Visit) -> object:
    """Returns the replacement for code inside a value that is hashed, or NotImplemented for other values.

    `visit` returns the token of one of the user's functions or classes; it is also called for the value's own classes.
    """
    if isinstance(value, types.FunctionType):
        return function_token(value, visit)
    if isinstance(value, type):
        return visit(value) if is_own_class(value) else f"class {qualified_label(value)}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    content = _special_content(value)
    if content is not NotImplemented:
        return content
    for kind in user_classes_of(value):
        visit(kind)
    return NotImplemented


def _special_content(value: Any) -> object:
    """Returns the content of objects of Python and torch that can't be pickled, or hold more than they would pickle."""
    if isinstance(value, _STREAMS_IN_MEMORY):
        return [qualified_label(type(value)), value.getvalue(), value.tell()] if not value.closed else "closed"
    if isinstance(value, INERT_TYPES):
        return f"inert {qualified_label(type(value))}"
    if isinstance(value, contextvars.ContextVar):
        found = value.get(ABSENT)
        return ["variable", value.name, "unset" if found is ABSENT else [found]]
    if isinstance(value, threading.local):
        return ["thread", dict(vars(value))]
    if isinstance(value, threading.Event):
        return ["event", value.is_set()]
    if isinstance(value, weakref.ReferenceType):
        return ["weak", value()]
    if isinstance(value, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):
        return ["weak", dict(value)]
    if getattr(type(value), "requires_grad", None) is not None and _is_trained_leaf(value):
        return ["trained", value.detach(), value.grad]
    return NotImplemented


def _is_trained_leaf(value: Any) -> bool:
    is_tensor = any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__)
    return is_tensor and bool(value.requires_grad) and bool(value.is_leaf)


def function_token(function: types.FunctionType, visit: Visit) -> object:
    if is_own_function(function) or has_library_closure(function):
        return visit(function)
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):  # a library's wrapper around a user's function
        return [f"wrapper {qualified_label(function)}", function_token(wrapped, visit)]
    return f"function {qualified_label(function)}"


def has_library_closure(function: types.FunctionType) -> bool:
    """Whether a function was made by a library around something of the user's: a dispatcher, a wrapper."""
    is_ours = function.__code__.co_filename.startswith(PACKAGE_FOLDER)
    return function.__closure__ is not None and not is_ours and "<locals>" in function.__code__.co_qualname


def user_classes_of(value: Any) -> list[type]:
    """Returns the user's own classes among the type of a value and, for a torch module, the types of its submodules."""
    is_network = any(base.__module__ == "torch.nn.modules.module" for base in type(value).__mro__)
    things = list(value.modules()) if is_network else [value]
    return [kind for kind in dict.fromkeys(map(type, things)) if is_own_class(kind)]


def qualified_label(thing: Any) -> str:
    """Returns `module.qualname`, by which a function, class or type is shown and keyed."""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    return f"{module_name(thing)}.{name}"


def cell_content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def is_significant_member(name: str, part: Any) -> bool:
    """Whether a class member affects what the class does; most dunder names are bookkeeping."""
    if name.startswith("__") and name.endswith("__"):
        is_made_up = isinstance(part, types.FunctionType) and part.__code__.co_filename.startswith("<")
        is_code = isinstance(part, types.FunctionType | classmethod | staticmethod | property)
        is_data = name in ("__dataclass_fields__", "__slots__", "__match_args__")
        return is_data or (is_code and not is_made_up and not name.startswith("__annotate"))
    return name not in ("_abc_impl", "_field_defaults") and not isinstance(part, types.MemberDescriptorType)


def member_parts(member: Any) -> list[Any]:
    if isinstance(member, property):
        return [member.fget, member.fset, member.fdel]
    if isinstance(member, functools.cached_property):
        return [member.func]
    if isinstance(member, dict) and member and all(type(v).__name__ == "Field" for v in member.values()):
        fields = [(name, str(one.type), str(one.compare)) for name, one in member.items()]
        return [fields, *(part for one in member.values() for part in (one.default, one.default_factory))]
    return [getattr(member, "__func__", member)]
