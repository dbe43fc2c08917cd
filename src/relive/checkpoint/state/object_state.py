"""State of objects of the project's classes: their data, attribute by attribute; and what counts as data."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import is_project_module, mutated_attributes, rebound_attributes
from relive.checkpoint.memory import Json, Unpicklable, is_leaf
from relive.checkpoint.state.loader_iterators import is_tracked_iterator
from relive.checkpoint.state.random_state import is_generator
from relive.checkpoint.state.state_handlers import Flatten, OtherState, RestoreSource, TensorlessHandler

MAX_VARIABLE_BYTES = 64 << 20
MAX_ITEMS = 200_000  # in a list or dict that is captured as data
MAX_OBJECTS = 64  # in a list or dict whose objects are captured one by one
_CONTENT = "(content)"  # the attribute name for the items of a subclass of list, dict or set
_STATELESS = (
    ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, io.IOBase, property, staticmethod, classmethod,
)  # fmt: skip
_DATA_MODULES = frozenset({"builtins", "collections", "numpy", "pathlib", "decimal", "datetime", "fractions", "uuid"})
_SIMPLE_TYPES = (bool, int, float, str, type(None))  # captured with the module
MISSING = object()
_SMALL_BYTES = 1 << 20  # values that may not be needed are captured up to this size
_SMALL_ITEMS = 1_000
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_BUILTIN_CONTAINERS = (list, dict, set)


def is_data(value: Any) -> bool:
    """Whether a value is a number, text, container, tensor or array, rather than code or a resource."""
    if isinstance(value, _STATELESS) or is_generator(value) or is_iterator(value):
        return False
    if is_leaf(value):
        return bool(value.nbytes <= MAX_VARIABLE_BYTES)
    if type(value).__module__ not in _DATA_MODULES:
        return False
    return not isinstance(value, list | dict | set | tuple) or len(value) <= MAX_ITEMS


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator, whose position can't be captured in general."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def is_untracked_iterator(value: Any) -> bool:
    """Whether a value is an iterator whose position can't be captured."""
    return is_iterator(value) and not is_tracked_iterator(value)


def is_small(value: Any, depth: int = 0) -> bool:
    """Whether a value is cheap enough to capture even if it may not be needed: numbers, short lists, small arrays."""
    if is_leaf(value):
        return bool(value.nbytes <= _SMALL_BYTES >> depth)
    if isinstance(value, _CONTAINERS):
        items = value.values() if isinstance(value, dict) else value
        limit = _SMALL_ITEMS >> 2 * depth
        return is_data(value) and len(value) <= limit and all(is_small(item, depth + 1) for item in list(items))
    if depth == 0 and is_user_object(value):
        return all(is_small(part, 1) for part in attributes_of(value).values())
    return value is None or (is_data(value) and (not hasattr(value, "__len__") or len(value) <= _SMALL_ITEMS))


def is_user_object(value: Any) -> bool:
    """Whether a value is an instance of a class of the project, such as a running average or a trainer."""
    if isinstance(value, _STATELESS) or _has_torch_handler(value):
        return False
    return is_project_module(type(value).__module__) and (hasattr(value, "__dict__") or bool(_slots(type(value))))


def _has_torch_handler(value: Any) -> bool:
    """Whether a value is a torch module, optimizer, scheduler or scaler, also of a subclass."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(value, "state_dict"):
        return False
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
    return isinstance(value, kinds)


def attributes_of(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object, including slots."""
    slots = {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for base in kind.__mro__:
        own = base.__dict__.get("__slots__", ())
        found += [own] if isinstance(own, str) else list(own)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def may_mutate(value: Any) -> bool:
    """Whether the project may mutate an attribute of this object after its creation."""
    mutable = mutable_attributes_of(type(value))
    return mutable is None or any(name in mutable for name in attributes_of(value))


def mutable_attributes_of(kind: type) -> frozenset[str] | None:
    """Returns the attributes of instances that may be mutated; None: any, since a base class is a library's."""
    bases = [base for base in kind.__mro__[:-1] if not is_project_module(base.__module__)]
    foreign = [base for base in bases if base.__module__ not in ("builtins", "abc", "typing", "enum")]
    return None if foreign else mutated_attributes()


class ObjectHandler(TensorlessHandler):
    """Captures the attributes of a project object that some method or function mutates."""

    kind = "object"

    def __init__(self, name: str, obj: Any) -> None:
        self._name = name
        self._object = obj
        self.uncaptured: list[str] = []

    def other_state(self, flatten: Flatten) -> OtherState:
        self.uncaptured = []
        mutable = mutable_attributes_of(type(self._object))
        trees: list[list[Any]] = []
        for name, value in self._parts(mutable):
            if is_data(value) and not has_too_many_objects(value):
                try:
                    trees.append([name, flatten(value, f"{self._name}.{name}")])
                except Unpicklable as error:
                    self.uncaptured.append(str(error))
            elif is_untracked_iterator(value):
                self.uncaptured.append(f"{self._name}.{name} is an iterator, whose position can't be kept")
        return {"$dict": trees}

    def _parts(self, mutable: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        for name, value in attributes_of(self._object).items():
            if mutable is None or name in mutable:
                yield name, value
        for kind in _BUILTIN_CONTAINERS:
            if isinstance(self._object, kind):
                yield _CONTENT, kind(self._object)

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        current, rebound = attributes_of(self._object), rebound_attributes()
        for name, value in source.unflatten(tree).items():
            if name == _CONTENT:
                _refill_container(self._object, value)
                continue
            before = current.get(name, MISSING)
            is_new = before is MISSING or (is_leaf(value) and (rebound is None or name in rebound))
            object.__setattr__(
                self._object, name, source.live_object_for(value) if is_new else source.refill(before, value)
            )


class ModuleAttributesHandler(ObjectHandler):
    """Captures what torch modules of the project hold besides parameters, buffers and simple attributes."""

    kind = "module attributes"

    def _parts(self, mutable: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        yield from extra_attributes(self._object).items()


def extra_attributes(module: Any) -> dict[str, Any]:
    """Returns the mutable attributes of a torch module that are neither torch's nor captured by `ModuleHandler`."""
    mutated, of_torch = mutated_attributes(), _module_attributes()
    return {
        name: value
        for name, value in vars(module).items()
        if name not in of_torch
        and (name in mutated if mutated is not None else name[0] != "_" or type(value) in _SIMPLE_TYPES)
        and (name[0] == "_" or type(value) not in _SIMPLE_TYPES)
    }


@lru_cache(maxsize=1)
def _module_attributes() -> frozenset[str]:
    """Returns the attributes that every torch module has."""
    return frozenset(vars(sys.modules["torch"].nn.Module()))


def _refill_container(obj: Any, content: Any) -> None:
    if isinstance(obj, list):
        obj[:] = content
    else:
        obj.clear()
        obj.update(content)


def has_too_many_objects(value: Any) -> bool:
    """Whether a container holds more than MAX_OBJECTS items, project objects among them: they are not captured."""
    return isinstance(value, _CONTAINERS) and len(value) > MAX_OBJECTS and _first_object(value) is not None


def has_uncaptured_objects(value: Any) -> bool:
    """Whether a container holds too many objects to capture, and the project may mutate them."""
    return has_too_many_objects(value) and may_mutate(_first_object(value))


def _first_object(value: Any) -> Any:
    items = list(value.values() if isinstance(value, dict) else value)[:MAX_OBJECTS]
    return next((item for item in items if is_user_object(item)), None)
